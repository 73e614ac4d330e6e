"""The Triton kernels of :mod:`stepformer.core.context`. Import only where Triton is."""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from stepformer.core.stack_kernels import (
    _kept,
    _warps,
    _width,
    activate,
    activate_back,
    add_norm,
    add_norm_back,
    norm_parts,
)

__all__ = [
    "activate", "activate_back", "add_end", "add_norm", "add_norm_back", "add_unit", "drop", "enter", "leave",
    "norm_parts", "relative_codes",
]  # fmt: skip


@triton.jit
def _relative_codes(lengths, out, N, D: tl.constexpr, WIDTH: tl.constexpr, SPAN: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, WIDTH)
    length = tl.maximum(tl.load(lengths + row // N), 1).to(tl.float32)
    time = ((row % N).to(tl.float32) + 0.5) / length * SPAN
    angle = time * tl.exp((c // 2 * 2).to(tl.float32) * (-9.210340371976184 / D))  # log of 10,000
    code = tl.where(c % 2 == 0, tl.sin(angle), tl.cos(angle))
    tl.store(out + row * D + c, code, mask=c < D)


@triton.jit
def _enter(  # type: ignore[no-untyped-def]
    x, codes, weight, shift, u, y, placed, mean, rstd, CODES, root, eps, D: tl.constexpr, WIDTH: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, WIDTH)
    ok = c < D
    at = row * D + c
    value = tl.load(x + at, mask=ok, other=0.0).to(tl.float32)
    value = value * (root / tl.maximum(tl.sqrt(tl.sum(value * value, axis=0)), 1e-12))
    tl.store(u + at, value, mask=ok)
    middle = tl.sum(value, axis=0) / D
    value = tl.where(ok, value - middle, 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(value * value, axis=0) / D + eps)
    tl.store(mean + row, middle)
    tl.store(rstd + row, scale)
    out = value * scale * tl.load(weight + c, mask=ok, other=0.0) + tl.load(shift + c, mask=ok, other=0.0)
    tl.store(y + at, out, mask=ok)
    out += tl.load(codes + (row % CODES) * D + c, mask=ok, other=0.0).to(tl.float32)
    tl.store(placed + at, out, mask=ok)


@triton.jit
def _leave(grad, x, out, root, D: tl.constexpr, WIDTH: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, WIDTH)
    ok = c < D
    at = row * D + c
    g = tl.load(grad + at, mask=ok, other=0.0).to(tl.float32)
    value = tl.load(x + at, mask=ok, other=0.0).to(tl.float32)
    inverse = 1.0 / tl.maximum(tl.sqrt(tl.sum(value * value, axis=0)), 1e-12)
    value = value * inverse
    tl.store(out + at, (g - value * tl.sum(g * value, axis=0)) * inverse * root, mask=ok)


@triton.jit(do_not_specialize=["site"])
def _add_end(  # type: ignore[no-untyped-def]
    x, branch, bias, codes, out, placed, seed, site, CODES, D: tl.constexpr, WIDTH: tl.constexpr,
    THRESHOLD: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, WIDTH)
    ok = c < D
    at = row * D + c
    added = tl.load(branch + at, mask=ok, other=0.0).to(tl.float32) + tl.load(bias + c, mask=ok, other=0.0)
    if THRESHOLD > 0:
        added = tl.where(_kept(seed, site, at, THRESHOLD), added * (16777216.0 / (16777216.0 - THRESHOLD)), 0.0)
    value = tl.load(x + at, mask=ok, other=0.0).to(tl.float32) + added
    tl.store(out + at, value, mask=ok)
    value += tl.load(codes + (row % CODES) * D + c, mask=ok, other=0.0).to(tl.float32)
    tl.store(placed + at, value, mask=ok)


@triton.jit(do_not_specialize=["site"])
def _drop(x, out, seed, site, total, THRESHOLD: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    ok = at < total
    value = tl.load(x + at, mask=ok, other=0.0).to(tl.float32)
    value = tl.where(_kept(seed, site, at, THRESHOLD), value * (16777216.0 / (16777216.0 - THRESHOLD)), 0.0)
    tl.store(out + at, value, mask=ok)


@triton.jit
def _add_unit(video, branch, bias, out, D: tl.constexpr, WIDTH: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, WIDTH)
    ok = c < D
    at = row * D + c
    value = tl.load(video + at, mask=ok, other=0.0).to(tl.float32)
    value = value / tl.maximum(tl.sqrt(tl.sum(value * value, axis=0)), 1e-12)
    value += tl.load(branch + at, mask=ok, other=0.0).to(tl.float32) + tl.load(bias + c, mask=ok, other=0.0)
    tl.store(out + at, value, mask=ok)


def relative_codes(mask: Tensor, dim: int) -> Tensor:
    """(B, N) -> (R, D) in bf16: `core.model.time_codes` of `core.model.relative_times`."""
    from stepformer.core.model import _RELATIVE_SPAN

    B, N = mask.shape
    out = torch.empty((B * N, dim), dtype=torch.bfloat16, device=mask.device)
    width = _width(dim)
    _relative_codes[(B * N,)](mask.sum(1), out, N, D=dim, WIDTH=width, SPAN=_RELATIVE_SPAN, num_warps=_warps(width))
    return out


def enter(x: Tensor, codes: Tensor, weight: Tensor, shift: Tensor, eps: float, kind: torch.dtype) -> list[Tensor]:
    """x (R, D) at length sqrt(D); that normed; that with codes (R or fewer, D) added; mean and 1 / deviation (R,)."""
    x = x.contiguous()
    rows, dim = x.shape
    u, y, placed = (torch.empty((rows, dim), dtype=kind, device=x.device) for _ in range(3))
    mean, rstd = (torch.empty(rows, dtype=torch.float32, device=x.device) for _ in range(2))
    width = _width(dim)
    _enter[(rows,)](
        x, codes, weight, shift, u, y, placed, mean, rstd, len(codes), math.sqrt(dim), eps, D=dim, WIDTH=width,
        num_warps=_warps(width),
    )  # fmt: skip
    return [u, y, placed, mean, rstd]


def leave(grad: Tensor, x: Tensor) -> Tensor:
    """The gradient of x (R, D) from that of ``sqrt(D) x / |x|``."""
    out = torch.empty_like(grad)
    rows, dim = grad.shape
    width = _width(dim)
    _leave[(rows,)](grad, x.contiguous(), out, math.sqrt(dim), D=dim, WIDTH=width, num_warps=_warps(width))
    return out


def add_end(
    x: Tensor, branch: Tensor, bias: Tensor, codes: Tensor, seed: Tensor, site: int, threshold: int
) -> tuple[Tensor, Tensor]:
    """x + dropout(branch + bias), and that with codes added: (R, D) each."""
    out, placed = torch.empty_like(x), torch.empty_like(x)
    rows, dim = x.shape
    width = _width(dim)
    _add_end[(rows,)](
        x, branch, bias, codes, out, placed, seed, site, len(codes), D=dim, WIDTH=width, THRESHOLD=threshold,
        num_warps=_warps(width),
    )  # fmt: skip
    return out, placed


def drop(x: Tensor, seed: Tensor, site: int, threshold: int) -> Tensor:
    """x with some elements dropped, the others larger."""
    if not threshold:
        return x
    out = torch.empty_like(x)
    _drop[(triton.cdiv(x.numel(), 2048),)](x, out, seed, site, x.numel(), THRESHOLD=threshold, BLOCK=2048)
    return out


def add_unit(video: Tensor, branch: Tensor, bias: Tensor) -> Tensor:
    """video (R, W) at length 1, plus branch and bias, in the type of the branch."""
    out = torch.empty_like(branch)
    rows, dim = branch.shape
    width = _width(dim)
    _add_unit[(rows,)](video.contiguous(), branch, bias, out, D=dim, WIDTH=width, num_warps=_warps(width))
    return out
