"""The step decoder: a small transformer that turns a video into K ordered step slots.

``StepDecoder(config)(video, mask)`` takes frame vectors ``(B, N, D)`` of a frozen encoder and returns
:class:`Slots`. Three presets stand in :data:`PRESETS`:

``paper``
    The paper's decoder: Pre-LN, six layers, K = 32 learnable queries as the decoder's input, sinusoidal positions
    (in frames) added to the video, which every layer attends to. Frames are brought to the length that UniVL's have
    by their LayerNorm (``level``): beside position codes of length sqrt(dim / 2), unit vectors would hardly be seen.
``released``
    What the authors' code does: the target starts at zero, the query is added as a position at every attention,
    sinusoidal positions (their rates fall twice as fast as the textbook's) are added to the keys of cross-attention
    only, and a linear layer follows the last norm. It takes UniVL's vectors as they are.
``default``
    The paper's with two layers and *relative time*: a slot learns "a third into the video", which carries over to
    videos of other lengths.

Only torch is needed here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from stepformer.base.plugins import Registry
from stepformer.core.devices import has_triton
from stepformer.errors import UsageError

_RELATIVE_SPAN = 256.0
"""Relative time runs from 0 to this many units, so that one sinusoidal code serves both kinds of position."""


def check_ranges(config: Any, section: str, **ranges: str) -> None:
    """Raises UsageError for a field of a config that is outside its range: ``keep="(0, 1]"``, ``lr="(0, inf)"``."""
    for name, span in ranges.items():
        value = getattr(config, name)
        low, high = map(float, span[1:-1].split(","))
        inside = low < value < high or (value == low and span[0] == "[") or (value == high and span[-1] == "]")
        if not inside:
            raise UsageError(f"{section}{name} must be a number in {span}, got {value}")


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Everything that decides the shape of a :class:`StepDecoder`."""

    feature_dim: int = 384  # D: width of the encoder's shared space; slots live there too; 0: as the data has it
    dim: int = 384  # width of the decoder; features are projected in and out when it differs from feature_dim
    layers: int = 6
    heads: int = 8
    feedforward: int = 1024
    slots: int = 32  # K
    dropout: float = 0.1
    queries: Literal["content", "position"] = "content"  # the decoder's input, or added at every attention
    positions: Literal["absolute", "relative", "none"] = "absolute"  # frames, the share of the video, or no positions
    position_code: Literal["textbook", "released"] = "textbook"  # Vaswani et al.'s sinusoids, or the released code's
    position_rows: int = 0  # codes kept as a table with the weights, one row per frame; 0: computed
    positions_on: Literal["video", "keys"] = "video"  # added to what is attended to, or to the keys only
    level: bool = True  # frames come at length sqrt(feature_dim), as of a LayerNorm; False: as long as they are given
    output_layer: bool = False  # a linear layer after the last norm even when dim == feature_dim
    decoder: str = "step"  # a name of DECODERS
    options: Mapping[str, Any] = field(default_factory=dict)  # of a decoder that takes more than these fields

    def __post_init__(self) -> None:
        sizes = dict.fromkeys(("dim", "layers", "heads", "feedforward", "slots"), "[1, inf)")
        check_ranges(self, "model.", feature_dim="[0, inf)", position_rows="[0, inf)", dropout="[0, 1)", **sizes)
        if self.dim % self.heads or self.dim % 2:
            raise UsageError(f"model.dim must be even and divisible by heads, got {self.dim} and {self.heads}")
        if self.position_rows and self.positions != "absolute":
            raise UsageError("model.position_rows is a table of frames, which needs positions = 'absolute'")


PRESETS: dict[str, ModelConfig] = {
    "paper": ModelConfig(),
    "released": ModelConfig(
        feature_dim=768, dim=768, queries="position", position_code="released", positions_on="keys", output_layer=True,
        level=False,
    ),
    "default": ModelConfig(positions="relative", layers=2),
}  # fmt: skip


