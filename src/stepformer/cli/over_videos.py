"""The same command over one or many videos: progress, jobs, failures, a summary, files, exit codes."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stepformer.base.many import run_many
from stepformer.base.progress import Progress, clock
from stepformer.cli.outputs import Output, all_there, planned, save_options, write_all
from stepformer.cli.settings import Option, Settings
from stepformer.errors import StepFormerError, UsageError
from stepformer.timeline import Timeline

COMMON: tuple[Option, ...] = (
    Option("model", str, "default", "model name, checkpoint, run folder or hub id", "NAME"),
    Option("encoder", str, None, "encoder instead of the model's own, e.g. captions:FILE.json", "NAME"),
    Option("device", str, None, "cpu or cuda (default: the GPU, if there is one)", "NAME"),
    Option("write", list, [], "write the timeline to FILE, format by suffix; {name} is the video's name", "FILE"),
    Option("format", list, [], "write NAME.steps.* in this format beside the video, or into --out", "NAME"),
    Option("out", str, None, "folder for --format and --plot", "FOLDER"),
    Option("plot", bool, False, "a picture of the timeline and the similarity map, NAME.steps.png"),
    Option("skip_existing", bool, False, "leave videos whose files are all there already"),
    Option("keep_going", bool, False, "go on after a video that fails; a table at the end"),
    Option("jobs", int, 1, "videos worked on at once, each in a process of its own", "N"),
    Option("reuse", bool, True, "read every video again, keep nothing", flag="--no-cache"),
    Option("quiet", bool, False, "no progress and no summary"),
    Option("dry_run", bool, False, "say what would be done, do nothing"),
)


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


def run_over(
    command: str,
    videos: Sequence[Path],
    request_of: Callable[[Path], Any],
    find: Finder,
    settings: Settings,
    as_json: bool,
) -> int:
    """Does ``command`` on every video and returns the exit code."""
    if settings.jobs < 1:
        raise UsageError(f"--jobs must be at least 1, got {settings.jobs}")
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
    with _shown(command, jobs, settings) as progress:
        for done in _all_done(jobs, find, settings, progress):
            results.append(done)
            if done.timeline is not None:
                _print(done, as_json, several=len(videos) > 1)
            if done.error is None:
                continue
            if not settings.keep_going:
                failed = done
                break
            _say(f"stepformer: {done.video}: {done.error}")
    if any(done.timeline for done in results):
        save_options(command, plans, settings.to_dict())
    if failed is not None and len(videos) == 1:
        print(f"stepformer: {failed.error}", file=sys.stderr)
        return failed.exit_code
    if failed is not None:
        print(f"stepformer: {failed.video}: {failed.error}", file=sys.stderr)
        left = len(videos) - len(results)
        if left:
            print(f"stepformer: stopped with {left} to go; --keep-going would do them too", file=sys.stderr)
        return 5 if any(done.timeline for done in results) else failed.exit_code
    if len(videos) > 1 and not settings.quiet:
        _say(_summary(videos, results))
    errors = [done for done in results if done.error is not None]
    if errors:
        return errors[0].exit_code if len(videos) == 1 else 5
    return 0


def _all_done(jobs: list[Job], find: Finder, settings: Settings, progress: VideoProgress) -> Iterator[Done]:
    if not jobs:
        return
    start = (settings.model, settings.encoder, settings.device, find, settings.reuse)
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

    def __init__(self, command: str, jobs: Sequence[Job], settings: Settings) -> None:
        lengths = {} if settings.quiet else {job.video: _length_s(job.video) for job in jobs}
        self._bar = Progress(command, sum(lengths.values()) or None, "s of video", quiet=settings.quiet or not jobs)
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
        _say(f"{done.video}: {note}")
    for file in done.written:
        if not as_json:
            print(f"{file['path']}  {file['format']}", flush=True)
        for note in file["notes"]:
            _say(f"{file['path']}: {note}")


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


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


__all__ = ["COMMON", "Done", "Job", "run_over"]
