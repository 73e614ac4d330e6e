"""Captions in JSON and tables: json3 of YouTube, transcripts of Whisper and similar tools, CSV, HowTo100M."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from stepformer.base.guard import csv_rows, plain_file, reading
from stepformer.errors import InputError, UsageError
from stepformer.narration.cues import Cue, Word, cue_at
from stepformer.narration.readers.timed import cue_of_pieces, number, seconds

_LISTS = ("segments", "chunks", "transcription", "word_segments", "cues", "captions", "nodes")
_STARTS = ("start", "start_s", "start_time", "begin", "from", "timestamp", "t")
_ENDS = ("end", "end_s", "end_time", "stop", "to", "timestamp")
_LENGTHS = ("duration", "dur", "duration_s")
# of Whisper and whisper.cpp; WhisperX's "score" says how well letters fit the sound, which is another scale
_CERTAINTIES = ("probability", "p")
_TEXTS = ("text", "word", "caption", "sentence", "phrase", "description")


def parse_json3(value: object, name: str) -> list[Cue]:
    """Cues of a json3 file. Events without text (window settings) and appended line ends are left out."""
    events = value.get("events") if isinstance(value, dict) else None
    if not isinstance(events, list):
        raise InputError(f"{name}: line 1: expected a json3 object with a list 'events'")
    cues: list[Cue] = []
    for at, event in enumerate(events):
        if not isinstance(event, dict):
            raise InputError(f"{name}: line 1: expected 'events[{at}]' to be an object, found {type(event).__name__}")
        segs = event.get("segs")
        if not isinstance(segs, list):
            continue
        start_ms = number(event.get("tStartMs"))
        if start_ms is None:
            raise InputError(f"{name}: line 1: expected a number 'tStartMs' in 'events[{at}]'")
        start_s = start_ms / 1000
        end_s = start_s + (number(event.get("dDurationMs")) or 0.0) / 1000
        pieces = [
            (start_s + (number(seg.get("tOffsetMs")) or 0.0) / 1000, seg["utf8"])
            for seg in segs
            if isinstance(seg, dict) and isinstance(seg.get("utf8"), str)
        ]
        if any(said.strip() for _, said in pieces):
            # offsets make word times; an event that is one segment has none
            cues.append(cue_of_pieces(pieces, start_s, end_s, timed=len(pieces) > 1))
    return cues


def has_segments(value: object) -> bool:
    """Whether a JSON value is a list of segments, or an object that has one."""
    return isinstance(value, list) or (isinstance(value, dict) and any(key in value for key in _LISTS))


def segments_of(value: object, name: str) -> list[Cue]:
    """Cues of segments with times and text, by whatever names their keys go (those of Whisper and similar tools, of
    ``stepformer phrases --json``); one without an end lasts to the next."""
    items = next((value[key] for key in _LISTS if key in value), None) if isinstance(value, dict) else value
    if not isinstance(items, list):
        raise InputError(f"{name}: line 1: expected a list 'segments' of objects with start, end and text")
    cues: list[Cue] = []
    starts = [_time(item, _STARTS, 0) if isinstance(item, dict) else None for item in items]
    for at, item in enumerate(items):
        if not isinstance(item, dict):
            raise InputError(f"{name}: line 1: expected segment {at} to be an object, found {type(item).__name__}")
        said = next((item[key] for key in _TEXTS if key in item), "")
        words = _segment_words(item["words"] if "words" in item else _words_of_tokens(item.get("tokens")))
        start_s = words[0].start_s if starts[at] is None and words else starts[at]
        if start_s is None or not isinstance(said, str):
            raise InputError(f"{name}: line 1: expected numbers 'start' and 'end' and a 'text' in segment {at}")
        end_s = _time(item, _ENDS, 1)
        if end_s is None and (length_s := _time(item, _LENGTHS, 1)) is not None:
            end_s = start_s + length_s
        if end_s is None:
            later = starts[at + 1] if at + 1 < len(starts) else None
            end_s = later if later is not None else (words[-1].end_s if words else start_s)
        cues.append(cue_at(start_s, end_s, said, words if len(words) == len(said.split()) else ()))
    return cues


def _time(item: Mapping[str, Any], keys: tuple[str, ...], side: int) -> float | None:
    """The first of ``keys`` that holds a time in seconds; of a pair of times, the one of this side."""
    offsets = item.get("offsets")  # whisper.cpp: milliseconds
    if isinstance(offsets, dict) and (ms := number(offsets.get(("from", "to")[side]))) is not None:
        return ms / 1000
    for key in keys:
        value = item.get(key)
        if isinstance(value, list):  # transformers: "timestamp": [start, end]
            value = value[side] if len(value) > side else None
        found = number(value)
        if found is None and isinstance(value, str):
            found = seconds(value)
        if found is not None:
            return found
    return None


def _segment_words(items: object) -> tuple[Word, ...]:
    """Timed words; one without times (WhisperX leaves numbers unaligned) takes the end of the word before it."""
    words: list[Word] = []
    now = 0.0
    for item in items if isinstance(items, list) else ():
        said = item.get("word", item.get("text")) if isinstance(item, dict) else None
        if not isinstance(said, str):
            return ()
        start_s, end_s = number(item.get("start")), number(item.get("end"))
        start_s = now if start_s is None else max(now, start_s)
        end_s = start_s if end_s is None else max(start_s, end_s)
        words += [Word(start_s, end_s, part, _certainty(item)) for part in said.split()]
        now = end_s if said.split() else start_s
    return tuple(words)


def _words_of_tokens(items: object) -> list[dict[str, Any]]:
    """Words of whisper.cpp's tokens, each as certain as its least certain token; [] of Whisper's, which are numbers."""
    words: list[dict[str, Any]] = []
    for item in items if isinstance(items, list) else ():
        said = item.get("text") if isinstance(item, dict) else None
        if not isinstance(said, str):
            return []
        if said.startswith("[_"):  # "[_BEG_]", "[_TT_150]"
            continue
        if said.startswith(" ") or not words:
            words.append({"word": "", "start": _time(item, (), 0), "p": 1.0})
        word = words[-1]
        word.update(word=word["word"] + said, end=_time(item, (), 1), p=min(word["p"], _certainty(item)))
    return words


def _certainty(item: Mapping[str, Any]) -> float:
    """How certain the recogniser was of a word; 1 where it does not say, or says what no certainty can be."""
    found = next((number(item[key]) for key in _CERTAINTIES if key in item), None)
    return 1.0 if found is None or not 0.0 <= found <= 1.0 else found


def is_table(text: str) -> bool:
    """Whether the first line is the header of a table with starts and texts."""
    _, header = _header(text)
    return not (set(_STARTS).isdisjoint(header) or set(_TEXTS).isdisjoint(header))


def parse_table(text: str, name: str) -> list[Cue]:
    """Cues of a table. A row without text or without a start is left out; a missing end is the next row's start."""
    if not is_table(text):
        raise InputError(f"{name}: line 1: expected a header with the columns start, end and text")
    delimiter, header = _header(text)
    said = next(key for key in _TEXTS if key in header)
    rows = (
        dict(zip(header, (cell.strip() for cell in cells), strict=False))
        for cells in islice(csv_rows(text, name, delimiter), 1, None)
    )
    segments = [row for row in rows if row.get(said) and _time(row, _STARTS, 0) is not None]
    if not segments:
        raise InputError(f"{name}: no row has a start and a text")
    return segments_of(segments, name)


