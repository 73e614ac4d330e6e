"""What the parser gives, in the words of the phrases: base forms of verbs, the tree, noun phrases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from stepformer.narration.lexicon import (
    EMPTY_PREP_OBJECTS,
    EMPTY_PREPS,
    FILLERS,
    MEASURES,
    PARTICLES,
    SOFTENERS,
    pairs,
    word_set,
)

_IRREGULAR = pairs("irregular_verbs")
_PAST = ("VBD", "VBN")


class VerbLemmas:
    """Base form of a verb from its word and tag, remembered."""

    def __init__(self, nlp: Any) -> None:
        self._seen: dict[tuple[str, str], str] = {}
        self._exceptions: Any = {}
        self._index: Any = frozenset()
        self._rules: Any = ()
        if "lemmatizer" in nlp.component_names:
            lookups = nlp.get_pipe("lemmatizer").lookups
            if all(lookups.has_table(name) for name in ("lemma_exc", "lemma_index", "lemma_rules")):
                self._exceptions = lookups.get_table("lemma_exc").get("verb", {})
                self._index = frozenset(lookups.get_table("lemma_index").get("verb", ()))
                self._rules = lookups.get_table("lemma_rules").get("verb", ())

    def __call__(self, word: str, tag: str) -> str:
        """The base form of ``word``, which has this tag."""
        key = (word, tag)
        found = self._seen.get(key)
        if found is None:
            if len(self._seen) > 50_000:  # broken text has no end of new words
                self._seen.clear()
            found = self._seen[key] = self._find(word, tag)
        return found

    def _find(self, word: str, tag: str) -> str:
        if word in ("gon", "gonna"):
            return "go"
        if word in ("'s", "'re", "'m"):
            return "be"
        if tag not in (*_PAST, "VBZ", "VBG"):
            return word
        known = self._exceptions.get(word)
        if known:
            return str(known[0])
        if word in _IRREGULAR:
            return _IRREGULAR[word]
        if tag in _PAST and word in self._index and not word.endswith("ed"):
            return word  # put, cut, set
        for old, new in self._rules:
            if word.endswith(old):
                base = word[: len(word) - len(old)] + new
                if base in self._index:
                    return str(base)
        return word if word in self._index else _strip(word, tag)


def _strip(word: str, tag: str) -> str:
    if tag == "VBZ" and word.endswith("s"):
        return (
            word[:-3] + "y"
            if word.endswith("ies")
            else word[:-2]
            if word.endswith(("shes", "ches", "sses", "xes", "zes"))
            else word[:-1]
        )
    ending = "ing" if tag == "VBG" else "ed"
    if not word.endswith(ending) or len(word) < len(ending) + 3:
        return word
    base = word[: -len(ending)]
    if tag != "VBG" and base.endswith("i"):
        return base[:-1] + "y"
    if base[-1] == base[-2] and base[-1] not in "lsz":
        return base[:-1]
    # a short stem of consonant, vowel, consonant has lost its e: "slic", "bak"
    if base[-1] in "cgvszuk" or (
        len(base) >= 3 and base[-1] in "kmnplt" and base[-2] in "aiou" and base[-3] not in "aeiou"
    ):
        return base + "e"
    return base


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


_LEFT = word_set("det amod compound nummod poss quantmod nmod predet advmod neg case")
_LEFT_PLAIN = frozenset(["compound", "nmod"])
_MAX_LEFT = 7  # tokens before the noun; more is a misparse
_NAMES = frozenset(("NN", "NNS", "NNP", "NNPS", "PRP", "DT", "CD", "VBG", "JJ", "FW"))


def joined(tree: Tree, i: int) -> list[int]:
    """``i`` and the nouns conjoined with it, in order."""
    found = [i]
    for node in found:
        # "the salt, the pepper and the cumin": the second of a list is no other name of the first
        listed = [child for child in tree.having(node, "appos") if child > node + 1 and tree.having(child, "conj")]
        for child in [*tree.having(node, "conj"), *listed]:
            # a verb that the parser took for a noun ("add the onions and stir") is no object
            if tree.tag[child] in _NAMES and not tree.having(child, "dobj", "nsubj"):
                found.append(child)
    return sorted(found)


def noun_tokens(tree: Tree, i: int, *, whole: bool = False) -> list[int]:
    """Tokens of the noun phrase around ``i``: modifiers before it, "of …" behind it; with ``whole``, conjuncts too."""
    if not tree.children[i]:
        return [i]
    tokens = [i]
    for child in tree.children[i]:
        if child < i and tree.dep[child] in _LEFT:
            tokens += [t for t in tree.subtree(child) if t < i]
        elif child > i and tree.dep[child] == "prep" and tree.low[child] == "of":
            tokens.append(child)
            for below in tree.having(child, "pobj"):
                tokens += noun_tokens(tree, below, whole=True)
        elif child == i + 1 and tree.dep[child] == "appos" and tree.tag[child] in ("NN", "NNS"):
            tokens.append(child)  # "the power button" taken for two names of one thing
        elif child > i and tree.dep[child] == "case":  # "dog's"
            tokens.append(child)
        elif whole and child > i and tree.dep[child] == "conj" and tree.tag[child] in _NAMES:
            tokens += [t for t in tree.having(i, "cc") if i < t < child]
            tokens += noun_tokens(tree, child, whole=True)
    tokens = sorted(set(tokens))
    before = [t for t in tokens if t < i][-_MAX_LEFT:]
    return [t for t in before if _kept(tree, t)] + [t for t in tokens if t >= i]


def _kept(tree: Tree, i: int) -> bool:
    return tree.low[i] not in FILLERS and tree.low[i] not in SOFTENERS and tree.tag[i] not in ("UH", "CC")


def short_name(tree: Tree, i: int) -> str:
    """What a pronoun that stands for ``i`` is replaced by: "two large brown eggs" is called "the eggs" from then on."""
    tokens = [i]
    owned = False
    for child in tree.children[i]:
        if child < i and tree.dep[child] in _LEFT_PLAIN:
            tokens += [t for t in tree.subtree(child) if t < i and _kept(tree, t)]
        elif child < i and tree.dep[child] == "poss":
            tokens += [t for t in tree.subtree(child) if t < i]
            owned = True
        elif child > i and tree.dep[child] == "prep" and tree.low[child] == "of":
            for below in tree.having(child, "pobj"):
                tokens += [child, *noun_tokens(tree, below)]
    text = tree.words(sorted(set(tokens)))
    return (
        text
        if owned or (tree.tag[i] == "NNP" and not tree.having(i, "det") and tree.text[i][:1].isupper())
        else f"the {text}"
    )


def measured(tree: Tree, i: int) -> int:
    """What an amount is an amount of: "sauce" for "a little bit of soy sauce"; any other noun is itself."""
    if tree.low[i] in MEASURES:
        for of in tree.having(i, "prep"):
            if tree.low[of] == "of":
                for noun in tree.having(of, "pobj"):
                    return noun
    return i


def noun_text(tree: Tree, i: int, resolved: Mapping[int, str], tokens: Sequence[int]) -> str:
    """The noun phrase of ``tokens`` around ``i`` as text, a pronoun replaced by what it stands for."""
    if i in resolved:
        return resolved[i]
    if tree.low[i] == "they":
        return "them"  # the subject of a passive becomes an object
    return tree.words(tokens)


def prep_objects(tree: Tree, prep: int) -> tuple[list[int], list[int]]:
    """(tokens of a preposition, more than one in "out of", and the nouns it governs)."""
    tokens = [prep]
    while True:
        objects = tree.having(tokens[-1], "pobj")
        if objects:
            return tokens, objects
        further = [
            child
            for child in tree.having(tokens[-1], "prep", "pcomp")
            if child == tokens[-1] + 1 and tree.tag[child] in ("IN", "TO")
        ]
        if not further or len(tokens) == 3:
            return tokens, []
        tokens.append(further[0])


def prep_phrase(
    tree: Tree, prep: int, resolved: Mapping[int, str], *, any_object: bool = False
) -> tuple[str, int, list[int]] | None:
    """(text, head noun, tokens) of a prepositional phrase that says where, with or into what; None if it does not."""
    if tree.low[prep] in EMPTY_PREPS:
        return None
    tokens, objects = prep_objects(tree, prep)
    if not objects:
        return None
    noun = objects[0]
    if tree.low[noun] in EMPTY_PREP_OBJECTS and noun not in resolved and not any_object:
        return None
    if tree.tag[noun] in ("WP", "WDT", "WRB", "RB", "VBG") and tree.dep[noun] != "pobj":
        return None
    named = noun_tokens(tree, noun, whole=True)
    said = resolved.get(noun) or tree.words(named)
    return f"{tree.words(tokens)} {said}", noun, tokens + named


def is_particle(tree: Tree, i: int) -> bool:
    """Whether a child of a verb is a particle: labelled so, or a bare preposition or adverb of the kind."""
    if tree.dep[i] == "prt":
        return True
    if tree.low[i] not in PARTICLES:
        return False
    if tree.dep[i] == "advmod":
        return not tree.children[i] or all(tree.dep[c] in ("advmod", "punct") for c in tree.children[i])
    # "on top" is a place, though the parser leaves "top" hanging at times
    return tree.dep[i] == "prep" and not tree.children[i] and tree.low[i + 1 : i + 2] != ["top"]
