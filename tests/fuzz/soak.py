"""``make soak``: mutated files of every kind, kills, requests; one table at the end.

    python tests/fuzz/soak.py --cases 1000000 --kills 200

Exits with 1 if a reader gave anything but a result or a documented error, took more than its time or memory, crashed or
hung; if work was lost or repeated by a kill; or if a request failed. Cases are numbered and the same on every machine:
a fault is seen again with ``--only READER --first N --cases 1``.

A soak that was stopped goes on where it was (``--state FILE``); a reader with a fault begins anew. Cases tried before
the code was changed count, but the table says how many they are; ``--again`` tries them on the code as it is now.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import functools
import hashlib
import json
import mmap
import os
import resource
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"  # threads do not survive a fork
sys.path.insert(0, str(Path(__file__).parent))
from mutate import variant
from readers import MEMORY_BYTES, TIME_S, Reader, readers

ROOT = Path(__file__).parents[2]
_SLICE = 1000  # cases of one process; a slow reader has a twentieth
_SLOW = 3000  # cases of each slow reader in a soak of a million
_STUCK_S = 300.0  # by the clock: waiting for something that does not come
_NOTE = struct.Struct("<qqqdq")  # the case at work, read, refused, the slowest in s, peak in MiB


@dataclass
class Row:
    """What is known of one reader. ``done``: cases from the first on; ``earlier``: of them on earlier code."""

    done: int = 0
    read: int = 0
    refused: int = 0
    slowest_s: float = 0.0
    peak_mib: int = 0
    earlier: int = 0
    faults: list[str] = field(default_factory=list)


@dataclass
class State:
    """All that a soak has found so far; kept after every slice."""

    code: str = ""
    rows: dict[str, Row] = field(default_factory=dict)
    kills: dict[str, object] = field(default_factory=dict)
    requests: int = 0
    failed: int = 0

    @classmethod
    def kept(cls, path: Path | None) -> State:
        """As the file has it."""
        if path is None or not path.exists():
            return cls()
        values = json.loads(path.read_text())
        return cls(**values | {"rows": {name: Row(**row) for name, row in values["rows"].items()}})

    def keep(self, path: Path | None) -> None:
        """Writes the file, beside and renamed."""
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.with_suffix(".partial").write_text(json.dumps(asdict(self), indent=1))
            path.with_suffix(".partial").replace(path)


def code_now() -> str:
    """A digest of the product's code: a case counts for the code that it was tried on."""
    digest = hashlib.sha256()
    for path in sorted((ROOT / "src").rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def try_cases(reader: Reader, cases: range, scratch: Path, note: mmap.mmap, faults: int) -> None:
    """In a process of its own: tries cases and notes how far it is, for the one who waits should it die."""
    warnings.simplefilter("ignore")  # libraries warn of much in damaged files
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    used = int(Path("/proc/self/statm").read_text().split()[5]) * mmap.PAGESIZE
    resource.setrlimit(resource.RLIMIT_DATA, (used + 4 * MEMORY_BYTES,) * 2)
    read = refused = 0
    slowest, peak = 0.0, 0
    if reader.try_on(reader.seed, scratch) != "ok":  # else everything is refused, and nothing is tried
        os.write(faults, (json.dumps(f"{reader.name}: the good file is refused") + "\n").encode())
    for case in cases:
        note[:] = _NOTE.pack(case, read, refused, slowest, peak)
        data = variant(reader.seed, reader.name, case)
        before = _peak_bytes(anew=True)
        # what does not come back is ended by these, wherever in a library it is
        signal.setitimer(signal.ITIMER_PROF, 2 * TIME_S)
        signal.alarm(int(_STUCK_S))
        began = time.process_time()
        wrong = ""
        try:
            if reader.try_on(data, scratch) == "ok":
                read += 1
            else:
                refused += 1
        except Exception as error:
            wrong = f"{type(error).__name__}: {str(error)[:200]}"
        took = time.process_time() - began
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)
        grown = _peak_bytes() - before
        slowest, peak = max(slowest, took), max(peak, grown >> 20)
        if not wrong and took > TIME_S:
            wrong = f"{took:.1f} s"
        elif not wrong and grown > MEMORY_BYTES:
            wrong = f"{grown >> 20} MiB"
        if wrong:
            os.write(faults, (json.dumps(f"{reader.name} case {case}: {wrong}") + "\n").encode())
    note[:] = _NOTE.pack(cases.stop, read, refused, slowest, peak)


