"""The step decoder: a small transformer that turns a video into K ordered step slots.

``StepDecoder(config)(video, mask)`` takes frame vectors ``(B, N, D)`` of a frozen encoder and returns
:class:`Slots`. Three presets stand in :data:`PRESETS`:

``paper``
    The paper's decoder: Pre-LN, six layers, K = 32 learnable queries as the decoder's input, sinusoidal positions
    (in frames) added to the video, which every layer attends to.
``released``
    What the authors' code does: the target starts at zero, the query is added as a position at every attention,
    sinusoidal positions (their rates fall twice as fast as the textbook's) are added to the keys of cross-attention
    only, and a linear layer follows the last norm.
``default``
    Ours. It differs in these ways (`stepformer reproduce evidence` takes them away one by one):
    *relative time* (a slot learns "a third into the video", which carries over to videos of other lengths);
    a *context layer* (self-attention over the frames, so that a frame's noise is undone with its neighbours' help),
    which learns from the loss ``moment`` alone (``apart``); a *read-out* (a slot is what its attention reads in the
    video, with attention that starts as K windows in a row: the untrained model is the control ``pooled32``); and
    the decoder's content starting from the queries.

Only torch is needed here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
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
            raise UsageError(f"{section}{name} is a number in {span}, got {value}")


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
    activation: Literal["relu", "gelu"] = "relu"
    queries: Literal["content", "position"] = "content"  # the decoder's input, or added at every attention
    query_init: Literal["normal", "time"] = "normal"  # "time": the codes of K evenly spaced moments
    positions: Literal["absolute", "relative", "none"] = "absolute"  # frames, the share of the video, or no positions
    position_code: Literal["textbook", "released"] = "textbook"  # Vaswani et al.'s sinusoids, or the released code's
    position_rows: int = 0  # codes kept as a table with the weights, one row per frame; 0: computed
    positions_on: Literal["video", "keys"] = "video"  # added to what is attended to, or to the keys only
    context_layers: int = 0  # self-attention layers over the frames before the decoder
    read_out: bool = False  # slots are read from the video by attention, plus a learned correction
    correction: bool = True  # read_out: that correction; False: a slot is what it reads and nothing else
    apart: bool = False  # what slots are trained on does not move the context layers
    output_layer: bool = False  # a linear layer after the last norm even when dim == feature_dim
    decoder: str = "step"  # a name of DECODERS
    options: Mapping[str, Any] = field(default_factory=dict)  # of a decoder that takes more than these fields

    def __post_init__(self) -> None:
        sizes = dict.fromkeys(("dim", "layers", "heads", "feedforward", "slots"), "[1, inf)")
        check_ranges(self, "model.", feature_dim="[0, inf)", position_rows="[0, inf)", dropout="[0, 1)", **sizes)
        if self.dim % self.heads or self.dim % 2:
            raise UsageError(f"model.dim must be even and divisible by heads, got {self.dim} and {self.heads}")
        if self.position_rows and self.positions != "absolute":
            raise UsageError("model.position_rows is a table of frames, which goes with positions = 'absolute'")

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as a checkpoint stores them."""
        return asdict(self)


PRESETS: dict[str, ModelConfig] = {
    "paper": ModelConfig(),
    "released": ModelConfig(
        feature_dim=768, dim=768, queries="position", position_code="released", positions_on="keys", output_layer=True
    ),
    "default": ModelConfig(
        dropout=0.3,
        activation="gelu",
        query_init="time",
        positions="relative",
        context_layers=1,
        layers=2,
        read_out=True,
        correction=False,
        apart=True,
    ),
}  # fmt: skip


def preset(name: str, **changes: Any) -> ModelConfig:
    """A named configuration, with fields changed (most often ``feature_dim`` and ``dim``)."""
    if name not in PRESETS:
        raise UsageError(f"no model preset {name!r}; there are {', '.join(PRESETS)}")
    return replace(PRESETS[name], **changes)


