"""Captions in JSON and tables: json3 of YouTube, transcripts of Whisper and its kin, CSV, HowTo100M."""

from __future__ import annotations

import gzip
import io
import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path

from stepformer.base.guard import csv_rows, plain_file, reading
from stepformer.errors import InputError, UsageError
from stepformer.narration.cues import Cue, Word, cue_at
from stepformer.narration.readers.timed import load, number, seconds, words_at


def parse_json3(text: str, name: str) -> list[Cue]:
    """Cues of a json3 file. Events without text (window settings) and appended line ends are left out."""
    value = load(text, name)
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
        pieces: list[tuple[float | None, str]] = []
        for seg in segs:
            said = seg.get("utf8") if isinstance(seg, dict) else None
            if not isinstance(said, str):
                continue
            offset_ms = number(seg.get("tOffsetMs"))
            pieces.append((start_s if offset_ms is None else start_s + offset_ms / 1000, said))
        whole = "".join(piece for _, piece in pieces)
        if not whole.strip():
            continue
        # offsets make word times; an event that is one segment has none
        words = words_at(pieces, start_s, end_s) if len(pieces) > 1 else ()
        if len(words) != len(whole.split()):
            words = ()
        cues.append(cue_at(start_s, end_s, whole, words))
    return cues


def parse_segments(text: str, name: str) -> list[Cue]:
    """Cues of a transcript in JSON."""
    value = load(text, name)
    if isinstance(value, dict):
        keys = ("segments", "chunks", "transcription", "word_segments", "cues")  # cues: stepformer phrases --json
        items = next((value[key] for key in keys if key in value), None)
    else:
        items = value
    if not isinstance(items, list):
        raise InputError(f"{name}: line 1: expected a list 'segments' of objects with start, end and text")
    cues: list[Cue] = []
    starts = [_start(item) if isinstance(item, dict) else None for item in items]
    for at, item in enumerate(items):
        if not isinstance(item, dict):
            raise InputError(f"{name}: line 1: expected segment {at} to be an object, found {type(item).__name__}")
        said = item.get("text", item.get("word", ""))
        words = _segment_words(item.get("words"))
        start_s = starts[at]
        if start_s is None:
            start_s = words[0].start_s if words else None
        if start_s is None or not isinstance(said, str):
            raise InputError(f"{name}: line 1: expected numbers 'start' and 'end' and a 'text' in segment {at}")
        end_s = _end(item, start_s)
        if end_s is None:
            later = starts[at + 1] if at + 1 < len(starts) else None
            end_s = later if later is not None else (words[-1].end_s if words else start_s)
        cues.append(cue_at(start_s, end_s, said, words if len(words) == len(said.split()) else ()))
    return cues


def _start(item: Mapping[str, object]) -> float | None:
    offsets = item.get("offsets")  # whisper.cpp: milliseconds
    if isinstance(offsets, dict) and (ms := number(offsets.get("from"))) is not None:
        return ms / 1000
    for key in ("start", "start_s", "start_time", "begin", "timestamp", "t"):
        value = item.get(key)
        if isinstance(value, list) and value:  # transformers: "timestamp": [start, end]
            value = value[0]
        if (found := _segment_time(value)) is not None:
            return found
    return None


def _end(item: Mapping[str, object], start_s: float) -> float | None:
    offsets = item.get("offsets")
    if isinstance(offsets, dict) and (ms := number(offsets.get("to"))) is not None:
        return ms / 1000
    for key in ("end", "end_s", "end_time", "timestamp"):
        value = item.get(key)
        if isinstance(value, list):
            value = value[1] if len(value) > 1 else None
        if (found := _segment_time(value)) is not None:
            return found
    for key in ("duration", "dur", "duration_s"):
        if (length := number(item.get(key))) is not None:
            return start_s + length
    return None


def _segment_time(value: object) -> float | None:
    found = number(value)
    return seconds(value) if found is None and isinstance(value, str) else found


