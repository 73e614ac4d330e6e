"""WebVTT chapters: a cue a step, for ``<track kind="chapters">`` and players that read it. Milliseconds.

Overlapping steps stay overlapping cues, steps past the end stay; a step of no length is a millisecond long. The
first comment of the file holds its provenance, so reading it back gives the video and its length too.
"""

from __future__ import annotations

import re

from stepformer.errors import InputError
from stepformer.show.export.options import Options, Rendered
from stepformer.show.writing import clock_ms, parse_clock, spans, stamp, step_name, timeline_of, unstamp
from stepformer.timeline import Step, Timeline

_TAG = re.compile(r"<[^>]*>")
_ENTITIES = {
    "&lt;": "<", "&gt;": ">", "&nbsp;": "\N{NO-BREAK SPACE}", "&lrm;": "\u200e", "&rlm;": "\u200f", "&amp;": "&",
}  # fmt: skip
_ENTITY = re.compile("|".join(_ENTITIES))


def render(timeline: Timeline, options: Options) -> Rendered:
    """The WebVTT text."""
    blocks = ["WEBVTT", f"NOTE {stamp(timeline)}"]
    for i, (step, span) in enumerate(zip(timeline, spans(timeline, 1000), strict=True)):
        name = step_name(step, i).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        blocks.append(f"{i + 1}\n{clock_ms(span.start)} --> {clock_ms(span.end)}\n{name}")
    return Rendered("\n\n".join(blocks) + "\n")


def parse(text: str, source: str) -> Timeline:
    """A step a cue; styles, regions and comments are passed over."""
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").split("\n")
    if not re.match(r"WEBVTT(?:[ \t]|$)", lines[0]):
        raise InputError(f"{source} is not WebVTT: its first line is not WEBVTT")
    blocks: list[list[str]] = [[]]
    for line in lines[1:]:
        if line:
            blocks[-1].append(line)
        else:
            blocks.append([])
    stamped = None
    steps = []
    for block in blocks:
        at = next((i for i, line in enumerate(block[:2]) if "-->" in line), None)
        if at is None:
            if block and block[0].startswith("NOTE "):
                stamped = stamped or unstamp(block[0][5:])
            continue
        start, _, rest = block[at].partition("-->")
        name = _ENTITY.sub(lambda m: _ENTITIES[m.group()], _TAG.sub("", " ".join(block[at + 1 :])))
        steps.append(Step(parse_clock(start), parse_clock(rest.split()[0] if rest.split() else ""), name or None))
    return timeline_of(steps, source, stamped)
