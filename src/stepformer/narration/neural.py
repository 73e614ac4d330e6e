"""Neural models for two stages, for users who have them: extras, loaded when they are asked for.

Punctuation, as segmenters: ``sat`` (Segment any Text, package wtpsplit) finds sentence ends in text of any kind;
``sherpa`` (package sherpa-onnx) runs punctuation models small enough for a phone. Co-reference, as resolvers:
``stanza`` (pipeline of Stanford, processors tokenize and coref) and ``maverick`` (package maverick-coref). A model is
named as ``sat``, ``sat:sat-12l-sm``, ``sherpa:/folder/of/the/model`` or ``maverick:/folder``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stepformer.errors import InputError, MissingError, UsageError, missing_extra
from stepformer.narration.coref import Resolver, pronouns
from stepformer.narration.cues import Word
from stepformer.narration.sentences import Segmenter, ends_with_mark
from stepformer.narration.syntax import Tree, short_name

_STRIP = ".,;:!?\"' "


@dataclass(frozen=True, slots=True)
class TextSegmenter:
    """A model that splits one text into sentences, whose pieces joined give the text back."""

    name: str
    split: Callable[[str], Sequence[str]]
    needs_tags: bool = False

    def ends(self, words: Sequence[Word], tags: Sequence[str]) -> list[bool]:
        """For each word, whether a sentence ends behind it."""
        text = " ".join(word.text for word in words)
        cuts: set[int] = set()
        at = 0
        for piece in self.split(text):
            at += len(piece)
            cuts.add(at)
        found: list[bool] = []
        end = 0
        for word in words:
            end += len(word.text)
            # the space behind a word goes with the sentence before or behind it
            found.append(end in cuts or end + 1 in cuts)
            end += 1
        if found:
            found[-1] = True
        return found


@dataclass(frozen=True, slots=True)
class TextPunctuator:
    """A model that writes marks into one text and keeps its words."""

    name: str
    punctuate: Callable[[str], str]
    needs_tags: bool = False

    def ends(self, words: Sequence[Word], tags: Sequence[str]) -> list[bool]:
        """For each word, whether a sentence ends behind it."""
        marked = self.punctuate(" ".join(word.text for word in words)).split()
        found = [False] * len(words)
        at = 0
        for text in marked:
            # a model may change a word's case or join two; words are found again in order
            low = text.lower().strip(_STRIP)
            for look in range(at, min(at + 4, len(words))):
                if words[look].text.lower().strip(_STRIP) == low:
                    found[look] = ends_with_mark(text)
                    at = look + 1
                    break
        if found:
            found[-1] = True
        return found


def _load_sat(model: str) -> Segmenter:
    try:
        from wtpsplit import SaT  # type: ignore[import-not-found,unused-ignore]
    except ImportError as error:
        raise missing_extra("wtpsplit", "punctuation-sat", "the punctuation model 'sat'") from error
    try:
        sat: Any = SaT(model or "sat-3l-sm")
    except Exception as error:  # the package raises whatever its download does
        raise MissingError(
            f"wtpsplit cannot load {model or 'sat-3l-sm'!r} ({error}); give a model's folder: sat:/folder"
        ) from error
    return TextSegmenter("sat", lambda text: list(sat.split(text)))


def _load_sherpa(model: str) -> Segmenter:
    try:
        import sherpa_onnx  # type: ignore[import-not-found,unused-ignore]
    except ImportError as error:
        raise missing_extra("sherpa-onnx", "punctuation-sherpa", "the punctuation model 'sherpa'") from error
    folder = Path(model) if model else Path("sherpa-onnx-online-punct-en-2024-08-06")
    network, vocabulary = folder / "model.onnx", folder / "bpe.vocab"
    if not network.is_file() or not vocabulary.is_file():
        raise MissingError(
            f"{folder}: has no model.onnx and bpe.vocab; give a sherpa-onnx punctuation model: sherpa:FOLDER"
        )
    try:
        config = sherpa_onnx.OnlinePunctuationConfig(
            model=sherpa_onnx.OnlinePunctuationModelConfig(cnn_bilstm=str(network), bpe_vocab=str(vocabulary))
        )
        engine: Any = sherpa_onnx.OnlinePunctuation(config)
    except Exception as error:
        raise InputError(f"{folder}: sherpa-onnx cannot load this model ({error})") from error
    return TextPunctuator("sherpa", lambda text: str(engine.add_punctuation_with_case(text)))


PUNCTUATORS: dict[str, Callable[[str], Segmenter]] = {"sat": _load_sat, "sherpa": _load_sherpa}
_loaded: dict[str, Any] = {}


def load_punctuator(name: str) -> Segmenter:
    """The punctuation model of this name (``NAME`` or ``NAME:MODEL``), loaded once per process.

    Raises:
        UsageError: no such name. MissingError: its extra or its weights are not here.
    """
    segmenter: Segmenter = _load(name, "punctuation", PUNCTUATORS)
    return segmenter


def _load(name: str, stage: str, known: Mapping[str, Callable[[str], Any]]) -> Any:
    kind, _, model = name.partition(":")
    if kind not in known:
        raise UsageError(f"no {stage} stage {name!r}; one of: rules, none, {', '.join(known)}")
    if name not in _loaded:
        _loaded[name] = known[kind](model)
    return _loaded[name]


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


RESOLVERS: dict[str, Callable[[str], Resolver]] = {"stanza": _load_stanza, "maverick": _load_maverick}


def load_resolver(name: str) -> Resolver:
    """The co-reference model of this name, as :func:`load_punctuator` has it."""
    resolver: Resolver = _load(name, "co-reference", RESOLVERS)
    return resolver
