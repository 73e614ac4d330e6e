"""Punctuation models as segmenters, for users who have them: extras, loaded when they are asked for.

Two that are kept up today: ``sat`` (Segment any Text, package wtpsplit) finds sentence ends in text of any kind;
``sherpa`` (package sherpa-onnx) runs punctuation models small enough for a phone. A model is named as
``sat``, ``sat:sat-12l-sm`` or ``sherpa:/folder/of/the/model``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stepformer.errors import InputError, MissingError, UsageError, missing_extra
from stepformer.narration.cues import Word
from stepformer.narration.sentences import Segmenter, ends_with_mark

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


NAMES: dict[str, Callable[[str], Segmenter]] = {"sat": _load_sat, "sherpa": _load_sherpa}


@functools.lru_cache(maxsize=4)
def load_punctuator(name: str) -> Segmenter:
    """The model of this name (``NAME`` or ``NAME:MODEL``), loaded once a process.

    Raises:
        UsageError: no such name. MissingError: its extra or its weights are not here.
    """
    kind, _, model = name.partition(":")
    if kind not in NAMES:
        raise UsageError(f"no punctuation stage {name!r}; one of: rules, none, {', '.join(NAMES)}")
    return NAMES[kind](model)
