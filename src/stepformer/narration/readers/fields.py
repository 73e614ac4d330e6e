"""Small helpers the readers share: numbers from JSON, and timed words made whole."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable

from stepformer.errors import InputError
from stepformer.narration.cues import Word

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
