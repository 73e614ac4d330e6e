"""Whether what was said names a step: the sentence encoder reads a name with the words around it.

``stepformer bench said --out`` trained the weights on labelled names (docs/narration.md).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.torch import load_file

from stepformer.base.arrays import softmax
from stepformer.encoders.sentence import SentenceEncoder, default_sentence_encoder

LABELS = ("wrong", "not now", "acceptable", "good")
"""What a name can be: no English or not what is done; not done here and now; right, but vague; right."""
WORDS_BEFORE, WORDS_BEHIND = 20, 12
"""How much of the talk is read with a name."""


def as_read(name: str, around: tuple[str, str, str]) -> str:
    """The text that is classified: a name and the words before, in and behind the place where it was said."""
    return " [SEP] ".join((name, *around))


class NameClassifier:
    """Chances that names are of each kind; ``encoder``: the sentence encoder whose tuned copy reads them."""

    def __init__(self, encoder: SentenceEncoder, weights: str | Path | None = None) -> None:
        state = load_file(weights or Path(__file__).with_name("name_classifier.safetensors"))
        self._encoder = encoder.tuned({key: x.float() for key, x in state.items() if key.endswith((".up", ".down"))})
        self._weight, self._bias = state["weight"].float().numpy(), state["bias"].float().numpy()

    def __call__(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """(L, 4) the chance of each of :data:`LABELS`, of texts made by :func:`as_read`."""
        return softmax(self._encoder.encode_text(texts) @ self._weight.T + self._bias)


@functools.cache
def default_name_classifier() -> NameClassifier:
    """The one that ships, loaded once per process."""
    return NameClassifier(default_sentence_encoder())