def _segment_words(items: object) -> tuple[Word, ...]:
    """Timed words; one without times (WhisperX leaves numbers unaligned) takes the end of the word before it."""
    if not isinstance(items, list):
        return ()
    words: list[Word] = []
    now = 0.0
    for item in items:
        if not isinstance(item, dict):
            return ()
        said = item.get("word", item.get("text"))
        if not isinstance(said, str):
            return ()
        start_s, end_s = number(item.get("start")), number(item.get("end"))
        start_s = now if start_s is None else max(now, start_s)
        end_s = start_s if end_s is None else max(start_s, end_s)
        parts = said.split()
        for part in parts:
            words.append(Word(start_s, end_s, part))
        now = start_s if not parts else max(now, start_s)
        if parts:
            now = end_s if end_s > now else now
    return tuple(words)


_START, _END = ("start", "start_s", "begin", "from"), ("end", "end_s", "stop", "to")
_TEXT = ("text", "caption", "sentence", "phrase")


def is_table(text: str) -> bool:
    """Whether the first line is such a header."""
    return _columns(text.split("\n", 1)[0]) is not None


def parse_table(text: str, name: str) -> list[Cue]:
    """Cues of a table. A row without text or without a start is left out; a missing end is the next row's start."""
    found = _columns(text.split("\n", 1)[0])
    if found is None:
        raise InputError(f"{name}: line 1: expected a header with the columns start, end and text")
    start_at, end_at, text_at = found
    rows: list[tuple[float, float | None, str]] = []
    for cells in islice(csv_rows(text, name, _delimiter(text.split("\n", 1)[0])), 1, None):
        if len(cells) <= max(start_at, text_at) or not cells[text_at].strip():
            continue
        start_s = _cell_time(cells[start_at])
        if start_s is not None:
            end_s = _cell_time(cells[end_at]) if end_at is not None and end_at < len(cells) else None
            rows.append((start_s, end_s, cells[text_at]))
    if not rows:
        raise InputError(f"{name}: no row has a start and a text")
    following = [start_s for start_s, _, _ in rows[1:]] + [rows[-1][0]]
    return [
        cue_at(start_s, later if end_s is None else end_s, said)
        for (start_s, end_s, said), later in zip(rows, following, strict=True)
    ]


def _delimiter(header: str) -> str:
    return max(",\t;", key=header.count)


def _columns(header: str) -> tuple[int, int | None, int] | None:
    """Where start, end and text stand; None where start or text does not."""
    cells = [cell.strip().lower() for cell in next(csv_rows(header, "header", _delimiter(header)), [])]

    def at(names: tuple[str, ...]) -> int | None:
        return next((cells.index(name) for name in names if name in cells), None)

    start_at, text_at = at(_START), at(_TEXT)
    if start_at is None or text_at is None:
        return None
    return start_at, at(_END), text_at


def _cell_time(cell: str) -> float | None:
    cell = cell.strip()
    if ":" in cell:
        return seconds(cell)
    try:
        value = float(cell)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


_CHUNK = 1 << 20
_MAX_ENTRY = 64 << 20  # letters of one video
_SPACE = " \t\r\n"
# what matters for finding the end of a value: strings (skipped whole), brackets; a quote alone opens a cut string
_STRUCTURE = re.compile(r'"(?:[^"\\]|\\.)*"|["{}\[\]]', re.DOTALL)


def parse_howto100m(text: str, name: str, video: str | None = None) -> list[Cue]:
    """Cues of one video of a caption file that fits in memory; ``video`` may be left out where there is only one."""
    value = load(text, name)
    if not isinstance(value, dict):
        raise InputError(f"{name}: line 1: expected an object of videos with start, end and text")
    if "start" in value and "text" in value:
        return cues_of(value, name)
    if video is not None:
        if video not in value:
            raise UsageError(
                f"{name}: has no video {video!r}; it has {len(value)}, the first is {next(iter(value), None)!r}"
            )
        return cues_of(value[video], f"{name}: video {video}")
    if len(value) != 1:
        # say what is wrong with the content first: any JSON object could be meant
        for first, content in list(value.items())[:1]:
            cues_of(content, f"{name}: video {first}")
        raise InputError(
            f"{name}: line 1: has {len(value)} videos; expected one, or name one (--video, or video= in Python), or "
            "turn all of them into phrases with: stepformer prepare phrases"
        )
    ((only, content),) = value.items()
    return cues_of(content, f"{name}: video {only}")


