"""Captions as a table: CSV with a header that names start, end and text, in any order: a file per video."""

from __future__ import annotations

import csv
import math

from stepformer.errors import InputError
from stepformer.narration.clock import seconds
from stepformer.narration.cues import Cue, cue_at

_START, _END = ("start", "start_s", "begin", "from"), ("end", "end_s", "stop", "to")
_TEXT = ("text", "caption", "sentence", "phrase")


def is_table(text: str) -> bool:
    """Whether the first line is such a header."""
    return _columns(text.split("\n", 1)[0]) is not None


def parse(text: str, name: str) -> list[Cue]:
    """Cues of a table. A row without text or without a start is left out; a missing end is the next row's start."""
    found = _columns(text.split("\n", 1)[0])
    if found is None:
        raise InputError(f"{name}: line 1: expected a header with the columns start, end and text")
    start_at, end_at, text_at = found
    rows: list[tuple[float, float | None, str]] = []
    try:
        for cells in csv.reader(text.splitlines()[1:], delimiter=_delimiter(text.split("\n", 1)[0])):
            if len(cells) <= max(start_at, text_at) or not cells[text_at].strip():
                continue
            start_s = _time(cells[start_at])
            if start_s is not None:
                end_s = _time(cells[end_at]) if end_at is not None and end_at < len(cells) else None
                rows.append((start_s, end_s, cells[text_at]))
    except csv.Error as error:
        raise InputError(f"{name}: not CSV: {error}") from None
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
    cells = [cell.strip().lower() for cell in next(csv.reader([header], delimiter=_delimiter(header)), [])]

    def at(names: tuple[str, ...]) -> int | None:
        return next((cells.index(name) for name in names if name in cells), None)

    start_at, text_at = at(_START), at(_TEXT)
    if start_at is None or text_at is None:
        return None
    return start_at, at(_END), text_at


def _time(cell: str) -> float | None:
    cell = cell.strip()
    if ":" in cell:
        return seconds(cell)
    try:
        value = float(cell)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
