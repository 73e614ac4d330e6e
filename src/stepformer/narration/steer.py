"""Helping the parser with imperatives: those that look like nouns, and those that follow each other without a pause.

Parsers learn from news and web text, where "butter" is food and sentences have marks. Where a word that names hand
work stands as a verb would (a clause may start there, and something to act on follows), the parser is shown a verb
that is nothing but a verb in its place; the word itself comes back in the tree. Where such a word stands behind the
object of an imperative ("add some tomato paste | sprinkle in salt"), a sentence starts with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stepformer.narration.groundability import CONCRETE_NOUNS, PHYSICAL_VERBS
from stepformer.narration.lexicon import ACTION_NOUNS, word_set

STAND_IN = "bring"
_WITH_STAND_IN = "cover"  # nobody brings with something

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
_OPENING = _STRONG - word_set("it them well again")  # with these the sentence has begun already
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
# clause after clause without a pause: verbs that are hardly ever nouns, so that little need follow them
_VERBS_ONLY = word_set(
    "add pour sprinkle bake preheat place put stir cook boil simmer remove drain replace tighten loosen unscrew chop "
    "dice mince peel grate whisk melt combine serve drizzle squeeze insert attach transfer garnish knead spread flip "
    "toss fry saute grill heat wash rinse dip fold roll slice cut mix beat blend season brush cover wrap fill press "
    "open close lift lower turn take leave let repeat refrigerate chill marinate strain sift shred crack arrange lay "
    "hang hold pull push slide twist rub wipe scrub dry clean apply install connect disconnect plug unplug select tap "
    "click set bring reheat reduce deglaze scoop spoon drop"
)
# what follows a verb that is not also the rest of a compound: "mix well", "bake until golden", "serve hot"
_MANNER = word_set(
    "well thoroughly gently again until till constantly occasionally frequently evenly completely immediately hot "
    "together them it"
)
_WHERE = word_set("in into on onto over with under for to at around through from up down out off")
_NUMBERS = word_set(
    "two three four five six seven eight nine ten twelve fifteen twenty thirty forty fifty sixty about another"
)
# of these the noun reading is common in compounds ("cake mix", "egg wash", "stir fry", "medium heat"): only an object
# or a manner tells them to be verbs
_COMPOUND_ENDS = word_set(
    "mix wash fry heat dip cut roll slice press brush cover wrap rub spread season drop turn set tap click squeeze "
    "dry clean slide plug hold scoop spoon"
)
# a clause with its own subject or one below "let": its verb is no imperative
_CLAUSE_OPENERS = word_set(
    "let lets while until till when once as if because after before make makes help watch that which who where how "
    "what why"
)
_SUBJECTS = word_set("i you we he she they i'm you're we're they're i'll you'll we'll")


@dataclass(frozen=True, slots=True)
class Steering:
    """``shown``: number of a word -> what the parser is shown in its place. ``starts``: words that start a sentence."""

    shown: dict[int, str]
    starts: frozenset[int]


def steer(words: Sequence[str]) -> Steering:
    """What helps the parser with these words."""
    low = [word.lower().strip('.,;:!?"') for word in words]
    count = len(low)
    shown: dict[int, str] = {}
    starts: set[int] = set()
    verb = -1  # the imperative whose clause goes on here; -1 for none
    for i, word in enumerate(low):
        before = low[i - 1] if i else ""
        marked = i > 0 and words[i - 1][-1:] in ".;:!?"
        if marked or word in _CLAUSE_OPENERS or word in _SUBJECTS:
            verb = -1
        if word not in PHYSICAL_VERBS:
            continue
        clause = not before or before in _STRONG or words[i - 1][-1:] in ".,;:!?" or before.endswith("ly")
        letting = any(other in _LETTING for other in low[max(0, i - 4) : i])
        follows = _object_follows(low, i, count) and not _is_noun(low, i)
        found = (
            word in _TAKEN_FOR_NOUNS
            and not letting
            and (
                (follows and (clause or (before not in _BLOCK and word not in _NOUNS_FIRST)))
                or (clause and _bare_object_follows(low, i, count))
            )
        )
        behind = verb >= 0 and i - verb >= 2 and not letting and _behind_an_object(low, i)
        behind = behind and before not in _OPENING and not before.endswith("ly")
        if behind and ((found and follows and word not in _NOUNS_FIRST) or _goes_on(low, i, count)):
            starts.add(i)
            found = found or word in _TAKEN_FOR_NOUNS
        if found:
            shown[i] = STAND_IN if low[i + 1 : i + 2] != ["with"] else _WITH_STAND_IN
        if found or clause or letting:
            verb = i
    return Steering(shown, frozenset(starts))


def _behind_an_object(low: Sequence[str], i: int) -> bool:
    """Whether the words before a verb can be the end of an imperative: no determiner, no preposition, no "a good"."""
    before = low[i - 1]
    return not (before in _BLOCK or before in _NUMBERS or before in ("and/or", "not") or _is_noun(low, i))


def _is_noun(low: Sequence[str], i: int) -> bool:
    """ "a quick stir until", "a small cut in": a word of hand work behind "a" and an adjective."""
    if i < 2 or low[i - 2] not in ("a", "an", "another", "one", "final", "last"):
        return False
    object_behind = i + 1 < len(low) and low[i + 1] in _OBJECT_STARTS
    return (low[i] in ACTION_NOUNS or low[i] in ("cut", "slice", "fold")) and not object_behind


def _goes_on(low: Sequence[str], i: int, count: int) -> bool:
    """Whether what follows word ``i``, a verb that is hardly ever a noun, makes it a verb here."""
    word = low[i]
    if word not in _VERBS_ONLY:
        return False
    after = low[i + 1] if i + 1 < count else ""
    third = low[i + 2] if i + 2 < count else ""
    if after in _MANNER or _object_follows(low, i, count):
        return True
    if word in _COMPOUND_ENDS:
        return word in _WITH and after == "with"
    if after in _WHERE:
        return third in _OBJECT_STARTS or third in _NUMBERS or _thing(third) or word in _WITH or third.isdigit()
    return _thing(after) or after == "then"


def _thing(word: str) -> bool:
    return word in CONCRETE_NOUNS or word.rstrip("s") in CONCRETE_NOUNS


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
