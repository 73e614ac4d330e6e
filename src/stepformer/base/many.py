"""The same work over many inputs in many processes, where one bad input never stops the rest."""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Generic, TypeVar

from stepformer.base.progress import Progress
from stepformer.errors import StepFormerError

Item = TypeVar("Item")
Value = TypeVar("Value")

DIED = "the process that worked on it died (out of memory, or a decoder crash)"
_MEMORY_BYTES = 16 << 30  # the largest speech model has six; four fifths of the machine where that is less
_POLITE_S = 10.0  # after SIGTERM a process may finish writing what it has


@dataclass(frozen=True, slots=True)
class Outcome(Generic[Item, Value]):
    """What became of one input: a ``value``, or an ``error`` sentence and its exit code."""

    item: Item
    value: Value | None = None
    error: str | None = None
    exit_code: int = 0

    def result(self) -> Value:
        """The value; an error is raised, with its exit code."""
        if self.error is not None:
            error = StepFormerError(self.error)
            error.exit_code = self.exit_code
            raise error
        return self.value  # type: ignore[return-value]


def own(error: BaseException) -> StepFormerError:
    """An error as one sentence, which can be sent to another process, whatever the library that raised it."""
    if isinstance(error, StepFormerError):
        return error
    if isinstance(error, OSError) and error.strerror:
        return StepFormerError(f"{error.filename}: {error.strerror}" if error.filename else error.strerror)
    if isinstance(error, MemoryError):
        return StepFormerError("it needs more memory than one input may use")
    return StepFormerError(f"{type(error).__name__}: {error}")


def failure(item: Item, error: BaseException) -> Outcome[Item, Any]:
    """The outcome of an input that failed."""
    ours = own(error)
    return Outcome(item, error=str(ours), exit_code=ours.exit_code)


def given_up(time_limit_s: float) -> StepFormerError:
    """The error of an input that took too long."""
    return StepFormerError(f"it was given up after {time_limit_s:g} s, the time limit")


def answer_of(work: Callable[[Any], Any], item: Any) -> tuple[str, Any]:
    """What a worker sends back: ("value", result) or ("error", error)."""
    try:
        return "value", work(item)
    except Exception as error:
        return "error", own(error)


def run_many(
    work: Callable[[Item], Value],
    items: Iterable[Item],
    jobs: int = 1,
    initializer: Callable[..., Any] | None = None,
    initargs: tuple[Any, ...] = (),
    time_limit_s: float | None = None,
    *,
    apart: bool = False,
    noted: Callable[[Item, Any], None] | None = None,
    silence_s: float | None = None,
    memory_bytes: int | None = None,
    preload: tuple[str, ...] = ("torch",),
    until: float = math.inf,
    polite_s: float = _POLITE_S,
) -> Generator[Outcome[Item, Value], None, None]:
    """Outcomes in the order in which they finish. ``jobs=1`` without a limit works in this process, unless ``apart``.

    A process that dies (a crash in a decoder, out of memory), works on one input for more than ``time_limit_s`` seconds
    or sends no :func:`note` of it for ``silence_s``, fails that input alone; another takes its place. One that has
    started may use ``memory_bytes`` more (:func:`most_memory` where none is given). ``noted`` is called with an input
    and what its process notes of it. ``preload``: modules that all processes need, imported once. An error of the
    ``initializer`` is raised here. At the time ``until`` (of ``time.monotonic``) unfinished inputs are abandoned:
    processes are stopped as by Ctrl-C, and have ``polite_s`` seconds for it.
    """
    if jobs <= 1 and time_limit_s is None and not apart:
        if initializer is not None:
            initializer(*initargs)
        outer = _notes[0]
        for item in items:
            _notes[0] = outer if noted is None else partial(noted, item)
            try:
                outcome = Outcome(item, value=work(item))
            except Exception as error:
                outcome = failure(item, error)
            finally:
                _notes[0] = outer  # here, because the caller may stop before the last
            yield outcome
        return

    # cores shared out: processes with a thread per core each would wait for one another
    threads = int(os.environ.get("OMP_NUM_THREADS") or max(1, cores() // max(jobs, 1)))
    memory = memory_bytes or most_memory()
    given = (dict(os.environ), Progress.silent, threads, memory, work, initializer, initargs)
    start = partial(_Hand, context=_context(preload), given=given, time_limit_s=time_limit_s, silence_s=silence_s)
    queue = iter(items)
    hands: list[_Hand] = []
    try:
        while True:
            for item in islice(queue, max(jobs, 1) - len(hands)):
                hands.append(start(item))
            if not hands:
                return
            now = time.monotonic()
            if now > until:
                return
            left_s = min([until, *(hand.given_up()[0] for hand in hands if hand.busy)]) - now
            ready = wait([hand.pipe for hand in hands], min(max(0.0, left_s), 3600.0))  # a clock has an end
            for hand in list(hands):
                if hand.pipe in ready:
                    try:
                        kind, value = hand.pipe.recv()
                    except (EOFError, OSError):
                        hands.remove(hand)
                        hand.end()
                        yield failure(hand.item, StepFormerError(DIED))
                        continue
                    if kind == "broken":
                        raise value
                    if kind == "ready":
                        hand.begin()
                        continue
                    if kind == "note":
                        hand.heard = time.monotonic()
                        if noted is not None:
                            noted(hand.item, value)
                        continue
                    hand.busy = False
                    yield Outcome(hand.item, value) if kind == "value" else failure(hand.item, value)
                    for hand.item in islice(queue, 1):
                        hand.begin()
                    if not hand.busy:  # nothing is left to do
                        hands.remove(hand)
                        hand.end()
                elif hand.busy and time.monotonic() > (late := hand.given_up())[0]:
                    hands.remove(hand)
                    hand.end()
                    yield failure(hand.item, late[1])
    finally:
        for hand in hands:
            hand.end(polite_s)


def _context(preload: tuple[str, ...]) -> Any:
    """How processes start: not by a fork of this one, whose threads (torch, numba) would not survive it.

    Where there is one, a server that has imported ``preload`` and done nothing else forks them: imports are most of
    what a start costs, and on a folder of small videos most of the work. (A server that runs stays as it is.)
    """
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(preload))
    return context


class _Hand:
    """A process that works on one input at a time."""

    def __init__(
        self, item: Any, context: Any, given: tuple[Any, ...], time_limit_s: float | None, silence_s: float | None
    ) -> None:
        self.item, self.busy, self.since, self.heard = item, False, 0.0, 0.0
        self._time_limit_s, self._silence_s = time_limit_s, silence_s
        self.pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, *given))
        self._process.start()
        theirs.close()

    def begin(self) -> None:
        """Hands the input over; the time limit counts from here."""
        self.busy, self.since = True, time.monotonic()
        self.heard = self.since
        with suppress(OSError):  # it has died: receiving says so
            self.pipe.send((self.item,))

    def given_up(self) -> tuple[float, StepFormerError]:
        """When the input is cancelled, by the clock of this machine, and the error then."""
        late = [(self.since + self._time_limit_s, given_up(self._time_limit_s))] if self._time_limit_s else []
        if self._silence_s:
            silent = f"it was given up: nothing more was read of it for {self._silence_s / 60:g} minutes"
            late.append((self.heard + self._silence_s, StepFormerError(silent)))
        return min(late, key=lambda one: one[0], default=(math.inf, StepFormerError("")))

    def end(self, polite_s: float = _POLITE_S) -> None:
        """Stops the process: idle at once, at work as by Ctrl-C, and by force if it does not listen."""
        with suppress(OSError):
            if not self.busy:
                self.pipe.send(())  # a forked process holds both ends of the pipe, and never sees it close
            elif self._process.pid is not None and self._process.is_alive():
                os.kill(self._process.pid, signal.SIGINT)
        self.pipe.close()
        self._process.join(polite_s)
        self._process.kill()
        self._process.join()