def unit(x: Tensor) -> Tensor:
    """Vectors (..., D) at length 1, in their own type; zero stays zero. On a GPU one pass there and one back."""
    if x.is_cuda and x.dtype != torch.float64 and has_triton():
        from stepformer.core import loss_kernels

        return loss_kernels.unit(x, x.dtype)
    return F.normalize(x, dim=-1)


class Slots(NamedTuple):
    """What the decoder gives for a batch of videos."""

    slots: Tensor  # (B, K, D) step slots in the encoder's space, in temporal order, not normalised
    frames: Tensor  # (B, N, D) the video as slots should be compared with it; the input itself without context layers
    attention: Tensor | None  # (B, K, N) where in the video each slot looks, rows sum to 1; None unless asked for
    video: Tensor | None = None  # (B, N, D) the frames as they came; None: they are ``frames``


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


class Sum(NamedTuple):
    """Frames (B, N, dim) and their codes (B or 1, N, dim), not added yet; both without a gradient."""

    memory: Tensor
    codes: Tensor

    @property
    def shape(self) -> torch.Size:
        """Of the sum."""
        return self.memory.shape

    def made(
        self, both: bool = False, out: tuple[Tensor, Tensor | None] | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """The sum in bf16 and, if ``both``, the frames in bf16; written to ``out`` where it is given."""
        memory, codes = self
        if memory.is_cuda and len(codes) == 1 and codes.shape[1:] == memory.shape[1:]:
            from stepformer.core.stack_kernels import add_codes

            return add_codes(memory, codes, both, out)
        made = (memory + codes).bfloat16(), memory.bfloat16() if both else None
        if out is None:
            return made
        for kept, new in zip(out, made, strict=True):
            if kept is not None and new is not None:
                kept.copy_(new)
        return out


class Looked(NamedTuple):
    """A video that has been through the context layers, (B, N, D), (B, N, dim), (B, N, dim)."""

    frames: Tensor  # what slots are compared with
    memory: Tensor  # what the decoder attends to
    placed: Tensor  # the same with position codes


Look = Callable[[Tensor, Tensor], Looked]
"""The context layers as a function of the video (B, N, D) and its mask (B, N): `core.context`."""
Decode = Callable[[Any, Any, Tensor | None, bool], tuple[Tensor, Tensor | None]]
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


class FeedForward(nn.Sequential):
    """Two linear layers with an activation and dropout between."""

    def __init__(self, config: ModelConfig) -> None:
        act = nn.ReLU() if config.activation == "relu" else nn.GELU()
        super().__init__(
            nn.Linear(config.dim, config.feedforward), act, nn.Dropout(config.dropout),
            nn.Linear(config.feedforward, config.dim),
        )  # fmt: skip


class ContextLayer(nn.Module):
    """Pre-LN self-attention over frames."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(config.dim), nn.LayerNorm(config.dim)
        self.attention = Attention(config.dim, config.heads, config.dropout)
        self.feedforward = FeedForward(config)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, positions: Tensor, mask: Tensor | None) -> Tensor:
        """(B, N, dim) -> (B, N, dim)."""
        y = self.norm1(x)
        placed = y + positions
        x = x + self.dropout(self.attention(placed, placed, y, mask))
        out: Tensor = x + self.dropout(self.feedforward(self.norm2(x)))
        return out


class DecoderLayer(nn.Module):
    """Pre-LN: slots attend to each other, then to the video, then a feed-forward."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(config.dim) for _ in range(3))
        self.self_attention = Attention(config.dim, config.heads, config.dropout)
        self.cross_attention = Attention(config.dim, config.heads, config.dropout)
        self.feedforward = FeedForward(config)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, query: Tensor | float, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        """x (B, K, dim); query is added where slots ask (0 when queries are content); key, value (B, N, dim)."""
        y = self.norm1(x)
        x = x + self.dropout(self.self_attention(y + query, y + query, y, None))
        y = self.norm2(x)
        x = x + self.dropout(self.cross_attention(y + query, key, value, mask))
        out: Tensor = x + self.dropout(self.feedforward(self.norm3(x)))
        return out


class ReadOut(nn.Module):
    """What each slot reads in the video: attention by content around a moment that the slot chooses.

    Slot k looks at time ``c_k`` with width ``w_k`` (shares of the video), both moved by its decoder state from
    ``(k + 0.5) / K`` and ``1 / (2K)``; content similarity is added to that. At the start nothing is moved.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        centres = (torch.arange(config.slots) + 0.5) / config.slots
        self.register_buffer("centres", torch.logit(centres), persistent=False)
        self.half_width = 0.5 / config.slots
        self.window = nn.Linear(config.dim, 2)  # moves of centre and width
        self.query, self.key = nn.Linear(config.dim, config.dim), nn.Linear(config.dim, config.dim)
        self.content_scale = nn.Parameter(torch.zeros(()))
        nn.init.zeros_(self.window.weight)
        nn.init.zeros_(self.window.bias)

    def forward(self, x: Tensor, context: Tensor, mask: Tensor) -> Tensor:
        """x (B, K, dim), context (B, N, dim), mask (B, N) -> attention (B, K, N) in float32."""
        shift, widen = self.window(x).float().unbind(-1)  # (B, K) each
        centre = torch.sigmoid(self.centres + shift)
        width = self.half_width * torch.exp(widen.clamp(-2, 3))  # narrower windows only make gradients explode
        times = relative_times(mask) / _RELATIVE_SPAN  # (B, N)
        prior = -0.5 * ((times[:, None, :] - centre[..., None]) / width[..., None]).square()
        content = unit(self.query(x)) @ unit(self.key(context)).mT
        logits = prior + 10.0 * self.content_scale * content
        return logits.masked_fill(~mask[:, None, :], -1e9).softmax(-1)


class StepDecoder(nn.Module):
    """Video in, ordered step slots out. See the module's docstring."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        if not config.feature_dim:
            raise UsageError("a decoder needs the width of its vectors: ModelConfig.feature_dim")
        self.config = config
        same = config.dim == config.feature_dim
        self.project_in = nn.Identity() if same else nn.Linear(config.feature_dim, config.dim)
        self.queries = nn.Parameter(torch.empty(config.slots, config.dim))
        if config.position_rows:
            self.register_buffer("position_table", torch.zeros(config.position_rows, config.dim))
        self.context = nn.ModuleList(ContextLayer(config) for _ in range(config.context_layers))
        self.decoder = nn.ModuleList(DecoderLayer(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.dim)
        corrects = config.correction if config.read_out else config.output_layer or not same
        self.project_out = nn.Linear(config.dim, config.feature_dim) if corrects else nn.Identity()
        self.frames_out = nn.Linear(config.dim, config.feature_dim) if config.context_layers else None
        self.read_out = ReadOut(config) if config.read_out else None
        self._start()

    def _start(self) -> None:
        config = self.config
        if config.query_init == "time":
            moments = (torch.arange(config.slots) + 0.5) / config.slots * _RELATIVE_SPAN
            with torch.no_grad():
                self.queries.copy_(time_codes(moments, config.dim))
            for layer in self.decoder:
                # equal projections make a query attend to the moment whose code it carries
                assert isinstance(layer, DecoderLayer)
                layer.cross_attention.k.load_state_dict(layer.cross_attention.q.state_dict())
        else:
            nn.init.normal_(self.queries)
        # with a read-out, the untrained model returns plain means of the video: corrections start at zero
        for correction in (self.frames_out, self.project_out if config.read_out else None):
            if isinstance(correction, nn.Linear):
                nn.init.zeros_(correction.weight)
                nn.init.zeros_(correction.bias)

    @torch.no_grad()
    def centre_on(self, mean: Tensor) -> None:
        """Starts a model with context layers from frames without their mean vector (D,).

        Pictures of a two-tower encoder share a large part that no text has. Without it, what is left of a frame can
        be compared with texts, and the first layer sees what differs between frames. Training may move it.
        """
        if self.frames_out is not None:
            self.frames_out.bias.copy_(-mean)
            if isinstance(self.project_in, nn.Linear):
                self.project_in.bias.copy_(-self.project_in.weight @ mean)

    def forward(
        self, video: Tensor, mask: Tensor | None = None, attention: bool = False, decode: Decode | None = None,
        look: Look | None = None,
    ) -> Slots:  # fmt: skip
        """Slots of a batch of videos.

        video: (B, N, D) frame vectors; mask: (B, N) True where there is a frame (None: everywhere);
        attention: also return where the slots look (always computed when the model reads its slots out);
        decode: runs the decoder layers in place of :meth:`decode` (`core.stack`);
        look: what is done to frames in place of the context layers and their modules (`core.context`).
        """
        if video.ndim != 3 or video.shape[-1] != self.config.feature_dim:
            raise UsageError(f"video must be (B, N, {self.config.feature_dim}), got {tuple(video.shape)}")
        if video.shape[1] == 0:
            raise UsageError("a video needs at least one frame")
        full = mask if mask is not None else torch.ones(video.shape[:2], dtype=torch.bool, device=video.device)
        config = self.config
        if look is not None:
            frames, memory, placed = look(video, full)
            if config.apart:
                memory, placed = memory.detach(), placed.detach()
        else:
            frames, memory, placed = self._look(video, full, mask, decode is not None)
        read = frames.detach() if config.apart else frames
        value = placed if config.positions_on == "video" else memory
        x, weights = (decode or self.decode)(placed, value, mask, attention and self.read_out is None)
        if self.read_out is None:
            return Slots(self.project_out(x), frames, weights, video)
        weights = self.read_out(x, value, full)
        slots = weights.to(read.dtype) @ read
        return Slots(slots + self.project_out(x) if config.correction else slots, frames, weights, video)

    def _look(self, video: Tensor, full: Tensor, mask: Tensor | None, fused: bool) -> tuple[Tensor, Tensor, Any]:
        """Frames, memory and memory with codes; fused: decoder layers follow that read frames in half precision."""
        config = self.config
        memory = self.project_in(video)  # (B, N, dim)
        codes = self.codes(full).to(memory.dtype)
        frames = video
        if self.frames_out is not None:
            # unit-norm features are small beside LayerNorm's scale; sqrt(dim) brings both to one size
            memory = unit(memory) * math.sqrt(config.dim)
            for layer in self.context:
                memory = layer(memory, codes, mask)
            frames = unit(video) + self.frames_out(memory)
        if config.apart:
            memory = memory.detach()
        if fused and torch.is_autocast_enabled(memory.device.type) and not memory.requires_grad:
            # the type the layers read frames in: a wider sum would be written and read for nothing
            placed = Sum(memory, codes)
            return frames, memory, placed if self.read_out is None else placed.made()[0]
        return frames, memory, memory + codes

    def decode(self, key: Tensor, value: Tensor, mask: Tensor | None, attention: bool) -> tuple[Tensor, Tensor | None]:
        """key, value (B, N, dim) -> normed state of the slots (B, K, dim), the last layer's attention (B, K, N)."""
        query = self.queries.to(value.dtype).expand(len(value), -1, -1)
        x, added = (query, 0.0) if self.config.queries == "content" else (torch.zeros_like(query), query)
        weights = None
        for number, layer in enumerate(self.decoder):
            if attention and number == len(self.decoder) - 1:
                weights = self._last_attention(layer, x, added, key, mask)
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

    @staticmethod
    def _last_attention(layer: nn.Module, x: Tensor, added: Tensor | float, key: Tensor, mask: Tensor | None) -> Tensor:
        """Attention of the last layer over the video, from the same inputs as its forward pass."""
        assert isinstance(layer, DecoderLayer)
        y = layer.norm1(x)
        x = x + layer.self_attention(y + added, y + added, y, None)
        return layer.cross_attention.weights(layer.norm2(x) + added, key, mask)


DECODERS: Registry[Callable[[ModelConfig], StepDecoder]] = Registry("decoder", "decoders", {"step": StepDecoder})
"""Decoders by name. One of your own is a torch module with ``config``, called as :class:`StepDecoder` is."""


def build_decoder(config: ModelConfig) -> StepDecoder:
    """The decoder that a config names, untrained."""
    return DECODERS[config.decoder](config)
