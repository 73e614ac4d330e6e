"""Where sentences end in speech without punctuation: the protocol, and the default that needs no model of its own.

The default reads the parser's part-of-speech tags, the words that open clauses in speech ("so", "and then",
"let's", "you want to") and the pauses between words. It runs between the tagger and the parser, so that it
costs no second pass.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Sequence
from typing import Protocol, runtime_checkable

from stepformer.narration import lexicon
from stepformer.narration.cues import Word


@runtime_checkable
class Segmenter(Protocol):
    """Finds sentence ends in words."""

    def ends(self, words: Sequence[Word], tags: Sequence[str]) -> Sequence[bool]:
        """For each word, whether a sentence ends behind it; ``tags`` are the words' parts of speech."""
        ...


_LONG = 40  # words between two marks beyond which the marks are not to be trusted
_SPARSE = 60  # words per mark above which a text counts as unpunctuated
STRETCH = 600  # words parsed at once: enough to make the parser's batches worth it, little enough to stay flat
_SEARCH = 200  # words before a stretch's end in which the longest pause is looked for


def ends_with_mark(text: str) -> bool:
    """Whether a word closes a sentence: ``bowl.``, ``right?"`` but not ``1.5`` or ``tbsp.``."""
    bare = text.rstrip("\"')]}»")
    if not bare or bare[-1] not in ".?!。？！":
        return False
    return not (bare[-1] == "." and (bare.lower() in lexicon.ABBREVIATIONS or (len(bare) == 2 and bare[0].isupper())))


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
        saying_s = 0.2 + 0.06 * len(word.text)
        end_s = min(max(word.end_s, word.start_s + saying_s), word.start_s + 2 * saying_s)
        gaps.append(max(0.0, after.start_s - end_s))
    return [*gaps, math.inf] if words else []


def stretches(words: Sequence[Word]) -> Iterator[Sequence[Word]]:
    """Words cut into stretches of at most ``STRETCH``, at a sentence mark or else the longest pause near the end."""
    first = 0
    while len(words) - first > STRETCH:
        window = words[first + STRETCH - _SEARCH : first + STRETCH]
        gaps = pauses(window)[:-1]
        best = max(range(len(gaps)), key=lambda j: (ends_with_mark(window[j].text), gaps[j], j))
        last = first + STRETCH - _SEARCH + best + 1
        yield words[first:last]
        first = last
    if first < len(words):
        yield words[first:]


def sentence_starts(
    words: Sequence[Word], segmenter: Segmenter, imperatives: Collection[int], tags: Sequence[str]
) -> list[bool]:
    """For each word, whether a sentence starts with it: behind the text's own marks, and where those are few, behind
    the ends that ``segmenter`` finds and with ``imperatives``."""
    ends, settled = marked_ends(words)
    if not all(settled):
        given = zip(ends, segmenter.ends(words, tags), settled, strict=True)
        ends = [
            mark or (not quiet and (end or at in imperatives)) for at, (mark, end, quiet) in enumerate(given, start=1)
        ]
    return [True, *ends[:-1]]


_SUBJECTS = lexicon.word_set("i you we he she they it this that there these those")
_OPEN_ENDINGS = ("n't", "'ll", "'re", "'ve", "'m")
# behind these tags a clause goes on
_OPEN_TAGS = lexicon.word_set("DT PRP$ TO MD CC WDT WP WRB PDT POS WP$ EX")
_BASE = frozenset(("VB", "VBP"))
_OBJECT_START = lexicon.word_set("DT PRP PRP$ IN RP CD JJ NN NNS RB PDT NNP")
_DONE_TAGS = frozenset(("NN", "NNS", "RB", "CD", "JJ", "PRP", "NNP"))
_LETTING = lexicon.word_set("let lets let's make help watch have")
_THRESHOLD = 1.0
_LONGEST = 60  # words; beyond it a sentence is cut at its best place


class RuleSegmenter:
    """Sentence ends from tags, openers and pauses."""

    def ends(self, words: Sequence[Word], tags: Sequence[str]) -> list[bool]:
        """For each word, whether a sentence ends behind it."""
        low = [word.text.lower() for word in words]
        gaps = pauses(words)
        found: list[bool] = []
        scores: list[float] = []
        first = 0
        for i in range(len(words) - 1):
            length = i + 1 - first
            # a sentence of one or two words is rare, one of forty is rare too
            usual = -0.7 if length < 3 else max(-0.3, min(0.8, (length - 8) * 0.04))
            pause = min(2.5, 1.5 * (gaps[i] - 0.35)) if gaps[i] > 0.35 else 0.0
            scores.append(_opening(low, tags, i) + pause + usual)
            found.append(scores[-1] >= _THRESHOLD)
            if found[-1]:
                first = i + 1
            elif length >= _LONGEST:
                # the best place in the later part of the stretch
                first = max(range(first + 2, i + 1), key=lambda j: scores[j]) + 1
                found[first - 1] = True
        return [*found, True] if words else []


