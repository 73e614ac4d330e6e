"""Subtitles that are text: WebVTT, SubRip, SBV and text with times; clock times as they write them, and timed words."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence

from stepformer.errors import InputError
from stepformer.narration.cues import Cue, Word, cue_at

# 1:02:03.456, 02:03,456, 2 : 03; a fraction of any length, a comma or a dot
_CLOCK = re.compile(r"(-?)\s*(?:(\d{1,4})\s*:\s*)?(\d{1,4})\s*:\s*(\d{1,2})(?:\s*[.,:;]\s*(\d{1,9}))?", re.ASCII)
_LONGEST_CLOCK = 60
MAX_S = 1e7  # a time beyond 115 days is a mistake in the file


def seconds(text: str) -> float | None:
    """Seconds of a clock time such as ``01:02:03,456``; None if it is none."""
    text = text.strip()
    # the pattern tries every way to share out white space
    found = _CLOCK.fullmatch(text) if len(text) <= _LONGEST_CLOCK else None
    if found is None:
        return None
    sign, hours, minutes, secs, fraction = found.groups()
    value = int(hours or 0) * 3600 + int(minutes) * 60 + int(secs) + float(f"0.{fraction or 0}")
    return -value if sign else value


def number(value: object) -> float | None:
    """A finite number of seconds (or other unit) from a JSON number or a numeric string; None if it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        result = float(value)
    except (ValueError, OverflowError):
        return None
    return result if math.isfinite(result) and abs(result) < MAX_S * 1000 else None


def words_at(pieces: Iterable[tuple[float | None, str]], start_s: float, end_s: float) -> tuple[Word, ...]:
    """Words from pieces of text with start times. A word without a time starts with the one before it.

    A word ends where the next begins, the last one at ``end_s``. Times that run backwards are held.
    """
    starts: list[float] = []
    texts: list[str] = []
    now = max(0.0, start_s)
    for at, text in pieces:
        if at is not None and math.isfinite(at):
            now = max(now, at)
        for word in text.split():
            starts.append(now)
            texts.append(word)
    return tuple(map(Word, starts, [*starts[1:], max([end_s, *starts[-1:]])], texts))


def cue_of_pieces(pieces: Sequence[tuple[float | None, str]], start_s: float, end_s: float, timed: bool = True) -> Cue:
    """A cue of pieces of text with start times; without ``timed`` they say nothing of words."""
    text = "".join(piece for _, piece in pieces)
    words = words_at(pieces, start_s, end_s) if timed else ()
    return cue_at(start_s, end_s, text, words if len(words) == len(text.split()) else ())


_STAMP = re.compile(r"<(\d[\d:.,]*)>")
_TAG = re.compile(r"</?[A-Za-z][^<>]{0,200}>")


def timed_words(text: str, start_s: float, end_s: float) -> tuple[Word, ...]:
    """Words of a cue's text that has inline times; () where it has none."""
    pieces = _STAMP.split(text)
    if len(pieces) < 3:
        return ()
    stamps = [start_s, *(seconds(stamp) for stamp in pieces[1::2])]
    return words_at(zip(stamps, (_TAG.sub("", piece) for piece in pieces[::2]), strict=True), start_s, end_s)


_SBV = re.compile(r"\s*(\d+:\d\d:\d\d\.\d{1,3}),(\d+:\d\d:\d\d\.\d{1,3})\s*", re.ASCII)
_BLOCK = re.compile(r"(?:NOTE|STYLE|REGION)(?:[\s:]|$)")


def timing(line: str) -> tuple[float, float] | None:
    """Start and end of ``00:01,000 --> 00:02,000`` (settings behind it are ignored) or of SBV's ``0:01.0,0:02.0``."""
    left, found, right = line.partition("-->")
    if not found:
        if (pair := _SBV.fullmatch(line)) is None:
            return None
        left, right = pair.groups()
    ends = (seconds(end) for end in (right, " ".join(right.split()[:1]), " ".join(right.split()[:2])))
    start_s, end_s = seconds(left), next((end for end in ends if end is not None), None)
    return None if start_s is None or end_s is None else (start_s, end_s)