def _peak_bytes(anew: bool = False) -> int:
    """The most memory that this process has had; ``anew``: counted from now on."""
    if anew:
        Path("/proc/self/clear_refs").write_text("5")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def run_slice(reader: Reader, cases: range, scratch: Path) -> Row:
    """What came of some cases; a process that dies has its case as a fault, and the next goes on behind it."""
    row = Row()
    at = cases.start
    with mmap.mmap(-1, _NOTE.size) as note, tempfile.TemporaryFile() as faults:
        while at < cases.stop:
            child = os.fork()
            if not child:
                code = 70
                with contextlib.suppress(BaseException):
                    try_cases(reader, range(at, cases.stop), scratch, note, faults.fileno())
                    code = 0
                os._exit(code)
            _, status = os.waitpid(child, 0)
            at, read, refused, slowest, peak = _NOTE.unpack(note[:])
            row.read, row.refused = row.read + read, row.refused + refused
            row.slowest_s, row.peak_mib = max(row.slowest_s, slowest), max(row.peak_mib, peak)
            if status:
                code = os.waitstatus_to_exitcode(status)
                how = {-signal.SIGPROF: f"more than {2 * TIME_S:g} s", -signal.SIGALRM: "it hangs"}
                row.faults.append(f"{reader.name} case {at}: {how.get(code, f'the process ended with {code}')}")
                at += 1
        faults.seek(0)
        row.faults += [json.loads(line) for line in faults]
    row.done = len(cases)
    return row