def preset(name: str, **changes: Any) -> ModelConfig:
    """A named configuration, with fields changed (most often ``feature_dim`` and ``dim``)."""
    if name not in PRESETS:
        raise UsageError(f"no model preset {name!r}; there are {', '.join(PRESETS)}")
    return replace(PRESETS[name], **changes)


def levelled(x: Tensor) -> Tensor:
    """Vectors (..., D) at length sqrt(D), in their own type: numbers of size 1."""
    return F.normalize(x, dim=-1) * math.sqrt(x.shape[-1])


class Slots(NamedTuple):
    """What the decoder gives for a batch of videos."""

    slots: Tensor  # (B, K, D) step slots in the encoder's space, in temporal order, not normalised
    frames: Tensor  # (B, N, D) the video as slots and texts are compared with it: the input itself
    attention: Tensor | None  # (B, K, N) where in the video each slot looks, rows sum to 1; None unless asked for


def time_codes(times: Tensor, dim: int) -> Tensor:
    """Sinusoidal codes of Vaswani et al.: ``times`` of any shape -> (..., dim)."""
    rates = torch.exp(torch.arange(0, dim, 2, device=times.device, dtype=torch.float32) * (-math.log(10000.0) / dim))
    angles = times.float()[..., None] * rates
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2)


def released_codes(times: Tensor, dim: int) -> Tensor:
    """The released code's sinusoids: ``times`` of any shape -> (..., dim).

    Channel c has the angle ``time / 10000^(2c / dim)``, c itself and not half of it, and is a sine where c is even, a
    cosine where it is odd. Angles are computed in float64: decoders were trained on a table made that way.
    """
    exact = torch.float32 if times.device.type == "mps" else torch.float64  # mps has no float64
    channel = torch.arange(dim, device=times.device, dtype=exact)
    angles = times.to(exact)[..., None] * torch.exp(channel * (-2 * math.log(10000.0) / dim))
    return torch.where(channel % 2 == 0, angles.sin(), angles.cos()).float()


_CODES = {"textbook": time_codes, "released": released_codes}


@lru_cache(maxsize=16)
def _frame_codes(code: str, frames: int, dim: int, device: torch.device) -> Tensor:
    """(1, N, dim) codes of the frames 0, 1, ...: kept, as every batch asks for the same."""
    with torch.inference_mode(False), torch.no_grad():
        return _CODES[code](torch.arange(frames, device=device), dim)[None]


def relative_times(mask: Tensor) -> Tensor:
    """Position of each frame ``(B, N)``: the share of its own video's length, times the span."""
    index = torch.arange(mask.shape[1], device=mask.device, dtype=torch.float32).expand(mask.shape)
    lengths = mask.sum(1, keepdim=True).clamp(min=1)
    return (index + 0.5) / lengths * _RELATIVE_SPAN


class Looked(NamedTuple):
    """A video as the decoder attends to it, (B, N, dim) each."""

    memory: Tensor
    placed: Tensor  # the same with position codes


Decode = Callable[[Tensor, Tensor, Tensor | None, bool], tuple[Tensor, Tensor | None]]
"""The decoder layers as a function: see :meth:`StepDecoder.decode`."""


