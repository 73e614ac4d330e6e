"""Noun phrases and prepositional phrases out of a parse."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stepformer.narration.lexicon import (
    EMPTY_PREP_OBJECTS,
    EMPTY_PREPS,
    FILLERS,
    MEASURES,
    PARTICLES,
    SOFTENERS,
    word_set,
)
from stepformer.narration.tree import Tree

_LEFT = word_set("det amod compound nummod poss quantmod nmod predet advmod neg case")
_LEFT_PLAIN = frozenset(["compound", "nmod"])
_MAX_LEFT = 7  # tokens before the noun; more is a misparse
_NAMES = frozenset(("NN", "NNS", "NNP", "NNPS", "PRP", "DT", "CD", "VBG", "JJ", "FW"))


def joined(tree: Tree, i: int) -> list[int]:
    """``i`` and the nouns conjoined with it, in order."""
    found = [i]
    for node in found:
        for child in tree.having(node, "conj"):
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
    return tree.dep[i] == "prep" and not tree.children[i]
