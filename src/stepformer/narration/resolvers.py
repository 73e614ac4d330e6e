"""Neural co-reference models as resolvers, for users who have them: extras, loaded when they are asked for.

Two that are kept up today: ``stanza`` (Stanford's pipeline, processors tokenize and coref) and ``maverick`` (package
maverick-coref). A model is named as ``stanza``, ``maverick`` or ``maverick:/folder``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from stepformer.errors import MissingError, UsageError, missing_extra
from stepformer.narration.coref import Resolver, pronouns
from stepformer.narration.nouns import short_name
from stepformer.narration.tree import Tree

Span = tuple[int, int]  # first token, one past the last
_NOUNS = ("NN", "NNS", "NNP", "NNPS")


@dataclass(frozen=True, slots=True)
class ClusterResolver:
    """A model that gives clusters of spans that mean the same; ``clusters`` gets the tokens, sentence by sentence."""

    name: str
    clusters: Callable[[list[list[str]]], Sequence[Sequence[Span]]]

    def resolve(self, tree: Tree) -> dict[int, str]:
        """Token of a pronoun -> the short name of the nearest noun before it in its cluster, else behind it."""
        if not len(tree):
            return {}
        asked = set(pronouns(tree))
        if not asked:
            return {}
        sentences = [tree.text[first:last] for first, last in tree.sentences()]
        resolved: dict[int, str] = {}
        for cluster in self.clusters(sentences):
            spans = [span for span in cluster if 0 <= span[0] < span[1] <= len(tree)]
            heads = [head for span in spans if (head := _head(tree, span)) is not None]
            for first, last in spans:
                if last - first == 1 and first in asked and heads:
                    before = [head for head in heads if head < first]
                    resolved[first] = short_name(tree, before[-1] if before else heads[0])
        return resolved


def _head(tree: Tree, span: Span) -> int | None:
    """The noun of a span that its other tokens hang on; None for a pronoun."""
    inside = range(*span)
    for i in inside:
        if tree.tag[i] in _NOUNS and tree.head[i] not in inside:
            return i
    nouns = [i for i in inside if tree.tag[i] in _NOUNS]
    return nouns[-1] if nouns else None


def _load_stanza(model: str) -> Resolver:
    try:
        import stanza  # type: ignore[import-not-found,unused-ignore]
    except ImportError as error:
        raise missing_extra("stanza", "coref-stanza", "the co-reference model 'stanza'") from error
    folder = {"dir": model} if model else {}
    try:
        pipeline: Any = stanza.Pipeline(
            "en", processors="tokenize,coref", tokenize_pretokenized=True, verbose=False, download_method=None, **folder
        )
    except Exception as error:  # the package raises whatever its files do
        raise MissingError(
            f"stanza cannot load its English co-reference model ({error}); get it in Python with: "
            "stanza.download('en', processors='tokenize,coref')"
        ) from error

    def clusters(sentences: list[list[str]]) -> list[list[Span]]:
        offsets = [0]
        for sentence in sentences:
            offsets.append(offsets[-1] + len(sentence))
        return [
            [
                (offsets[m.sentence] + m.start_word, offsets[m.sentence] + m.end_word)
                for m in chain.mentions
                if isinstance(m.start_word, int)
            ]
            for chain in pipeline(sentences).coref
        ]

    return ClusterResolver("stanza", clusters)


def _load_maverick(model: str) -> Resolver:
    try:
        from maverick import Maverick  # type: ignore[import-not-found,unused-ignore]
    except ImportError as error:
        raise missing_extra("maverick-coref", "coref-maverick", "the co-reference model 'maverick'") from error
    try:
        engine: Any = Maverick(**({"hf_name_or_path": model} if model else {}), device="cpu")
    except Exception as error:
        raise MissingError(
            f"maverick-coref cannot load its model ({error}); give a model's folder: maverick:/folder"
        ) from error

    def clusters(sentences: list[list[str]]) -> list[list[Span]]:
        found = engine.predict(sentences)["clusters_token_offsets"] or ()
        return [[(first, last + 1) for first, last in cluster] for cluster in found]

    return ClusterResolver("maverick", clusters)


NAMES: dict[str, Callable[[str], Resolver]] = {"stanza": _load_stanza, "maverick": _load_maverick}


@functools.lru_cache(maxsize=2)
def load_resolver(name: str) -> Resolver:
    """The model of this name (``NAME`` or ``NAME:MODEL``), loaded once a process.

    Raises:
        UsageError: no such name. MissingError: its extra or its weights are not here.
    """
    kind, _, model = name.partition(":")
    if kind not in NAMES:
        raise UsageError(f"no co-reference stage {name!r}; one of: rules, none, {', '.join(NAMES)}")
    return NAMES[kind](model)
