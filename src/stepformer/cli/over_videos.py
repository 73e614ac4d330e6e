"""The same command over one or many videos: progress, jobs, failures, a summary, files, exit codes."""

from __future__ import annotations

import argparse
import itertools
import json
import math
import sys
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, closing, nullcontext, redirect_stdout
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from stepformer.base.cluster import run_anywhere
from stepformer.base.files import check_place
from stepformer.base.many import run_many
from stepformer.base.progress import Progress, clock
from stepformer.cli.inputs import Input, find_inputs, start_worker, worker
from stepformer.cli.log import log, of, printable
from stepformer.cli.options import FOLDER, LISTENING, add, listening_of, workers_of
from stepformer.cli.outputs import Output, may_write, planned, run_id, save_options, warn_of_cache, write_one
from stepformer.errors import StepFormerError, UsageError, WriteError
from stepformer.show import export
from stepformer.timeline import Timeline

LIMITS: dict[str, Any] = {
    "silence_s": 1800.0,  # a video of which nothing more is read for so long; weights may be fetched meanwhile
    "preload": ("av", "numba", "stepformer.app.discover.stepformer", "stepformer.core.align.cpu"),
}


Job = tuple[Input, list[Output]]
"""One video and the files that are to be made of it."""


@dataclass(slots=True)
class Done:
    """What became of one video. ``refused``: files that a format would not make of it, with the reason."""

    source: Input
    timeline: Timeline | None = None  # until it is printed
    written: list[dict[str, Any]] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    error: str | None = None
    exit_code: int = 0
    seconds: float = 0.0
    spent: Mapping[str, float] = field(default_factory=dict)
    steps: int | None = None  # of a timeline that was printed
    skipped: bool = False


def add_videos(parser: argparse.ArgumentParser) -> None:
    """What every command takes that works on videos one by one."""
    parser.add_argument(
        "videos", nargs="*", metavar="VIDEO", help="files, folders, patterns, features, a feature store, or - for stdin"
    )
    out = {"metavar": FOLDER, "help": "where to write the results (default: beside each video)"}
    add(parser, "subtitles", *LISTENING, "model", "encoder", "device", "threads", "jobs", "rate", "write", "format",
        "out", "plot", "overwrite", "skip_existing", "keep_going", "no_cache", "time_limit", "cluster",
        "dry_run", out=out)  # fmt: skip


def _work(job: Job) -> Done:
    """One video. Errors are results here, so that their exit code survives the way between processes."""
    source, outputs = job
    done, began = Done(source), time.perf_counter()
    try:
        args = worker["args"]
        vectors = getattr(args, "vectors", False) or source.kind != "video"
        finding = args.find(worker["model"], source, args)
        done.timeline, done.spent = finding.timeline, finding.seconds
        for output in outputs:
            try:
                done.written.append(write_one(finding, output, source, vectors))
            except WriteError:
                raise
            except StepFormerError as no:  # a format that cannot hold this video costs neither the result nor others
                done.refused.append(f"{output.path} is not written: {no}")
                done.exit_code = no.exit_code
        done.error = done.refused[0] if done.refused and not done.written else None
    except StepFormerError as failed:
        done.error, done.exit_code = str(failed), failed.exit_code
    done.seconds = time.perf_counter() - began
    return done


def run_over(args: argparse.Namespace, find: Callable[..., Any]) -> int:
    """Does ``find(model, source, args, listening=...) -> Finding`` on every video and returns the exit code; it goes to
    other processes: a function of a module, or a partial."""
    args.find = partial(find, listening=listening_of(args))
    # these encoders find features by a video's name, so that the video itself need not be here
    by_name = str(args.encoder or "").split(":")[0] in ("captions", "precomputed")
    sources = find_inputs(args.videos, ids=by_name)
    plans = dict(zip(sources, planned(sources, args), strict=True))
    for output in (output for plan in plans.values() for output in plan):
        check_place(output.path, folder=export.FORMATS[output.format].kind == "folder")
    if args.skip_existing:
        if not any(plans.values()):
            raise UsageError("--skip-existing needs files to look for: give --write, --format or --out")
        missing = {s: [o for o in plan if not Path(o.path).exists()] for s, plan in plans.items()}
        plans = {source: plan for source, plan in missing.items() if plan}
    else:
        may_write((output.path for plan in plans.values() for output in plan), args.overwrite, run_id(args))
    jobs = list(plans.items())
    results = [Done(source, skipped=True) for source in sources if source not in plans]
    if args.dry_run:
        return _print_plan(jobs, results, args.json)
    if not args.no_cache:
        warn_of_cache()
    lengths, broken = _lengths(jobs, args)
    readable = [job for job in jobs if job[0] in lengths]
    out = sys.stdout  # a bar on the terminal takes it over, and would show there what goes to a file
    with ExitStack() as at_end, closing(_each(readable, args, lengths)) as found:
        # after ctrl-c too: the same command may then replace what it has written
        at_end.callback(lambda: save_options(args, (file["path"] for done in results for file in done.written)))
        for done in itertools.chain(broken, found):
            if done.timeline is not None:
                with nullcontext() if out.isatty() else redirect_stdout(out):
                    _print(done, done.timeline, args.json, several=len(sources) > 1)
                done.steps, done.timeline = len(done.timeline), None  # memory for thousands
            results.append(done)
            for refused in done.refused:
                log.warning(refused)
            # what a format refuses of one video says nothing about the next
            if done.error is not None and done.error not in done.refused:
                log.error(of(str(done.source), done.error) if len(sources) > 1 else done.error)
                if not args.keep_going:
                    break
    failed = [done for done in results if done.error is not None]
    left = len(sources) - len(results)
    if left:
        log.error(f"stopped with {left} to go; --keep-going continues after a video that fails")
    elif len(sources) > 1:
        log.info(_summary(sources, results))
    if not failed:
        return 0
    some = any(done.steps is not None for done in results if done.error is None)
    return 5 if some or (args.keep_going and len(sources) > 1) else failed[0].exit_code