def shares(names: dict[str, Reader], cases: int) -> dict[str, int]:
    """How many cases each reader has: slow ones few, the others what is left in equal parts."""
    slow = sum(reader.slow for reader in names.values())
    few = min(max(1, cases * _SLOW // 1_000_000), cases // len(names)) if slow < len(names) else cases // slow
    rest = cases - few * slow
    quick = [name for name, reader in names.items() if not reader.slow]
    counts = dict.fromkeys(names, few)
    for number, name in enumerate(quick):
        counts[name] = rest // len(quick) + (number < rest % len(quick))
    return counts


def slices(state: State, counts: dict[str, int], first: int, names: dict[str, Reader]) -> Iterator[tuple[str, range]]:
    """The cases left to do, a slice of each reader in turn, so that a fault in any of them is seen early."""
    while True:
        left = [name for name in counts if state.rows[name].done < counts[name]]
        if not left:
            return
        for name in left:
            start = first + state.rows[name].done
            size = _SLICE // 20 if names[name].slow else _SLICE
            yield name, range(start, min(start + size, first + counts[name]))


def requests(count: int) -> int:
    """How many of these requests to the viewer, from 500 clients at once, failed."""
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
            with concurrent.futures.ThreadPoolExecutor(500) as pool:
                return count - sum(pool.map(ask, range(count)))
        finally:
            server.shutdown()
            server.server_close()


def kill(count: int) -> dict[str, object]:
    """What the kill loop finds."""
    command = [sys.executable, str(Path(__file__).with_name("kills.py")), "--kills", str(count)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        found: dict[str, object] = json.loads(done.stdout)
    except ValueError:
        found = {"kills": 0, "lost": 0, "repeated": 0, "faults": [f"the kill loop itself failed: {done.stderr[-500:]}"]}
    return found


def table(state: State, counts: dict[str, int]) -> str:
    """The one table."""
    lines = [f"{'reader':<24}{'cases':>9}{'read':>9}{'refused':>9}{'else':>6}{'slowest s':>11}{'grew MiB':>10}"]
    rows = {name: state.rows[name] for name in counts}
    for name, row in rows.items():
        line = f"{name:<24}{row.done:>9}{row.read:>9}{row.refused:>9}{len(row.faults):>6}"
        lines.append(f"{line}{row.slowest_s:>11.2f}{row.peak_mib:>10}")
    killed = {"kills": 0, "lost": 0, "repeated": 0, "faults": []} | state.kills
    faults = [*(text for row in rows.values() for text in row.faults), *killed["faults"]]  # type: ignore[misc]
    lines += faults[:50]
    earlier = sum(row.earlier for row in rows.values())
    lines.append(
        f"{date.today()}: {len(rows)} readers, {sum(row.done for row in rows.values()):,} cases"
        + (f" ({earlier:,} of them on earlier code)" if earlier else "")
        + f", {sum(row.refused for row in rows.values()):,} documented errors, {none('other failure', len(faults))}; "
        f"{killed['kills']} kills, {none('work lost', killed['lost'])}, {none('work repeated', killed['repeated'])}; "
        f"peak {max(row.peak_mib for row in rows.values())} MiB for a file; "
        f"{state.requests} requests of 500 clients, {state.failed or 'none'} failed"
    )
    return "\n".join(lines)


def none(what: str, count: object) -> str:
    """``no work lost``, or ``work lost: 3``."""
    return f"{what}: {count}" if count else f"no {what}"


@functools.cache
def known() -> dict[str, Reader]:
    """The readers by name."""
    with tempfile.TemporaryDirectory() as place:
        return {reader.name: reader for reader in readers(Path(place))}


def main() -> int:
    """Runs everything and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=100_000, help="cases in all (default: 100000)")
    parser.add_argument("--kills", type=int, default=0, help="kills of commands at work")
    parser.add_argument("--requests", type=int, default=0, help="requests to the viewer")
    parser.add_argument("--first", type=int, default=0, help="number of each reader's first case (default: 0)")
    parser.add_argument("--only", help="one reader by name")
    parser.add_argument("--state", type=Path, help="file that keeps what was found; a stopped soak goes on from it")
    parser.add_argument("--again", action="store_true", help="try cases of earlier code once more")
    args = parser.parse_args()
    names = {name: reader for name, reader in known().items() if args.only in (None, name)}
    counts = shares(names, args.cases)
    state, code = State.kept(args.state), code_now()
    for name in names:
        row = state.rows.setdefault(name, Row())
        if state.code != code:
            row.earlier = row.done
        if row.faults or (args.again and row.earlier):
            state.rows[name] = Row()
    state.code = code
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else None) as place:
        for name, cases in slices(state, counts, args.first, names):
            found, row = run_slice(names[name], cases, Path(place) / name.replace(" ", "_")), state.rows[name]
            row.done, row.read, row.refused = row.done + found.done, row.read + found.read, row.refused + found.refused
            row.slowest_s, row.peak_mib = max(row.slowest_s, found.slowest_s), max(row.peak_mib, found.peak_mib)
            row.faults += found.faults
            for text in found.faults:
                print(text, file=sys.stderr, flush=True)
            state.keep(args.state)
    if args.kills and state.kills.get("kills", 0) != args.kills:
        state.kills = kill(args.kills)
        state.keep(args.state)
    if args.requests and state.requests != args.requests:
        state.requests, state.failed = args.requests, requests(args.requests)
        state.keep(args.state)
    print(table(state, counts))
    bad = any(row.faults for row in state.rows.values()) or any(map(state.kills.get, ("lost", "repeated", "faults")))
    return 1 if bad or state.failed else 0


if __name__ == "__main__":
    sys.exit(main())
