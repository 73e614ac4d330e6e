"""WebVTT, YouTube's flavour of it included."""

from __future__ import annotations

from stepformer.errors import InputError
from stepformer.narration.clock import arrow
from stepformer.narration.cues import Cue, cue_at
from stepformer.narration.readers.inline import timed_words

_SKIPPED = ("NOTE", "STYLE", "REGION")


def parse(text: str, name: str) -> list[Cue]:
    """Cues of a WebVTT file, text as it stands in the file (lines and tags kept)."""
    lines = text.split("\n")
    first = next((i for i, line in enumerate(lines) if line.strip()), 0)
    if not lines[first].lstrip("\ufeff ").startswith("WEBVTT") and arrow(lines[first]) is None and "-->" not in text:
        raise InputError(f"{name}: line {first + 1}: expected 'WEBVTT', found {lines[first].strip()[:60]!r}")
    cues: list[Cue] = []
    times: tuple[float, float] | None = None
    body: list[str] = []
    skipping = True  # the header, then NOTE, STYLE and REGION blocks, run to the next empty line
    for number, line in enumerate(lines, start=1):
        if "-->" in line and (found := arrow(line)) is not None:
            if times is not None:
                cues.append(_cue(times, _without_name(body)))
            times, body, skipping = found, [], False
        elif "-->" in line and not skipping and any(c.isdigit() for c in line.partition("-->")[0][-4:]):
            raise InputError(f"{name}: line {number}: expected '00:01.000 --> 00:02.000', found {line.strip()[:60]!r}")
        elif line == "":
            skipping = False
            body.append(line)
        elif skipping or (line.startswith(_SKIPPED) and _is_block(line) and (not body or body[-1] == "")):
            skipping = True
        else:
            body.append(line)
    if times is not None:
        cues.append(_cue(times, body))
    return cues


def _is_block(line: str) -> bool:
    return line.split(maxsplit=1)[0].rstrip(":") in _SKIPPED


def _without_name(body: list[str]) -> list[str]:
    """The text lines without the cue name that belongs to the next cue: a line of its own right above its times."""
    if body and body[-1] and (len(body) >= 2 and body[-2] == ""):
        return body[:-1]
    return body


def _cue(times: tuple[float, float], body: list[str]) -> Cue:
    text = "\n".join(line for line in body if line.strip())
    return cue_at(*times, text, timed_words(text, *times))
