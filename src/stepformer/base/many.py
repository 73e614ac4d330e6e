"""The same work over many inputs in many processes, where one bad input never stops the rest."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, Generic, TypeVar

from stepformer.errors import StepFormerError

Item = TypeVar("Item")
Value = TypeVar("Value")

DIED = "the process that worked on it died (out of memory, or a decoder crash)"
_POLITE_S = 10.0  # a process that is told to stop may finish writing what it has


@dataclass(frozen=True, slots=True)
class Outcome(Generic[Item, Value]):
    """What became of one input: a ``value``, or an ``error`` sentence and its exit code."""

    item: Item
    value: Value | None = None
    error: str | None = None
    exit_code: int = 0


def sentence(error: BaseException) -> str:
    """An error as one sentence for a list of failures."""
    if isinstance(error, OSError) and not isinstance(error, StepFormerError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error) if isinstance(error, StepFormerError) else f"{type(error).__name__}: {error}"


def own(error: BaseException) -> StepFormerError:
    """An error that can be sent to another process, whatever the library that raised it."""
    return error if isinstance(error, StepFormerError) else StepFormerError(sentence(error))


def failure(item: Item, error: BaseException) -> Outcome[Item, Any]:
    """The outcome of an input that failed."""
    return Outcome(item, error=sentence(error), exit_code=own(error).exit_code)


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
) -> Iterator[Outcome[Item, Value]]:
    """Outcomes in the order in which they finish. ``jobs=1`` without a limit works in this process.

    A process that dies (a crash in a decoder, out of memory), or works on one input for more than ``time_limit_s``
    seconds and is ended for it, fails that input alone; another takes its place. An error of the ``initializer`` is
    raised here.
    """
    if jobs <= 1 and time_limit_s is None:
        if initializer is not None:
            initializer(*initargs)
        for item in items:
            try:
                yield Outcome(item, value=work(item))
            except Exception as error:
                yield failure(item, error)
        return

    # cores shared out: processes with a thread per core each would wait for one another
    threads = int(os.environ.get("OMP_NUM_THREADS") or max(1, (os.cpu_count() or 1) // max(jobs, 1)))
    queue = iter(items)
    hands: list[_Hand] = []
    done = False
    try:
        while True:
            while not done and len(hands) < max(jobs, 1):
                try:
                    first = next(queue)
                except StopIteration:
                    done = True
                    break
                hands.append(_Hand(first, threads, work, initializer, initargs))
            if not hands:
                return
            now = time.monotonic()
            left_s = [hand.since + time_limit_s - now for hand in hands if hand.busy] if time_limit_s else []
            ready = wait([hand.pipe for hand in hands], max(0.0, min(left_s)) if left_s else None)
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
                    hand.busy = False
                    yield Outcome(hand.item, value) if kind == "value" else failure(hand.item, value)
                    try:
                        hand.item = next(queue)
                        hand.begin()
                    except StopIteration:
                        done = True
                        hands.remove(hand)
                        hand.end()
                elif time_limit_s and hand.busy and time.monotonic() - hand.since > time_limit_s:
                    hands.remove(hand)
                    hand.end()
                    yield failure(hand.item, given_up(time_limit_s))
    finally:
        for hand in hands:
            hand.end()


def _context() -> Any:
    """How processes start: not by a fork of this one, whose threads (torch, numba) would not survive it.

    Where there is one, a server that has imported torch and done nothing else forks them: the import is most of what a
    start costs, and on a folder of small videos most of the work.
    """
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch"])
    return context


class _Hand:
    """A process that works on one input at a time."""

    def __init__(
        self, item: Any, threads: int, work: Callable[..., Any], initializer: Any, initargs: tuple[Any, ...]
    ) -> None:
        context = _context()
        self.item, self.busy, self.since = item, False, 0.0
        self.pipe, theirs = context.Pipe()
        given = (theirs, dict(os.environ), threads, work, initializer, initargs)
        self._process = context.Process(target=_serve, args=given)
        self._process.start()
        theirs.close()

    def begin(self) -> None:
        """Hands the input over; the time limit counts from here."""
        self.busy, self.since = True, time.monotonic()
        with suppress(OSError):  # it has died: receiving says so
            self.pipe.send(self.item)

    def end(self) -> None:
        """Stops the process: idle at once, at work as by Ctrl-C, and by force if it does not listen."""
        self.pipe.close()
        if self.busy and self._process.pid is not None and self._process.is_alive():
            with suppress(OSError):
                os.kill(self._process.pid, signal.SIGINT)
        self._process.join(_POLITE_S)
        self._process.kill()
        self._process.join()


def limit_threads(count: int) -> None:
    """For libraries that are loaded later, and for torch where it is here already."""
    for name in ("OMP", "OPENBLAS", "MKL", "NUMBA"):
        os.environ[f"{name}_NUM_THREADS"] = str(count)
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(count)


def _serve(
    pipe: Connection,
    environment: dict[str, str],
    threads: int,
    work: Callable[[Any], Any],
    initializer: Any,
    initargs: tuple[Any, ...],
) -> None:
    """In the process: inputs in, ("value", result) or ("error", error) out, until nobody asks for more."""
    os.environ.clear()  # the server's is that of the first start
    os.environ.update(environment)
    limit_threads(threads)
    try:
        try:
            if initializer is not None:
                initializer(*initargs)
        except Exception as error:
            pipe.send(("broken", own(error)))
            return
        pipe.send(("ready", None))
        while True:
            pipe.send(answer_of(work, pipe.recv()))
    except (EOFError, BrokenPipeError, ConnectionResetError, KeyboardInterrupt):
        return
