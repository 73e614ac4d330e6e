"""A timeline in writing: names of steps on one line, their colours, seconds as a clock, and where a file came from.

What every exporter, picture and table needs: steps as formats that know no gaps, overlaps or zero lengths want them,
and a stamp of one line of JSON that fits into any format's comment and can be read back.
"""

from __future__ import annotations

import itertools
import json
import math
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any
from xml.etree import ElementTree

from stepformer.errors import InputError
from stepformer.timeline import Step, Timeline, json_values
from stepformer.version import __version__

GUESS = " (guess)"
STEP_COLORS = (
    "#65a7fa", "#fb9d59", "#5bbd74", "#f990c4", "#c0a320", "#00d1da", "#f07f77", "#c4a4fe", "#91b349", "#43c7fd",
)  # fmt: skip
"""Ten hues of about the same lightness, in an order that keeps neighbours apart; dark text reads on all of them, and
they read on a dark and on a light ground. Colour never is the only mark: a number and a name stand beside it."""
# what XML 1.0 cannot hold even escaped: most control characters, surrogates and two non-characters
_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


def one_line(text: str) -> str:
    """``text`` on one line: control characters, line ends and runs of white space become single spaces."""
    return " ".join("".join(" " if unicodedata.category(c) in ("Cc", "Zl", "Zp") else c for c in text).split())


def fit(text: str, cells: int, dots: str = "…") -> str:
    """``text`` in at most ``cells`` terminal cells (wide letters take two), cut with ``dots``."""
    from rich.cells import cell_len, set_cell_size

    return text if cell_len(text) <= cells else set_cell_size(text, cells - len(dots)).rstrip() + dots


def step_colors(timeline: Timeline) -> list[str]:
    """One colour per step as ``#rrggbb``: steps of one name have the same, neighbours of different names differ."""
    seen: dict[object, int] = {}
    colors: list[int] = []
    for i, step in enumerate(timeline):
        key: object = step.label if step.label else ("step", i)
        if key not in seen:
            # the next colour, or the one after it where that would repeat the neighbour's
            at = len(seen) % len(STEP_COLORS)
            seen[key] = (at + 1) % len(STEP_COLORS) if colors and colors[-1] == at else at
        colors.append(seen[key])
    return [STEP_COLORS[i] for i in colors]


def bare_name(step: Step, index: int) -> str:
    """The step's label on one line, or "Step 3" for the unlabelled step of index 2; without the mark of a guess."""
    return one_line(step.label or "") or f"Step {index + 1}"


def step_name(step: Step, index: int) -> str:
    """What is shown as a step's name, in every format: its label, with "(guess)" behind a name that is not sure."""
    return bare_name(step, index) + (GUESS if is_guess(step) and one_line(step.label or "") else "")


def step_names(timeline: Timeline) -> list[str]:
    """The names of all steps, in order."""
    return [step_name(step, i) for i, step in enumerate(timeline)]


def is_guess(step: Step) -> bool:
    """Whether the name is not sure: it was said but may not fit, or the frames suggest it."""
    return bool(step.meta.get("guess"))


def without_guesses(timeline: Timeline) -> Timeline:
    """The timeline with sure names only; other steps have none."""

    def unnamed(step: Step) -> Step:
        meta = {
            key: value for key, value in step.meta.items() if key not in ("guess", "source", "name_score", "said_s")
        }
        return replace(step, label=None, meta=meta)

    return replace(timeline, steps=tuple(unnamed(step) if is_guess(step) else step for step in timeline))


def _read_name(step: Step) -> Step:
    """A step whose name was written by :func:`step_name`: the mark of a guess becomes data again."""
    if step.label is None or not step.label.endswith(GUESS):
        return step
    return replace(step, label=step.label.removesuffix(GUESS), meta={**step.meta, "guess": True})


def xml_text(text: str) -> str:
    """``text`` with the characters that XML cannot hold replaced by U+FFFD; escaping is the XML writer's work."""
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)


def step_numbers(timeline: Timeline, task_steps: Sequence[str] = ()) -> list[int]:
    """A 1-based number per step, the same for steps of the same name, as annotation files use.

    Numbers follow ``task_steps`` (the task's ordered list of names) where a name is in it, compared without case;
    other names are numbered behind it in the order in which they first appear. A step without a name has the
    number of its slot's first appearance, or one of its own.
    """
    seen: dict[object, int] = {one_line(name).casefold(): i + 1 for i, name in enumerate(task_steps)}
    following = itertools.count(len(task_steps) + 1)
    numbers = []
    for i, step in enumerate(timeline):
        label = one_line(step.label or "").casefold()
        key: object = label or (("slot", step.slot) if step.slot is not None else ("step", i))
        if key not in seen:
            seen[key] = next(following)
        numbers.append(seen[key])
    return numbers


