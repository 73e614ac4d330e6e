"""``make soak``: mutated files of every kind, kills, requests; one table at the end.

    python tests/fuzz/soak.py --cases 1000000 --kills 200 --jobs 2

Exits with 1 if a reader gave anything but a result or a documented error, took more than its time or memory, crashed or
hung; if work was lost or repeated by a kill; or if a request failed. Cases are numbered, so a fault is seen again with
``--only READER --first N --cases 1 --kills 0 --requests 0``.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import functools
import json
import resource
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
import warnings
from collections import Counter
from datetime import date
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from mutate import variant
from readers import MEMORY_BYTES, TIME_S, Reader, readers

from stepformer.base.many import run_many

_SLICE = 2000  # cases in one piece of work: what a crash costs, and what a hang is looked for in
_STUCK_S = 900.0


@functools.cache
def known() -> dict[str, Reader]:
    """The readers by name, their seeds made once per process."""
    with tempfile.TemporaryDirectory() as place:
        return {reader.name: reader for reader in readers(Path(place))}


def work(item: tuple[str, int, int]) -> tuple[Counter[str], list[str], float, int]:
    """Cases of one reader: how they ended, what went wrong, the slowest in seconds, peak memory in MiB."""
    warnings.simplefilter("ignore")  # libraries warn of much in damaged files
    name, first, cases = item
    ended: Counter[str] = Counter()
    faults: list[str] = []
    slowest = 0.0
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        reader = known()[name]
        for case in range(first, first + cases):
            data = variant(reader.seed, name, case)
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
            began = time.process_time()
            wrong = ""
            try:
                how = reader.try_on(data, folder / "case")
            except Exception as error:
                how, wrong = "fault", f"{type(error).__name__}: {str(error)[:120]}"
            took = time.process_time() - began
            slowest = max(slowest, took)
            grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10) - before
            if took > TIME_S:
                how, wrong = "fault", f"{took:.1f} s"
            elif grown > MEMORY_BYTES:
                how, wrong = "fault", f"{grown >> 20} MiB"
            ended[how] += 1
            if wrong:
                faults.append(f"{name} case {case}: {wrong}")
    return ended, faults, slowest, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


def requests(count: int) -> int:
    """How many of so many requests to the viewer, from a hundred clients at once, failed."""
    from stepformer.show.viewer import Page, address, serve

    with tempfile.TemporaryDirectory() as place:
        video = Path(place) / "a.mp4"
        content = bytes(range(256)) * 4000
        video.write_bytes(content)
        server = serve(Page(b"page", video))
        threading.Thread(target=server.serve_forever, daemon=True).start()

        def ask(i: int) -> bool:
            at = i % 9000 * 100
            span = {"Range": f"bytes={at}-{at + 999}"}
            try:
                request = urllib.request.Request(address(server) + "a.mp4", headers=span)
                with urllib.request.urlopen(request, timeout=60) as part:
                    return bool(part.read() == content[at : at + 1000])
            except OSError:
                return False

        try:
            with concurrent.futures.ThreadPoolExecutor(100) as pool:
                return count - sum(pool.map(ask, range(count)))
        finally:
            server.shutdown()
            server.server_close()


def main() -> int:
    """Runs everything and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=100_000, help="cases in all (default: 100000)")
    parser.add_argument("--kills", type=int, default=200, help="kills of commands at work (default: 200)")
    parser.add_argument("--requests", type=int, default=5000, help="requests to the viewer (default: 5000)")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default: 2)")
    parser.add_argument("--first", type=int, default=0, help="number of the first case (default: 0)")
    parser.add_argument("--only", help="one reader by name")
    args = parser.parse_args()
    names = [name for name in known() if args.only in (None, name)]
    each = max(1, args.cases // len(names))
    last = args.first + each
    items = [(name, at, min(_SLICE, last - at)) for name in names for at in range(args.first, last, _SLICE)]
    by_name: dict[str, Counter[str]] = {name: Counter() for name in names}
    slowest: dict[str, float] = dict.fromkeys(names, 0.0)
    peak: dict[str, int] = dict.fromkeys(names, 0)
    faults: list[str] = []
    for outcome in run_many(work, items, max(2, args.jobs), time_limit_s=_STUCK_S):
        name, first, cases = outcome.item
        if outcome.value is None:
            by_name[name]["fault"] += 1
            faults.append(f"{name} cases {first} to {first + cases - 1}: {outcome.error}")
            continue
        ended, wrong, slow, memory = outcome.value
        by_name[name] += ended
        faults += wrong
        slowest[name], peak[name] = max(slowest[name], slow), max(peak[name], memory)
    print(f"{'reader':<24}{'cases':>9}{'read':>9}{'refused':>9}{'else':>6}{'slowest s':>11}{'peak MiB':>10}")
    for name, ended in by_name.items():
        row = f"{name:<24}{ended.total():>9}{ended['ok']:>9}{ended['refused']:>9}{ended['fault']:>6}"
        print(f"{row}{slowest[name]:>11.2f}{peak[name]:>10}")
    killed = {"kills": 0, "lost": 0, "repeated": 0, "faults": []}
    if args.kills:
        command = [sys.executable, str(Path(__file__).with_name("kills.py")), "--kills", str(args.kills)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        try:
            killed = json.loads(done.stdout)
        except ValueError:
            faults.append(f"the kill loop itself failed: {done.stderr[-500:]}")
    failed = requests(args.requests) if args.requests else 0
    faults += killed["faults"]
    print("\n".join(faults[:50]))
    total = sum(by_name.values(), Counter())
    print(
        f"{date.today()}: {len(names)} readers, {total.total():,} cases, {total['refused']:,} documented errors, "
        f"{total['fault'] + len(killed['faults'])} anything else, {killed['kills']} kills, {killed['lost']} work lost, "
        f"{killed['repeated']} work repeated, peak {max(peak.values())} MiB, {args.requests} requests, {failed} failed"
    )
    return 1 if faults or killed["lost"] or killed["repeated"] or failed else 0


if __name__ == "__main__":
    sys.exit(main())
