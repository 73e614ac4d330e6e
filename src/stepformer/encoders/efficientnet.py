"""EfficientNet-lite (Tan and Le, 2019; the variant without squeeze-and-excite, with ReLU6), in torch, for inference.

Key names are those of the published torch weights; batch norms are folded into the convolutions on loading, and
padding is TensorFlow's "same", with which the weights were trained.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor, nn

from stepformer.encoders.i3d import same_padding
from stepformer.errors import InputError

_NORM_EPS = 1e-3
FEATURE_DIM = 1280
NUM_CLASSES = 1000
_STEM = 32

# (repeats, kernel, stride, expansion, channels) of the base network
_STAGES = (
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)


@dataclass(frozen=True, slots=True)
class LiteScale:
    """How the base network is widened and deepened, and the pixels it was trained on."""

    width: float
    depth: float
    pixels: int


LITE0, LITE1, LITE2 = LiteScale(1.0, 1.0, 224), LiteScale(1.0, 1.1, 240), LiteScale(1.1, 1.2, 260)


def _round_channels(channels: int, width: float) -> int:
    scaled = channels * width
    rounded = max(8, int(scaled + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * scaled else rounded


class _SameConv(nn.Conv2d):
    """A convolution that pads by TensorFlow's rule, which depends on the size of what comes in."""

    def forward(self, x: Tensor) -> Tensor:
        if self.stride == (1, 1):
            return super().forward(x)
        pads = same_padding(x.shape[2:], self.kernel_size, self.stride)
        return super().forward(nn.functional.pad(x, pads))


def _conv(size_in: int, size_out: int, kernel: int, stride: int = 1, groups: int = 1) -> _SameConv:
    padding = (kernel - 1) // 2 if stride == 1 else 0
    return _SameConv(size_in, size_out, kernel, stride, padding=padding, groups=groups)


class _Block(nn.Module):
    """Widen, filter each channel, narrow again; with a short cut where the shapes allow."""

    def __init__(self, size_in: int, size_out: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        wide = size_in * expansion
        self._expand_conv = _conv(size_in, wide, 1) if expansion != 1 else None
        self._depthwise_conv = _conv(wide, wide, kernel, stride, groups=wide)
        self._project_conv = _conv(wide, size_out, 1)
        self.short_cut = stride == 1 and size_in == size_out

    def forward(self, x: Tensor) -> Tensor:
        y = x if self._expand_conv is None else nn.functional.relu6(self._expand_conv(x), inplace=True)
        y = nn.functional.relu6(self._depthwise_conv(y), inplace=True)
        narrow: Tensor = self._project_conv(y)
        return narrow + x if self.short_cut else narrow


class EfficientNetLite(nn.Module):
    """Images (N, 3, H, W), pixels as (value - 127) / 128, to scores (N, 1000) and features (N, 1280)."""

    def __init__(self, scale: LiteScale = LITE2) -> None:
        super().__init__()
        self._conv_stem = _conv(3, _STEM, 3, 2)
        blocks: list[nn.Module] = []
        width = _STEM
        for index, (repeats, kernel, stride, expansion, channels) in enumerate(_STAGES):
            # the lite family leaves the first and the last stage as shallow as they are
            count = repeats if index in (0, len(_STAGES) - 1) else math.ceil(repeats * scale.depth)
            out = _round_channels(channels, scale.width)
            for i in range(count):
                blocks.append(_Block(width, out, kernel, stride if i == 0 else 1, expansion))
                width = out
        self._blocks = nn.ModuleList(blocks)
        self._conv_head = _conv(width, FEATURE_DIM, 1)
        self._fc = nn.Linear(FEATURE_DIM, NUM_CLASSES)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """``images`` (N, 3, H, W) -> scores (N, 1000), features (N, 1280)."""
        x = nn.functional.relu6(self._conv_stem(images), inplace=True)
        for block in self._blocks:
            x = block(x)
        features = nn.functional.relu6(self._conv_head(x), inplace=True).mean(dim=(2, 3))
        return self._fc(features), features

    def load_published(self, state: Mapping[str, Tensor]) -> None:
        """Loads the published weights, each convolution with the batch norm that follows it folded in."""
        norm_of = {"_conv_stem": "_bn0", "_conv_head": "_bn1", "_expand_conv": "_bn0", "_depthwise_conv": "_bn1"}
        norm_of["_project_conv"] = "_bn2"
        folded: dict[str, Tensor] = {}
        try:
            for name in self.state_dict():
                module, leaf = name.rsplit(".", 1)
                if module == "_fc":
                    folded[name] = state[name].float()
                elif leaf == "weight":
                    parent, _, last = module.rpartition(".")
                    norm = (parent + "." if parent else "") + norm_of[last]
                    scale = state[f"{norm}.weight"] / (state[f"{norm}.running_var"] + _NORM_EPS).sqrt()
                    folded[name] = state[name] * scale.view(-1, 1, 1, 1)
                    folded[f"{module}.bias"] = state[f"{norm}.bias"] - state[f"{norm}.running_mean"] * scale
        except KeyError as error:
            raise InputError(f"the EfficientNet weights lack {error.args[0]}") from error
        self.load_state_dict(folded)
