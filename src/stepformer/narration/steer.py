"""Helping the parser with imperatives that look like nouns: "butter the pan", "pour in the batter", "dice one onion".

Parsers learn from news and web text, where "butter" is food. Where a word that names hand work stands as a verb
would (a clause may start there, and something to act on follows), the parser is shown a verb that is nothing but
a verb in its place. The word itself comes back in the tree.
"""

from __future__ import annotations

from collections.abc import Sequence

from stepformer.narration.groundability import CONCRETE_NOUNS, PHYSICAL_VERBS
from stepformer.narration.lexicon import word_set

STAND_IN = "bring"

_OBJECT_STARTS = word_set(
    "the a an your my our his her their its this that these those it them some any one two three four five six "
    "eight ten each every both all another half 'em"
)
_PARTICLES = word_set("in out up down on off over away back together apart aside through around under")
# a clause may start behind these
_STRONG = word_set(
    "and then or just now next please first also so okay ok it them to i you we they and/or but let's lets well "
    "finally again gonna wanna 'll i'll you'll we'll don't dont never always can should could would must will"
)
# a noun must follow these
_BLOCK = word_set(
    "the a an your my our his her their its this that these those some any each every of in on with into onto "
    "from at by for is are was were be been very more most as like than no another what which 's than about over "
    "under"
)
_AFTER_BARE = word_set("in into on onto over with to and or from until for at then")
_LETTING = word_set("let lets")
_WITH = word_set("season top garnish cover fill brush sprinkle rinse coat drizzle dust stuff line")
_TAKEN_FOR_NOUNS = frozenset(word for word in PHYSICAL_VERBS if len(word) > 2) - {
    "rest",
    "light",
    "take",
    "get",
    "bring",
    "leave",
    "stand",
}
# of these a clause must have begun for sure: "olive oil the pan" is no oiling
_NOUNS_FIRST = word_set(
    "top rest light water oil salt ice color step dress string test cream butter flour juice wax frost dust bread "
    "bone core steam brew plant tile wire iron lace bow stitch glaze layer file stew roast patch plaster nail "
    "gloss print fan form store stain stamp smoke ring pickle prep return break burn slip split splash nest notch pile "
    "pound rim chunk soap sink crisp warm temper swab slit drip flake lean turn pack squash"
)


def stand_ins(words: Sequence[str]) -> dict[int, str]:
    """Number of a word -> what the parser is shown in its place."""
    low = [word.lower().strip('.,;:!?"') for word in words]
    count = len(low)
    found: dict[int, str] = {}
    for i, word in enumerate(low):
        if word not in _TAKEN_FOR_NOUNS or any(other in _LETTING for other in low[max(0, i - 4) : i]):
            continue
        before = low[i - 1] if i else ""
        clause = not before or before in _STRONG or words[i - 1][-1:] in ".,;:!?" or before.endswith("ly")
        if not _object_follows(low, i, count) and not (clause and _bare_object_follows(low, i, count)):
            continue
        if clause or (before not in _BLOCK and word not in _NOUNS_FIRST):
            found[i] = STAND_IN
    return found


def _bare_object_follows(low: Sequence[str], i: int, count: int) -> bool:
    """ "heat oil in a pan", "season with salt", "peel and slice the"; but "oil pan" is a pan."""
    if i + 3 < count and low[i + 1] in ("and", "or") and low[i + 2] in PHYSICAL_VERBS and low[i + 3] in _OBJECT_STARTS:
        return True
    if low[i] in _WITH and i + 1 < count and low[i + 1] == "with":
        return True
    if low[i] in _NOUNS_FIRST or i + 1 >= count or low[i + 1] not in CONCRETE_NOUNS:
        return False
    return i + 2 == count or low[i + 2] in _AFTER_BARE


def _object_follows(low: Sequence[str], i: int, count: int) -> bool:
    after = low[i + 1] if i + 1 < count else ""
    if after in _OBJECT_STARTS:
        return True
    third = low[i + 2] if i + 2 < count else ""
    return after in _PARTICLES and third in _OBJECT_STARTS
