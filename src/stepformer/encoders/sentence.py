"""Sentences to unit vectors: MiniLM-L6-v2, which the text tower of ``clip`` starts from."""

from __future__ import annotations

import copy
import functools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file

from stepformer.base import weights
from stepformer.base.files import sha256_of
from stepformer.encoders.bert import Bert, BertConfig, WordPiece
from stepformer.encoders.checkpoints import load_published

_MAX_TOKENS = 256
_BATCH = 64


class SentenceEncoder:
    """Texts to float32 unit vectors (L, 384): mean of the last hidden states over real tokens, normalised.

    ``folder`` holds model.safetensors, config.json and vocab.txt; by default the registered "minilm" weights,
    downloaded on first use.
    """

    name = "minilm"
    license = "Apache-2.0"

    def __init__(self, folder: str | Path | None = None, *, device: str = "cpu") -> None:
        if folder is None:
            folder = weights.pull("minilm")
            self.fingerprint = "minilm:" + weights.entry("minilm").fingerprint
        else:
            folder = Path(folder)
            self.fingerprint = "bert:" + sha256_of(folder / "model.safetensors")[:16]
        config = BertConfig.from_dict(json.loads((folder / "config.json").read_text(encoding="utf-8")))
        self._bert = Bert(config)
        load_published(self._bert, load_file(folder / "model.safetensors"), str(folder), ("pooler.",))
        self._bert.eval().to(device)
        self.device = device
        self._tokenize = WordPiece(folder / "vocab.txt")
        self.dim = config.hidden_size

    @torch.no_grad()
    def tuned(self, changes: Mapping[str, torch.Tensor]) -> SentenceEncoder:
        """A copy with changes of low rank r: NAME.weight has ``NAME.up`` (out, r) times ``NAME.down`` (r, in) added."""
        other = copy.copy(self)
        other._bert = copy.deepcopy(self._bert)
        for name in {key.rpartition(".")[0] for key in changes}:
            weight = other._bert.get_submodule(name).get_parameter("weight")
            weight.add_((changes[f"{name}.up"] @ changes[f"{name}.down"]).to(weight))
        return other

    @torch.inference_mode()
    def encode_text(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Texts to (L, 384) unit vectors, in the order given; texts beyond 256 tokens are cut."""
        out = np.empty((len(texts), self.dim), np.float32)
        for rows, ids, mask in self._tokenize.batches(texts, _MAX_TOKENS, _BATCH):
            hidden = self._bert(ids.to(self.device), mask.to(self.device))  # (B, T, D)
            weight = mask.to(self.device).unsqueeze(-1).to(hidden.dtype)
            mean = (hidden * weight).sum(1) / weight.sum(1)
            out[rows] = torch.nn.functional.normalize(mean, dim=-1).cpu().numpy()
        return out


@functools.cache
def default_sentence_encoder() -> SentenceEncoder:
    """The registered sentence encoder, loaded once per process."""
    return SentenceEncoder()