_CLOCK = re.compile(r"^(?:(?:(\d+):)?(\d+):)?(\d+)(?:[.,](\d{1,9})\d*)?$")


@dataclass(frozen=True, slots=True)
class Span:
    """A step in whole units (milliseconds, frames), ``start`` inclusive, ``end`` exclusive and later, and its name."""

    start: int
    end: int
    name: str = ""


def spans(timeline: Timeline, per_second: float) -> list[Span]:
    """The steps in units of ``1 / per_second`` seconds, rounded; a step of no length is one unit long."""
    out = []
    for i, step in enumerate(timeline):
        start = round(step.start_s * per_second)
        out.append(Span(start, max(round(step.end_s * per_second), start + 1), step_name(step, i)))
    return out


def clock_ms(milliseconds: int, point: str = ".") -> str:
    """Milliseconds as ``01:02:03.004``; hours grow as they need to."""
    seconds, ms = divmod(milliseconds, 1000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02d}:{minutes:02d}:{seconds:02d}{point}{ms:03d}"


_TICKS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400)


def ticks(end_s: float, most: int) -> list[int]:
    """Round seconds from 0 to ``end_s`` to mark on a time scale, about ``most`` of them at the most."""
    every = next((s for s in _TICKS_S if end_s / s <= most), math.ceil(end_s / most / _TICKS_S[-1]) * _TICKS_S[-1])
    return list(range(0, int(end_s) + 1, every))


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
            if step.end_s > timeline.duration_s + 1e-3:  # formats of whole milliseconds round the end of the video
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


def tracks(items: Sequence[Span]) -> dict[str, list[int]]:
    """Which of the spans (ordered by start) go to the track "steps", and to "steps 2", ... where they overlap."""
    out: dict[str, list[int]] = {"steps": []}
    for i, lane in enumerate(lanes(items)):
        out.setdefault(f"steps {lane + 1}" if lane else "steps", []).append(i)
    return out


def flat(items: Sequence[Span]) -> tuple[list[Span], tuple[str, ...]]:
    """Spans (ordered by start) cut where the next begins; one that is then empty is left out."""
    kept, notes = [], []
    for i, item in enumerate(items):
        end = min(item.end, items[i + 1].start) if i + 1 < len(items) else item.end
        if end < item.end:
            notes.append(f"step {i + 1} overlaps the next: " + ("cut there" if end > item.start else "left out"))
        if end > item.start:
            kept.append(replace(item, end=end))
    return kept, tuple(notes)


def stamp(timeline: Timeline) -> str:
    """One ASCII line: version, video, duration and the timeline's meta; holds no ``--``, which XML comments forbid."""
    value = {
        "made_by": f"stepformer {__version__}",
        "video": timeline.video,
        "duration_s": timeline.duration_s,
        "meta": dict(timeline.meta),
    }
    # inside JSON a hyphen may be written \u002d; outside strings "--" cannot occur
    return json.dumps(value, ensure_ascii=True, default=str).replace("--", "-\\u002d")


def unstamp(text: str) -> dict[str, Any] | None:
    """What :func:`stamp` wrote, or None if ``text`` is something else."""
    try:
        value = json_values(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) and str(value.get("made_by", "")).startswith("stepformer ") else None


def timeline_of(steps: list[Step], source: str, stamped: dict[str, Any] | None) -> Timeline:
    """A timeline of steps read from a file, with video, duration and meta from its stamp where it has one.

    Without a stamp the video is named ``source`` and is as long as its last step.
    """
    steps = sorted((_read_name(step) for step in steps), key=lambda step: step.start_s)
    longest = max((step.end_s for step in steps), default=0.0)
    known = stamped or {}
    video, duration, meta = str(known.get("video", source)), known.get("duration_s"), known.get("meta")
    length_s = duration if isinstance(duration, int | float) else longest
    return Timeline(video, length_s, tuple(steps), meta if isinstance(meta, dict) else {})


def document(root: ElementTree.Element, stamped: str, doctype: str = "") -> str:
    """The whole document, indented; ``stamped`` is a line without ``--``."""
    ElementTree.indent(root)
    body = ElementTree.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{doctype}<!-- {stamped} -->\n{body}\n'


def comment_stamp(text: str) -> dict[str, Any] | None:
    """The provenance in the comment :func:`document` wrote."""
    inside, end, _ = text.partition("<!-- {")[2].partition("} -->")
    return unstamp(f"{{{inside}}}") if end else None
