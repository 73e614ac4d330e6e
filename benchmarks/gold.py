"""The hand-made gold set, and precision, recall and F1 of phrases against it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from stepformer.errors import InputError
from stepformer.narration.lexicon import word_set

_LEFT_OUT = word_set("a an the my your our their his her its this that these those some")


@dataclass(frozen=True, slots=True)
class Utterance:
    """``sentences`` of one utterance as said, without punctuation, and the ``phrases`` a person takes from it."""

    sentences: tuple[str, ...]
    phrases: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Score:
    """Counts of found, wanted and matching phrases; 0/0 is 0."""

    matched: int
    found: int
    wanted: int

    @property
    def precision(self) -> float:
        """Share of the found phrases that are wanted."""
        return self.matched / self.found if self.found else 0.0

    @property
    def recall(self) -> float:
        """Share of the wanted phrases that are found."""
        return self.matched / self.wanted if self.wanted else 0.0

    @property
    def f1(self) -> float:
        """Harmonic mean of both."""
        total = self.found + self.wanted
        return 2 * self.matched / total if total else 0.0


def load_gold(split: str = "test") -> list[Utterance]:
    """The utterances of the "dev" or "test" split."""
    text = (Path(__file__).parent / "data" / f"gold_{split}.txt").read_text(encoding="utf-8")
    utterances: list[Utterance] = []
    said = ""
    phrases: list[str] = []
    for number, line in enumerate([*text.split("\n"), "end"], start=1):
        if not line.strip() or line.startswith("#"):
            continue
        if line.startswith("  "):
            if not said:
                raise InputError(f"gold_{split}.txt: line {number}: a phrase before any utterance")
            phrases.append(line.strip())
            continue
        if said:
            utterances.append(Utterance(tuple(part.strip() for part in said.split("|")), tuple(phrases)))
        said, phrases = line.strip(), []
    return utterances


def _key(phrase: str) -> tuple[str, tuple[str, ...]]:
    """Verb, and the other words that carry meaning in any order (a particle stands before or behind its object)."""
    words = phrase.lower().removeprefix("do not ").split()
    no = "not " if phrase.startswith("do not ") else ""
    rest = sorted(word for word in words[1:] if word not in _LEFT_OUT)
    return no + (words[0] if words else ""), tuple(rest)


def _alike(found: str, wanted: str) -> bool:
    """The same verb (and negation), and at least half of the words in common."""
    verb, words = _key(found)
    other_verb, other_words = _key(wanted)
    if verb != other_verb:
        return False
    if not words and not other_words:
        return True
    common = sum((Counter(words) & Counter(other_words)).values())
    return 2 * common >= len(set(words) | set(other_words))


def match(found: Sequence[str], wanted: Sequence[str], *, loose: bool = False) -> int:
    """How many found phrases match a wanted one, each wanted one at most once."""
    left = list(wanted)
    matched = 0
    for phrase in found:
        for other in left:
            if _alike(phrase, other) if loose else _key(phrase) == _key(other):
                left.remove(other)
                matched += 1
                break
    return matched
