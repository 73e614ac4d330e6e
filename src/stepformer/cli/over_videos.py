"""The same command over one or many videos: progress, jobs, failures, a summary, files, exit codes."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stepformer.base.many import run_many
from stepformer.base.progress import Progress, clock
from stepformer.cli.log import log
from stepformer.cli.options import VIDEOS, settings_of
from stepformer.cli.outputs import Output, all_there, planned, save_options, write_all
from stepformer.errors import StepFormerError, UsageError
from stepformer.timeline import Timeline

OVER_VIDEOS = (
    *VIDEOS, "write", "format", "out", "plot", "skip_existing", "keep_going", "no_cache", "dry_run",
)  # fmt: skip
"""The options of commands that work on videos one by one."""


@dataclass(frozen=True, slots=True)
class Job:
    """One video and what is to be done with it; goes to a worker process as it is."""

    video: Path
    outputs: tuple[Output, ...]
    request: Any  # what the command wants of the video: its own frozen record


@dataclass(frozen=True, slots=True)
class Done:
    """What became of one video."""

    video: Path
    timeline: dict[str, Any] | None = None
    written: tuple[dict[str, Any], ...] = ()
    error: str | None = None
    exit_code: int = 0
    seconds: float = 0.0
    skipped: bool = False


Finder = Callable[[Any, Path, Any, bool, Any], Any]
"""(model, video, request, cache, progress or None) -> Finding. A module-level function: processes find it by name."""

_worker: dict[str, Any] = {}


def _start(name: str, encoder: str | None, device: str | None, find: Finder, cache: bool) -> None:
    """Loads the model once a process."""
    from stepformer.app.discover import load_model

    _worker.update(model=load_model(name, encoder=encoder, device=device), find=find, cache=cache, progress=None)


def _work(job: Job) -> Done:
    """One video. Errors are results here, so that their exit code survives the way between processes."""
    began = time.perf_counter()
    try:
        finding = _worker["find"](_worker["model"], job.video, job.request, _worker["cache"], _worker["progress"])
    except StepFormerError as error:
        return Done(job.video, error=str(error), exit_code=error.exit_code, seconds=time.perf_counter() - began)
    timeline, written = finding.timeline.to_dict(), []
    for output in job.outputs:
        try:
            written += write_all(finding.timeline, [output], job.video, finding.similarity)
        except StepFormerError as error:  # one format that cannot be written costs not the result
            failed = (str(error), error.exit_code)
            return Done(job.video, timeline, tuple(written), *failed, seconds=time.perf_counter() - began)
    return Done(job.video, timeline, tuple(written), seconds=time.perf_counter() - began)


def run_over(args: argparse.Namespace, videos: Sequence[Path], request_of: Callable[[Path], Any], find: Finder) -> int:
    """Does a command on every video and returns the exit code."""
    settings, as_json = args, args.json
    plans = planned(videos, settings.write, settings.format, settings.out, settings.plot)
    if settings.skip_existing and not any(plans):
        raise UsageError("--skip-existing needs files to look for: give --write or --format")
    skipped = [video for video, plan in zip(videos, plans, strict=True) if settings.skip_existing and all_there(plan)]
    jobs = [
        Job(video, tuple(plan), request_of(video))
        for video, plan in zip(videos, plans, strict=True)
        if video not in skipped
    ]
    if settings.dry_run:
        return _tell_plan(jobs, skipped, as_json)
    results = [Done(video, skipped=True) for video in skipped]
    failed: Done | None = None
    with _shown(args.command, jobs, settings) as progress:
        for done in _all_done(jobs, find, settings, progress):
            results.append(done)
            if done.timeline is not None:
                _print(done, as_json, several=len(videos) > 1)
            if done.error is None:
                continue
            if not settings.keep_going:
                failed = done
                break
            log.error(f"{done.video}: {done.error}")
    if any(done.timeline for done in results):
        save_options(args.command, plans, settings_of(args))
    if failed is not None and len(videos) == 1:
        log.error(f"{failed.error}")
        return failed.exit_code
    if failed is not None:
        log.error(f"{failed.video}: {failed.error}")
        left = len(videos) - len(results)
        if left:
            log.error(f"stopped with {left} to go; --keep-going would do them too")
        return 5 if any(done.timeline for done in results) else failed.exit_code
    if len(videos) > 1:
        log.info(_summary(videos, results))
    errors = [done for done in results if done.error is not None]
    if errors:
        return errors[0].exit_code if len(videos) == 1 else 5
    return 0


def _all_done(jobs: list[Job], find: Finder, settings: argparse.Namespace, progress: VideoProgress) -> Iterator[Done]:
    if not jobs:
        return
    start = (settings.model, settings.encoder, settings.device, find, not settings.no_cache)
    if settings.jobs == 1:
        _start(*start)  # outside run_many: a model that is not here is the command's failure, not a video's
        _worker["progress"] = progress
    for outcome in run_many(_work, jobs, min(settings.jobs, len(jobs)), None if settings.jobs == 1 else _start, start):
        job: Job = outcome.item
        done = outcome.value if outcome.value is not None else Done(job.video, error=outcome.error, exit_code=1)
        progress.finish(job.video)
        yield done


class VideoProgress:
    """Progress in seconds of video, with the speed relative to real time."""

    def __init__(self, bar: Progress, lengths_s: dict[Path, float]) -> None:
        self._bar, self._lengths = bar, lengths_s
        self._within = 0.0
        self._began = time.monotonic()

    def read(self, done_s: float, total_s: float) -> None:
        """Called while one video is read."""
        self._advance(done_s - self._within)
        self._within = done_s

    def heard(self, done_s: float, total_s: float) -> None:
        """Called while speech is turned into text."""
        self._bar.advance(0.0, note=f"listening, {clock(done_s)} of {clock(total_s)}")

    def finish(self, video: Path) -> None:
        """One video is done, or has failed."""
        self._advance(self._lengths.get(video, 0.0) - self._within)
        self._within = 0.0

    def _advance(self, seconds: float) -> None:
        elapsed = max(time.monotonic() - self._began, 1e-6)
        done = self._bar.done + seconds
        self._bar.advance(seconds, note=f"{done / elapsed:.2g} x real time")


class _shown:  # noqa: N801 (reads as a function)
    """A progress bar over videos, once their lengths are known."""

    def __init__(self, command: str, jobs: Sequence[Job], settings: argparse.Namespace) -> None:
        lengths = {} if settings.quiet else {job.video: _length_s(job.video) for job in jobs}
        self._bar = Progress(command, sum(lengths.values()) or None, "s of video", quiet=not jobs)
        self._lengths = lengths

    def __enter__(self) -> VideoProgress:
        self._bar.__enter__()
        return VideoProgress(self._bar, self._lengths)

    def __exit__(self, *error: Any) -> None:
        self._bar.__exit__(*error)


def _length_s(video: Path) -> float:
    from stepformer.media import probe

    try:
        return round(probe(video).duration_s, 1)
    except StepFormerError:
        return 0.0  # what is wrong with it is said when its turn comes


def _print(done: Done, as_json: bool, several: bool) -> None:
    assert done.timeline is not None
    timeline = Timeline.from_dict(done.timeline)
    if as_json:
        print(json.dumps(done.timeline, ensure_ascii=False) if several else timeline.to_json(), flush=True)
    else:
        from stepformer.show.terminal import draw

        sys.stdout.write(draw(timeline))
        absent = timeline.meta.get("absent")
        if absent:
            print(f"not in the video: {'; '.join(absent)}")
        sys.stdout.flush()
    for note in timeline.meta.get("notes", ()):
        log.info(f"{done.video}: {note}")
    for file in done.written:
        if not as_json:
            print(f"{file['path']}  {file['format']}", flush=True)
        for note in file["notes"]:
            log.info(f"{file['path']}: {note}")


def _tell_plan(jobs: Sequence[Job], skipped: Sequence[Path], as_json: bool) -> int:
    rows: list[dict[str, Any]] = [
        {"video": str(job.video), "would_write": [output.path for output in job.outputs], "request": str(job.request)}
        for job in jobs
    ]
    rows += [{"video": str(video), "skipped": True, "would_write": []} for video in skipped]
    for row in rows:
        if as_json:
            print(json.dumps(row, ensure_ascii=False))
        else:
            files = ", ".join(row["would_write"]) or "nothing, the result is printed"
            print(f"{row['video']}  {'there already, left' if row.get('skipped') else f'would write {files}'}")
            if row.get("request"):
                print(f"  {row['request']}")
    return 0


def _summary(videos: Sequence[Path], results: Sequence[Done]) -> str:
    by_video = {done.video: done for done in results}
    rows = []
    for video in videos:
        done = by_video.get(video)
        if done is None:
            rows.append((video.name, "", "", "not reached"))
        elif done.skipped:
            rows.append((video.name, "", "", "there already"))
        elif done.error is not None or done.timeline is None:
            rows.append((video.name, "", clock(done.seconds), f"failed: {done.error}"))
        else:
            rows.append((video.name, str(len(done.timeline["steps"])), clock(done.seconds), "ok"))
    width = min(40, max(len(row[0]) for row in rows))
    lines = [f"{'video':<{width}}  steps  time   result"]
    lines += [f"{name[:width]:<{width}}  {steps:>5}  {spent:>5}  {result}" for name, steps, spent, result in rows]
    good = sum(done.timeline is not None and done.error is None for done in results)
    bad = sum(done.error is not None for done in results)
    lines.append(f"{good} done, {sum(done.skipped for done in results)} left as they were, {bad} failed")
    return "\n".join(lines)


__all__ = ["OVER_VIDEOS", "Done", "Job", "run_over"]
