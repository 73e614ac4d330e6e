"""Whether subtitles are in English, which everything here is made for: parser, rules and word lists."""

from __future__ import annotations

import re
from collections.abc import Iterable

from stepformer.narration.cues import Cue
from stepformer.narration.lexicon import words

_COMMON = words("common_english")
_WORD = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)?")
_FEWEST_WORDS = 20  # less says nothing
_SHARE = 0.08


def is_english(cues: Iterable[Cue]) -> bool | None:
    """Whether the words are English as far as the commonest of them tell; None where there are too few words.

    Text without spaces between words (Chinese, Japanese) counts by its letters.
    """
    words = [word.lower() for cue in cues for word in _WORD.findall(cue.text)]
    foreign = sum(not word.isascii() for word in words)
    if len(words) < _FEWEST_WORDS:
        letters = sum(len(word) for word in words if not word.isascii())
        return False if foreign * 2 > len(words) and letters >= _FEWEST_WORDS else None
    return sum(word in _COMMON for word in words) >= _SHARE * len(words)
