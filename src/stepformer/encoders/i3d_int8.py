"""I3D in 8-bit integers: the same network several times faster on x86 processors, through torch's oneDNN kernels.

Weights are rounded a channel at a time. The range of each activation is known without any data: the published batch
norms have no scale, so a channel's values before the ReLU have mean beta and deviation 1 over the training set, and the
range reaches to the largest beta plus some deviations (data-free quantisation, Nagel et al. 2019). How many was chosen
for closeness to the float network on a video that nothing here is measured on: the tails are heavy, and below ten
deviations clipping hurts more than coarser steps do.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from stepformer.encoders.i3d import MIXED, NORM_EPS, same_padding
from stepformer.errors import InputError

DEVIATIONS = 14.0
_PIXEL_SCALE, _PIXEL_ZERO = 1.0 / 127.5, 128
_ENGINES = ("x86", "onednn")  # fbgemm has the kernels too, but slow ones for the first layer


def available() -> bool:
    """Whether this torch and this processor have the integer kernels."""
    return any(engine in torch.backends.quantized.supported_engines for engine in _ENGINES)


class _Conv:
    """One integer convolution with ReLU; its output's scale is fixed."""

    def __init__(self, weight: Tensor, bias: Tensor, stride: int, padding: int, scale: float) -> None:
        steps = (weight.abs().amax(dim=(1, 2, 3, 4)) / 127.0).clamp_min(1e-12)
        zeros = torch.zeros(len(steps), dtype=torch.long)
        rounded = torch.quantize_per_channel(weight, steps, zeros, 0, torch.qint8)
        self._packed = torch.ops.quantized.conv3d_prepack(rounded, bias, [stride] * 3, [padding] * 3, [1] * 3, 1)
        self.scale = scale

    def __call__(self, x: Tensor) -> Tensor:
        out: Tensor = torch.ops.quantized.conv3d_relu(x, self._packed, self.scale, 0)
        return out


class _Mixed:
    """The four branches of an Inception block; they share the scale of their outputs, and so join as they are."""

    def __init__(self, made: Any, name: str) -> None:
        ends = ("Branch_0.Conv3d_0a_1x1", "Branch_1.Conv3d_0b_3x3", "Branch_2.Conv3d_0b_3x3", "Branch_3.Conv3d_0b_1x1")
        self.scale = max(made.scale_of(f"{name}.{end}") for end in ends)
        self._ends = [made.conv(f"{name}.{end}", scale=self.scale) for end in ends]
        self._squeeze = [made.conv(f"{name}.Branch_{i}.Conv3d_0a_1x1") for i in (1, 2)]

    def __call__(self, x: Tensor) -> Tensor:
        parts = [
            self._ends[0](x),
            self._ends[1](self._squeeze[0](x)),
            self._ends[2](self._squeeze[1](x)),
            self._ends[3](_pool(x, (3, 3, 3), (1, 1, 1))),
        ]
        joined: Tensor = torch.ops.quantized.cat(parts, 1, self.scale, 0)
        return joined


def _pool(x: Tensor, kernel: tuple[int, int, int], stride: tuple[int, int, int]) -> Tensor:
    """Max pooling with "same" padding on the integers themselves, an axis at a time: a maximum of shifted slices.

    Padding with zeros is right, for everything here has been through a ReLU and zero stands for zero.
    """
    scale = x.q_scale()
    whole = nn.functional.pad(x.int_repr(), same_padding(x.shape[2:], kernel, stride))
    for axis, (k, s) in enumerate(zip(kernel, stride, strict=True), start=2):
        if k == 1:
            continue
        count = (whole.shape[axis] - k) // s + 1
        slices = [_every(whole, axis, first, count, s) for first in range(k)]
        whole = torch.maximum(slices[0], slices[1])
        for more in slices[2:]:
            torch.maximum(whole, more, out=whole)
    return torch._make_per_tensor_quantized_tensor(whole, scale, 0)


def _every(x: Tensor, axis: int, first: int, count: int, step: int) -> Tensor:
    index = [slice(None)] * x.ndim
    index[axis] = slice(first, first + (count - 1) * step + 1, step)
    return x[tuple(index)]


class _Maker:
    """Builds convolutions from the published weights."""

    def __init__(self, state: Mapping[str, Tensor]) -> None:
        self._state = state

    def _get(self, name: str) -> Tensor:
        try:
            return self._state[name].float()
        except KeyError as error:
            raise InputError(f"the I3D weights lack {error.args[0]}") from error

    def scale_of(self, unit: str) -> float:
        """The step between two integers of a unit's output."""
        return float(self._get(f"{unit}.norm.bias").max().clamp_min(0.0) + DEVIATIONS) / 255.0

    def conv(self, unit: str, stride: int = 1, scale: float | None = None, shift: float = 0.0) -> _Conv:
        """A unit with its batch norm folded in; ``shift`` is what every input value is too small by."""
        spread = (self._get(f"{unit}.norm.running_var") + NORM_EPS).rsqrt()
        weight = self._get(f"{unit}.conv.weight") * spread.view(-1, 1, 1, 1, 1)
        bias = self._get(f"{unit}.norm.bias") - self._get(f"{unit}.norm.running_mean") * spread
        bias = bias + shift * weight.sum(dim=(1, 2, 3, 4))
        padding = 0 if stride != 1 else (weight.shape[-1] - 1) // 2
        return _Conv(weight, bias, stride, padding, self.scale_of(unit) if scale is None else scale)


class I3DInt8:
    """Clips (N, 3, T, H, W) of uint8 to class scores (N, 400) and pooled features (N, 1024), both float32."""

    def __init__(self, state: Mapping[str, Tensor]) -> None:
        engine = next((e for e in _ENGINES if e in torch.backends.quantized.supported_engines), None)
        if engine is None:
            raise InputError("this processor has no 8-bit kernels in torch")
        torch.backends.quantized.engine = engine
        made = _Maker(state)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch announces that eager quantised tensors will move to torchao
            # pixel p stands for (p - 127.5) / 127.5; as integers around 128, half a step too small
            self._first = made.conv("Conv3d_1a_7x7", 2, shift=0.5 * _PIXEL_SCALE)
            self._second, self._third = made.conv("Conv3d_2b_1x1"), made.conv("Conv3d_2c_3x3")
            self._mixed = {name: _Mixed(made, name) for name in MIXED}
        self._head = (
            made._get("Logits.Conv3d_0c_1x1.conv.weight").flatten(1),
            made._get("Logits.Conv3d_0c_1x1.conv.bias"),
        )

    def __call__(self, clips: Tensor) -> tuple[Tensor, Tensor]:
        """``clips`` (N, 3, T, H, W) uint8 -> scores (N, 400), features (N, 1024)."""
        pads = same_padding(clips.shape[2:], (7, 7, 7), (2, 2, 2))
        padded = nn.functional.pad(clips, pads, value=_PIXEL_ZERO).contiguous(memory_format=torch.channels_last_3d)
        x = self._first(torch._make_per_tensor_quantized_tensor(padded, _PIXEL_SCALE, _PIXEL_ZERO))
        x = _pool(x, (1, 3, 3), (1, 2, 2))
        x = _pool(self._third(self._second(x)), (1, 3, 3), (1, 2, 2))
        for name, block in self._mixed.items():
            if name == "Mixed_4b":
                x = _pool(x, (3, 3, 3), (2, 2, 2))
            elif name == "Mixed_5b":
                x = _pool(x, (2, 2, 2), (2, 2, 2))
            x = block(x)
        features = x.dequantize().mean(dim=(2, 3, 4))
        return nn.functional.linear(features, *self._head), features
