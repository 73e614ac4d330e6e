"""I3D in 8-bit integers: the same network several times faster on x86 processors, through torch's oneDNN kernels.

Weights are rounded a channel at a time. The range of each activation is known without any data: the published batch
norms have no scale, so a channel's values before the ReLU have mean beta and deviation 1 over the training set, and the
range reaches to the largest beta plus some deviations (data-free quantisation, Nagel et al. 2019). How many was chosen
for closeness to the float network on a video that nothing here is measured on: the tails are heavy, and below ten
deviations clipping hurts more than coarser steps do.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from stepformer.encoders.i3d import MIXED, NORM_EPS, same_padding
from stepformer.errors import InputError, StepFormerError

DEVIATIONS = 14.0
_PIXEL_SCALE, _PIXEL_ZERO = 1.0 / 127.5, 128


class _Conv:
    """An integer convolution with ReLU. uint8 in and out; an integer q stands for (q - zero) * scale."""

    def __init__(
        self, weight: Tensor, bias: Tensor, stride: int, padding: int, came: float, goes: float, zero: int = 0
    ) -> None:
        self._steps = (weight.abs().amax(dim=(1, 2, 3, 4)) / 127.0).clamp_min(1e-12)  # a step for each output channel
        self._zeros = torch.zeros(len(self._steps), dtype=torch.int32)
        rounded = (weight / self._steps.view(-1, 1, 1, 1, 1)).round().clamp(-127, 127).to(torch.int8)
        self._shape = [stride] * 3, [padding] * 3, [1] * 3, 1
        self._packed = torch.ops.onednn.qconv_prepack(rounded, self._steps, came, zero, *self._shape, None)
        self._bias, self._came, self._zero, self.goes = bias, came, zero, goes

    def __call__(self, x: Tensor) -> Tensor:
        out: Tensor = torch.ops.onednn.qconv_pointwise(
            x, self._came, self._zero, self._packed, self._steps, self._zeros, self._bias, *self._shape,
            self.goes, 0, torch.uint8, "none", [], "",
        )  # fmt: skip
        # the ReLU needs no doing: with zero as the lowest integer, what is negative is cut off there
        return out


@functools.cache
def available() -> bool:
    """Whether this torch and this processor have the integer kernels: a small convolution is tried."""
    generator = torch.Generator().manual_seed(0)
    weight, bias = torch.randn(4, 3, 3, 3, 3, generator=generator) / 9, torch.randn(4, generator=generator)
    x = torch.randint(0, 256, (1, 3, 4, 4, 4), dtype=torch.uint8, generator=generator)
    expected = nn.functional.conv3d(x / 255.0, weight, bias, padding=1).relu()
    try:
        with torch.inference_mode():
            found = _Conv(weight, bias, 1, 1, 1 / 255.0, 4 / 255.0)(x) * (4 / 255.0)
    except (AttributeError, RuntimeError, TypeError, NotImplementedError):
        return False  # another processor, or a torch that names these kernels otherwise
    return float((found - expected).abs().max()) < 0.1


class _Mixed:
    """The four branches of an Inception block; they share the scale of their outputs, and so join as they are."""

    def __init__(self, made: _Maker, name: str, came: float) -> None:
        ends = ("Branch_0.Conv3d_0a_1x1", "Branch_1.Conv3d_0b_3x3", "Branch_2.Conv3d_0b_3x3", "Branch_3.Conv3d_0b_1x1")
        self.goes = max(made.scale_of(f"{name}.{end}") for end in ends)
        self._squeeze = [made.conv(f"{name}.Branch_{i}.Conv3d_0a_1x1", came) for i in (1, 2)]
        inputs = (came, self._squeeze[0].goes, self._squeeze[1].goes, came)
        self._ends = [
            made.conv(f"{name}.{end}", scale, goes=self.goes) for end, scale in zip(ends, inputs, strict=True)
        ]

    def __call__(self, x: Tensor) -> Tensor:
        parts = [
            self._ends[0](x),
            self._ends[1](self._squeeze[0](x)),
            self._ends[2](self._squeeze[1](x)),
            self._ends[3](_pool(x, (3, 3, 3), (1, 1, 1))),
        ]
        return torch.cat(parts, 1)


def _pool(x: Tensor, kernel: tuple[int, int, int], stride: tuple[int, int, int]) -> Tensor:
    """Max pooling with "same" padding on the integers themselves, an axis at a time: a maximum of shifted slices.

    Padding with zeros is right, for everything here has been through a ReLU and zero stands for zero.
    """
    whole = nn.functional.pad(x, same_padding(x.shape[2:], kernel, stride))
    for axis, (k, s) in enumerate(zip(kernel, stride, strict=True), start=2):
        if k == 1:
            continue
        count = (whole.shape[axis] - k) // s + 1
        slices = [_every(whole, axis, first, count, s) for first in range(k)]
        whole = torch.maximum(slices[0], slices[1])
        for more in slices[2:]:
            torch.maximum(whole, more, out=whole)
    return whole


def _every(x: Tensor, axis: int, first: int, count: int, step: int) -> Tensor:
    index = [slice(None)] * x.ndim
    index[axis] = slice(first, first + (count - 1) * step + 1, step)
    return x[tuple(index)]


class _Maker:
    """Builds convolutions from the published weights."""

    def __init__(self, state: Mapping[str, Tensor]) -> None:
        self._state = state

    def get(self, name: str) -> Tensor:
        """A published tensor."""
        try:
            return self._state[name].float()
        except KeyError as error:
            raise InputError(f"the I3D weights lack {error.args[0]}") from error

    def scale_of(self, unit: str) -> float:
        """The step between two integers of a unit's output."""
        return float(self.get(f"{unit}.norm.bias").max().clamp_min(0.0) + DEVIATIONS) / 255.0

    def conv(
        self, unit: str, came: float, stride: int = 1, goes: float | None = None, zero: int = 0, shift: float = 0.0
    ) -> _Conv:
        """A unit with its batch norm folded in; ``shift`` is what every input value is too small by."""
        spread = (self.get(f"{unit}.norm.running_var") + NORM_EPS).rsqrt()
        weight = self.get(f"{unit}.conv.weight") * spread.view(-1, 1, 1, 1, 1)
        bias = self.get(f"{unit}.norm.bias") - self.get(f"{unit}.norm.running_mean") * spread
        bias = bias + shift * weight.sum(dim=(1, 2, 3, 4))
        padding = 0 if stride != 1 else (weight.shape[-1] - 1) // 2
        return _Conv(weight, bias, stride, padding, came, self.scale_of(unit) if goes is None else goes, zero)