def _header(text: str) -> tuple[str, list[str]]:
    """What divides the cells of a table, and the names of its columns."""
    line = text.split("\n", 1)[0]
    delimiter = max(",\t;", key=line.count)
    return delimiter, [cell.strip().lower() for cell in next(csv_rows(line, "header", delimiter), [])]


_CHUNK = 1 << 20
_MAX_ENTRY = 16 << 20  # letters of one video


def parse_howto100m(value: object, name: str, video: str | None = None) -> list[Cue]:
    """Cues of one video of a caption file that fits in memory; ``video`` may be left out where there is only one."""
    if not isinstance(value, dict):
        raise InputError(f"{name}: line 1: expected an object of videos with start, end and text")
    if "start" in value and "text" in value:
        return cues_of(value, name)
    first = next(iter(value), None)
    chosen = first if video is None else video
    if video is not None and video not in value:
        raise UsageError(f"{name}: has no video {video!r}; it has {len(value)}, the first is {first!r}")
    # what is wrong with the content is said first: any JSON object could be meant
    cues = cues_of(value.get(chosen), f"{name}: video {chosen}")
    if video is None and len(value) != 1:
        raise InputError(
            f"{name}: line 1: has {len(value)} videos; expected one, or name one (--video-id, or video= in Python), or "
            "turn all of them into phrases with: stepformer prepare phrases"
        )
    return cues


