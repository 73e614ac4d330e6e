"""Runs in parallel processes, resumable: each works in a folder named by its id and leaves ``result.json`` there.

The work folder is a cache beside no output: finished runs are found in it whatever the output folder, weights and
optimiser states stay in it, and the output folder gets one small ``results.json``, written anew whenever a run ends.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stepformer.base.cache import cache_folder
from stepformer.base.files import write_json
from stepformer.base.progress import clock
from stepformer.errors import InputError
from stepformer.reproduce.results import Results
from stepformer.reproduce.runs import Run

Log = Callable[[str], None]
_POLL_S = 0.2
_GRACE_S = 30.0  # for a stopped training to save its state
# what decides numbers; a change of them is noted beside results that were made before it
_CODE = ("core", "core/align", "evaluation", "evaluation/baselines", "reproduce/methods.py", "reproduce/runs.py",
         "reproduce/scoring.py", "reproduce/worker.py", "data/simulator.py", "data/world.py")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Machine:
    """Where runs work and with what."""

    world: Path
    work: Path
    device: str = "cpu"
    jobs: int = 1
    time_limit_s: float | None = None
    checkpoints: Path | None = None  # keep the weights of trainings here


@dataclass(frozen=True, slots=True)
class Ended:
    """What became of the runs: how many were found done, ended well now, failed (with why), or were left."""

    found: int
    done: int
    failed: dict[str, str]
    left: int


def work_folder() -> Path:
    """Where runs work unless told otherwise: ``reproduce`` in the cache folder."""
    return cache_folder("reproduce")


def code_hash() -> str:
    """12 hex digits of the source that decides numbers."""
    root = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for part in _CODE:
        files = sorted((root / part).glob("*.py")) if (root / part).is_dir() else [root / part]
        for file in files:
            digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:12]


def execute(runs: Sequence[Run], results: Results, out: Path, machine: Machine, log: Log) -> Ended:
    """Works through ``runs``; ``results`` and its file grow as they end. A failed run does not stop the others.

    Ctrl-C, a polite kill and the time limit stop the running ones, which save what they have.
    """
    wanted = {run.id: run for run in runs}
    out.mkdir(parents=True, exist_ok=True)
    for run_id in wanted:
        if run_id not in results.runs:
            known = finished(machine.work / run_id)
            if known is not None:
                results.runs[run_id] = known
    todo = [run for run_id, run in wanted.items() if run_id not in results.runs or _lacks_weights(run, machine)]
    found = len(wanted) - len(todo)
    results.save(out)
    if found:
        log(f"{found} of {len(wanted)} runs are done already")
    code = code_hash()
    started = time.monotonic()
    failed: dict[str, str] = {}
    done = 0
    working: dict[subprocess.Popen[bytes], tuple[Run, float]] = {}
    queue = list(todo)
    with _politely(), _ending(working):
        while queue or working:
            late = machine.time_limit_s is not None and time.monotonic() - started > machine.time_limit_s
            if late:
                log(f"the time limit of {machine.time_limit_s:g} s is reached; the same command goes on from here")
                break
            while queue and len(working) < machine.jobs:
                run = queue.pop(0)
                working[_start(run, machine, code)] = (run, time.monotonic())
            time.sleep(_POLL_S)
            for process in [p for p in working if p.poll() is not None]:
                run, began = working.pop(process)
                result = finished(machine.work / run.id)
                label = f"{run.name}, seed {run.seed}"
                if process.returncode == 0 and result is not None:
                    done += 1
                    results.runs[run.id] = result
                    results.save(out)
                    log(f"{found + done}/{len(wanted)} {label} ({clock(time.monotonic() - began)})")
                else:
                    failed[label] = last_words(machine.work / run.id / "log.txt")
                    log(f"failed: {label}: {failed[label]}")
    return Ended(found, done, failed, len(todo) - done - len(failed))


def finished(folder: Path) -> dict[str, Any] | None:
    """The result of a run's folder, if it has ended."""
    with suppress(OSError, ValueError):
        value: dict[str, Any] = json.loads((folder / "result.json").read_text("utf-8"))
        return value
    return None


def last_words(log: Path) -> str:
    """The last line that a failed run wrote."""
    with suppress(OSError):
        lines = [line for line in log.read_text("utf-8", "replace").splitlines() if line.strip()]
        if lines:
            return lines[-1].strip()
    return f"it died without a word; its log is {log}"


def checkpoint_path(run: Run, machine: Machine) -> Path | None:
    """Where the weights of a training are kept, if they are."""
    if machine.checkpoints is None or run.kind != "train":
        return None
    return machine.checkpoints / f"{run.name.replace(' ', '-')}-seed{run.seed}-{run.id}.safetensors"


def _lacks_weights(run: Run, machine: Machine) -> bool:
    path = checkpoint_path(run, machine)
    return path is not None and not path.exists()


def _start(run: Run, machine: Machine, code: str) -> subprocess.Popen[bytes]:
    folder = machine.work / run.id
    checkpoint = checkpoint_path(run, machine)
    threads = max(1, (os.cpu_count() or 1) // machine.jobs)
    try:
        write_json(
            folder / "job.json",
            {
                "run": run.to_dict(), "world_file": str(machine.world.resolve()), "device": machine.device,
                "threads": threads, "code": code,
                "checkpoint": None if checkpoint is None else str(checkpoint.resolve()),
            },
        )  # fmt: skip
        log = (folder / "log.txt").open("ab")
    except OSError as error:
        raise InputError(f"cannot write to the work folder {folder}: {error}; give another with --work") from None
    source = str(Path(__file__).parents[2])
    path = os.pathsep.join([source, *filter(None, [os.environ.get("PYTHONPATH")])])
    env = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": str(threads), "OPENBLAS_NUM_THREADS": str(threads)}
    command = [sys.executable, "-m", "stepformer.reproduce.worker", str(folder / "job.json")]
    with log:
        # a session of its own: Ctrl-C reaches the parent, which then stops its workers in order
        return subprocess.Popen(command, stdout=log, stderr=log, env=env, start_new_session=True)


@contextmanager
def _politely() -> Iterator[None]:
    """A polite kill is an interruption like Ctrl-C."""

    def stop(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    previous = None
    with suppress(ValueError):  # not in the main thread
        previous = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        if previous is not None:
            signal.signal(signal.SIGTERM, previous)


@contextmanager
def _ending(working: dict[subprocess.Popen[bytes], tuple[Run, float]]) -> Iterator[None]:
    """Whatever happens, no worker outlives its parent: asked to stop, waited for, then killed."""
    try:
        yield
    finally:
        for process in working:
            process.terminate()
        deadline = time.monotonic() + _GRACE_S
        for process in working:
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
