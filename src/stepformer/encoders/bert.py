"""A plain BERT encoder in torch, and its WordPiece tokeniser: the text side of several encoders.

Layer names follow the layout in which BERT checkpoints are published ("embeddings.word_embeddings.weight",
"encoder.layer.0.attention.self.query.weight", ...), so that a published state dict loads by its own key names:
MiniLM (6 layers, 384) and bert-base-uncased (12 layers, 768; UniVL's text tower) alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from stepformer.base.files import no_such
from stepformer.errors import InputError


@dataclass(frozen=True, slots=True)
class BertConfig:
    """The sizes of a BERT encoder; the defaults are bert-base-uncased."""

    vocab_size: int = 30522
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    layer_norm_eps: float = 1e-12

    def __post_init__(self) -> None:
        if self.hidden_size % self.num_attention_heads:
            raise InputError(f"hidden size {self.hidden_size} does not divide into {self.num_attention_heads} heads")

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> BertConfig:
        """From a published ``config.json``; keys it has besides ours are left alone."""
        return cls(**{name: values[name] for name in cls.__dataclass_fields__ if name in values})


class _SelfAttention(nn.Module):
    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.heads, size = config.num_attention_heads, config.hidden_size
        self.query, self.key, self.value = (nn.Linear(size, size) for _ in range(3))

    def forward(self, x: Tensor, keep: Tensor | None) -> Tensor:  # (B, T, D), (B, 1, 1, T) -> (B, T, D)
        def split(y: Tensor) -> Tensor:
            return y.reshape(*y.shape[:2], self.heads, -1).transpose(1, 2)  # (B, H, T, D/H)

        mixed = nn.functional.scaled_dot_product_attention(
            split(self.query(x)), split(self.key(x)), split(self.value(x)), attn_mask=keep
        )
        return mixed.transpose(1, 2).flatten(2)


class _AddNorm(nn.Module):
    """Linear, residual, LayerNorm: the output half of attention and of the feed-forward block."""

    def __init__(self, size_in: int, config: BertConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(size_in, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, config.layer_norm_eps)

    def forward(self, x: Tensor, residual: Tensor) -> Tensor:
        normed: Tensor = self.LayerNorm(self.dense(x) + residual)
        return normed


class _Layer(nn.Module):
    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.attention = nn.ModuleDict({"self": _SelfAttention(config), "output": _AddNorm(config.hidden_size, config)})
        self.intermediate = nn.ModuleDict({"dense": nn.Linear(config.hidden_size, config.intermediate_size)})
        self.output = _AddNorm(config.intermediate_size, config)

    def forward(self, x: Tensor, keep: Tensor | None) -> Tensor:
        x = self.attention["output"](self.attention["self"](x, keep), x)
        out: Tensor = self.output(nn.functional.gelu(self.intermediate["dense"](x)), x)
        return out


class _Embeddings(nn.Module):
    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.position_embeddings = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        self.token_type_embeddings = nn.Embedding(config.type_vocab_size, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, config.layer_norm_eps)

    def forward(self, ids: Tensor) -> Tensor:  # (B, T) -> (B, T, D)
        positions = torch.arange(ids.shape[1], device=ids.device)
        summed = self.word_embeddings(ids) + self.position_embeddings(positions) + self.token_type_embeddings.weight[0]
        normed: Tensor = self.LayerNorm(summed)
        return normed


class Bert(nn.Module):
    """Token ids to one vector per token."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.config = config
        self.embeddings = _Embeddings(config)
        self.encoder = nn.ModuleDict(
            {"layer": nn.ModuleList([_Layer(config) for _ in range(config.num_hidden_layers)])}
        )

    def forward(self, ids: Tensor, mask: Tensor | None) -> Tensor:
        """``ids`` (B, T) int, ``mask`` (B, T) True on real tokens, None for all -> last hidden states (B, T, D)."""
        # without padding there is nothing to mask, and attention takes its fast path
        keep = None if mask is None or bool(mask.all()) else mask.bool()[:, None, None, :]
        x: Tensor = self.embeddings(ids)
        for layer in self.encoder["layer"].children():
            x = layer(x, keep)
        return x


class WordPiece:
    """Lower-casing WordPiece over a ``vocab.txt``, with [CLS] and [SEP] around each text."""

    def __init__(self, vocab: str | Path) -> None:
        from tokenizers import BertWordPieceTokenizer

        path = Path(vocab)
        if not path.is_file():
            raise no_such(path, "vocabulary file")
        self._tokenizer: Any = BertWordPieceTokenizer(str(path), lowercase=True)
        self._pad_id = int(self._tokenizer.token_to_id("[PAD]") or 0)

    def __call__(self, texts: Sequence[str], max_tokens: int) -> list[list[int]]:
        """Token ids of each text, [CLS] and [SEP] included, cut to ``max_tokens``."""
        self._tokenizer.enable_truncation(max_tokens)
        return [encoded.ids for encoded in self._tokenizer.encode_batch(list(texts))]

    def batches(self, texts: Sequence[str], max_tokens: int, batch: int) -> Iterator[tuple[list[int], Tensor, Tensor]]:
        """Texts of like length together, so that little is padding: (indices, ids (B, T), mask (B, T))."""
        tokens = self(texts, max_tokens)
        order = sorted(range(len(tokens)), key=lambda i: len(tokens[i]))
        for start in range(0, len(order), batch):
            chosen = order[start : start + batch]
            rows = [torch.tensor(tokens[i]) for i in chosen]
            mask = nn.utils.rnn.pad_sequence([torch.ones(len(row), dtype=torch.bool) for row in rows], batch_first=True)
            yield chosen, nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=self._pad_id), mask
