"""Inline word times, ``hi<00:00:00.400><c> everyone</c>``, as WebVTT has them and converters leave them elsewhere."""

from __future__ import annotations

import re

from stepformer.narration.clock import seconds
from stepformer.narration.cues import Word
from stepformer.narration.readers.fields import words_at

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
