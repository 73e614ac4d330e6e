"""What "it", "them" and "this" stand for: the protocol, and a default for the pronouns of instructions.

The default keeps the things that were acted on lately, in the order of how likely they are to be taken up again:
what was acted on before where it was put, the near before the far, one thing for "it", several for "them".
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from stepformer.narration.groundability import noun_score
from stepformer.narration.lexicon import CHATTER_OBJECTS, CONTAINERS, ELIDING, PERSON_NOUNS, TIME_NOUNS
from stepformer.narration.syntax import Tree, short_name

SINGULAR = frozenset(("it", "this", "that"))
PLURAL = frozenset(("them", "they", "these", "those", "'em", "em"))
_WEIGHT = {
    "dobj": 3.0, "nsubjpass": 3.0, "nsubj": 2.0, "attr": 2.0, "ROOT": 1.8, "dative": 1.5, "pobj": 1.0, "conj": 2.5,
    "appos": 1.5,
}  # fmt: skip
_ACTED_ON = 2.2  # weight from which a thing counts as acted on, and not only as named
_COMPLEMENTS = ("dobj", "ccomp", "xcomp", "acomp", "attr", "nsubjpass", "auxpass", "oprd", "dative")
_REACH = 40  # tokens back, for an object that is left out
_NOT_THINGS = TIME_NOUNS | CHATTER_OBJECTS | PERSON_NOUNS


@runtime_checkable
class Resolver(Protocol):
    """Says what pronouns stand for. Called with the stretches of one video in order; may remember between calls."""

    def resolve(self, tree: Tree) -> dict[int, str]:
        """Token of a pronoun -> the words it stands for, such as "the eggs". Unresolved pronouns are left out.

        A verb whose object is left out ("stir well") may be there too, with what it acts on.
        """
        ...


def pronouns(tree: Tree) -> list[int]:
    """Tokens that stand for a thing by themselves ("this pan" has none)."""
    return [
        i
        for i, word in enumerate(tree.low)
        if (word in SINGULAR or word in PLURAL)
        and tree.tag[i] in ("PRP", "DT")
        and tree.dep[i] not in ("det", "mark", "expl", "advmod", "predet")
    ]


def _lacks_object(tree: Tree, i: int) -> bool:
    """Whether a verb in its base form has nothing to act on; "washed and cut" is no base form."""
    if tree.tag[i] not in ("VB", "VBP") or tree.having(i, *_COMPLEMENTS):
        return False
    return tree.dep[i] != "conj" or tree.tag[tree.head[i]] not in ("VBN", "VBD")


@dataclass(slots=True)
class _Thing:
    name: str
    plural: bool
    weight: float
    at: int  # running token number of the last mention
    verb: int  # running number of the verb it was last an argument of


class RuleResolver:
    """The default resolver; one for each video."""

    def __init__(self) -> None:
        self._things: deque[_Thing] = deque(maxlen=24)
        self._offset = 0

    def resolve(self, tree: Tree) -> dict[int, str]:
        """Token of a pronoun -> the words it stands for."""
        resolved: dict[int, str] = {}
        asked = set(pronouns(tree))
        grouped: set[int] = set()
        for i in range(len(tree)):
            if i in asked:
                found = self._find(tree, i)
                if found is not None:
                    resolved[i] = found.name
                    found.at, found.verb = self._offset + i, self._verb(tree, i)
                    found.weight = max(found.weight, 2.5 if tree.dep[i] in ("dobj", "nsubjpass") else 1.5)
            elif tree.tag[i] in ("NN", "NNS", "NNP", "NNPS") and tree.dep[i] in _WEIGHT and i not in grouped:
                self._mention(tree, i, grouped)
            elif tree.low[i] in ELIDING and _lacks_object(tree, i):
                # what a verb without an object is about: the thing that was acted on last, if that is not long ago
                lately = (t for t in reversed(self._things) if self._offset + i - t.at <= _REACH)
                left_out = next((thing for thing in lately if thing.weight >= _ACTED_ON), None)
                if left_out is not None:
                    resolved[i] = left_out.name
        self._offset += len(tree)
        return resolved

    def _mention(self, tree: Tree, i: int, grouped: set[int]) -> None:
        word, dep = tree.low[i], tree.dep[i]
        asked = any(tree.tag[t] in ("WRB", "WDT", "WP$") for t in tree.subtree(i) if t < i)  # "how much dye i needed"
        if asked or word in _NOT_THINGS or (dep == "pobj" and tree.low[tree.head[i]] in ("of", "with")):
            return  # part of another thing's name; what was used is seldom what is acted on next
        weight = _WEIGHT[dep] + noun_score(word) - 0.6 - (0.4 if dep == "pobj" and word in CONTAINERS else 0.0)
        others = [c for c in tree.having(i, "conj") if tree.tag[c].startswith("NN")]
        self._remember(tree, [i], weight)
        if others and dep != "conj":
            grouped.update(others)
            for other in others:
                self._remember(tree, [other], weight - 0.5)
            self._remember(tree, [i, *others], weight + 0.2)

    def _remember(self, tree: Tree, nouns: list[int], weight: float) -> None:
        """Nouns that are taken up as one thing: one, or all that are joined by "and"."""
        name = " and ".join(short_name(tree, noun) for noun in nouns)
        plural = len(nouns) > 1 or tree.tag[nouns[0]] in ("NNS", "NNPS")
        self._things.append(_Thing(name, plural, weight, self._offset + nouns[-1], self._verb(tree, nouns[0])))

    def _verb(self, tree: Tree, i: int) -> int:
        """Running number of the verb that token ``i`` is an argument of."""
        for _ in range(6):
            if tree.tag[i].startswith("VB"):
                break
            i = tree.head[i]
        return self._offset + i

    def _find(self, tree: Tree, i: int) -> _Thing | None:
        """The thing that a pronoun most likely stands for: acted on, near, of its number, no argument of its verb."""
        plural, verb = tree.low[i] in PLURAL, self._verb(tree, i)

        def score(thing: _Thing) -> float:
            return 4.0 + thing.weight - (self._offset + i - thing.at) / 9.0

        fitting = [thing for thing in reversed(self._things) if thing.plural == plural and thing.verb != verb]
        best = max(fitting, key=score, default=None)
        return best if best is not None and score(best) >= 0.0 else None
