"""Transcripts as a list of timed segments: Whisper, WhisperX, faster-whisper and whisper.cpp JSON, and bare lists."""

from __future__ import annotations

from collections.abc import Mapping

from stepformer.errors import InputError
from stepformer.narration.clock import seconds
from stepformer.narration.cues import Cue, Word, cue_at
from stepformer.narration.readers.fields import load, number


def parse(text: str, name: str) -> list[Cue]:
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
        words = _words(item.get("words"))
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
        if (found := _time(value)) is not None:
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
        if (found := _time(value)) is not None:
            return found
    for key in ("duration", "dur", "duration_s"):
        if (length := number(item.get(key))) is not None:
            return start_s + length
    return None


def _time(value: object) -> float | None:
    found = number(value)
    return seconds(value) if found is None and isinstance(value, str) else found


def _words(items: object) -> tuple[Word, ...]:
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
