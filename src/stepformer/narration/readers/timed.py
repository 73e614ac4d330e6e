"""Subtitles that are text: WebVTT, SubRip, and text with times; clock times as they write them, and timed words."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable

from stepformer.errors import InputError
from stepformer.narration.cues import Cue, Word, cue_at

# 1:02:03.456, 02:03,456, 2:03; a fraction of any length, a comma or a dot
CLOCK = r"(?:(\d{1,4}):)?(\d{1,4}):(\d{1,2})(?:[.,:;](\d{1,9}))?"
_CLOCK = re.compile(rf"\s*(-?)\s*{CLOCK}\s*$", re.ASCII)
_LOOSE_CLOCK = re.compile(
    r"\s*(-?)\s*(?:(\d{1,4})\s*:\s*)?(\d{1,4})\s*:\s*(\d{1,2})(?:\s*[.,:;]\s*(\d{1,9}))?\s*$", re.ASCII
)
_LONGEST_CLOCK = 60


def seconds(text: str) -> float | None:
    """Seconds of a clock time such as ``01:02:03,456``; None if it is none."""
    text = text.strip()
    if len(text) > _LONGEST_CLOCK:  # the patterns try every way to share out white space
        return None
    found = _CLOCK.match(text) or _LOOSE_CLOCK.match(text)
    if found is None:
        return None
    sign, hours, minutes, secs, fraction = found.groups()
    value = int(hours or 0) * 3600 + int(minutes) * 60 + int(secs) + (float(f"0.{fraction}") if fraction else 0.0)
    return -value if sign else value


def arrow(line: str) -> tuple[float, float] | None:
    """Start and end of a ``00:01,000 --> 00:02,000`` line (settings behind it are ignored); None if malformed."""
    left, found, right = line.partition("-->")
    if not found:
        return None
    # settings follow the end time after white space: "00:02.000 align:start position:0%"
    start_s = seconds(left)
    end_s = seconds(right)
    if end_s is None:
        for count in (1, 2):
            end_s = seconds(" ".join(right.split()[:count]))
            if end_s is not None:
                break
    return None if start_s is None or end_s is None else (start_s, end_s)


MAX_S = 1e7  # a time beyond 115 days is a mistake in the file


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
    words: list[Word] = []
    for i, (at, text) in enumerate(zip(starts, texts, strict=True)):
        until = starts[i + 1] if i + 1 < len(starts) else max(at, end_s)
        words.append(Word(at, until, text))
    return tuple(words)


def load(text: str, name: str) -> object:
    """JSON text, or an :class:`InputError` that names the file and the line."""
    try:
        value: object = json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"{name}: line {error.lineno}: not JSON ({error.msg}); expected JSON subtitles") from error
    except (RecursionError, ValueError) as error:
        raise InputError(f"{name}: line 1: JSON that cannot be read ({error}); expected JSON subtitles") from error
    return value


_STAMP = re.compile(r"<(\d[\d:.,]*)>")
_TAG = re.compile(r"</?[A-Za-z][^<>]{0,200}>")


def timed_words(text: str, start_s: float, end_s: float) -> tuple[Word, ...]:
    """Words of a cue's text that has inline times; () where it has none."""
    pieces = _STAMP.split(text)
    if len(pieces) < 3:
        return ()
    timed: list[tuple[float | None, str]] = [(start_s, _TAG.sub("", pieces[0]))]
    for stamp, piece in zip(pieces[1::2], pieces[2::2], strict=True):
        timed.append((seconds(stamp), _TAG.sub("", piece)))
    return words_at(timed, start_s, end_s)


_SKIPPED = ("NOTE", "STYLE", "REGION")


def parse_vtt(text: str, name: str) -> list[Cue]:
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
                cues.append(_vtt_cue(times, _without_name(body)))
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
        cues.append(_vtt_cue(times, body))
    return cues


def _is_block(line: str) -> bool:
    return line.split(maxsplit=1)[0].rstrip(":") in _SKIPPED


def _without_name(body: list[str]) -> list[str]:
    """The text lines without the cue name that belongs to the next cue: a line of its own right above its times."""
    if body and body[-1] and (len(body) >= 2 and body[-2] == ""):
        return body[:-1]
    return body


def _vtt_cue(times: tuple[float, float], body: list[str]) -> Cue:
    text = "\n".join(line for line in body if line.strip())
    return cue_at(*times, text, timed_words(text, *times))


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


def parse_srt(text: str, name: str) -> list[Cue]:
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
            cues.append(_srt_cue(times, _without_number(body)))
        times, body = found, []
    if times is None:
        raise InputError(f"{name}: line 1: no cue found; expected '00:00:01,000 --> 00:00:02,000'")
    cues.append(_srt_cue(times, body))
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


def _srt_cue(times: tuple[float, float], body: list[str]) -> Cue:
    text = "\n".join(line for line in body if line.strip())
    start_s, end_s = times
    words = timed_words(text, start_s, end_s) if "<" in text else ()
    return cue_at(start_s, end_s, text, words)


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


def _split(line: str) -> tuple[float, float | None, str] | None:
    line = _GAP.sub(lambda gap: gap[0][:8], line)
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


def parse_text(text: str, name: str) -> list[Cue]:
    """Cues of a text file with times. A line without a time goes on with the one before it."""
    starts: list[float] = []
    ends: list[float | None] = []
    texts: list[list[str]] = []
    # seconds times 1000, as whisper.cpp and Whisper's TSV write them
    lines = text.split("\n")
    in_ms = bool(lines) and bool(re.match(r"^start\tend\ttext\s*$", lines[0], re.IGNORECASE))
    for number, line in enumerate(lines, start=1):
        if not line.strip() or (not starts and (_HEADER.match(line) or _LRC_TAG.match(line))):
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
