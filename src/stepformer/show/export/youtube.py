"""YouTube chapters: lines to paste into a video's description, by the rules without which YouTube shows none.

The first chapter is at 0:00, there are at least three, each is ten seconds long or more, and they ascend. So a
short chapter is joined with its shorter neighbour (both names are kept while they fit), a beginning or an end without
a step becomes a chapter if it is long enough, and everything that was joined or moved is told in the notes. A
timeline that cannot give three chapters is an error. Whole seconds; gaps belong to the step before them; what
overlaps is cut by the next start. Descriptions may not hold ``<`` and ``>``: they become ‹ and ›.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from stepformer.errors import StepFormerError
from stepformer.show.export.options import Options, Rendered
from stepformer.show.writing import clock_s, one_line, parse_clock, step_name, timeline_of, within_video
from stepformer.timeline import Step, Timeline

MIN_CHAPTERS = 3
MIN_LENGTH_S = 10
MAX_NAME = 100  # characters of a joined name; a player cuts longer ones
MAX_DESCRIPTION = 5000  # characters of a whole description

_LINE = re.compile(r"^\W*((?:\d+:)?\d{1,2}:\d\d)\b[\s\-\u2013\u2014:.)\]]*(.*)$")


@dataclass(slots=True)
class _Chapter:
    """A chapter while it is being made: whole seconds, and the names that were joined in it."""

    start_s: int
    end_s: int
    names: list[str]

    @property
    def length_s(self) -> int:
        return self.end_s - self.start_s

    @property
    def name(self) -> str:
        return " / ".join(dict.fromkeys(self.names))


def render(timeline: Timeline, options: Options) -> Rendered:
    """The lines; the notes tell what was joined."""
    timeline, notes = within_video(timeline)
    told = list(notes)
    chapters = _tiles(timeline, told)
    _join_short(chapters, told)
    if len(chapters) < MIN_CHAPTERS:
        raise StepFormerError(
            f"YouTube shows chapters only where there are at least {MIN_CHAPTERS} of {MIN_LENGTH_S} seconds or more; "
            f"the {len(timeline)} steps of {timeline.video} give {len(chapters)}. "
            "Find more steps, or use another format (vtt, ffmetadata)"
        )
    lines = [f"{clock_s(c.start_s)} {c.name.replace('<', '‹').replace('>', '›')}" for c in chapters]
    text = "\n".join(lines) + "\n"
    if len(text) > MAX_DESCRIPTION:
        told.append(f"the list has {len(text)} characters; a YouTube description holds {MAX_DESCRIPTION}")
    return Rendered(text, tuple(told))


def parse(text: str, source: str) -> Timeline:
    """Chapters of any description: each ends where the next begins, the last where it begins (its end is unknown)."""
    marks = [(parse_clock(m.group(1)), m.group(2)) for m in map(_LINE.match, text.splitlines()) if m]
    ends = [start for start, _ in marks[1:]] + [start for start, _ in marks[-1:]]
    steps = [Step(s, max(s, e), one_line(name) or None) for (s, name), e in zip(marks, ends, strict=True)]
    return timeline_of(steps, source, None)


def _tiles(timeline: Timeline, told: list[str]) -> list[_Chapter]:
    """Chapters from 0:00 to the end without gaps."""
    if not len(timeline):
        return []
    end_s = int(timeline.duration_s or max(step.end_s for step in timeline))
    chapters = [_Chapter(int(step.start_s), 0, [step_name(step, i)]) for i, step in enumerate(timeline)]
    first, last = chapters[0], timeline[len(timeline) - 1]
    if first.start_s >= MIN_LENGTH_S:
        chapters.insert(0, _Chapter(0, 0, ["Intro"]))
    elif first.start_s:
        told.append(f"{first.name!r} moved from {clock_s(first.start_s)} to 0:00, where the first chapter must be")
        first.start_s = 0
    if end_s - int(last.end_s) >= MIN_LENGTH_S and int(last.end_s) - int(last.start_s) >= MIN_LENGTH_S:
        chapters.append(_Chapter(int(last.end_s), 0, ["Outro"]))
    for i, chapter in enumerate(chapters):
        chapter.end_s = max(chapters[i + 1].start_s if i + 1 < len(chapters) else end_s, chapter.start_s)
    return chapters


def _join_short(chapters: list[_Chapter], told: list[str]) -> None:
    """Joins the shortest chapter with its shorter neighbour until none is too short or only one is left."""
    while len(chapters) > 1:
        at = min(range(len(chapters)), key=lambda i: chapters[i].length_s)
        short = chapters[at]
        if short.length_s >= MIN_LENGTH_S:
            return
        sides = [i for i in (at - 1, at + 1) if 0 <= i < len(chapters)]
        other = min(sides, key=lambda i: chapters[i].length_s)
        first, second = chapters[min(at, other)], chapters[max(at, other)]
        told.append(
            f"{short.name!r} ({short.length_s} s at {clock_s(short.start_s)}) is shorter than {MIN_LENGTH_S} s: "
            f"joined with {chapters[other].name!r}"
        )
        joined = _Chapter(first.start_s, second.end_s, first.names + second.names)
        if len(joined.name) > MAX_NAME:
            joined.names = max((first, second), key=lambda c: c.length_s).names
        chapters[min(at, other) : max(at, other) + 1] = [joined]
    if chapters and chapters[0].length_s < MIN_LENGTH_S:
        chapters.clear()
