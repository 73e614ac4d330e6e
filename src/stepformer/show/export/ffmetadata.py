"""ffmetadata: chapters as ffmpeg reads them (``ffmpeg -i in.mp4 -i chapters.ffmeta -map_chapters 1 -c copy out.mp4``).

Milliseconds. What lies past the end of the video is cut or left out, told in the notes; a step of no length is a
millisecond long. A comment holds the provenance.
"""

from __future__ import annotations

import re
from fractions import Fraction

from stepformer.errors import InputError
from stepformer.show.export.options import Options, Rendered
from stepformer.show.writing import spans, stamp, step_name, timeline_of, unstamp, within_video
from stepformer.timeline import Step, Timeline

_SPECIAL = re.compile(r"([=;#\\\n])")
_HEADER = ";FFMETADATA1"


def render(timeline: Timeline, options: Options) -> Rendered:
    """The ffmetadata text."""
    stamped = stamp(timeline)
    timeline, notes = within_video(timeline)
    parts = [f"{_HEADER}\n;{stamped}\n"]
    for i, (step, span) in enumerate(zip(timeline, spans(timeline, 1000), strict=True)):
        title = _SPECIAL.sub(r"\\\1", step_name(step, i))
        parts.append(f"[CHAPTER]\nTIMEBASE=1/1000\nSTART={span.start}\nEND={span.end}\ntitle={title}\n")
    return Rendered("".join(parts), notes)


def parse(text: str, source: str) -> Timeline:
    """A step a chapter."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    if not text.startswith(_HEADER):
        raise InputError(f"{source} is not ffmetadata: its first line is not {_HEADER}")
    # a backslash before a line end continues the value, so lines end only at bare ones
    lines = re.findall(r"(?:\\.|[^\\\n])+", text, re.DOTALL)
    stamped = next((found for line in lines if line.startswith(";") and (found := unstamp(line[1:]))), None)
    chapters: list[dict[str, str]] = []
    inside = False
    for line in lines:
        if line.startswith("["):
            inside = line.strip().upper() == "[CHAPTER]"
            if inside:
                chapters.append({})
        elif inside and not line.startswith((";", "#")):
            match = re.match(r"((?:\\.|[^\\=])*)=(.*)", line, re.DOTALL)
            if match:
                key, value = (re.sub(r"\\(.)", r"\1", part, flags=re.DOTALL) for part in match.groups())
                chapters[-1][key.lower()] = value
    return timeline_of([_step(chapter, source) for chapter in chapters], source, stamped)


def _step(chapter: dict[str, str], source: str) -> Step:
    try:
        base = Fraction(chapter.get("timebase", "1/1000000000"))
        start, end = (float(int(chapter[key]) * base) for key in ("start", "end"))
    except (KeyError, ValueError, ZeroDivisionError):
        raise InputError(f"{source}: a chapter without valid TIMEBASE, START and END: {chapter}") from None
    return Step(start, end, chapter.get("title") or None)
