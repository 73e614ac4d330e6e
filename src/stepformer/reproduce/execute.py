"""Runs of tables in parallel processes, resumable, and the folder that their results are kept in.

A *job* is what one process does: all rows of one model and seed (trained once, its frames and slots made once), all
untrained controls of a seed, or one published method. Results are written when a split is scored, two small files a
run: ``<id>.json`` and ``<id>.npz`` with the scores of every video. A job that was stopped goes on with its training
where it was, and with the splits that it has not scored. A job that fails stops no other.
"""

from __future__ import annotations

import json
import math
import os
import platform
import shutil
import signal
import subprocess
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from stepformer.app.training import make_trainer
from stepformer.base.files import replacing, write_json
from stepformer.base.guard import load_arrays, read_json
from stepformer.base.many import run_many
from stepformer.base.progress import clock
from stepformer.core.checkpoint import load_checkpoint
from stepformer.core.config import make_config
from stepformer.core.model import StepDecoder
from stepformer.errors import InputError, StepFormerError
from stepformer.evaluation.validation import summary
from stepformer.reproduce.methods import (
    CLUSTER_KEEP,
    Method,
    Stage,
    answer,
    choose,
    first_options,
    is_published,
    units_of,
)
from stepformer.reproduce.plan import SLOTS, Run, Weights, digest
from stepformer.reproduce.sources import Simulated, Source
from stepformer.version import __version__

Log = Callable[[str], None]
Arrays = dict[str, npt.NDArray[Any]]
_GRACE_S = 30.0  # for a stopped training to save its state
_MEMORY_BYTES = 1 << 60  # as much as there is: nothing here comes from strangers


# -- results ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RunStore:
    """A folder of results by run id. Folders of several machines are merged by copying files."""

    folder: Path

    def read(self, run_id: str) -> dict[str, Any] | None:
        """What is known of a run: ``scores`` by place, ``chosen`` options, and where it was made."""
        with suppress(InputError):
            value: dict[str, Any] = read_json(self.folder / f"{run_id}.json")
            return value if isinstance(value, dict) and isinstance(value.get("scores"), dict) else None
        return None

    def units(self, run_id: str, place: str) -> Arrays:
        """Scores of every video of a place: ``locate`` (V, 4), ``discover`` (S, V, 5), ``tasks`` (V,)."""
        arrays = load_arrays(self.folder / f"{run_id}.npz")
        return {k.rpartition("|")[2]: values for k, values in arrays.items() if k.rpartition("|")[0] == place}

    def missing(self, run_id: str, places: Sequence[str]) -> list[str]:
        """The places that a run has not been scored on."""
        known = (self.read(run_id) or {}).get("scores", {})
        return [place for place in places if place not in known]

    def unscored(self, runs: Sequence[Run]) -> list[Run]:
        """The runs that are not yet scored everywhere, with the places that are left."""
        left = [replace(run, places=tuple(self.missing(run.id, run.places))) for run in runs]
        return [run for run in left if run.places]

    def add(self, run: Run, place: str, units: Mapping[str, npt.NDArray[Any]], facts: Mapping[str, Any]) -> None:
        """Keeps the scores of one place beside those of others."""
        before = self.read(run.id) or {"id": run.id, "spec": run.spec, "scores": {}}
        path = self.folder / f"{run.id}.npz"
        arrays: Arrays = {}
        if before["scores"]:
            arrays = {k: values for k, values in load_arrays(path).items() if k.rpartition("|")[0] != place}
        small = {"locate": np.float32, "discover": np.int32, "tasks": np.int32}
        arrays |= {f"{place}|{name}": values.astype(small[name]) for name, values in units.items()}
        with replacing(path) as temporary:
            np.savez_compressed(temporary, **arrays)  # type: ignore[arg-type]
        scores = {k: round(v, 5) for k, v in summary(units, units["tasks"]).items()}
        write_json(
            self.folder / f"{run.id}.json",
            {**before, **facts, "scores": {**before["scores"], place: scores}, "code": run.code, **stamp(run.device)},
        )


