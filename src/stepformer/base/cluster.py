"""The same work over many inputs on a Ray cluster: what `base.many` does with processes, done with actors on nodes.

Inputs and outcomes are small (a name in, a summary out); videos are read and results are written on a file system that
all nodes see. Nothing has to flow through Ray's object store, and all that is needed of Ray is actors that hold a
loaded model, on whatever nodes there are. Ray Data would bring blocks of rows, in which the error of one row is that of
its block; here a bad file must cost nothing but itself.

An actor gets an input when it is ready and its last one is done, so that no slow node holds a queue. An input whose
actor or node died is given to another one, three times at most: then it is the input that kills, and it has failed.
"""

from __future__ import annotations

import logging
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from stepformer.base.many import DIED, Outcome, answer_of, failure, given_up, own, run_many
from stepformer.errors import MissingError, StepFormerError, missing_extra

Item = TypeVar("Item")
Value = TypeVar("Value")

_TRIES = 3
_LOOK_S = 1.0  # how often time limits are looked at


def run_anywhere(
    cluster: str | None,
    work: Callable[[Item], Value],
    items: Iterable[Item],
    jobs: int = 0,
    initializer: Callable[..., Any] | None = None,
    initargs: tuple[Any, ...] = (),
    time_limit_s: float | None = None,
    gpu: bool = False,
    **here: Any,
) -> Iterator[Outcome[Item, Value]]:
    """Outcomes in the order in which they finish: of :func:`stepformer.base.many.run_many`, which takes ``here`` too,
    or where a ``cluster`` is named ("auto", or the address of its head) of actors on its nodes.

    ``jobs``: processes, or actors, of which 0 are one per GPU where ``gpu`` asks for them and there are some, else one
    per processor. More actors than GPUs share them. Nodes may come and go.

    Raises:
        MissingError: Ray is not installed, or no cluster answers.
        StepFormerError: what ``initializer`` raised.
    """
    if cluster is None:
        yield from run_many(work, items, jobs, initializer, initargs, time_limit_s, **here)
        return
    ray = _connected(cluster)
    there = ray.cluster_resources()
    gpus = there.get("GPU", 0.0) if gpu else 0.0
    count = jobs or max(1, int(gpus or there.get("CPU", 1)))
    ours = {name: value for name, value in os.environ.items() if name.startswith("STEPFORMER_")}  # plugins, folders
    hand = ray.remote(_Hand).options(
        num_cpus=1, num_gpus=min(1.0, gpus / count), runtime_env={"env_vars": ours} if ours else None
    )
    queue = iter(items)
    waiting: deque[tuple[Item, int]] = deque()  # inputs, and how many actors died over each
    asked: dict[Any, tuple[Any, tuple[Item, int] | None, float]] = {}  # answer of each actor -> (actor, input, since)
    stillborn = 0  # actors that died before they were ready, one after the other
    try:
        while True:
            waiting.extend((item, 0) for item in islice(queue, max(0, count - len(waiting))))
            working = sum(given is not None for _, given, _ in asked.values())
            if not waiting and not working:
                return
            while len(asked) < min(count, working + len(waiting)):
                actor = hand.remote(str(Path.cwd()), work, initializer, initargs)
                asked[actor.ready.remote()] = actor, None, 0.0
            for answer in ray.wait(list(asked), timeout=_LOOK_S)[0]:
                actor, given, _ = asked[answer]
                try:
                    kind, value = ray.get(answer)
                except ray.exceptions.RayError as error:
                    del asked[answer]
                    stillborn += given is None
                    if stillborn == _TRIES:
                        why = str(error).splitlines()[-1]
                        raise StepFormerError(f"no worker starts on the cluster: {why}") from None
                    if given is not None and given[1] + 1 < _TRIES:
                        waiting.append((given[0], given[1] + 1))
                    elif given is not None:
                        yield failure(given[0], StepFormerError(DIED))
                    continue
                stillborn = 0
                if kind == "broken":
                    raise value
                if given is not None:
                    yield Outcome(given[0], value) if kind == "value" else failure(given[0], value)
                del asked[answer]
                if waiting:
                    given = waiting.popleft()
                    asked[actor.work.remote(given[0])] = actor, given, time.monotonic()
                else:
                    ray.kill(actor)
            for answer, (actor, given, since) in list(asked.items()):
                if time_limit_s and given is not None and time.monotonic() - since > time_limit_s:
                    del asked[answer]
                    ray.kill(actor)
                    yield failure(given[0], given_up(time_limit_s))
    finally:
        for actor, _, _ in asked.values():
            ray.kill(actor)


class _Hand:
    """An actor that works on one input at a time. Errors are answers, whatever the library that raised them."""

    def __init__(self, folder: str, work: Callable[[Any], Any], initializer: Any, initargs: tuple[Any, ...]) -> None:
        self._folder, self._work, self._initializer, self._initargs = folder, work, initializer, initargs

    def ready(self) -> tuple[str, Any]:
        """("ready", None) once it can work, ("broken", error) where it never will."""
        try:
            os.chdir(self._folder)  # paths mean here what they mean to the one who asks
            if self._initializer is not None:
                self._initializer(*self._initargs)
        except FileNotFoundError:
            where = f"{os.uname().nodename} has no folder {self._folder}"
            return "broken", StepFormerError(f"{where}; all nodes of a cluster must see the same files")
        except Exception as error:
            return "broken", own(error)
        return "ready", None

    def work(self, item: Any) -> tuple[str, Any]:
        """("value", result) or ("error", error)."""
        return answer_of(self._work, item)


def _connected(address: str) -> Any:
    """Ray, connected to the cluster at ``address``."""
    try:
        import ray
    except ImportError:
        raise missing_extra("Ray", "ray", "--cluster") from None
    if not ray.is_initialized():
        try:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        except (ConnectionError, ValueError, RuntimeError) as error:
            start = "start one with: ray start --head (and ray start --address HEAD:6379 on other machines)"
            said = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise MissingError(f"no Ray cluster answers at {address!r} ({said}); {start}") from None
    return ray