def cues_of(content: object, name: str) -> list[Cue]:
    """Cues of one video's lists. Entries without text or times (NaN, null) are left out."""
    lists = [content.get(key) for key in ("start", "end", "text")] if isinstance(content, dict) else [None]
    if not all(isinstance(values, list) for values in lists) or len(lists) != 3:
        raise InputError(f"{name}: line 1: expected three lists 'start', 'end' and 'text'")
    starts, ends, texts = lists
    if not len(starts) == len(ends) == len(texts):  # type: ignore[arg-type]
        raise InputError(
            f"{name}: line 1: expected lists of one length, found {len(starts)} starts, {len(ends)} ends and "  # type: ignore[arg-type]
            f"{len(texts)} texts"  # type: ignore[arg-type]
        )
    cues: list[Cue] = []
    for start, end, text in zip(starts, ends, texts, strict=True):  # type: ignore[arg-type]
        start_s, end_s = number(start), number(end)
        if start_s is None or not isinstance(text, str):
            continue
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
            yield from _members(_Window(stream, str(path)))


class _Window:
    """A moving window over a text file."""

    def __init__(self, stream: object, name: str) -> None:
        self.stream, self.name = stream, name
        self.text, self.at, self.line = "", 0, 1

    def more(self) -> bool:
        chunk = self.stream.read(_CHUNK)  # type: ignore[attr-defined]
        if not chunk:
            return False
        self.line += self.text.count("\n", 0, self.at)
        self.text = self.text[self.at :] + chunk
        self.at = 0
        return True

    def peek(self) -> str:
        """The next character that is no white space; "" at the end of the file."""
        while True:
            while self.at < len(self.text):
                if self.text[self.at] not in _SPACE:
                    return self.text[self.at]
                self.at += 1
            if not self.more():
                return ""

    def fail(self, expected: str) -> InputError:
        line = self.line + self.text.count("\n", 0, self.at)
        found = self.text[self.at : self.at + 20] or "the end of the file"
        return InputError(f"{self.name}: line {line}: expected {expected}, found {found!r}")

    def take(self, character: str, expected: str) -> None:
        if self.peek() != character:
            raise self.fail(expected)
        self.at += 1

    def value(self, expected: str) -> object:
        """The JSON value that starts here; it must be a string, an object or a list."""
        if self.peek() not in ('"', "{", "["):
            raise self.fail(expected)
        depth = 0
        scan = self.at
        while True:
            end = -1
            for found in _STRUCTURE.finditer(self.text, scan):
                token = found.group()
                if token == '"':
                    break  # a string that the window cuts: seen again when there is more
                depth += (token in "{[") - (token in "}]") if len(token) == 1 else 0
                scan = found.end()
                if depth <= 0:
                    end = scan
                    break
            if end >= 0:
                break
            offset = scan - self.at
            if len(self.text) - self.at > _MAX_ENTRY or not self.more():
                raise self.fail(f"the end of {expected}")
            scan = self.at + offset
        try:
            value: object = json.loads(self.text[self.at : end])
        except (json.JSONDecodeError, RecursionError) as error:
            raise self.fail(expected) from error
        self.at = end
        return value


def _members(window: _Window) -> Iterator[tuple[str, object]]:
    window.take("{", "'{' and an object of videos with start, end and text")
    if window.peek() == "}":
        return
    while True:
        key = window.value("a video's name in quotes")
        if not isinstance(key, str):
            raise window.fail("a video's name in quotes")
        window.take(":", "':' behind a video's name")
        yield key, window.value("an object with start, end and text")
        if window.peek() == "}":
            return
        window.take(",", "',' or '}' behind a video")
