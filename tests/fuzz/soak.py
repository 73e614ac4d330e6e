"""``make soak``: mutated files of every kind until the number of cases is reached, one table at the end.

    python tests/fuzz/soak.py --cases 1000000 --jobs 2

Exits with 1 if anything but a result or a documented error came out of a reader. Cases are numbered, so a fault is seen
again with ``--only READER --first N --cases 1``.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import resource
import sys
import tempfile
import time
from collections import Counter
from datetime import date
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from mutate import mutated
from readers import TIME_S, readers


def work(name: str, first: int, cases: int) -> tuple[str, Counter[str], list[str], float, int]:
    """One reader's cases: how they ended, what went wrong, the slowest in seconds, peak memory in MiB."""
    ended: Counter[str] = Counter()
    faults: list[str] = []
    slowest = 0.0
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        reader = next(one for one in readers(folder) if one.name == name)
        for case in range(first, first + cases):
            data = mutated(reader.seed, random.Random(f"{name} {case}"))
            began = time.process_time()
            try:
                ended[reader.try_on(data, folder / "case")] += 1
            except Exception as error:
                ended["fault"] += 1
                faults.append(f"{name} case {case}: {type(error).__name__}: {str(error)[:120]}")
            took = time.process_time() - began
            slowest = max(slowest, took)
            if took > TIME_S:
                ended["fault"] += 1
                faults.append(f"{name} case {case}: {took:.1f} s")
    return name, ended, faults, slowest, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


def main() -> int:
    """Runs all readers and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=100_000, help="cases in all (default: 100000)")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default: 2)")
    parser.add_argument("--first", type=int, default=0, help="number of the first case (default: 0)")
    parser.add_argument("--only", help="one reader by name")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        names = [reader.name for reader in readers(Path(place)) if args.only in (None, reader.name)]
    each = max(1, args.cases // len(names))
    total, all_faults, peak = Counter(), [], 0
    print(f"{'reader':<22}{'cases':>9}{'read':>9}{'refused':>9}{'else':>6}{'slowest s':>11}{'peak MiB':>10}")
    with multiprocessing.get_context("spawn").Pool(args.jobs, maxtasksperchild=1) as pool:
        jobs = [pool.apply_async(work, (name, args.first, each)) for name in names]
        for job in jobs:
            name, ended, faults, slowest, memory = job.get()
            total += ended
            all_faults += faults
            peak = max(peak, memory)
            cases = ended["ok"] + ended["refused"] + ended["fault"]
            print(
                f"{name:<22}{cases:>9}{ended['ok']:>9}{ended['refused']:>9}{ended['fault']:>6}{slowest:>11.2f}{memory:>10}"
            )
    print("\n".join(all_faults[:50]))
    print(
        f"{date.today()}: {total.total()} cases, {len(names)} readers, {total['refused']} documented errors, "
        f"{total['fault']} anything else, peak {peak} MiB"
    )
    return 1 if total["fault"] else 0


if __name__ == "__main__":
    sys.exit(main())
