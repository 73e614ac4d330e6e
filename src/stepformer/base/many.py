"""The same work over many inputs in many processes, where one bad input never stops the rest."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from stepformer.errors import StepFormerError

Item = TypeVar("Item")
Value = TypeVar("Value")

_AHEAD = 4  # tasks queued per process: enough to keep it busy, few enough to bound memory


@dataclass(frozen=True, slots=True)
class Outcome(Generic[Item, Value]):
    """What became of one input: a ``value``, or an ``error`` sentence."""

    item: Item
    value: Value | None = None
    error: str | None = None


def sentence(error: BaseException) -> str:
    """An error as one sentence for a list of failures."""
    if isinstance(error, OSError) and not isinstance(error, StepFormerError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error) if isinstance(error, StepFormerError) else f"{type(error).__name__}: {error}"


@contextmanager
def _nothing_new_after_an_end(pool: ProcessPoolExecutor) -> Iterator[None]:
    """Ctrl-C, or a caller that stops listening, waits for what is being worked on, not for what is queued."""
    try:
        yield
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        raise


def run_many(
    work: Callable[[Item], Value],
    items: Iterable[Item],
    jobs: int = 1,
    initializer: Callable[..., Any] | None = None,
    initargs: tuple[Any, ...] = (),
) -> Iterator[Outcome[Item, Value]]:
    """Outcomes in the order in which they finish. ``jobs=1`` works in this process.

    A process that dies (a crash in a decoder, out of memory) fails only the input it was working on: the
    inputs that were in flight are tried again one by one, each in a process of its own.
    """
    if jobs <= 1:
        if initializer is not None:
            initializer(*initargs)
        for item in items:
            try:
                yield Outcome(item, value=work(item))
            except Exception as error:
                yield Outcome(item, error=sentence(error))
        return

    context = multiprocessing.get_context("spawn")  # torch and numba threads do not survive a fork
    queue = iter(items)
    suspects: list[Item] = []
    finished = False
    while not finished:
        pool = ProcessPoolExecutor(jobs, mp_context=context, initializer=initializer, initargs=initargs)
        with pool, _nothing_new_after_an_end(pool):
            flying: dict[Future[Value], Item] = {}
            broken = False
            while True:
                while not broken and len(flying) < jobs * _AHEAD:
                    try:
                        item = next(queue)
                    except StopIteration:
                        finished = True
                        break
                    try:
                        flying[pool.submit(work, item)] = item
                    except BrokenProcessPool:
                        suspects.append(item)
                        broken = True
                if not flying:
                    break
                done, _ = wait(flying, return_when=FIRST_COMPLETED)
                for future in done:
                    item = flying.pop(future)
                    try:
                        yield Outcome(item, value=future.result())
                    except BrokenProcessPool:
                        suspects.append(item)
                        broken = True
                    except Exception as error:
                        yield Outcome(item, error=sentence(error))
        for item in suspects:
            with ProcessPoolExecutor(1, mp_context=context, initializer=initializer, initargs=initargs) as alone:
                try:
                    yield Outcome(item, value=alone.submit(work, item).result())
                except BrokenProcessPool:
                    yield Outcome(item, error="the process that worked on it died (out of memory, or a decoder crash)")
                except Exception as error:
                    yield Outcome(item, error=sentence(error))
        suspects = []