def stamp(device: str = "cpu") -> dict[str, Any]:
    """Which code made a result, when, and where. ``STEPFORMER_COMMIT`` names the commit where there is no git."""
    return {
        "commit": commit(),
        "date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "machine": machine(device),
        "version": __version__,
    }


@cache
def commit() -> str:
    """The commit of the source, ``+changes`` where files differ from it; ``unknown`` outside a repository."""
    given = os.environ.get("STEPFORMER_COMMIT")
    if given:
        return given
    here = ["git", "-C", str(Path(__file__).parent)]
    try:
        head = subprocess.run([*here, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
        changed = subprocess.run([*here, "status", "--porcelain", "."], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return head[:12] + ("+changes" if changed.stdout.strip() else "")


def machine(device: str = "cpu") -> str:
    """The processor or GPU, and the versions that numbers depend on."""
    name = torch.cuda.get_device_name() if device.startswith("cuda") else _processor()
    return f"{name}, torch {torch.__version__}, Python {platform.python_version()}"


def _processor() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines():
            if line.startswith("model name"):
                return f"{line.partition(':')[2].strip()} ({os.cpu_count()} cores)"
    return f"{platform.machine()} ({os.cpu_count()} cores)"


# -- one job ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Job:
    """What one process does. ``runs`` share their weights and seed."""

    label: str
    source: Callable[[], Source]  # opens it
    runs: tuple[Run, ...]
    results: Path
    work: Path

    @property
    def id(self) -> str:
        """A training's is the same whatever rows are asked for, so that it is found again."""
        weights = self.runs[0].weights
        return digest([run.id for run in self.runs] if weights is None else weights.identity)


def make_jobs(runs: Sequence[Run], job: Job) -> list[Job]:
    """Runs as jobs; ``job`` says what they have in common. Controls come first."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        # a checkpoint has no seed of its own: its rows of several seeds are several jobs
        shared = digest([run.seed, None if run.weights is None else run.weights.identity])
        groups.setdefault(run.id if is_published(run.method) else shared, []).append(run)
    out = []
    for members in groups.values():
        first = members[0]
        named = next((run.label for run in members if run.method == SLOTS), first.label)
        name = "controls" if first.weights is None and len(members) > 1 else named
        out.append(replace(job, label=f"{name}, seed {first.seed}", runs=tuple(members)))
    return sorted(out, key=lambda j: j.runs[0].weights is not None)


def work(job: Job) -> None:
    """Trains what has to be trained, chooses options, scores what is missing."""
    store = RunStore(job.results)
    todo = store.unscored(job.runs)
    if not todo:
        return
    started = time.monotonic()
    source, first, folder = job.source(), job.runs[0], job.work / job.id
    facts: dict[str, Any] = {"label": job.label}
    model = None if first.weights is None else _model(first.weights, source, folder, first.device, facts)

    def stage(place: str) -> Stage:
        trial = source.trial(place, first.seed)
        return Stage(trial, source.has_texts, first.seed, first.device, model, first.inference)

    dev = cache(partial(stage, "dev"))

    @cache
    def choice(method: Method) -> dict[str, Any]:
        there = answer(method, dev())
        if method.kind == "equal cuts":  # as many as the model's own row has: how much of a cluster stays is its own
            ours = choice(replace(method, kind="slots"))
            kept = [{**ours["discover"], "cluster_keep": keep} for keep in CLUSTER_KEEP]
            there = replace(there, locate_options=[ours["locate"]], discover_options=kept)
        return choose(there, dev().trial)

    chosen = {run.id: (store.read(run.id) or {}).get("chosen") for run in todo}
    for run in todo if source.has_dev else ():
        chosen[run.id] = chosen[run.id] or choice(run.method)
    for place in dict.fromkeys(place for run in todo for place in run.places):
        there = stage(place)
        for run in [run for run in todo if place in run.places]:
            made = answer(run.method, there)
            options = chosen[run.id] = chosen[run.id] or first_options(made)
            units = {**units_of(made, options, there.trial), "tasks": there.trial.tasks}
            # of every place that a method was fitted on
            curves = [*(store.read(run.id) or {}).get("curve", ()), *made.curve]
            more = {"curve": curves} if curves else {}
            seconds = round(time.monotonic() - started, 1)
            store.add(run, place, units, {**facts, **more, "chosen": options, "seconds": seconds})
    shutil.rmtree(folder, ignore_errors=True)  # weights and optimiser state have served


def _model(weights: Weights, source: Source, folder: Path, device: str, facts: dict[str, Any]) -> StepDecoder:
    """The decoder behind some runs, trained here or loaded."""
    if weights.config is None:
        assert weights.path is not None
        return load_checkpoint(weights.path, source.device).model
    last, state, trained = (folder / name for name in ("last.safetensors", "state.safetensors", "trained"))
    if not trained.exists():
        started = time.monotonic()
        world = source.world if isinstance(source, Simulated) else None
        trainer = make_trainer(make_config(weights.config), folder, device, world=world, quiet=True)
        trainer.run(resume=state.exists())
        said = {"seconds": round(time.monotonic() - started, 1), "steps": trainer.step}
        write_json(trained, {**said, **_global_loss(folder / "metrics.jsonl")})
        state.unlink()
    facts["training"] = read_json(trained)
    return load_checkpoint(last, source.device).model


def _global_loss(path: Path) -> dict[str, list[float]]:
    """The global loss at the first and the last steps that were logged: whether a training learned anything."""
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    values = [row["glob"] for row in rows if "glob" in row]
    few = max(1, len(values) // 20)
    return {"glob": [round(float(np.mean(part)), 3) for part in (values[:few], values[-few:])]} if values else {}


# -- many jobs --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ended:
    """What became of the jobs: how many ended well, which failed and why, how many were not begun or stopped."""

    done: int
    failed: Mapping[str, str]
    left: int


def execute(jobs: Sequence[Job], parallel: int, time_limit_s: float | None, log: Log) -> Ended:
    """Works through jobs in processes; Ctrl-C, SIGTERM and the time limit stop them, and they save what they have."""
    started, done, failed = time.monotonic(), 0, {}
    until = started + (time_limit_s or math.inf)
    # torch (what its optimisers import too), and the kernels, are loaded once for all jobs
    needed = ("torch._dynamo", "stepformer.core.align.cpu", __name__)
    with _interrupted_by_sigterm():
        for outcome in run_many(
            _timed, jobs, parallel, _leave_the_terminal, apart=True, memory_bytes=_MEMORY_BYTES, preload=needed,
            until=until, polite_s=_GRACE_S,
        ):  # fmt: skip
            if outcome.value is None:
                failed[outcome.item.label] = str(outcome.error)
            else:
                done += 1
                log(f"{done}/{len(jobs)} {outcome.item.label} ({clock(outcome.value)})")
    left = len(jobs) - done - len(failed)
    if left:
        log(f"the time limit of {time_limit_s:g} s is reached; the same command continues from here")
    return Ended(done, failed, left)


def _leave_the_terminal() -> None:
    """Ctrl-C reaches the parent alone, which asks its workers to stop: who is asked twice saves nothing."""
    if hasattr(os, "setpgrp"):
        os.setpgrp()


def _timed(job: Job) -> float:
    """The seconds that a job takes. An unexpected error leaves its traceback in the work folder."""
    try:
        job.work.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot write to the work folder {job.work}: {error}; give another --out") from None
    started = time.monotonic()
    try:
        work(job)
    except StepFormerError:
        raise
    except Exception:
        (job.work / f"{job.id}.log").write_text(traceback.format_exc(), "utf-8")
        raise
    return time.monotonic() - started


@contextmanager
def _interrupted_by_sigterm() -> Iterator[None]:
    """SIGTERM is an interruption like Ctrl-C."""
    previous = None
    with suppress(ValueError):  # not in the main thread
        previous = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        if previous is not None:
            signal.signal(signal.SIGTERM, previous)
