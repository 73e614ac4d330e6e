"""A parsed stretch of speech as plain lists, so that the stages behind the parser need no parser's types."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field


def _mend_conjuncts(tag: list[str], dep: list[str], head: list[int]) -> None:
    """Hangs a noun that the parser joined to a verb on the noun before it: "slice the potatoes and the carrots"."""
    for i, label in enumerate(dep):
        if label != "conj" or not tag[i].startswith("NN") or not tag[head[i]].startswith("VB"):
            continue
        # back over the noun's own words to "and"; the noun before it is its partner
        at = i - 1
        while at > head[i] and head[at] == i and tag[at] != "CC":
            at -= 1
        if (
            at > head[i] + 1
            and tag[at] == "CC"
            and dep[at - 1] in ("dobj", "pobj", "conj", "nsubjpass")
            and tag[at - 1].startswith("NN")
        ):
            head[i] = at - 1


@dataclass(slots=True)
class Tree:
    """Tokens of one stretch, all lists of one length T; ``head[i] == i`` for the root of a sentence."""

    text: list[str]  # (T,) as said
    low: list[str]  # (T,) lower case
    tag: list[str]  # (T,) Penn Treebank tags
    dep: list[str]  # (T,) dependency labels as spaCy's English pipelines name them
    head: list[int]  # (T,)
    sentence: list[int]  # (T,) number of the sentence
    start_s: list[float]  # (T,)
    end_s: list[float]  # (T,)
    glued: list[bool]  # (T,) no space before this token ("do" + "n't")
    children: list[list[int]] = field(default_factory=list)  # (T,) ascending

    def __post_init__(self) -> None:
        _mend_conjuncts(self.tag, self.dep, self.head)
        self.children = [[] for _ in self.text]
        for i, head in enumerate(self.head):
            if head != i:
                self.children[head].append(i)

    def __len__(self) -> int:
        return len(self.text)

    def having(self, i: int, *deps: str) -> list[int]:
        """Children of ``i`` with one of these labels."""
        children = self.children[i]
        if not children:  # most tokens
            return []
        dep = self.dep
        return [child for child in children if dep[child] in deps]

    def subtree(self, i: int) -> list[int]:
        """``i`` and everything below it, ascending."""
        if not self.children[i]:
            return [i]
        found = [i]
        for node in found:
            found.extend(self.children[node])
        return sorted(found)

    def words(self, tokens: Sequence[int]) -> str:
        """The tokens as text, lower case, contractions glued."""
        parts: list[str] = []
        for i in tokens:
            word = self.low[i]
            if parts and self.glued[i] and i - 1 in tokens:
                parts[-1] += word
            else:
                parts.append(word)
        return " ".join(parts)

    def sentences(self) -> Iterator[tuple[int, int]]:
        """(first, one past the last) token of each sentence."""
        first = 0
        for i in range(1, len(self.text) + 1):
            if i == len(self.text) or self.sentence[i] != self.sentence[first]:
                yield first, i
                first = i
