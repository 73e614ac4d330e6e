"""Names for steps from what the speaker says there.

What was said is put into forms that may name a step (:func:`name_forms`), a classifier gives the chances that each is
good or acceptable (:class:`~stepformer.encoders.name_classifier.NameClassifier`), and steps and phrases are aligned in
order.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stepformer.app.naming import Name
from stepformer.encoders.name_classifier import WORDS_BEFORE, WORDS_BEHIND, as_read
from stepformer.narration import Cue, Phrase, lexicon
from stepformer.narration.cues import Word, spread_words, words_around
from stepformer.narration.imperative import name_forms
from stepformer.narration.lexicon import word_set
from stepformer.narration.sentences import MARKS

Floats = NDArray[np.floating[Any]]
Classify = Callable[[Sequence[str]], Floats]

EARLY_S, LATE_S = 10.0, 1.0
"""A step may be spoken of this long before it begins and after it ends."""
SHOWN_SAID, SURE_SAID = 0.6, 0.9
"""A spoken name is shown if its score is at least the first, and is sure from the second."""
HEARD = 0.6
"""A word with this certainty counts as heard; below it, its names lose score in proportion (``bench speech``)."""
_ACT = 0.5  # a score from which the engine gives an action a step of its own
_VAGUE = 0.5  # of a score: an acceptable name, as "stir it", counts half, so that none of them is shown
_HEARD_WORDS, _ALIKE = 40, 3  # as far from a phrase, in words, are the words of its names; letters that words share
_SMALL = lexicon.OBJECT_PRONOUNS | lexicon.WHERE_WORDS | word_set("a an the and or of it its as into onto")
_SEEN, _SEEN_USUALLY = 2.66, 0.75  # log odds per share of the bank that fits the pictures worse, and its usual value


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """What may name the steps of a video: ``names`` (L) of ``phrases`` (L), with ``scores`` (L,) in [0, 1]: the chance
    that a name is good, plus half the chance that it is merely acceptable."""

    names: tuple[str, ...]
    phrases: tuple[Phrase, ...]
    scores: NDArray[np.float64]

    def acts(self, frames: int, rate_hz: float) -> Tensor:
        """(1, N) the frames at which something is said that is more likely than not to name a step."""
        shown = torch.zeros(1, frames, dtype=torch.bool)
        for phrase, score in zip(self.phrases, self.scores, strict=True):
            if score >= _ACT:
                shown[0, min(int(phrase.middle_s * rate_hz), frames - 1)] = True
        return shown

    def near(self, spans_s: Sequence[tuple[float, float]]) -> NDArray[np.float64]:
        """(M, L) 1 where a phrase is said inside a step, falling to 0 where it cannot be about it."""
        starts, ends = np.asarray(spans_s, np.float64).T[..., None]
        middles = np.array([phrase.middle_s for phrase in self.phrases])
        early_s, late_s = np.maximum(starts - middles, 0.0), np.maximum(middles - ends, 0.0)
        return np.asarray(np.maximum(1.0 - early_s / EARLY_S - late_s / LATE_S, 0.0))

    def of_steps(self, spans_s: Sequence[tuple[float, float]], shares: Floats | None = None) -> list[Name | None]:
        """The name of each step, in order, or None where nothing that is said is likely to name it.

        spans_s: the steps' seconds. shares: (M, L) how well the names fit the steps' pictures, of
        :meth:`PhraseBank.shares_below`. Steps and phrases are aligned one to one by Drop-DTW, both droppable; a name's
        score falls with its distance from the step.
        """
        from stepformer.core.align import drop_dtw

        names: list[Name | None] = [None] * len(spans_s)
        if not spans_s:
            return names
        scores = self.scores[None]
        if shares is not None:
            odds = scores / (1.0 - scores).clip(1e-6) * np.exp(_SEEN * (np.asarray(shares) - _SEEN_USUALLY))
            scores = odds / (1.0 + odds)
        near = self.near(spans_s)
        costs = np.where(near > 0, SHOWN_SAID - scores * near, np.inf)
        for column, row in enumerate(drop_dtw(costs, 0.0, 0.0, matching="one_to_one").assignment):
            if row >= 0:
                score, said_s = float(SHOWN_SAID - costs[row, column]), self.phrases[column].start_s
                names[row] = Name(self.names[column], "spoken", score >= SURE_SAID, score, said_s)
        return names


def candidates(phrases: Sequence[Phrase], cues: Sequence[Cue], classify: Classify) -> Candidates | None:
    """Of each phrase that may name a step the form with the highest score, which is lower where one of its words may
    have been misheard.

    cues: the talk, in which the classifier reads what was said around a phrase.
    """
    forms = [(i, form) for i, own in enumerate(name_forms(phrases)) for form in own]
    if not forms:
        return None
    around = words_around(cues, [(p.start_s, p.end_s) for p in phrases], WORDS_BEFORE, WORDS_BEHIND)
    chances = np.asarray(classify([as_read(form, around[i]) for i, form in forms]), np.float64)  # (F, 4)
    scores = _VAGUE * chances[:, 2] + chances[:, 3]
    words = [word for cue in cues for word in spread_words(cue)]
    starts = [word.start_s for word in words]
    for at, (i, form) in enumerate(forms):
        least = min((word.certainty for word in heard(form, phrases[i], words, starts)), default=1.0)
        scores[at] *= min(1.0, least / HEARD)
    best: dict[int, int] = {}
    for at, (i, _) in enumerate(forms):
        if i not in best or scores[at] > scores[best[i]]:
            best[i] = at
    kept = list(best.values())
    return Candidates(tuple(forms[at][1] for at in kept), tuple(phrases[i] for i in best), scores[kept])


def heard(name: str, phrase: Phrase, words: Sequence[Word], starts: Sequence[float]) -> list[Word]:
    """The words of a talk that a name is made of, small ones apart: of those that begin alike the nearest to its
    phrase ("peel" was heard as "peeling"). A word that nothing near is like has none.

    words, starts: of the talk, and when each starts.
    """
    first, last = bisect.bisect_left(starts, phrase.start_s), bisect.bisect_right(starts, phrase.end_s)
    near = words[max(0, first - _HEARD_WORDS) : last + _HEARD_WORDS]
    said = [(word.text.lower().strip(MARKS), word) for word in near]
    found = []
    for part in name.lower().replace(",", "").split():
        alike = [
            (max(phrase.start_s - word.start_s, word.start_s - phrase.end_s, 0.0), text != part, word.start_s, word)
            for text, word in said
            if text == part or text[:_ALIKE] == part[:_ALIKE]
        ]
        if alike and tells(part):
            found.append(min(alike, key=lambda one: one[:3])[3])
    return found


def tells(word: str) -> bool:
    """Whether a word says something of what is done, so that it matters that it was heard right."""
    bare = word.lower().strip(MARKS)
    return bare not in _SMALL and not any(c.isdigit() for c in bare)
