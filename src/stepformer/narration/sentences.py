"""Where sentences end in speech without punctuation: the protocol, and the default that needs no model of its own.

The default reads the parser's part-of-speech tags, the words that open clauses in speech ("so", "and then",
"let's", "you want to") and the pauses between words. It runs between the tagger and the parser, so that it
costs no second pass.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from stepformer.narration.cues import Word
from stepformer.narration.lexicon import word_set


@runtime_checkable
class Segmenter(Protocol):
    """Finds sentence ends in words."""

    @property
    def name(self) -> str:
        """What options and messages call it."""
        ...

    @property
    def needs_tags(self) -> bool:
        """Whether ``ends`` wants tags."""
        ...

    def ends(self, words: Sequence[Word], tags: Sequence[str]) -> Sequence[bool]:
        """For each word, whether a sentence ends behind it; ``tags`` is empty unless ``needs_tags``."""
        ...


_ABBREVIATIONS = word_set(
    "mr. mrs. ms. dr. st. vs. etc. e.g. i.e. approx. tbsp. tsp. tbs. oz. lb. lbs. ml. kg. cm. mm. min. sec. no. "
    "inc. ft. in. deg. temp."
)
_LONG = 40  # words between two marks beyond which the marks are not to be trusted
_SPARSE = 60  # words a mark beyond which a text counts as not punctuated


def ends_with_mark(text: str) -> bool:
    """Whether a word closes a sentence: ``bowl.``, ``right?"`` but not ``1.5`` or ``tbsp.``."""
    bare = text.rstrip("\"')]}»")
    if not bare or bare[-1] not in ".?!。？！":
        return False
    return not (bare[-1] == "." and (bare.lower() in _ABBREVIATIONS or (len(bare) == 2 and bare[0].isupper())))


def marked_ends(words: Sequence[Word]) -> tuple[list[bool], list[bool]]:
    """(ends that the text's own punctuation gives, words that stand in well-punctuated text), a word each.

    A stretch that closes with a mark and is no longer than a long sentence is left alone.
    """
    ends = [ends_with_mark(word.text) for word in words]
    settled = [False] * len(words)
    if sum(ends) * _SPARSE < len(words):
        return ends, settled
    first = 0
    for i, end in enumerate(ends):
        if end:
            if i + 1 - first <= _LONG:
                settled[first : i + 1] = [True] * (i + 1 - first)
            first = i + 1
    return ends, settled


def pauses(words: Sequence[Word]) -> list[float]:
    """Seconds of silence behind each word, as far as times tell; the last word's is infinite.

    Captions give a word the time until the next one starts, so the length that saying it takes is taken off.
    """
    gaps: list[float] = []
    for word, after in itertools.pairwise(words):
        # comparisons, not min and max: this runs for every word
        saying_s = 0.2 + 0.06 * len(word.text)
        start_s, end_s = word.start_s, word.end_s
        if end_s < start_s + saying_s:
            end_s = start_s + saying_s
        elif end_s > start_s + 2 * saying_s:
            end_s = start_s + 2 * saying_s
        gaps.append(after.start_s - end_s if after.start_s > end_s else 0.0)
    return [*gaps, math.inf] if words else []
