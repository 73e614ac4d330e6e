"""SubRip (SRT), as loosely as it is found: no numbers, dots for commas, no blank lines; also SBV's one-line times."""

from __future__ import annotations

import re

from stepformer.errors import InputError
from stepformer.narration.clock import arrow, seconds
from stepformer.narration.cues import Cue, cue_at
from stepformer.narration.readers.inline import timed_words

_SBV = re.compile(r"^\s*(\d+:\d\d:\d\d\.\d{1,3}),(\d+:\d\d:\d\d\.\d{1,3})\s*$", re.ASCII)


def timing(line: str) -> tuple[float, float] | None:
    """Start and end of a timing line; None if the line is none."""
    if "-->" in line:
        return arrow(line)
    found = _SBV.match(line)
    if found is None:
        return None
    start_s, end_s = seconds(found[1]), seconds(found[2])
    return None if start_s is None or end_s is None else (start_s, end_s)


def parse(text: str, name: str) -> list[Cue]:
    """Cues of an SRT file, text as it stands in the file (lines kept)."""
    lines = text.split("\n")
    cues: list[Cue] = []
    times: tuple[float, float] | None = None
    body: list[str] = []
    for number, line in enumerate(lines, start=1):
        if "-->" in line and timing(line) is None and _looks_like_timing(line):
            raise InputError(
                f"{name}: line {number}: expected '00:00:01,000 --> 00:00:02,000', found {line.strip()[:60]!r}"
            )
        found = timing(line)
        if found is None:
            if times is None and line.strip() and not line.strip().isdigit():
                raise InputError(
                    f"{name}: line {number}: expected a cue number or '00:00:01,000 --> 00:00:02,000' before the "
                    f"first text, found {line.strip()[:60]!r}"
                )
            body.append(line)
            continue
        if times is not None:
            cues.append(_cue(times, _without_number(body)))
        times, body = found, []
    if times is None:
        raise InputError(f"{name}: line 1: no cue found; expected '00:00:01,000 --> 00:00:02,000'")
    cues.append(_cue(times, body))
    return cues


def _looks_like_timing(line: str) -> bool:
    # an arrow in spoken text is text; one beside digits was meant as a time
    left, _, right = line.partition("-->")
    return not left.strip() or not right.strip() or left.strip()[-1].isdigit() or right.strip()[0].isdigit()


def _without_number(body: list[str]) -> list[str]:
    """The text lines without the number that belongs to the next cue."""
    end = len(body)
    while end and not body[end - 1].strip():
        end -= 1
    if end and body[end - 1].strip().isdigit() and (end == 1 or not body[end - 2].strip()):
        return body[: end - 1]
    return body[:end]


def _cue(times: tuple[float, float], body: list[str]) -> Cue:
    text = "\n".join(line for line in body if line.strip())
    start_s, end_s = times
    words = timed_words(text, start_s, end_s) if "<" in text else ()
    return cue_at(start_s, end_s, text, words)
