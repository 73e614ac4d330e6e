"""I3D, the inflated Inception network for RGB clips (Carreira and Zisserman, 2017), in torch, for inference.

Batch norms are folded into the convolutions when weights are loaded, and "same" padding follows TensorFlow's rule
(the odd pixel goes behind), because the published weights were trained with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from stepformer.errors import InputError

NORM_EPS = 1e-3
FEATURE_DIM = 1024
NUM_CLASSES = 400

# widths of the six convolutions of each Inception block
MIXED: dict[str, tuple[int, int, int, int, int, int]] = {
    "Mixed_3b": (64, 96, 128, 16, 32, 32),
    "Mixed_3c": (128, 128, 192, 32, 96, 64),
    "Mixed_4b": (192, 96, 208, 16, 48, 64),
    "Mixed_4c": (160, 112, 224, 24, 64, 64),
    "Mixed_4d": (128, 128, 256, 24, 64, 64),
    "Mixed_4e": (112, 144, 288, 32, 64, 64),
    "Mixed_4f": (256, 160, 320, 32, 128, 128),
    "Mixed_5b": (256, 160, 320, 32, 128, 128),
    "Mixed_5c": (384, 192, 384, 48, 128, 128),
}


def same_padding(size: Sequence[int], kernel: Sequence[int], stride: Sequence[int]) -> list[int]:
    """TensorFlow's "same" padding as ``torch.nn.functional.pad`` wants it: last axis first, (before, after) pairs."""
    pads: list[int] = []
    for n, k, s in reversed(list(zip(size, kernel, stride, strict=True))):
        total = max((-(-n // s) - 1) * s + k - n, 0)
        pads += [total // 2, total - total // 2]
    return pads


def _pad(x: Tensor, kernel: Sequence[int], stride: Sequence[int]) -> Tensor:
    pads = same_padding(x.shape[2:], kernel, stride)
    return nn.functional.pad(x, pads) if any(pads) else x


class _Unit(nn.Module):
    """Convolution with its folded batch norm, and ReLU."""

    def __init__(self, size_in: int, size_out: int, kernel: int = 1, stride: int = 1, *, relu: bool = True) -> None:
        super().__init__()
        self.kernel, self.stride = (kernel,) * 3, (stride,) * 3
        # a kernel with stride 1 pads evenly, so the convolution can do it itself
        self.pad_outside = stride != 1
        self.conv = nn.Conv3d(size_in, size_out, kernel, stride, padding=0 if self.pad_outside else (kernel - 1) // 2)
        self.relu = relu

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.conv(_pad(x, self.kernel, self.stride) if self.pad_outside else x)
        return y.relu_() if self.relu else y


class _Mixed(nn.Module):
    """The four parallel branches of an Inception block."""

    def __init__(self, size_in: int, widths: tuple[int, int, int, int, int, int]) -> None:
        super().__init__()
        w = widths
        self.Branch_0 = nn.ModuleDict({"Conv3d_0a_1x1": _Unit(size_in, w[0])})
        self.Branch_1 = nn.ModuleDict({"Conv3d_0a_1x1": _Unit(size_in, w[1]), "Conv3d_0b_3x3": _Unit(w[1], w[2], 3)})
        self.Branch_2 = nn.ModuleDict({"Conv3d_0a_1x1": _Unit(size_in, w[3]), "Conv3d_0b_3x3": _Unit(w[3], w[4], 3)})
        self.Branch_3 = nn.ModuleDict({"Conv3d_0b_1x1": _Unit(size_in, w[5])})
        self.size_out = w[0] + w[2] + w[4] + w[5]

    def forward(self, x: Tensor) -> Tensor:
        pooled = nn.functional.max_pool3d(x, 3, 1, padding=1)
        return torch.cat(
            [
                self.Branch_0["Conv3d_0a_1x1"](x),
                self.Branch_1["Conv3d_0b_3x3"](self.Branch_1["Conv3d_0a_1x1"](x)),
                self.Branch_2["Conv3d_0b_3x3"](self.Branch_2["Conv3d_0a_1x1"](x)),
                self.Branch_3["Conv3d_0b_1x1"](pooled),
            ],
            dim=1,
        )


def _pool(x: Tensor, kernel: tuple[int, int, int], stride: tuple[int, int, int]) -> Tensor:
    # zeros pad as well as minus infinity does: everything here has been through a ReLU
    return nn.functional.max_pool3d(_pad(x, kernel, stride), kernel, stride)


class I3D(nn.Module):
    """Clips (N, 3, T, H, W) in [-1, 1] to class scores (N, 400) and pooled features (N, 1024).

    Trained on 224 pixels and long clips; any T >= 8 and H, W >= 32 work, because the last feature map is averaged
    whole. With T = 16 and 224 pixels the scores are those of the published network.
    """

    def __init__(self) -> None:
        super().__init__()
        self.Conv3d_1a_7x7 = _Unit(3, 64, 7, 2)
        self.Conv3d_2b_1x1 = _Unit(64, 64)
        self.Conv3d_2c_3x3 = _Unit(64, 192, 3)
        width = 192
        for name, widths in MIXED.items():
            block = _Mixed(width, widths)
            self.add_module(name, block)
            width = block.size_out
        self.Logits = nn.ModuleDict({"Conv3d_0c_1x1": _Unit(width, NUM_CLASSES, relu=False)})

    def forward(self, clips: Tensor) -> tuple[Tensor, Tensor]:
        """``clips`` (N, 3, T, H, W) -> scores (N, 400), features (N, 1024)."""
        x = self.Conv3d_1a_7x7(clips)
        x = _pool(x, (1, 3, 3), (1, 2, 2))
        x = self.Conv3d_2c_3x3(self.Conv3d_2b_1x1(x))
        x = _pool(x, (1, 3, 3), (1, 2, 2))
        for name in MIXED:
            if name == "Mixed_4b":
                x = _pool(x, (3, 3, 3), (2, 2, 2))
            elif name == "Mixed_5b":
                x = _pool(x, (2, 2, 2), (2, 2, 2))
            x = self.get_submodule(name)(x)
        features = x.mean(dim=(2, 3, 4), keepdim=True)  # (N, 1024, 1, 1, 1)
        scores = self.Logits["Conv3d_0c_1x1"](features)
        return scores.flatten(1), features.flatten(1)

    def load_published(self, state: Mapping[str, Tensor]) -> None:
        """Loads the converted weights ("MODULE.conv.weight", "MODULE.norm.bias", ...), folding batch norms in."""
        folded: dict[str, Tensor] = {}
        for name in self.state_dict():
            if not name.endswith("conv.weight"):
                continue
            module = name.removesuffix(".conv.weight")
            try:
                weight = state[f"{module}.conv.weight"].float()
                if f"{module}.norm.running_var" in state:
                    scale = (state[f"{module}.norm.running_var"].float() + NORM_EPS).rsqrt()
                    bias = state[f"{module}.norm.bias"] - state[f"{module}.norm.running_mean"] * scale
                    weight = weight * scale.view(-1, 1, 1, 1, 1)
                else:
                    bias = state[f"{module}.conv.bias"]
            except KeyError as error:
                raise InputError(f"the I3D weights lack {error.args[0]}") from error
            folded[name], folded[f"{module}.conv.bias"] = weight, bias.float()
        self.load_state_dict(folded)