def _lengths(jobs: Sequence[Job], args: argparse.Namespace) -> tuple[dict[Input, float], list[Done]]:
    """Seconds of each video that can be opened, and the others as failures: before a model is loaded."""
    lengths = {source: 0.0 for source, _ in jobs}
    if args.cluster is not None:  # its nodes look at the videos
        return lengths, []
    files = [source for source in lengths if source.kind == "video" and source.path.is_file()]
    broken: list[Done] = []
    limits = LIMITS | {"time_limit_s": args.time_limit, "apart": args.apart}
    for outcome in run_many(_length_s, files, min(workers_of(args), len(files)), **limits):
        if outcome.error is None:
            lengths[outcome.item] = outcome.value or 0.0
        else:
            del lengths[outcome.item]
            broken.append(Done(outcome.item, error=outcome.error, exit_code=outcome.exit_code))
    return lengths, broken


def _length_s(source: Input) -> float:
    from stepformer.media import probe

    return round(probe(source.path).duration_s, 1)


def _each(jobs: Sequence[Job], args: argparse.Namespace, lengths: dict[Input, float]) -> Generator[Done, None, None]:
    """What becomes of the videos that can be opened, as they are done."""
    if not jobs:
        return
    total_s = sum(lengths[source] for source, _ in jobs)
    with VideoProgress(args.command, total_s or None, "s of video") as progress:
        at_once, gpu = min(workers_of(args), len(jobs)), args.device != "cpu"

        # of several at once, the bar counts those that are done
        noted = progress.noted if at_once == 1 else None
        how = LIMITS | {"apart": args.apart, "noted": noted, "gpu": gpu, "time_limit_s": args.time_limit}
        for outcome in run_anywhere(args.cluster, _work, jobs, at_once, start_worker, (args,), **how):
            done = outcome.value or Done(outcome.item[0], error=outcome.error, exit_code=outcome.exit_code)
            progress.finish(lengths[done.source], done.timeline is not None)
            yield done


class VideoProgress(Progress):
    """Progress in seconds of video."""

    _within = 0.0  # seconds of the current video that are done

    def noted(self, _: Job, note: tuple[str, float, float]) -> None:
        """What an :class:`Input` sends while it is read, or heard."""
        what, done_s, total_s = note
        if what == "heard":
            self.advance(0.0, note=f"listening, {clock(done_s)} of {clock(total_s)}")
            return
        if not self.done:
            self.restart()
        self._advance_to(done_s)

    def finish(self, length_s: float, well: bool) -> None:
        """One video is done; of one that failed, the rest is not to be waited for."""
        if well:
            self._advance_to(length_s)
        elif self.total:
            self.total = max(self.total - (length_s - self._within), 0.0)
        self._within = 0.0

    def _advance_to(self, within_s: float) -> None:
        self.advance(min(within_s - self._within, (self.total or math.inf) - self.done), note="")
        self._within = within_s


def _print(done: Done, timeline: Timeline, as_json: bool, several: bool) -> None:
    if as_json:
        print(timeline.to_json(indent=None if several else 2), flush=True)
    else:
        from stepformer.show.terminal import draw

        sys.stdout.write(draw(timeline))
        absent = timeline.meta.get("absent")
        if absent:
            print(f"not in the video: {'; '.join(absent)}")
        sys.stdout.flush()
    for remark in timeline.meta.get("notes", ()):
        log.info(f"{done.source}: {remark}")
    for file in done.written:
        if not as_json:
            print(printable(f"{file['path']}  {file['format']}"), flush=True)
        for remark in file["notes"]:
            log.info(f"{file['path']}: {remark}")
    parts = ", ".join(f"{part} {seconds:.2f} s" for part, seconds in done.spent.items())
    read = "" if "decode" in done.spent else "features were cached; "
    log.debug(f"{done.source}: {read}{parts}; {done.seconds:.2f} s in all")


def _print_plan(jobs: Sequence[Job], skipped: Sequence[Done], as_json: bool) -> int:
    for source, outputs in jobs:
        paths = [output.path for output in outputs]
        shown = f"{source}  would write {', '.join(paths) or 'nothing, the result is printed'}"
        print(json.dumps({"video": str(source), "would_write": paths}, ensure_ascii=False) if as_json else shown)
    for done in skipped:
        row = {"video": str(done.source), "skipped": True, "would_write": []}
        print(json.dumps(row, ensure_ascii=False) if as_json else f"{done.source}  already exists, not changed")
    return 0


def _summary(sources: Sequence[Input], results: Sequence[Done]) -> str:
    names = {source: Path(str(source)).name for source in sources}
    width = min(40, max(map(len, names.values())))
    lines = [f"{'video':<{width}}  steps  time   result"]
    became = {done.source: done for done in results}
    for source, name in names.items():
        done = became[source]
        steps = "" if done.steps is None else done.steps
        spent = "" if done.skipped else clock(done.seconds)
        partly = f"without {len(done.refused)} of its files" if done.refused else "ok"
        result = "already exists" if done.skipped else f"failed: {done.error}" if done.error else partly
        lines.append(f"{name[:width]:<{width}}  {steps:>5}  {spent:>5}  {result}")
    good = sum(done.steps is not None and done.error is None for done in results)
    bad_ones = sum(done.error is not None for done in results)
    lines.append(f"{good} done, {sum(done.skipped for done in results)} skipped, {bad_ones} failed")
    return "\n".join(lines)
