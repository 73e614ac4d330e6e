"""Subtitle files to cues: the format is found from the content, then one small reader does the work."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from stepformer.base.guard import read_bytes, reader, reading
from stepformer.errors import InputError, UsageError
from stepformer.narration.cleaning import clean_cue, decode, unroll
from stepformer.narration.cues import Cue, in_order
from stepformer.narration.readers import structured, timed, ttml

# each: (text, or of some the value of JSON, name of the file for messages) -> cues as the file has them
FORMATS: dict[str, Callable[[Any, str], list[Cue]]] = {
    "vtt": timed.parse_timed,
    "srt": timed.parse_timed,
    "json3": structured.parse_json3,
    "ttml": ttml.parse_ttml,
    "howto100m": structured.parse_howto100m,
    "whisperx": structured.segments_of,
    "csv": structured.parse_table,
    "text": timed.parse_text,
}

SUFFIXES = (
    ".vtt", ".srt", ".json3", ".json", ".ttml", ".dfxp", ".xml", ".srv1", ".srv2", ".srv3", ".txt", ".sbv", ".lrc",
    ".tsv", ".csv",
)  # fmt: skip

# JSON, and not "[Script Info]" of ASS, "[ti:…]" of LRC or "{25}{75}…" of MicroDVD
_JSON = re.compile(r"\{\s*[\"}]|\[\s*(?:[{\[\"\]\-0-9]|null|true|false)|[{\[]\s*$")


@reader("subtitle file")
def read_subtitles(path: str | os.PathLike[str], format: str | None = None, video: str | None = None) -> list[Cue]:
    """Cues of one video, ordered by time, without markup, each word once.

    Reads WebVTT, SRT, YouTube json3 and srv, TTML, HowTo100M captions, Whisper and WhisperX JSON, CSV, and plain text
    with times.

    Args:
        path: The file.
        format: "vtt", "srt", "json3", "ttml", "howto100m", "whisperx", "csv" or "text"; by default found from the
            content.
        video: Names the video where the file has several (HowTo100M).

    Raises:
        InputError: the file is missing or is not subtitles; the message names the file, the line and what was
            expected.
        UsageError: ``format`` is not known.
    """
    return parse_subtitles(read_bytes(path), str(path), format, video)


def parse_subtitles(
    data: bytes | str, name: str = "subtitles", format: str | None = None, video: str | None = None
) -> list[Cue]:
    """As :func:`read_subtitles`, from the content of a file. ``name`` is what messages call it.

    Examples:
        >>> cues = parse_subtitles("1\\n00:00:01,000 --> 00:00:03,000\\n<i>crack</i> the eggs\\n")
        >>> cues[0].start_s, cues[0].text
        (1.0, 'crack the eggs')
    """
    text = decode(data, name)
    if format is not None and format not in FORMATS:
        raise UsageError(f"no subtitle format {format!r}; one of: {', '.join(FORMATS)}")
    if not text.strip():
        raise InputError(f"{name}: line 1: the file is empty; expected subtitles (VTT, SRT, TTML, JSON or timed text)")
    chosen = format or sniff(text, name)
    with reading(name, "subtitle file"):
        content = _json(text, name) if chosen in ("json3", "howto100m", "whisperx") else text
        more = {"video": video} if chosen == "howto100m" else {}
        return tidy(FORMATS[chosen](content, name, **more))


def _json(text: str, name: str) -> Any:
    with reading(name, "JSON"):
        return json.loads(text)  # captions of HowTo100M write NaN for a missing text


def tidy(cues: Iterable[Cue]) -> list[Cue]:
    """Cues as a file has them -> ordered, cleaned, rolling lines said once, overlaps cut."""
    return in_order(unroll([clean_cue(cue) for cue in cues]))


def sniff(text: str, name: str) -> str:
    """The name of the format that ``text`` is in."""
    head, suffix = text.lstrip()[:4096], Path(name).suffix.lower()
    if head.startswith("WEBVTT"):
        return "vtt"
    if _JSON.match(head) and timed.split_line(head.split("\n", 1)[0]) is None:  # "[00:01] …" is no JSON
        value = _json(text, name)
        if isinstance(value, dict) and ("events" in value or "wireMagic" in value):
            return "json3"
        return "whisperx" if structured.has_segments(value) else "howto100m"
    if head.startswith("<"):
        return "ttml"
    if "-->" in text or suffix in (".srt", ".vtt"):
        return "srt"
    # Whisper's own table of three columns counts in milliseconds, which the reader of timed text knows
    return "csv" if suffix == ".csv" and structured.is_table(text) else "text"