def cues_of(content: object, name: str) -> list[Cue]:
    """Cues of one video's lists. Entries without text or times (NaN, null) are left out."""
    lists: list[Any] = [content.get(key) for key in ("start", "end", "text")] if isinstance(content, dict) else [None]
    if not all(isinstance(values, list) for values in lists):
        raise InputError(f"{name}: line 1: expected three lists 'start', 'end' and 'text'")
    starts, ends, texts = (len(values) for values in lists)
    if not starts == ends == texts:
        found = f"{starts} starts, {ends} ends and {texts} texts"
        raise InputError(f"{name}: line 1: expected lists of one length, found {found}")
    cues: list[Cue] = []
    for start, end, text in zip(*lists, strict=True):
        start_s, end_s = number(start), number(end)
        if start_s is not None and isinstance(text, str):
            cues.append(cue_at(start_s, start_s if end_s is None else end_s, text))
    return cues


def iter_captions(path: str | os.PathLike[str]) -> Iterator[tuple[str, object]]:
    """(video, its content) in the order of the file, plain or gzipped, holding one video in memory at a time.

    Not ijson, which refuses the NaN that the published files write for a missing text.

    Raises:
        InputError: the file is not one JSON object; the message says where it stops being one.
    """
    path = Path(path)
    with reading(path, "caption file"), plain_file(path).open("rb") as plain:
        zipped = plain.peek(2)[:2] == b"\x1f\x8b"
        unpacked = gzip.GzipFile(fileobj=plain) if zipped else plain
        with io.TextIOWrapper(unpacked, encoding="utf-8-sig", errors="replace") as stream:
            yield from _members(stream, str(path))


_BEFORE_NAME = re.compile(r"\s*([{,])\s*(?=\")")
_BEFORE_VALUE = re.compile(r"\s*:\s*(?=[\"{\[])")


def _members(stream: io.TextIOWrapper, name: str) -> Iterator[tuple[str, object]]:
    """The members of the one object in a stream, decoded from a window that grows where a member goes on beyond it."""
    decode = json.JSONDecoder().raw_decode
    text, begin, line, opening, more = "", 0, 1, "{", True
    while True:
        at, expected = begin, f"{opening!r} and the name of a video in an object of videos"
        try:
            if (found := _BEFORE_NAME.match(text, begin)) is not None and found[1] == opening:
                video, at = decode(text, found.end())
                expected = "':' behind a video's name and an object with start, end and text"
                if (found := _BEFORE_VALUE.match(text, at)) is not None:
                    content, begin = decode(text, found.end())
                    opening = ","
                    yield video, content
                    continue
        except (json.JSONDecodeError, RecursionError):
            pass  # the member goes on beyond the window, or is damaged
        if not more or len(text) - begin > _MAX_ENTRY:
            break
        chunk = stream.read(max(_CHUNK, len(text) - begin))
        line += text.count("\n", 0, begin)
        text, begin, more = text[begin:] + chunk, 0, bool(chunk)
    if not re.compile(r"\s*\{\s*\}" if opening == "{" else r"\s*\}").match(text, begin):
        line += text.count("\n", 0, at)
        found_there = text[at : at + 20] or "the end of the file"
        raise InputError(f"{name}: line {line}: expected {expected}, found {found_there!r}")
