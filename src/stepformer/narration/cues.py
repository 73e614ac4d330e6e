"""Cues and words: what the readers give and every later stage of the narration works on."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from stepformer.errors import InputError

_SLOWEST_S = 0.75  # a word in slow speech
_ROUNDING_S = 0.05


def _check(kind: str, start_s: float, end_s: float, text: str) -> None:
    if not isinstance(text, str):
        raise InputError(f"a {kind} has text of type {type(text).__name__}; expected str")
    if not 0.0 <= start_s <= end_s < math.inf:
        expected = "expected finite seconds, 0 <= start <= end"
        raise InputError(f"a {kind} has the times {start_s} to {end_s}; {expected}: {text[:40]!r}")


@dataclass(frozen=True, slots=True)
class Word:
    """One spoken word (no white space in it), when it was said, and how certain a recogniser was of it, in [0, 1];
    1 where nothing is known of that, as in subtitles."""

    start_s: float
    end_s: float
    text: str
    certainty: float = 1.0

    def __post_init__(self) -> None:
        _check("word", self.start_s, self.end_s, self.text)
        if not 0.0 <= self.certainty <= 1.0:
            raise InputError(f"a word has the certainty {self.certainty}; expected 0 to 1: {self.text[:40]!r}")


@dataclass(frozen=True, slots=True)
class Cue:
    """A piece of subtitle text and when it is shown. ``words`` has the times of its words where the file has them."""

    start_s: float
    end_s: float
    text: str
    words: tuple[Word, ...] = ()

    def __post_init__(self) -> None:
        _check("cue", self.start_s, self.end_s, self.text)


def cue_at(start_s: float, end_s: float, text: str, words: Iterable[Word] = ()) -> Cue:
    """A cue from times as files have them: negative ones become 0, an end before the start becomes the start."""
    start_s = max(0.0, float(start_s))
    return Cue(start_s, max(start_s, float(end_s)), text, tuple(words))


def in_order(cues: Iterable[Cue]) -> list[Cue]:
    """Cues by start time, each cut where the next one starts; those that start together keep their order in the file.

    Automatic captions stay on the screen while the next line is spoken, so a cue's end says when it was
    taken away; the words were said before the next cue began.
    """
    ordered = sorted(cues, key=lambda cue: cue.start_s)
    starts = sorted({cue.start_s for cue in ordered})
    following = dict(itertools.pairwise([*starts, math.inf]))
    return [_cut(cue, min(cue.end_s, following[cue.start_s])) for cue in ordered]


def _cut(cue: Cue, end_s: float) -> Cue:
    words = (word if word.end_s <= end_s else replace(word, end_s=max(word.start_s, end_s)) for word in cue.words)
    return replace(cue, end_s=end_s, words=tuple(words))


def spread_words(cue: Cue) -> list[Word]:
    """The words of a cue with times: its own, or its span shared out by the number of letters.

    A cue that stays longer than slow speech takes is taken to end in silence.
    """
    if cue.words:
        return list(cue.words)
    texts = cue.text.split()
    said = list(itertools.accumulate(len(text) + 1 for text in texts))  # letters by the end of each word
    span_s = min(cue.end_s - cue.start_s, _SLOWEST_S * len(texts))
    ends = [cue.start_s + span_s * (letters / said[-1]) for letters in said]
    return list(map(Word, [cue.start_s, *ends], ends, texts))


def words_around(
    cues: Iterable[Cue], spans_s: Iterable[tuple[float, float]], before: int, behind: int
) -> list[tuple[str, str, str]]:
    """For each span: some words before it, what is said in it, and some words behind it."""
    words = [word for cue in cues for word in spread_words(cue)]
    starts = [word.start_s for word in words]
    found = []
    for start_s, end_s in spans_s:
        first = bisect.bisect_left(starts, start_s - _ROUNDING_S)
        last = max(first + 1, bisect.bisect_left(starts, end_s - _ROUNDING_S))
        parts = words[max(0, first - before) : first], words[first:last], words[last : last + behind]
        found.append(tuple(" ".join(word.text for word in part) for part in parts))
    return found  # type: ignore[return-value]
