"""Where sentences end in speech without punctuation: the protocol, and the default that needs no model of its own.

The default reads the parser's part-of-speech tags, the words that open clauses in speech ("so", "and then",
"let's", "you want to") and the pauses between words. It runs between the tagger and the parser, so that it
costs no second pass.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
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


_SUBJECTS = word_set("i you we he she they it this that there these those")
_ONLY_SUBJECTS = word_set("i we he she they")
_ALSO_OBJECTS = word_set("it you this that these those")
_OPEN_ENDINGS = ("n't", "'ll", "'re", "'ve", "'m")
_FINITE = word_set("VBP VBZ VBD MD")
_CONTRACTED = word_set("'m 're 's 'll 've 'd")
# behind these a clause goes on
_OPEN_TAGS = word_set("DT PRP$ TO MD CC WDT WP WRB PDT POS WP$ EX")
_OPEN_WORDS = word_set(
    "and or but because if when once while until till before after since as so that than of with without into "
    "from at by for to the a an i we he she they is are was were be been am 're 'm 'll 've gonna wanna not n't "
    "very really too just then now how what which who whom where why let lets let's think know hope guess sure "
    "see show tell say said means mean make makes sure believe remember feel suppose every each my your our their "
    "his its like"
)
_OPENERS = word_set(
    "okay ok alright anyway hey hi hello well please thanks first firstly second secondly third finally lastly "
    "next meanwhile remember"
)
_ADVERBS = word_set(
    "just then now also first always never simply carefully slowly gently quickly next finally again lightly"
)
_SUBORDINATORS = word_set("if when once while after before as because until since")
_BASE = frozenset(("VB", "VBP"))
_OBJECT_START = word_set("DT PRP PRP$ IN RP CD JJ NN NNS RB PDT NNP")
_DONE_TAGS = frozenset(("NN", "NNS", "RB", "CD", "JJ", "PRP", "NNP"))
_AUXILIARIES = word_set("is are was were has have had gets get got needs need goes comes will should can must 's")
_THRESHOLD = 1.0
_LETTING = word_set("let lets let's make help watch have")
_LONGEST = 60  # words; beyond it a sentence is cut at its best place


@dataclass(frozen=True, slots=True)
class RuleSegmenter:
    """Sentence ends from tags, openers and pauses."""

    name: str = "rules"
    needs_tags: bool = True

    def ends(self, words: Sequence[Word], tags: Sequence[str]) -> list[bool]:
        """For each word, whether a sentence ends behind it."""
        low = [word.text.lower() for word in words]
        gaps = pauses(words)
        found: list[bool] = []
        scores: list[float] = []
        first = 0
        for i in range(len(words)):
            length = i + 1 - first
            if i + 1 == len(words):
                found.append(True)
                break
            score = _opening(low, tags, i) + _pause(gaps[i]) + _length(length)
            if low[i].endswith(","):
                score += 0.2
            scores.append(score)
            end = score >= _THRESHOLD
            found.append(end)
            if not end and length >= _LONGEST:
                # the best place in the later part of the stretch
                best = max(range(first + 2, i + 1), key=lambda j: scores[j])
                found[best] = True
                first = best + 1
            elif end:
                first = i + 1
        return found


def _pause(gap_s: float) -> float:
    return min(2.5, 1.5 * (gap_s - 0.35)) if gap_s > 0.35 else 0.0


def _length(words: int) -> float:
    # a sentence of one or two words is rare, one of forty is rare too
    if words < 3:
        return -0.7
    return max(-0.3, min(0.8, (words - 8) * 0.04))


def _opening(low: Sequence[str], tags: Sequence[str], i: int) -> float:
    """How much the words behind word ``i`` look like the start of a sentence."""
    before, tag_before = low[i], tags[i]
    word, tag = low[i + 1], tags[i + 1]
    after, tag_after = (low[i + 2], tags[i + 2]) if i + 2 < len(low) else ("", "")
    if tag_before in _OPEN_TAGS or before in _ONLY_SUBJECTS:
        return -2.0
    closed = before not in _OPEN_WORDS and not before.endswith(_OPEN_ENDINGS)
    score = 0.0
    subject = word.split("'")[0] if "'" in word else word

    if word in _OPENERS and tag not in ("JJ", "VBP"):
        score += 1.2 if closed else 0.4
    elif word == "so":
        score += (
            1.3
            if closed
            and (
                tag_after in ("PRP", "DT", "EX", "WP", "PRP$", "WRB", "NNS", "VB")
                or after in ("let's", "now", "first", "then", "once", "if", "what", "when", "i'm", "we're", "that's")
            )
            else 0.0
        )
    elif word == "now":
        score += 1.2 if closed and before not in ("right", "for", "by", "until") and after not in ("is", "was") else 0.0
    elif word == "then":
        score += 1.1 if closed else 0.0
    elif word == "and":
        if after in (
            "then",
            "now",
            "so",
            "once",
            "after",
            "i'm",
            "we're",
            "i'll",
            "we'll",
            "you're",
            "you'll",
            "that's",
            "it's",
            "let's",
        ):
            score += 1.2
        elif after in _SUBJECTS:
            score += 0.9
        elif tag_after in _BASE:
            score += 0.5
    elif word == "but":
        score += 0.9
    elif word in ("let's", "lets") or (word == "let" and after in ("me", "us", "it", "them", "the", "that", "this")):
        score += 1.5 if closed else 0.0
    elif word in ("don't", "dont", "do") and (tag_after == "VB" or after in ("not", "n't")):
        score += 1.2 if closed and before not in _SUBJECTS else 0.0
    elif word in ("thank", "welcome") and closed:
        score += 1.2
    elif word in ("here's", "there's", "here") and closed and tag_before not in ("IN", "RB"):
        score += 1.0
    elif subject in _SUBJECTS and closed:
        finite = "'" in word or tag_after in _FINITE or after in _CONTRACTED
        if finite:
            score += 1.2 if ("'" in word or tag_after == "MD" or after in _CONTRACTED) else 0.9
            if tag_before in ("RB", "RP", "CD", "PRP"):
                score += 0.25  # no "recipe i use" can be
            if (
                tag_before in ("NN", "NNS")
                and subject in ("i", "you", "we", "they")
                and "'" not in word
                and tag_after in ("VBP", "VBD")
            ):
                score -= 0.25  # "the recipe i use"
            if tag_before in ("VB", "VBP", "VBD", "VBZ", "VBG"):
                # "i think it is"; "turn it around"
                score -= 1.3 if subject in _ALSO_OBJECTS else 0.7
            if tag_before == "IN":
                score -= 0.6
        elif tag_after == "RB":
            score += 0.8
    elif closed and tag in ("DT", "PRP$") and tag_before in _DONE_TAGS and _clause_follows(low, tags, i + 1):
        score += 1.25  # "… for ten minutes | the eggs are added"
    elif word in _SUBORDINATORS and closed:
        score += 0.55 if tag_after in ("PRP", "DT", "PRP$") and word in ("once", "if", "when", "while") else 0.1
    elif word in ("what", "how") and closed and tag_before in ("NN", "NNS", "RB") and after in _SUBJECTS:
        score += 0.6
    elif tag in _BASE and closed and before not in _ADVERBS and not before.endswith("ly"):
        score += _imperative(low, i, tag_before, tag, tag_after)
    elif (
        tag == "RB"
        and (word in _ADVERBS or word.endswith("ly"))
        and tag_after in _BASE
        and closed
        and tag_before != "PRP"
    ):
        score += 1.1
    return score


def _clause_follows(low: Sequence[str], tags: Sequence[str], i: int) -> bool:
    """Whether the noun phrase that starts at word ``i`` is followed by an auxiliary, as a subject is."""
    noun = False
    for word, tag in zip(low[i + 1 : i + 6], tags[i + 1 : i + 6], strict=True):
        if tag in ("NN", "NNS", "NNP"):
            noun = True
        elif noun:
            return tag == "MD" or word in _AUXILIARIES
        elif tag not in ("JJ", "CD", "VBN", "NNPS", "JJR", "VBG"):
            return False
    return False


def _under_let(low: Sequence[str], i: int) -> bool:
    """Whether "let", "make", "watch" or "help" stands up to four words before the verb behind word ``i``."""
    return any(word in _LETTING for word in low[max(0, i - 3) : i + 1])


def _imperative(low: Sequence[str], i: int, tag_before: str, tag: str, tag_after: str) -> float:
    before = low[i]
    if tag == "VBP" and (tag_before in ("NNS", "PRP", "NNP", "RB") and before not in ("it", "them", "this", "that")):
        return 0.1  # a verb with its subject
    if _under_let(low, i):
        return -0.5  # "let the dough rise"
    if tag_before in ("VB", "VBP", "VBD", "VBZ", "VBG", "JJR", "TO", "MD"):
        return 0.2  # "help stir", "go get", "let simmer"
    if tag_before == "IN" and before not in (
        "in",
        "on",
        "off",
        "out",
        "up",
        "down",
        "over",
        "around",
        "through",
        "together",
        "below",
        "inside",
    ):
        return -0.5
    score = 1.1 if tag_after in _OBJECT_START else 0.6
    if tag_before in ("NN", "NNS", "RP", "CD") or before in ("it", "them", "this", "that"):
        score += 0.3
    return score