class Attention(nn.Module):
    """Multi-head attention; keys and values may differ by the positions added to the keys."""

    folds = True  # where it is less work; bench train measures without

    def __init__(self, dim: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.q, self.k, self.v, self.out = (nn.Linear(dim, dim) for _ in range(4))
        for layer in (self.q, self.k, self.v):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)
        nn.init.zeros_(self.out.bias)

    def _split(self, x: Tensor) -> Tensor:
        return x.reshape(*x.shape[:2], self.heads, -1).transpose(1, 2)  # (B, heads, length, dim / heads)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        """(B, Q, dim), (B, N, dim), (B, N, dim), mask (B, N) True where there is a frame -> (B, Q, dim)."""
        less = self.heads * query.shape[1] < query.shape[2] < key.shape[1]
        # on a GPU torch has no fast attention of folded width: there core.stack folds, and this does not
        attend = self._folded if less and self.folds and not query.is_cuda else self._projected
        mixed = attend(query, key, value, None if mask is None else mask[:, None, None, :])
        out: Tensor = self.out(mixed.transpose(1, 2).flatten(2))
        return out

    def _projected(self, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None) -> Tensor:
        """As it is usually written: keys and values of all frames are projected. -> (B, heads, Q, dim / heads)."""
        return F.scaled_dot_product_attention(
            self._split(self.q(query)), self._split(self.k(key)), self._split(self.v(value)),
            attn_mask=bias, dropout_p=self.dropout if self.training else 0.0,
        )  # fmt: skip

    def _folded(self, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None) -> Tensor:
        """The same with few queries and many frames: projections are moved from the frames to the queries.

        ``(W_q x)·(W_k y) = (W_k' W_q x)·y`` and ``sum_n a_n W_v y_n = W_v (sum_n a_n y_n)``, so the frames are read as
        they are: ``heads * Q / dim`` of the usual work. The key bias adds the same to all logits of a query and falls
        out of the softmax; the value bias is added whole, as weights sum to 1 (with dropout, on average).
        """
        B, Q, dim = query.shape
        folded = self._split(self.q(query)) @ self.k.weight.view(self.heads, -1, dim)  # (B, heads, Q, dim)
        read = F.scaled_dot_product_attention(
            folded.reshape(B, 1, -1, dim), key[:, None], value[:, None], attn_mask=bias,
            dropout_p=self.dropout if self.training else 0.0, scale=1 / math.sqrt(dim // self.heads),
        )  # fmt: skip
        mixed = read.view(B, self.heads, Q, dim) @ self.v.weight.view(self.heads, -1, dim).mT
        return mixed + self.v.bias.view(self.heads, 1, -1)

    def weights(self, query: Tensor, key: Tensor, mask: Tensor | None) -> Tensor:
        """The attention itself, mean over heads: (B, Q, N)."""
        q, k = self._split(self.q(query)), self._split(self.k(key))
        logits = (q @ k.transpose(-1, -2)).float() / math.sqrt(q.shape[-1])
        if mask is not None:
            logits = logits.masked_fill(~mask[:, None, None, :], -torch.inf)
        return logits.softmax(-1).mean(1)


class DecoderLayer(nn.Module):
    """Pre-LN: slots attend to each other, then to the video, then a feed-forward."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(config.dim) for _ in range(3))
        self.self_attention = Attention(config.dim, config.heads, config.dropout)
        self.cross_attention = Attention(config.dim, config.heads, config.dropout)
        self.feedforward = nn.Sequential(
            nn.Linear(config.dim, config.feedforward), nn.ReLU(), nn.Dropout(config.dropout),
            nn.Linear(config.feedforward, config.dim),
        )  # fmt: skip
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, query: Tensor | float, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        """x (B, K, dim); query is added where slots ask (0 when queries are content); key, value (B, N, dim)."""
        y = self.norm1(x)
        x = x + self.dropout(self.self_attention(y + query, y + query, y, None))
        y = self.norm2(x)
        x = x + self.dropout(self.cross_attention(y + query, key, value, mask))
        out: Tensor = x + self.dropout(self.feedforward(self.norm3(x)))
        return out

    def attention(self, x: Tensor, query: Tensor | float, key: Tensor, mask: Tensor | None) -> Tensor:
        """Where in the video the slots look, (B, K, N), from the inputs of :meth:`forward`."""
        y = self.norm1(x)
        x = x + self.self_attention(y + query, y + query, y, None)
        return self.cross_attention.weights(self.norm2(x) + query, key, mask)


class StepDecoder(nn.Module):
    """Video in, ordered step slots out. See the module's docstring."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        if not config.feature_dim:
            raise UsageError("a decoder needs the width of its vectors: ModelConfig.feature_dim")
        self.config = config
        same = config.dim == config.feature_dim
        self.project_in = nn.Identity() if same else nn.Linear(config.feature_dim, config.dim)
        self.queries = nn.Parameter(torch.randn(config.slots, config.dim))
        if config.position_rows:
            self.register_buffer("position_table", torch.zeros(config.position_rows, config.dim))
        self.decoder = nn.ModuleList(DecoderLayer(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.dim)
        projects = config.output_layer or not same
        self.project_out = nn.Linear(config.dim, config.feature_dim) if projects else nn.Identity()

    def forward(
        self, video: Tensor, mask: Tensor | None = None, attention: bool = False, decode: Decode | None = None,
        looked: Looked | None = None,
    ) -> Slots:  # fmt: skip
        """Slots of a batch of videos.

        video: (B, N, D) frame vectors; mask: (B, N) True where there is a frame (None: everywhere);
        attention: also return where the slots look;
        decode: runs the decoder layers in place of :meth:`decode` (`core.stack`);
        looked: the video as the layers attend to it, where that is made already.
        """
        if video.ndim != 3 or video.shape[-1] != self.config.feature_dim:
            raise UsageError(f"video must be (B, N, {self.config.feature_dim}), got {tuple(video.shape)}")
        if video.shape[1] == 0:
            raise UsageError("a video needs at least one frame")
        full = mask if mask is not None else torch.ones(video.shape[:2], dtype=torch.bool, device=video.device)
        if looked is None:
            memory = self.project_in(levelled(video) if self.config.level else video)  # (B, N, dim)
            looked = Looked(memory, memory + self.codes(full).to(memory.dtype))
        value = looked.placed if self.config.positions_on == "video" else looked.memory
        x, weights = (decode or self.decode)(looked.placed, value, mask, attention)
        return Slots(self.project_out(x), video, weights)

    def look_in_half(self, video: Tensor, codes: Tensor, out: Looked | None = None) -> Looked:
        """What layers in bf16 attend to, of a model as wide as its frames; written to ``out`` where it is given."""
        level, keys_only = self.config.level, self.config.positions_on == "keys"
        if video.is_cuda and codes.shape[1:] == video.shape[1:] and has_triton():
            from stepformer.core.stack_kernels import add_codes

            made = add_codes(video, codes, level, keys_only, out)
        else:
            memory = levelled(video.float()) if level else video.float()
            made = memory.bfloat16(), (memory + codes).bfloat16()
            for kept, new in zip(out or (), made, strict=out is not None):
                kept.copy_(new)
        return out or Looked(*made)

    def decode(self, key: Tensor, value: Tensor, mask: Tensor | None, attention: bool) -> tuple[Tensor, Tensor | None]:
        """key, value (B, N, dim) -> normed state of the slots (B, K, dim), the last layer's attention (B, K, N)."""
        query = self.queries.to(value.dtype).expand(len(value), -1, -1)
        x, added = (query, 0.0) if self.config.queries == "content" else (torch.zeros_like(query), query)
        weights = None
        for layer in self.decoder:
            assert isinstance(layer, DecoderLayer)
            if attention and layer is self.decoder[-1]:
                weights = layer.attention(x, added, key, mask)
            x = layer(x, added, key, value, mask)
        return self.norm(x), weights

    def codes(self, mask: Tensor) -> Tensor:
        """Position codes of the frames: (B or 1, N, dim), zeros where the model has no positions."""
        config, N = self.config, mask.shape[1]
        if config.positions == "none":
            return self.queries.new_zeros(1, 1, config.dim)
        if config.position_rows:
            if config.position_rows < N:
                raise UsageError(
                    f"this model has position codes for {config.position_rows} frames, the video has {N}: "
                    "average its frames down, or give it in parts"
                )
            table: Tensor = self.get_buffer("position_table")[None, :N]
            return table
        if config.positions == "relative":
            return _CODES[config.position_code](relative_times(mask), config.dim)
        return _frame_codes(config.position_code, N, config.dim, mask.device)


DECODERS: Registry[Callable[[ModelConfig], StepDecoder]] = Registry("decoder", "decoders", {"step": StepDecoder})
"""Decoders by name. One of your own is a torch module with ``config``, called as :class:`StepDecoder` is."""


def build_decoder(config: ModelConfig) -> StepDecoder:
    """The decoder that a config names, untrained."""
    return DECODERS[config.decoder](config)
