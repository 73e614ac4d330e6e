"""The options of writers, and what they give back."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stepformer.errors import InputError, UsageError
from stepformer.timeline import Timeline

DEFAULT_FPS = 25.0


@dataclass(frozen=True, slots=True)
class Options:
    """Options of all writers; each uses those that mean something to it."""

    video: str | None = None  # the media file, where it is not the timeline's own `video`
    fps: float | None = None  # frames per second of frame-based formats; else the video's, else 25
    title: str | None = None  # of a page or picture; else the video's file name
    task: str | None = None  # task id or class of annotation formats (CrossTask, COIN)
    task_steps: tuple[str, ...] = ()  # the task's ordered step names: annotation formats number steps by them
    similarity: Any = None  # (K, N) steps or slots against frames, shown by pictures and the page
    embed: bool = False  # page: put the video itself into the file
    target: Path | None = None  # where the file goes; `write` says so, for paths relative to it

    def __post_init__(self) -> None:
        if self.fps is not None and not (math.isfinite(self.fps) and self.fps > 0):
            raise UsageError(f"fps must be positive, got {self.fps!r}")
        object.__setattr__(self, "task_steps", tuple(self.task_steps))


@dataclass(frozen=True, slots=True)
class Rendered:
    """The text of one file, and sentences on what did not fit the format and was changed."""

    text: str
    notes: tuple[str, ...] = ()


def media_file(timeline: Timeline, options: Options) -> Path | None:
    """The video file if it is here, else None. What only the timeline names must look like a video: a stranger may
    have written it, and the file is shown."""
    from stepformer.media import SUFFIXES

    name = options.video or timeline.video
    try:
        path = Path(name)
        video = bool(options.video) or path.suffix.lower() in SUFFIXES
        return path if name and video and path.is_file() else None
    except (OSError, ValueError):  # a video id can be anything, even what no path may hold
        return None


def media_address(timeline: Timeline, options: Options) -> str:
    """The video as other programs name it: the address of the file if it is here, else what it is called."""
    found = media_file(timeline, options)
    return found.resolve().as_uri() if found else (options.video or timeline.video)


def need_media_file(timeline: Timeline, options: Options, purpose: str) -> Path:
    """The video file, or an error that says how to name it."""
    found = media_file(timeline, options)
    if found is None:
        raise InputError(
            f"{purpose} needs the video itself, and {options.video or timeline.video!r} is not a file here; "
            "name it with --video FILE (in Python video=...)"
        )
    return found


def frame_rate(timeline: Timeline, options: Options) -> tuple[float, tuple[str, ...]]:
    """Frames a second for frame-based formats, and a note if it had to be assumed."""
    if options.fps is not None:
        return float(options.fps), ()
    path = media_file(timeline, options)
    if path is not None:
        from stepformer.media import probe

        rate_hz = probe(path).rate_hz
        if rate_hz:
            return rate_hz, ()
    return DEFAULT_FPS, (f"{DEFAULT_FPS:g} frames per second assumed; name the video (--video) or the rate (--fps)",)
