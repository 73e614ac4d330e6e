"""CLIP's image tower, ViT-B/16 (Radford et al., 2021), in torch, for inference: pictures of any shape, 8-bit or float.

The weights that a registry carries are 8-bit integers with one scale per output. In float arithmetic they are used as
they are. In integer arithmetic, about 1.7 times as fast on x86, they are rounded to 7 bits, because processors without
VNNI add two products of 8 bits in 16 and overflow without a word: the published graph then gives vectors that mean
nothing. Activations have a range per token; with one range per picture the few very large values behind the GELU would
leave no steps for the rest.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from stepformer.errors import InputError

PATCH = 16
EARLY = 4
"""Layers whose patches give the structure vectors."""
_HEAD = 64  # numbers per attention head
_MEAN = (0.48145466, 0.4578275, 0.40821073)
_DEVIATION = (0.26862954, 0.26130258, 0.27577711)
_LEVELS = 63  # of a 7-bit weight on either side of zero
_ROWS = 64  # rounded at a time

_Linear = Callable[[Tensor], Tensor]


class _Integers:
    """A linear layer on 8-bit integers: weights rounded per output, activations per token.

    ``weight`` (out, in) is float, or the published integers with a scale (out,) each.
    """

    def __init__(self, weight: Tensor, bias: Tensor, scale: Tensor | None = None) -> None:
        largest = torch.maximum(weight.amax(1), -weight.amin(1).clamp_min_(-127)).float().clamp_min_(1e-12)  # (out,)
        rounded = torch.empty(weight.shape, dtype=torch.int8)
        # a few rows at a time: what is made of a whole layer in between left holes of hundreds of megabytes in the heap
        for first in range(0, len(weight), _ROWS):
            some = slice(first, first + _ROWS)
            rounded[some] = (weight[some] * (_LEVELS / largest[some])[:, None]).round_().clamp_(-_LEVELS, _LEVELS)
        self._steps = largest / _LEVELS if scale is None else scale * largest / _LEVELS  # (out,)
        self._zeros = torch.zeros(len(bias), dtype=torch.int32)
        self._sums = rounded.sum(1, dtype=torch.int32) * self._steps  # (out,) what an input of ones gives
        self._packed = torch.ops.onednn.qlinear_prepack(rounded, None)
        self._bias = bias

    def __call__(self, x: Tensor) -> Tensor:  # (..., in) -> (..., out)
        low = x.amin(-1, keepdim=True)
        step = (x.amax(-1, keepdim=True) - low).clamp_min_(1e-12).div_(255.0)
        integers = (x - low).div_(step).add_(0.5).to(torch.uint8)  # x is low + step * integers
        product: Tensor = torch.ops.onednn.qlinear_pointwise(
            integers, 1.0, 0, self._packed, self._steps, self._zeros, None, 1.0, 0, torch.float32, "none", [], "",
        )  # fmt: skip
        return product.mul_(step).addcmul_(low, self._sums).add_(self._bias)


@functools.cache
def integers_available() -> bool:
    """Whether this torch and this processor have the integer kernels: a small product is tried."""
    generator = torch.Generator().manual_seed(0)
    weight, bias = torch.randn(8, 32, generator=generator), torch.randn(8, generator=generator)
    x = torch.randn(4, 32, generator=generator)
    try:
        with torch.inference_mode():
            found = _Integers(weight, bias)(x)
    except (AttributeError, RuntimeError, TypeError, NotImplementedError):
        return False  # another processor, or a torch that names these kernels otherwise
    return float((found - nn.functional.linear(x, weight, bias)).abs().max()) < 0.2


class ClipViT:
    """uint8 pictures (N, H, W, 3), sides multiples of 16, to unit vectors (N, 512) and (N, 768).

    ``state`` has the names under which the hub publishes CLIP, as the registered "clip-vit-b16-image" weights do; all
    sizes are read off it. Positions of pictures that are not as large as those it was trained on (224 by 224) are
    interpolated.
    """

    def __init__(self, state: Mapping[str, Tensor], *, device: str = "cpu", integers: bool = True) -> None:
        self._device = device
        self._kind = torch.float16 if torch.device(device).type == "cuda" else torch.float32
        self._integers = integers and device == "cpu" and integers_available()
        self._state = state
        self._class = self._get("vision_model.embeddings.class_embedding")  # (D,)
        self._heads = len(self._class) // _HEAD
        depth = len({key.split(".")[3] for key in state if key.startswith("vision_model.encoder.layers.")})
        self._layers = [self._layer(f"vision_model.encoder.layers.{i}.") for i in range(depth)]
        self._project = self._linear(["visual_projection"], integers=False)
        self._filters = self._get("vision_model.embeddings.patch_embedding.weight")
        self._positions = self._get("vision_model.embeddings.position_embedding.weight")  # (1 + G * G, D)
        self._before, self._after = self._norm("vision_model.pre_layrnorm"), self._norm("vision_model.post_layernorm")
        self._mean = 255.0 * torch.tensor(_MEAN, device=device).view(1, 3, 1, 1)
        self._deviation = 255.0 * torch.tensor(_DEVIATION, device=device).view(1, 3, 1, 1)
        self._placed = functools.lru_cache(maxsize=4)(self._place)
        del self._state

    def _get(self, name: str) -> Tensor:
        try:
            value = self._state[name]
        except KeyError:
            raise InputError(f"the CLIP image tower's weights lack {name}") from None
        if value.dtype == torch.int8:
            value = value.float() * self._state[name.removesuffix("weight") + "scale"].float()[:, None]
        return value.to(self._device, self._kind)

    def _linear(self, names: list[str], integers: bool = True) -> _Linear:
        """One layer of several that read the same input, side by side."""
        biases = [self._get(f"{name}.bias") for name in names if f"{name}.bias" in self._state]
        published = [self._state.get(f"{name}.weight") for name in names]
        if self._integers and integers and all(w is not None and w.dtype == torch.int8 for w in published):
            scale = torch.cat([self._get(f"{name}.scale") for name in names])
            return _Integers(torch.cat([w for w in published if w is not None]), torch.cat(biases), scale)
        weight = torch.cat([self._get(f"{name}.weight") for name in names])
        bias = torch.cat(biases) if biases else weight.new_zeros(len(weight))
        if self._integers and integers:
            return _Integers(weight, bias)
        return functools.partial(nn.functional.linear, weight=weight, bias=bias)

    def _norm(self, name: str) -> _Linear:
        weight, bias = self._get(f"{name}.weight"), self._get(f"{name}.bias")
        return functools.partial(nn.functional.layer_norm, normalized_shape=weight.shape, weight=weight, bias=bias)

    def _layer(self, name: str) -> tuple[_Linear, ...]:
        return (
            self._norm(f"{name}layer_norm1"),
            self._linear([f"{name}self_attn.{part}_proj" for part in "qkv"]),
            self._linear([f"{name}self_attn.out_proj"]),
            self._norm(f"{name}layer_norm2"),
            self._linear([f"{name}mlp.fc1"]),
            self._linear([f"{name}mlp.fc2"]),
        )

    def _place(self, rows: int, columns: int) -> Tensor:
        """Position vectors (1 + rows * columns, D)."""
        side = round((len(self._positions) - 1) ** 0.5)
        if rows == columns == side:
            return self._positions
        grid = self._positions[1:].T.reshape(1, -1, side, side)
        there = nn.functional.interpolate(grid, (rows, columns), mode="bicubic", align_corners=False)
        return torch.cat([self._positions[:1], there[0].flatten(1).T])

    @torch.inference_mode()
    def structure(self, pictures: NDArray[np.uint8]) -> Tensor:
        """Pictures (N, H, W, 3) to unit vectors (N, 768): the mean over the patches of the fourth layer, at half size.

        They change with hands and things where the last layer's still mean the same, and place cuts better; at half the
        size no worse, for a twelfth of the time that ``vectors`` takes.
        """
        x = self._pixels(pictures)
        sides = [max(PATCH, round(side / (2 * PATCH)) * PATCH) for side in x.shape[2:]]
        x = self._tokens(nn.functional.interpolate(x, sides, mode="area"))
        for layer in self._layers[:EARLY]:
            x = self._run(layer, x)
        return nn.functional.normalize(x[:, 1:].float().mean(1), dim=-1)

    @torch.inference_mode()
    def vectors(self, pictures: NDArray[np.uint8]) -> Tensor:
        """Pictures (N, H, W, 3) to unit vectors (N, 512) in CLIP's space."""
        x = self._tokens(self._pixels(pictures))
        for layer in self._layers[:-1]:
            x = self._run(layer, x)
        x = self._run(self._layers[-1], x, only=1)
        return nn.functional.normalize(self._project(self._after(x[:, 0])).float(), dim=-1)

    def _pixels(self, pictures: NDArray[np.uint8]) -> Tensor:
        """(N, H, W, 3) -> (N, 3, H, W), with the mean and deviation that CLIP was trained on."""
        height, width = pictures.shape[1:3]
        if height % PATCH or width % PATCH or not height * width:
            raise InputError(f"CLIP takes pictures whose sides are multiples of {PATCH}, got {height} by {width}")
        pixels = torch.from_numpy(np.ascontiguousarray(pictures)).to(self._device).permute(0, 3, 1, 2)
        return ((pixels.float() - self._mean) / self._deviation).to(self._kind)

    def _tokens(self, pixels: Tensor) -> Tensor:
        """(N, 3, H, W) -> (N, 1 + P, 768)."""
        grid = nn.functional.conv2d(pixels, self._filters, stride=PATCH)
        x = torch.cat([self._class.expand(len(grid), 1, -1), grid.flatten(2).transpose(1, 2)], 1)
        return self._before(x + self._placed(*grid.shape[2:]))

    def _run(self, layer: tuple[_Linear, ...], x: Tensor, only: int | None = None) -> Tensor:
        """One transformer layer: (N, T, D) -> (N, T, D), or of the first tokens ``only``."""
        norm_1, project, out, norm_2, widen, narrow = layer
        count, tokens = x.shape[:2]
        query, key, value = project(norm_1(x)).view(count, tokens, 3, self._heads, _HEAD).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(query[:, :, :only], key, value)
        x = x[:, :only] + out(mixed.transpose(1, 2).flatten(2))
        wide = widen(norm_2(x))
        return x + narrow(wide.mul_((1.702 * wide).sigmoid_()))