def _opening(low: Sequence[str], tags: Sequence[str], i: int) -> float:
    """How much the words behind word ``i`` look like the start of a sentence."""
    before, tag_before = low[i], tags[i]
    word, tag = low[i + 1], tags[i + 1]
    after, tag_after = (low[i + 2], tags[i + 2]) if i + 2 < len(low) else ("", "")
    if tag_before in _OPEN_TAGS:
        return -2.0
    if word == "and":
        return 1.2 if after in lexicon.OPENING_AND else 0.5 if tag_after in _BASE else 0.0
    if before in lexicon.UNFINISHED or before.endswith(_OPEN_ENDINGS):
        return 0.0
    if word in lexicon.OPENERS and tag not in ("JJ", "VBP"):
        return 1.2
    if word in ("so", "but"):
        return 1.2 if tag_after in ("PRP", "DT", "EX", "WP", "PRP$", "WRB", "NNS", "VB", "RB") else 0.0
    if word.split("'")[0] in _SUBJECTS:
        certain = "'" in word or tag_after == "MD" or after.startswith("'")
        # "i think it is", "turn it around"
        doubt = 0.7 if tag_before in ("VB", "VBP", "VBD", "VBZ", "VBG", "IN") else 0.0
        return (1.2 if certain else 0.9 if tag_after in ("VBP", "VBZ", "VBD", "RB") else 0.0) - doubt
    if tag in ("DT", "PRP$") and tag_before in _DONE_TAGS and _clause_follows(low, tags, i + 1):
        return 1.25  # "… for ten minutes | the eggs are added"
    if before in lexicon.ADVERBS or before.endswith("ly"):
        return 0.0
    if tag in _BASE:
        return _imperative(low, tags, i)
    return 1.1 if tag == "RB" and (word in lexicon.ADVERBS or word.endswith("ly")) and tag_after in _BASE else 0.0


def _clause_follows(low: Sequence[str], tags: Sequence[str], i: int) -> bool:
    """Whether the noun phrase that starts at word ``i`` is followed by an auxiliary, as a subject is."""
    nouns = ("NN", "NNS", "NNP")
    following = itertools.pairwise(zip(low[i + 1 : i + 6], tags[i + 1 : i + 6], strict=True))
    ends = ((word, tag) for (_, before), (word, tag) in following if before in nouns and tag not in nouns)
    word, tag = next(ends, ("", ""))
    return tag == "MD" or word in lexicon.AUXILIARIES


def _imperative(low: Sequence[str], tags: Sequence[str], i: int) -> float:
    """How much the verb in its base form behind word ``i`` looks like an imperative."""
    pronoun = low[i] in ("it", "them", "this", "that")
    if tags[i + 1] == "VBP" and tags[i] in ("NNS", "PRP", "NNP", "RB") and not pronoun:
        return 0.1  # a verb with its subject
    if any(word in _LETTING for word in low[max(0, i - 3) : i + 1]):
        return -0.5  # "let the dough rise"
    follows = i + 2 < len(tags) and tags[i + 2] in _OBJECT_START
    return (1.1 if follows else 0.6) + (0.3 if tags[i] in ("NN", "NNS", "RP", "CD") or pronoun else 0.0)


# -- imperatives: what the parser is shown, and where a sentence starts with one ---------------------------------------
#
# Parsers learn from news and web text, where "butter" is food and sentences have marks. Where a word that names hand
# work stands as a verb would (a clause may start there, and something to act on follows), the parser is shown a verb
# that is nothing but a verb in its place; the word itself comes back in the tree. Where such a word stands behind the
# object of an imperative ("add some tomato paste | sprinkle in salt"), a sentence starts with it.

STAND_IN = "bring"
MARKS = '.,;:!?"'
_WITH_STAND_IN = "cover"  # "bring with" is no step

_PARTICLES = lexicon.word_set("in out up down on off over away back together apart aside through around under")
_BEGUN = lexicon.CLAUSE_BEFORE - {"it", "them", "well", "again"}  # with these the sentence has begun already
_AFTER_BARE = lexicon.word_set("in into on onto over with to and or from until for at then")
_LETS = frozenset(("let", "lets"))
_TAKEN_FOR_NOUNS = frozenset(word for word in lexicon.PHYSICAL_VERBS if len(word) > 2) - lexicon.word_set(
    "rest light take get bring leave stand"
)
_SAYING_WHO = lexicon.word_set("i you we he she they i'm you're we're they're i'll you'll we'll")


def steer(words: Sequence[str]) -> tuple[dict[int, str], set[int]]:
    """What helps the parser: number of a word -> what it is shown in its place; the words that start a sentence."""
    low = [*(word.lower().strip(MARKS) for word in words), "", "", ""]  # so that there is something behind the last
    shown: dict[int, str] = {}
    starts: set[int] = set()
    verb = -1  # the imperative whose clause goes on here; -1 for none
    for i in range(len(words)):
        word, before, mark = low[i], low[i - 1] if i else "", words[i - 1][-1:] if i else "."
        if mark in ".;:!?" or word in lexicon.CLAUSE_OPENERS or word in _SAYING_WHO:
            verb = -1
        if word not in lexicon.PHYSICAL_VERBS:
            continue
        clause = before in lexicon.CLAUSE_BEFORE or mark in ".,;:!?" or before.endswith("ly")
        letting = any(other in _LETS for other in low[max(0, i - 4) : i])
        closed = words[i][-1] in ".,;:!?"  # what follows is not what it is done to
        noun, sure = closed or _is_noun(low, i), word not in lexicon.NOUNS_FIRST
        follows = not noun and _object_follows(low, i)
        found = not letting and word in _TAKEN_FOR_NOUNS
        found = found and (
            (follows and (clause or (sure and before not in lexicon.NOUN_FOLLOWS)))
            or (clause and _bare_object_follows(low, i))
        )
        # behind an object: no determiner, no preposition, no "a good" stands before the verb
        ended = not (noun or before in lexicon.NOUN_FOLLOWS or before in lexicon.NUMBERS or before in ("and/or", "not"))
        behind = ended and 0 <= verb <= i - 2 and not letting and before not in _BEGUN and not before.endswith("ly")
        if behind and ((found and follows and sure) or _goes_on(low, i)):
            starts.add(i)
            found = found or word in _TAKEN_FOR_NOUNS
        if found:
            shown[i] = (_WITH_STAND_IN if low[i + 1] == "with" else STAND_IN) + words[i][len(words[i].rstrip(MARKS)) :]
        if found or clause or letting:
            verb = i
    return shown, starts


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
