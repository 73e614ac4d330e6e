"""SubRip subtitles (.srt): a subtitle a step. Milliseconds.

The format has neither comments nor an escape: ``-->`` in a name, which would look like a time line, is written as an
arrow. Overlaps and steps past the end stay; a step of no length is a millisecond long.
"""

from __future__ import annotations

import re

from stepformer.errors import InputError
from stepformer.show.export.options import Options, Rendered
from stepformer.show.writing import clock_ms, parse_clock, spans, step_name, timeline_of
from stepformer.timeline import Step, Timeline


def render(timeline: Timeline, options: Options) -> Rendered:
    """The SubRip text."""
    blocks = []
    for i, (step, span) in enumerate(zip(timeline, spans(timeline, 1000), strict=True)):
        name = step_name(step, i).replace("-->", "\N{RIGHTWARDS ARROW}")
        blocks.append(f"{i + 1}\n{clock_ms(span.start, ',')} --> {clock_ms(span.end, ',')}\n{name}\n")
    return Rendered("\n".join(blocks))


def parse(text: str, source: str) -> Timeline:
    """A step a subtitle."""
    steps = []
    for block in re.split(r"\n[ \t]*\n", text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")):
        lines = block.strip("\n").split("\n")
        at = next((i for i, line in enumerate(lines[:2]) if "-->" in line), None)
        if at is None:
            if block.strip():
                raise InputError(f"{source} is not SubRip: no times in {lines[0][:60]!r}")
            continue
        start, _, end = lines[at].partition("-->")
        name = " ".join(lines[at + 1 :])
        steps.append(Step(parse_clock(start), parse_clock(end.split()[0] if end.split() else ""), name or None))
    return timeline_of(steps, source, None)
