"""How likely a camera would see a phrase: a small score from short lists of our own and the shape of words.

The lists are not a lexicon of norms: they name the hand work and the things of how-to videos, so that a user can
leave out "make a decision" and keep "make a cut". Nouns on no list are placed by their vectors; what has none gets a
middle value.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepformer.base.arrays import unit
from stepformer.narration import lexicon
from stepformer.narration.lexicon import CONCRETE_NOUNS, PHYSICAL_VERBS, VAGUE_VERBS, word_set

_UNKNOWN = 0.6  # on no list, and no vector
_MIDDLE = 0.55  # as near to things as to the rest
_NEAREST = 5  # words of either kind that a word is compared with
# how physical a verb is, by the first list that has it
_VERBS = ((VAGUE_VERBS, 0.8), (PHYSICAL_VERBS, 1.0), (lexicon.ABSTRACT_VERBS, 0.1), (lexicon.STOP_VERBS, 0.25))
_TALK = lexicon.ABSTRACT_NOUNS | lexicon.CHATTER_OBJECTS | lexicon.TIME_NOUNS
_ABSTRACT_ENDINGS = ("tion", "sion", "ness", "ity", "ance", "ence", "ship", "hood", "ism", "logy", "acy")


def verb_score(verb: str) -> float:
    """How physical a verb (lemma) is, in [0, 1]."""
    return next((score for verbs, score in _VERBS if verb in verbs), _UNKNOWN)


def noun_score(noun: str) -> float:
    """How tangible the head noun of an object is, in [0, 1]."""
    if noun in CONCRETE_NOUNS or noun.rstrip("s") in CONCRETE_NOUNS:
        return 1.0
    if not noun or noun in lexicon.OBJECT_PRONOUNS:
        return 0.4
    if noun in _TALK:
        return 0.1
    return 0.2 if len(noun) > 6 and noun.endswith(_ABSTRACT_ENDINGS) else _UNKNOWN


def noun_scores(nlp: Any) -> Callable[[str], float]:
    """:func:`noun_score`, with words on no list placed between the lists by the parser's own word vectors.

    A word's place is its likeness to the nearest words that name things, less that to the nearest ones that do
    not. Pipelines without vectors leave it at the middle.
    """
    from spacy.strings import get_string_id

    vectors = nlp.vocab.vectors
    if not vectors.size or getattr(vectors, "mode", "default") != "default":
        return noun_score

    def rows(words: Iterable[str]) -> NDArray[np.float32]:
        """Unit vectors of the words that have one; the vocabulary learns nothing by it."""
        at = vectors.find(keys=[get_string_id(word) for word in words])
        found = np.asarray(vectors.data[at[at >= 0]], np.float32)
        return np.asarray(unit(found[found.any(1)]))

    things = rows(sorted(CONCRETE_NOUNS))  # (A, D)
    others = rows(sorted(_TALK | lexicon.PERSON_NOUNS))  # (B, D)

    def score(noun: str) -> float:
        known = noun_score(noun)
        if known != _UNKNOWN:
            return known
        row = rows([noun])
        if not (len(row) and len(things) >= _NEAREST and len(others) >= _NEAREST):
            return known
        near, far = (np.sort(kind @ row[0])[-_NEAREST:].mean() for kind in (things, others))
        return float(np.clip(_MIDDLE + 1.5 * (near - far), 0.2, 0.95))

    return functools.lru_cache(maxsize=50_000)(score)  # broken text has no end of new words


def groundability(
    verb: str,
    noun: str,
    *,
    chatter: bool = False,
    negated: bool = False,
    second: str = "",
    tangible: Callable[[str], float] = noun_score,
) -> float:
    """Score of a phrase in [0, 1]: the geometric mean of verb and noun, a little more with a second tangible thing.

    ``tangible`` scores nouns. What must not be done is not seen, and chatter hardly ever is.
    """
    score: float = (verb_score(verb) * tangible(noun)) ** 0.5
    if second:
        score = 0.85 * score + 0.15 * tangible(second)
    if negated:
        score *= 0.3
    return round(score * (0.3 if chatter else 1.0), 3)


_BUTTONS = word_set("hit smash ring click tap press turn push")
_MAKING = word_set("get make create obtain give keep")  # "get a nice texture" is no act of its own
_THING = 0.75  # tangible enough to be a thing
_ON_PRONOUNS = word_set("bring keep hit stop start")


def is_chatter(verb: str, particle: str, noun: str, person: bool, around: str, where: bool, tangible: float) -> bool:
    """Whether a phrase is no step.

    ``noun`` is the head of the object, or of the preposition's object where there is none; ``person`` is whether
    a person does it (or none is named, as in an imperative); ``around`` has all the words of the object and of the
    prepositional phrase; ``where`` is whether there is one; ``tangible`` is the noun's score.
    """
    words = set(around.split())
    if not person or words & lexicon.CHANNEL:
        return True
    if verb in _BUTTONS and noun in ("button", "bell", "icon") and ("like" in words or noun == "bell"):
        return True
    if noun in lexicon.CHATTER_OBJECTS and not (noun in lexicon.TWO_FACED and verb in PHYSICAL_VERBS):
        return True
    if verb in _MAKING and tangible <= 0.2:
        return True
    if (verb not in PHYSICAL_VERBS or verb in VAGUE_VERBS) and tangible < _THING and not where and not particle:
        return True  # no hand work that says what is done, on nothing that says to what: "use red", "get all"
    if verb not in lexicon.STOP_VERBS or (particle and verb not in lexicon.TALK_PARTICLES):
        return False  # "keep down the heat", "bring up the edges"
    if verb in lexicon.STEP_WHEN_CONCRETE:
        return not (noun in CONCRETE_NOUNS or (noun in lexicon.OBJECT_PRONOUNS and verb in _ON_PRONOUNS))
    return True