def cores() -> int:
    """How many processors this process may use: more workers than that only take turns."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not Linux
        return os.cpu_count() or 1


def limit_threads(count: int) -> None:
    """For libraries that are loaded later, and for torch where it is here already; at most 1024."""
    count = min(count, 1024)  # torch starts any number of threads that it is given
    for name in ("OMP", "OPENBLAS", "MKL", "NUMBA"):
        os.environ[f"{name}_NUM_THREADS"] = str(count)
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(count)


def most_memory() -> int:
    """Bytes that work on one input may add to what its process holds when it begins."""
    try:
        return min(_MEMORY_BYTES, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * 4 // 5)
    except (AttributeError, ValueError, OSError):  # no such numbers here (Windows), and no limits either
        return _MEMORY_BYTES


def _limit_memory(more: int) -> None:
    """A process that a damaged file makes grow is refused memory before the machine runs out of it."""
    try:
        import resource

        used = int(Path("/proc/self/statm").read_text("ascii").split()[5]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_DATA, (used + more, resource.getrlimit(resource.RLIMIT_DATA)[1]))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    except (ImportError, ValueError, OSError):
        pass  # not Linux: time limits remain


def end_with_parent() -> None:
    """From a process started by multiprocessing: it stops as by Ctrl-C when its parent dies, and by force if that does
    not help. The end of a pipe would not tell: work reads it when it is done, and a forked process holds both ends."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(_POLITE_S)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


_notes: list[Any] = [None, 0.0]  # while run_many works here: who hears notes, and when the last was sent


def note(value: Any) -> None:
    """From work of :func:`run_many`: says how far it is. At most ten times a second; elsewhere nothing."""
    now = time.monotonic()
    if _notes[0] is not None and now - _notes[1] > 0.1:
        _notes[1] = now
        _notes[0](value)


def _serve(
    pipe: Connection,
    environment: dict[str, str],
    silent: bool,
    threads: int,
    memory: int,
    work: Callable[[Any], Any],
    initializer: Any,
    initargs: tuple[Any, ...],
) -> None:
    """In the process: inputs in, ("value", result) or ("error", error) out, until the pipe is closed."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background of a script it is ignored
    end_with_parent()
    os.environ.clear()  # the server's is that of the first start
    os.environ.update(environment)
    Progress.silent = silent
    limit_threads(threads)
    _notes[0] = lambda value: pipe.send(("note", value))
    try:
        try:
            if initializer is not None:
                initializer(*initargs)
        except Exception as error:
            pipe.send(("broken", own(error)))
            return
        _limit_memory(memory)
        pipe.send(("ready", None))
        while given := pipe.recv():
            pipe.send(answer_of(work, *given))
    except (EOFError, BrokenPipeError, ConnectionResetError, KeyboardInterrupt):
        return
