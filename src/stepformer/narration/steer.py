"""Helping the parser with imperatives: those that look like nouns, and those that follow each other without a pause.

Parsers learn from news and web text, where "butter" is food and sentences have marks. Where a word that names hand
work stands as a verb would (a clause may start there, and something to act on follows), the parser is shown a verb
that is nothing but a verb in its place; the word itself comes back in the tree. Where such a word stands behind the
object of an imperative ("add some tomato paste | sprinkle in salt"), a sentence starts with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stepformer.narration import lexicon

STAND_IN = "bring"
_WITH_STAND_IN = "cover"  # nobody brings with something

_PARTICLES = lexicon.word_set("in out up down on off over away back together apart aside through around under")
_OPENING = lexicon.CLAUSE_BEFORE - {"it", "them", "well", "again"}  # with these the sentence has begun already
_AFTER_BARE = lexicon.word_set("in into on onto over with to and or from until for at then")
_LETTING = frozenset(("let", "lets"))
_TAKEN_FOR_NOUNS = frozenset(word for word in lexicon.PHYSICAL_VERBS if len(word) > 2) - lexicon.word_set(
    "rest light take get bring leave stand"
)
_SUBJECTS = lexicon.word_set("i you we he she they i'm you're we're they're i'll you'll we'll")


@dataclass(frozen=True, slots=True)
class Steering:
    """``shown``: number of a word -> what the parser is shown in its place. ``starts``: words that start a sentence."""

    shown: dict[int, str]
    starts: frozenset[int]


def steer(words: Sequence[str]) -> Steering:
    """What helps the parser with these words."""
    low = [*(word.lower().strip('.,;:!?"') for word in words), "", "", ""]  # so that there is something behind the last
    shown: dict[int, str] = {}
    starts: set[int] = set()
    verb = -1  # the imperative whose clause goes on here; -1 for none
    for i in range(len(words)):
        word, before, mark = low[i], low[i - 1] if i else "", words[i - 1][-1:] if i else "."
        if mark in ".;:!?" or word in lexicon.CLAUSE_OPENERS or word in _SUBJECTS:
            verb = -1
        if word not in lexicon.PHYSICAL_VERBS:
            continue
        clause = before in lexicon.CLAUSE_BEFORE or mark in ".,;:!?" or before.endswith("ly")
        letting = any(other in _LETTING for other in low[max(0, i - 4) : i])
        noun, sure = _is_noun(low, i), word not in lexicon.NOUNS_FIRST
        follows = not noun and _object_follows(low, i)
        found = not letting and word in _TAKEN_FOR_NOUNS
        found = found and (
            (follows and (clause or (sure and before not in lexicon.NOUN_FOLLOWS)))
            or (clause and _bare_object_follows(low, i))
        )
        # behind an object: no determiner, no preposition, no "a good" stands before the verb
        ended = not (noun or before in lexicon.NOUN_FOLLOWS or before in lexicon.NUMBERS or before in ("and/or", "not"))
        behind = ended and 0 <= verb <= i - 2 and not letting and before not in _OPENING and not before.endswith("ly")
        if behind and ((found and follows and sure) or _goes_on(low, i)):
            starts.add(i)
            found = found or word in _TAKEN_FOR_NOUNS
        if found:
            shown[i] = _WITH_STAND_IN if low[i + 1] == "with" else STAND_IN
        if found or clause or letting:
            verb = i
    return Steering(shown, frozenset(starts))


def _is_noun(low: Sequence[str], i: int) -> bool:
    """ "a quick stir until", "a small cut in": a word of hand work behind "a" and an adjective."""
    if i < 2 or low[i - 2] not in ("a", "an", "another", "one", "final", "last"):
        return False
    acted = (low[i] in lexicon.ACTION_NOUNS and not _thing(low[i - 1])) or low[i] in ("cut", "slice", "fold")
    return acted and low[i + 1] not in lexicon.OBJECT_STARTS


def _goes_on(low: Sequence[str], i: int) -> bool:
    """Whether what follows word ``i``, a verb that is hardly ever a noun, makes it a verb here."""
    word, after, third = low[i : i + 3]
    if word not in lexicon.VERBS_ONLY:
        return False
    if after in lexicon.MANNER or _object_follows(low, i):
        return True
    if word in lexicon.COMPOUND_ENDS:  # "take off the drain cover with a screwdriver" uncovers
        return word in lexicon.WITH_VERBS and after == "with" and lexicon.PARTS_AND_TOOLS.isdisjoint(low[i + 2 : i + 5])
    if after in lexicon.WHERE_WORDS:
        amount = third in lexicon.OBJECT_STARTS or third in lexicon.NUMBERS or third.isdigit()
        return amount or word in lexicon.WITH_VERBS or _thing(third)
    return _thing(after) or after == "then" or (_thing(third) and after not in lexicon.PHYSICAL_VERBS)


def _thing(word: str) -> bool:
    return word in lexicon.CONCRETE_NOUNS or word.rstrip("s") in lexicon.CONCRETE_NOUNS


def _bare_object_follows(low: Sequence[str], i: int) -> bool:
    """ "heat oil in a pan", "season with salt", "peel and slice the"; but "oil pan" is a pan."""
    word, after, third, fourth = low[i : i + 4]
    if after in ("and", "or") and third in lexicon.PHYSICAL_VERBS and fourth in lexicon.OBJECT_STARTS:
        return True
    if word in lexicon.WITH_VERBS and after == "with":
        return True
    thing = word not in lexicon.NOUNS_FIRST and after in lexicon.CONCRETE_NOUNS
    return thing and (not third or third in _AFTER_BARE)


def _object_follows(low: Sequence[str], i: int) -> bool:
    after, third = low[i + 1 : i + 3]
    return after in lexicon.OBJECT_STARTS or (after in _PARTICLES and third in lexicon.OBJECT_STARTS)