def parse_timed(text: str, name: str) -> list[Cue]:
    """Cues of a WebVTT, SRT or SBV file, text as it stands in the file (lines and tags kept)."""
    lines = text.split("\n")
    vtt = text.lstrip("\ufeff \n").startswith("WEBVTT") or name.lower().endswith(".vtt")
    if vtt and "WEBVTT" not in text[:4096] and "-->" not in text:
        first = next(i for i, line in enumerate(lines, start=1) if line.strip())
        raise InputError(f"{name}: line {first}: expected 'WEBVTT', found {lines[first - 1].strip()[:60]!r}")
    cues: list[Cue] = []
    times: tuple[float, float] | None = None
    body: list[str] = []
    skipping = vtt  # the header, then NOTE, STYLE and REGION blocks, run to the next empty line
    for number, line in enumerate(lines, start=1):
        if (found := timing(line)) is not None:
            if times is not None:
                cues.append(_cue(times, _without_name(body, vtt)))
            times, body, skipping = found, [], False
        elif not skipping and "-->" in line and _looks_like_timing(line):
            expected = "expected '00:00:01,000 --> 00:00:02,000'"
            raise InputError(f"{name}: line {number}: {expected}, found {line.strip()[:60]!r}")
        elif not line.strip():
            skipping = skipping and line != ""
            body.append("")
        elif skipping or (vtt and _BLOCK.match(line) and (body[-1:] == [""] or times is None)):
            skipping = True
        elif not vtt and times is None and not line.strip().isdigit():
            raise InputError(
                f"{name}: line {number}: expected a cue number or '00:00:01,000 --> 00:00:02,000' before the "
                f"first text, found {line.strip()[:60]!r}"
            )
        else:
            body.append(line)
    if times is not None:
        cues.append(_cue(times, body))
    elif not vtt:
        raise InputError(f"{name}: line 1: no cue found; expected '00:00:01,000 --> 00:00:02,000'")
    return cues


def _looks_like_timing(line: str) -> bool:
    # an arrow in spoken text is text; one beside digits was meant as a time
    left, _, right = (part.strip() for part in line.partition("-->"))
    return not left or not right or left[-1].isdigit() or right[0].isdigit()


def _without_name(body: list[str], vtt: bool) -> list[str]:
    """The text lines without the number or name of the next cue: a paragraph of one line right above its times."""
    while body and not body[-1] and not vtt:
        body = body[:-1]
    alone = len(body) == 1 or (len(body) > 1 and not body[-2])
    named = bool(body) and alone and (body[-1].strip().isdigit() or (vtt and len(body) > 1))
    return body[:-1] if named else body


def _cue(times: tuple[float, float], body: list[str]) -> Cue:
    text = "\n".join(line for line in body if line.strip())
    return cue_at(*times, text, timed_words(text, *times))


_PLAIN_CLOCK = r"-?\d{1,4}(?::\d{1,2}){1,2}(?:[.,]\d{1,6})?"
_NUMBER = r"-?\d{1,7}(?:\.\d{1,9})?"
_TO = r"\s*(?:-->|->|-|–|—|to|,|;|\t)\s*"
_LINES = (
    # a clock time, maybe to another, maybe in brackets
    re.compile(
        rf"^\s*[\[(]?\s*({_PLAIN_CLOCK})\s*(?:{_TO}({_PLAIN_CLOCK})\s*)?"
        r"(?:[\])]\s*[:|–—-]?\s*|\s*[:|–—-]?(?:\s+|$))(.*)$",
        re.ASCII,
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
_LRC_TAG = re.compile(r"^\s*\[[A-Za-z#]+:[^\]]*\]\s*$")  # title, artist and the like at the head of an LRC file
_LAST_S = 5.0  # how long the last line is taken to last where the file does not say
_GAP = re.compile(r"\s{9,}")  # as white space as nine of them; the patterns try every way to share out a gap


def split_line(line: str) -> tuple[float, float | None, str] | None:
    """Start, end (None where it has none) and text of a line such as ``[00:01] stir``; None for one without a time."""
    line = _GAP.sub(lambda gap: gap[0][:8], line)
    for pattern in _LINES:
        if found := pattern.match(line):
            start_s, end_s = (seconds(time) if time and ":" in time else number(time) for time in found.groups()[:2])
            if start_s is not None:
                return start_s, end_s, found[3] or ""
    return None


def parse_text(text: str, name: str) -> list[Cue]:
    """Cues of a text file with times. A line without a time goes on with the one before it."""
    found: list[tuple[float, float | None, list[str]]] = []
    # Whisper's own table counts in milliseconds
    unit = 1000 if re.match(r"start\tend\ttext\s*(?:\n|$)", text, re.IGNORECASE) else 1
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip() or (not found and (_HEADER.match(line) or _LRC_TAG.match(line))):
            continue
        if (timed := split_line(line)) is not None:
            start_s, end_s, said = timed
            found.append((start_s / unit, None if end_s is None else end_s / unit, [said] if said.strip() else []))
        elif found:
            found[-1][2].append(line)
        else:
            raise InputError(
                f"{name}: line {number}: expected WEBVTT, SRT, TTML, JSON, or a time before the text such as "
                f"'0:05 crack the eggs', found {line.strip()[:60]!r}"
            )
    starts = sorted({start_s for start_s, _, _ in found})
    until = dict(zip(starts, [*starts[1:], starts[-1] + _LAST_S] if starts else [], strict=True))
    return [
        cue_at(start_s, until[start_s] if end_s is None else end_s, "\n".join(said)) for start_s, end_s, said in found
    ]