class I3DInt8:
    """Clips (N, 3, T, H, W) of uint8 to class scores (N, 400) and pooled features (N, 1024), both float32."""

    def __init__(self, state: Mapping[str, Tensor]) -> None:
        if not available():
            raise StepFormerError("this torch has no 8-bit kernels for this processor")
        made = _Maker(state)
        # pixel p stands for (p - 127.5) / 127.5; as integers around 128, half a step too small
        self._first = made.conv("Conv3d_1a_7x7", _PIXEL_SCALE, 2, zero=_PIXEL_ZERO, shift=0.5 * _PIXEL_SCALE)
        self._second = made.conv("Conv3d_2b_1x1", self._first.goes)
        self._third = made.conv("Conv3d_2c_3x3", self._second.goes)
        self._mixed: dict[str, _Mixed] = {}
        self._scale = self._third.goes
        for name in MIXED:
            self._mixed[name] = _Mixed(made, name, self._scale)
            self._scale = self._mixed[name].goes
        logits = "Logits.Conv3d_0c_1x1.conv"
        self._head = made.get(f"{logits}.weight").flatten(1), made.get(f"{logits}.bias")

    def __call__(self, clips: Tensor) -> tuple[Tensor, Tensor]:
        """``clips`` (N, 3, T, H, W) uint8 -> scores (N, 400), features (N, 1024)."""
        pads = same_padding(clips.shape[2:], (7, 7, 7), (2, 2, 2))
        padded = nn.functional.pad(clips, pads, value=_PIXEL_ZERO)
        x = self._first(padded.contiguous(memory_format=torch.channels_last_3d))
        x = _pool(x, (1, 3, 3), (1, 2, 2))
        x = _pool(self._third(self._second(x)), (1, 3, 3), (1, 2, 2))
        for name, block in self._mixed.items():
            if name == "Mixed_4b":
                x = _pool(x, (3, 3, 3), (2, 2, 2))
            elif name == "Mixed_5b":
                x = _pool(x, (2, 2, 2), (2, 2, 2))
            x = block(x)
        features = x.float().mean(dim=(2, 3, 4)) * self._scale
        return nn.functional.linear(features, *self._head), features
