"""Text with times: ``0:05 crack the eggs``, ``[00:01:02] …``, LRC, ``12.5<tab>15.0<tab>…``, times on own lines."""

from __future__ import annotations

import re

from stepformer.errors import InputError
from stepformer.narration.clock import seconds
from stepformer.narration.cues import Cue, cue_at

_CLOCK = r"-?\d{1,4}(?::\d{1,2}){1,2}(?:[.,]\d{1,6})?"
_NUMBER = r"-?\d{1,7}(?:\.\d{1,9})?"
_TO = r"\s*(?:-->|->|-|–|—|to|,|;|\t)\s*"
_LINES = (
    # a clock time, maybe to another, maybe in brackets
    re.compile(
        rf"^\s*[\[(]?\s*({_CLOCK})\s*(?:{_TO}({_CLOCK})\s*)?(?:[\])]\s*[:|–—-]?\s*|\s*[:|–—-]?(?:\s+|$))(.*)$", re.ASCII
    ),
    # two numbers with decimal points
    re.compile(r"^\s*(-?\d{1,7}\.\d{1,9})\s+(-?\d{1,7}\.\d{1,9})\s+(.*)$", re.ASCII),
    # seconds in columns: tabs, semicolons or commas; or a number with a decimal point before the text
    re.compile(rf"^\s*({_NUMBER})s?\s*[\t;,|]\s*(?:({_NUMBER})s?\s*[\t;,|]\s*)?(.*)$", re.ASCII),
    re.compile(
        rf"^\s*[\[(]?(-?\d{{1,7}}\.\d{{1,9}})s?\s*(?:{_TO}\s*(-?\d{{1,7}}\.\d{{1,9}})s?)?[\])]?\s*:?\s+(.*)$", re.ASCII
    ),
    re.compile(rf"^\s*[\[(]\s*({_NUMBER})\s*s?\s*(?:{_TO}({_NUMBER})\s*s?\s*)?[\])]\s*:?\s*(.*)$", re.ASCII),
)
_HEADER = re.compile(r"^\s*(?:start|begin|time|from)\b[\w\s,;\t|]*\btext\b\s*$", re.IGNORECASE)
_TAG = re.compile(r"^\s*\[[A-Za-z#]+:[^\]]*\]\s*$")  # title, artist and the like at the head of an LRC file
_LAST_S = 5.0  # how long the last line is taken to last where the file does not say


def _split(line: str) -> tuple[float, float | None, str] | None:
    for pattern in _LINES:
        found = pattern.match(line)
        if found:
            start, end, text = found.groups()
            start_s, end_s = _time(start), _time(end)
            if start_s is not None:
                return start_s, end_s, text or ""
    return None


def _time(text: str | None) -> float | None:
    if text is None:
        return None
    return seconds(text) if ":" in text else float(text)


def starts_with_time(text: str) -> bool:
    """Whether the first line has a time, as ``[00:01] …`` does and JSON does not."""
    return _split(text.split("\n", 1)[0]) is not None


def parse(text: str, name: str) -> list[Cue]:
    """Cues of a text file with times. A line without a time goes on with the one before it."""
    starts: list[float] = []
    ends: list[float | None] = []
    texts: list[list[str]] = []
    # seconds times 1000, as whisper.cpp and Whisper's TSV write them
    lines = text.split("\n")
    in_ms = bool(lines) and bool(re.match(r"^start\tend\ttext\s*$", lines[0], re.IGNORECASE))
    for number, line in enumerate(lines, start=1):
        if not line.strip() or (not starts and (_HEADER.match(line) or _TAG.match(line))):
            continue
        found = _split(line)
        if found is not None:
            start_s, end_s, said = found
            starts.append(start_s / 1000 if in_ms else start_s)
            ends.append(end_s / 1000 if in_ms and end_s is not None else end_s)
            texts.append([said] if said.strip() else [])
        elif starts:
            texts[-1].append(line)
        else:
            raise InputError(
                f"{name}: line {number}: expected WEBVTT, SRT, TTML, JSON, or a time before the text such as "
                f"'0:05 crack the eggs', found {line.strip()[:60]!r}"
            )
    later = [*sorted(set(starts)), float("inf")]
    following = {at: later[i + 1] for i, at in enumerate(later[:-1])}
    cues: list[Cue] = []
    for start_s, given_s, said_lines in zip(starts, ends, texts, strict=True):
        said = "\n".join(said_lines)
        end_s = given_s
        if end_s is None:
            end_s = following[start_s] if following[start_s] != float("inf") else start_s + _LAST_S
        cues.append(cue_at(start_s, end_s, said))
    return cues
