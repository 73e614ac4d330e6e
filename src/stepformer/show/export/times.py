"""Seconds as file formats write them, and steps as the ones that know no gaps, overlaps or zero lengths need them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from stepformer.errors import InputError
from stepformer.timeline import Timeline

_CLOCK = re.compile(r"^(?:(?:(\d+):)?(\d+):)?(\d+)(?:[.,](\d{1,9})\d*)?$")


@dataclass(frozen=True, slots=True)
class Span:
    """A step in whole units (milliseconds, frames): ``start`` inclusive, ``end`` exclusive and later."""

    start: int
    end: int


def spans(timeline: Timeline, per_second: float) -> list[Span]:
    """The steps in units of ``1 / per_second`` seconds, rounded; a step of no length is one unit long."""
    out = []
    for step in timeline:
        start = round(step.start_s * per_second)
        out.append(Span(start, max(round(step.end_s * per_second), start + 1)))
    return out


def clock_ms(milliseconds: int, point: str = ".") -> str:
    """Milliseconds as ``01:02:03.004``; hours grow as they need to."""
    seconds, ms = divmod(milliseconds, 1000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02d}:{minutes:02d}:{seconds:02d}{point}{ms:03d}"


def clock_s(seconds: int) -> str:
    """Whole seconds as people write them: ``0:07``, ``12:30``, ``1:02:03``."""
    minutes, secs = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{secs:02d}" if hours else f"{minutes}:{secs:02d}"


def parse_clock(text: str) -> float:
    """Seconds of ``1:02:03.004``, ``02:03,004``, ``2:03`` or ``3.004``."""
    match = _CLOCK.match(text.strip())
    if match is None:
        raise InputError(f"not a time: {text!r}; expected something like 1:02:03.004")
    hours, minutes, seconds, fraction = match.groups()
    whole = int(hours or 0) * 3600 + int(minutes or 0) * 60 + int(seconds)
    # as one division, so that what clock_ms wrote of a whole millisecond is read back equal
    return int(f"{whole}{fraction}") / 10 ** len(fraction) if fraction else float(whole)


def within_video(timeline: Timeline) -> tuple[Timeline, tuple[str, ...]]:
    """The timeline without what lies past the end of the video, and notes on what was cut.

    Chapters, cuts and pictures are of the video; there is nothing to show of a step behind its end. A timeline
    of duration 0 (unknown) is returned as it is.
    """
    if not timeline.duration_s:
        return timeline, ()
    kept, notes = [], []
    for i, step in enumerate(timeline):
        if step.start_s >= timeline.duration_s:
            notes.append(f"step {i + 1} starts at {step.start_s:g} s, past the end of the video: left out")
        elif step.end_s > timeline.duration_s:
            notes.append(f"step {i + 1} ends at {step.end_s:g} s, past the end of the video: cut there")
            kept.append(replace(step, end_s=timeline.duration_s))
        else:
            kept.append(step)
    return replace(timeline, steps=tuple(kept)), tuple(notes)


def lanes(items: Sequence[Span]) -> list[int]:
    """For each span (ordered by start) the lowest lane in which it overlaps nothing before it."""
    ends: list[int] = []
    out = []
    for item in items:
        lane = next((i for i, end in enumerate(ends) if end <= item.start), len(ends))
        ends[lane : lane + 1] = [item.end]
        out.append(lane)
    return out


def flat(items: Sequence[Span]) -> tuple[list[tuple[int, Span]], tuple[str, ...]]:
    """Spans (ordered by start) cut where the next begins, each with its index; one that is then empty is left out."""
    kept, notes = [], []
    for i, item in enumerate(items):
        end = min(item.end, items[i + 1].start) if i + 1 < len(items) else item.end
        if end < item.end:
            notes.append(f"step {i + 1} overlaps the next: " + ("cut there" if end > item.start else "left out"))
        if end > item.start:
            kept.append((i, Span(item.start, end)))
    return kept, tuple(notes)
