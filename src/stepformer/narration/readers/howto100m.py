"""HowTo100M captions: one JSON object, {video: {start: [], end: [], text: []}}, of any size, read a video at a time."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

from stepformer.errors import InputError, UsageError
from stepformer.narration.cues import Cue, cue_at
from stepformer.narration.readers.fields import load, number

_CHUNK = 1 << 20
_SPACE = " \t\r\n"
# what matters for finding the end of a value: strings (skipped whole), brackets; a quote alone opens a cut string
_STRUCTURE = re.compile(r'"(?:[^"\\]|\\.)*"|["{}\[\]]', re.DOTALL)


def parse(text: str, name: str, video: str | None = None) -> list[Cue]:
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
    """(video, its content) in the order of the file, holding one video in memory at a time.

    Raises:
        InputError: the file is not one JSON object; the message says where it stops being one.
    """
    path = Path(path)
    try:
        stream = path.open(encoding="utf-8-sig", errors="replace")
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
    with stream:
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
            if not self.more():
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
