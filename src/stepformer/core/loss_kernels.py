"""The Triton kernels of the losses: what one program can hold of a video is read once. Import only where Triton is.

`core.losses` and `core.log_sums` say what is computed and take these on a GPU. Losses whose gradient is known as soon
as their value is compute both together.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _row_sums(products, mask, out, J, scale, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    most = tl.full([BLOCK], -1e30, tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    for first in range(0, J, BLOCK):
        ok = (first + c < J) & (tl.load(mask + first + c, mask=first + c < J, other=0) != 0)
        x = tl.where(ok, tl.load(products + row * J + first + c, mask=ok, other=0.0) * scale, -1e30)
        higher = tl.maximum(most, x)
        total = total * tl.exp(most - higher) + tl.where(ok, tl.exp(x - higher), 0.0)
        most = higher
    top = tl.max(most, axis=0)
    tl.store(out + row, top + tl.log(tl.maximum(tl.sum(total * tl.exp(most - top), axis=0), 1e-30)))


@triton.jit
def _column_sums(  # type: ignore[no-untyped-def]
    products, out, rows, J, scale, PART: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    """Log-sums over PART rows of BLOCK columns: (parts, J)."""
    part = tl.program_id(1)
    c = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    most = tl.full([BLOCK], -1e30, tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    for first in range(0, PART, ROWS):
        r = (part * PART + first + tl.arange(0, ROWS)).to(tl.int64)
        ok = (r < rows)[:, None] & (c < J)[None, :]
        x = tl.load(products + r[:, None] * J + c[None, :], mask=ok, other=0.0) * scale
        x = tl.where(ok, x, -1e30)
        higher = tl.maximum(most, tl.max(x, axis=0))
        total = total * tl.exp(most - higher) + tl.sum(tl.where(ok, tl.exp(x - higher[None, :]), 0.0), axis=0)
        most = higher
    tl.store(out + part * J + c, most + tl.log(tl.maximum(total, 1e-30)), mask=c < J)


@triton.jit
def _shares(  # type: ignore[no-untyped-def]
    products, mask, over_z, d_rows, columns, d_columns, out, J, scale, DOWN: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = c < J
    seen = tl.load(mask + c, mask=inside, other=0) != 0
    at = row * J + c
    x = tl.load(products + at, mask=inside, other=0.0) * scale
    share = tl.where(seen, tl.exp(x - tl.load(over_z + row)) * tl.load(d_rows + row), 0.0)
    if DOWN:
        level = tl.load(columns + c, mask=inside, other=0.0)
        share += tl.exp(x - level) * tl.load(d_columns + c, mask=inside, other=0.0)
    tl.store(out + at, share * scale, mask=inside)


@triton.jit
def _unit(x, y, half, inverse, D, HALF: tl.constexpr, WIDTH: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, WIDTH)
    value = tl.load(x + row * D + c, mask=c < D, other=0.0).to(tl.float32)
    scale = 1.0 / tl.maximum(tl.sqrt(tl.sum(value * value, axis=0)), 1e-12)
    tl.store(y + row * D + c, value * scale, mask=c < D)
    if HALF:
        tl.store(half + row * D + c, value * scale, mask=c < D)
    tl.store(inverse + row, scale)


@triton.jit
def _unit_back(  # type: ignore[no-untyped-def]
    grad, up, y, inverse, dx, D, SCALED: tl.constexpr, WIDTH: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, WIDTH)
    g = tl.load(grad + row * D + c, mask=c < D, other=0.0).to(tl.float32)
    value = tl.load(y + row * D + c, mask=c < D, other=0.0).to(tl.float32)
    scale = tl.load(inverse + row)
    if SCALED:
        scale *= tl.load(up)
    out = (g - value * tl.sum(g * value, axis=0)) * scale
    tl.store(dx + row * D + c, out, mask=c < D)


@triton.jit
def _log_sums_of_own(logits, inside, seen):  # type: ignore[no-untyped-def]
    """Over the phrases that are said, per slot, and over the slots, per phrase."""
    by_row = tl.where(seen, logits, -1e30)
    top = tl.max(by_row, axis=1)
    row_sum = top + tl.log(tl.maximum(tl.sum(tl.where(seen, tl.exp(by_row - top[:, None]), 0.0), axis=1), 1e-30))
    by_column = tl.where(inside, logits, -1e30)
    top = tl.max(by_column, axis=0)
    parts = tl.where(inside, tl.exp(by_column - top[None, :]), 0.0)
    return row_sum, top + tl.log(tl.maximum(tl.sum(parts, axis=0), 1e-30))


@triton.jit
def _own_sums(  # type: ignore[no-untyped-def]
    cosines, lengths, over_phrases, over_slots, scale, K, L, SLOTS: tl.constexpr, WIDTH: tl.constexpr
):
    """One video: the log-sums of its own pairs."""
    item = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, SLOTS)
    j = tl.arange(0, WIDTH)
    inside = (i < K)[:, None] & (j < L)[None, :]
    logits = tl.load(cosines + item * K * L + i[:, None] * L + j[None, :], mask=inside, other=0.0) * scale
    row_sum, column_sum = _log_sums_of_own(logits, inside, inside & (j < tl.load(lengths + item))[None, :])
    tl.store(over_phrases + item * K + i, row_sum, mask=i < K)
    tl.store(over_slots + item * L + j, column_sum, mask=j < L)


@triton.jit
def _own(  # type: ignore[no-untyped-def]
    cosines, lengths, rows, d_phrases, d_slots, grad, seq, hits, scale, up, K, L,
    AVERAGE_ALL: tl.constexpr, DOWN: tl.constexpr, SLOTS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """One video: the local loss, how many pairs match, and the gradient of the cosines.

    ``up`` is what the local loss counts in it; d_phrases and d_slots are the gradients of the log-sums.
    """
    item = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, SLOTS)
    j = tl.arange(0, WIDTH)
    at = item * K * L + i[:, None] * L + j[None, :]
    inside = (i < K)[:, None] & (j < L)[None, :]
    n = tl.load(lengths + item)
    logits = tl.load(cosines + at, mask=inside, other=0.0) * scale
    seen = inside & (j < n)[None, :]
    row_sum, column_sum = _log_sums_of_own(logits, inside, seen)
    hit = (tl.load(rows + item * L + j, mask=j < L, other=-1)[None, :] == i[:, None]).to(tl.float32)
    hit_slot = tl.max(hit, axis=1)
    hit_phrase = tl.max(hit, axis=0)
    number = tl.sum(hit_phrase, axis=0)  # one-to-one: as many slots as phrases
    if AVERAGE_ALL:
        weight_slot = hit_slot / (K * 1.0)
        weight_phrase = hit_phrase / tl.maximum(n.to(tl.float32), 1.0)
    else:
        weight_slot = hit_slot / tl.maximum(number, 1.0)
        weight_phrase = hit_phrase / tl.maximum(number, 1.0)
    positive = tl.where(hit > 0, logits, 0.0)
    value = tl.sum(weight_slot * (row_sum - tl.sum(positive, axis=1)), axis=0)
    value += tl.sum(tl.where(hit_phrase > 0, weight_phrase * (column_sum - tl.sum(positive, axis=0)), 0.0), axis=0)
    tl.store(seq + item, value)
    tl.store(hits + item, number)
    up_row = up * weight_slot + tl.load(d_phrases + item * K + i, mask=i < K, other=0.0)
    up_column = up * weight_phrase
    if DOWN:
        up_column += tl.load(d_slots + item * L + j, mask=j < L, other=0.0)
    out = -up * hit * (weight_slot[:, None] + weight_phrase[None, :])
    out += up_row[:, None] * tl.where(seen, tl.exp(logits - row_sum[:, None]), 0.0)
    out += up_column[None, :] * tl.where(inside, tl.exp(logits - column_sum[None, :]), 0.0)
    tl.store(grad + at, out * scale, mask=inside)


@triton.jit
def _nce(  # type: ignore[no-untyped-def]
    own, every, valid, value, d_own, d_every, n, weight, PER, LOG_MEAN: tl.constexpr, BLOCK: tl.constexpr
):
    """:func:`stepformer.core.losses.nce` of own - every, (n,), and its gradients times a weight; one program."""
    c = tl.arange(0, BLOCK)
    number = tl.zeros([BLOCK], tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    most = tl.full([BLOCK], -1e30, tl.float32)
    for first in range(0, n, BLOCK):
        at = first + c
        ok = (at < n) & (tl.load(valid + at // PER, mask=at < n, other=0) != 0)
        ratio = tl.load(own + at, mask=ok, other=0.0) - tl.load(every + at, mask=ok, other=0.0)
        number += ok.to(tl.float32)
        if LOG_MEAN:
            higher = tl.where(ok, tl.maximum(most, ratio), most)
            total = total * tl.exp(most - higher) + tl.where(ok, tl.exp(ratio - higher), 0.0)
            most = higher
        else:
            total += ratio
    count = tl.maximum(tl.sum(number, axis=0), 1.0)
    if LOG_MEAN:
        top = tl.max(most, axis=0)
        level = top + tl.log(tl.maximum(tl.sum(total * tl.exp(most - top), axis=0), 1e-30))
        result = tl.where(tl.sum(number, axis=0) > 0, tl.log(count) - level, 0.0)
    else:
        result = -tl.sum(total, axis=0) / count
    tl.store(value, result)
    for first in range(0, n, BLOCK):
        at = first + c
        ok = (at < n) & (tl.load(valid + at // PER, mask=at < n, other=0) != 0)
        if LOG_MEAN:
            ratio = tl.load(own + at, mask=ok, other=0.0) - tl.load(every + at, mask=ok, other=0.0)
            d = tl.where(ok, -weight * tl.exp(ratio - level), 0.0)
        else:
            d = tl.where(ok, -weight / count, 0.0)
        tl.store(d_own + at, d, mask=at < n)
        tl.store(d_every + at, -d, mask=at < n)


@triton.jit
def _apart(  # type: ignore[no-untyped-def]
    slots, grad, own, smooth, value, K, D, up, SMOOTH: tl.constexpr, SLOTS: tl.constexpr, BLOCK: tl.constexpr
):
    """Diversity of one video's unit slots, of some columns: the sum over pairs; its gradient times ``up`` is added, and
    so are the gradients of the other losses."""
    item = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, SLOTS)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    ok = (i < K)[:, None] & (c < D)[None, :]
    at = item * K * D + i[:, None] * D + c[None, :]
    x = tl.load(slots + at, mask=ok, other=0.0)
    whole = tl.sum(x, axis=0)
    pairs = tl.sum(whole * whole, axis=0) - tl.sum(tl.sum(x * x, axis=1), axis=0)
    tl.store(value + item * tl.num_programs(1) + tl.program_id(1), pairs)
    out = tl.load(grad + at, mask=ok, other=0.0) + tl.load(own + at, mask=ok, other=0.0)
    if SMOOTH:
        out += tl.load(smooth + at, mask=ok, other=0.0)
    tl.store(grad + at, out + 2.0 * up * (whole[None, :] - x), mask=ok)


@triton.jit
def _totals(  # type: ignore[no-untyped-def]
    seq, hits, spread, smooth, glob, out, B, parts, pairs, seq_weight, glob_weight, div_weight, smooth_weight,
    SMOOTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The weighted sum of the losses, each of them, and the mean number of matches."""
    c = tl.arange(0, BLOCK)
    local = tl.zeros([BLOCK], tl.float32)
    matched = tl.zeros([BLOCK], tl.float32)
    near = tl.zeros([BLOCK], tl.float32)
    rough = tl.zeros([BLOCK], tl.float32)
    for first in range(0, B, BLOCK):
        local += tl.load(seq + first + c, mask=first + c < B, other=0.0)
        matched += tl.load(hits + first + c, mask=first + c < B, other=0.0)
        if SMOOTH:
            rough += tl.load(smooth + first + c, mask=first + c < B, other=0.0)
    for first in range(0, parts, BLOCK):
        near += tl.load(spread + first + c, mask=first + c < parts, other=0.0)
    local_loss = tl.sum(local, axis=0) / B
    global_loss = tl.load(glob) + tl.load(glob + 1)
    div_loss = tl.sum(near, axis=0) / pairs
    smooth_loss = tl.sum(rough, axis=0) / B
    total = seq_weight * local_loss + glob_weight * global_loss + div_weight * div_loss
    tl.store(out, total + smooth_weight * smooth_loss)
    tl.store(out + 1, local_loss)
    tl.store(out + 2, global_loss)
    tl.store(out + 3, div_loss)
    tl.store(out + 4, smooth_loss)
    tl.store(out + 5, tl.sum(matched, axis=0) / B)


@triton.jit
def _smooth(  # type: ignore[no-untyped-def]
    cosines, index, valid, span, loss, grad, scale, up, frames, K, LOG_MEAN: tl.constexpr, WITH_SELF: tl.constexpr,
    FRAMES: tl.constexpr, SLOTS: tl.constexpr,
):  # fmt: skip
    """One video: the smoothness of its drawn frames' attention, and ``up`` times its gradient by the cosines."""
    item = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, FRAMES)
    k = tl.arange(0, SLOTS)
    at = item * frames * K + i[:, None] * K + k[None, :]
    inside = (i < frames)[:, None] & (k < K)[None, :]
    a = tl.where(inside, tl.load(cosines + at, mask=inside, other=0.0) * scale, -1e30)
    a = tl.where(inside, tl.exp(a - tl.max(a, axis=1)[:, None]), 0.0)
    a = a / tl.maximum(tl.sum(a, axis=1), 1e-30)[:, None]
    inverse = 1.0 / tl.maximum(tl.sqrt(tl.sum(a * a, axis=1)), 1e-12)
    unit = a * inverse[:, None]
    logits = tl.dot(unit, tl.trans(unit), input_precision="ieee") * scale

    there = tl.load(valid + item * frames + i, mask=i < frames, other=0) != 0
    place = tl.load(index + item * frames + i, mask=i < frames, other=0)
    pair = there[:, None] & there[None, :]
    if not WITH_SELF:
        pair = pair & (i[:, None] != i[None, :])
    apart = tl.abs((place[:, None] - place[None, :]).to(tl.float32))
    near = pair & (apart <= tl.load(span + item))
    top = tl.where(near, logits, -1e30)
    top_most = tl.max(top, axis=1)
    top = tl.where(near, tl.exp(top - top_most[:, None]), 0.0)
    top_sum = tl.sum(top, axis=1)
    bottom = tl.where(pair, logits, -1e30)
    bottom_most = tl.max(bottom, axis=1)
    bottom = tl.where(pair, tl.exp(bottom - bottom_most[:, None]), 0.0)
    bottom_sum = tl.sum(bottom, axis=1)
    some = there & (top_sum > 0)
    ratio = top_most + tl.log(tl.maximum(top_sum, 1e-30)) - bottom_most - tl.log(tl.maximum(bottom_sum, 1e-30))
    number = tl.sum(some.to(tl.float32), axis=0)
    if LOG_MEAN:
        most = tl.max(tl.where(some, ratio, -1e30), axis=0)
        parts = tl.where(some, tl.exp(ratio - most), 0.0)
        total = tl.sum(parts, axis=0)
        value = tl.where(number > 0, tl.log(tl.maximum(number, 1.0)) - most - tl.log(tl.maximum(total, 1e-30)), 0.0)
        weight = -parts / tl.maximum(total, 1e-30)
    else:
        value = -tl.sum(tl.where(some, ratio, 0.0), axis=0) / tl.maximum(number, 1.0)
        weight = tl.where(some, -1.0 / tl.maximum(number, 1.0), 0.0)
    tl.store(loss + item, value)

    d_logits = top / tl.maximum(top_sum, 1e-30)[:, None] - bottom / tl.maximum(bottom_sum, 1e-30)[:, None]
    d_logits = tl.where(some[:, None], weight[:, None] * d_logits, 0.0) * scale
    d_unit = tl.dot(d_logits + tl.trans(d_logits), unit, input_precision="ieee")
    d_a = (d_unit - unit * tl.sum(unit * d_unit, axis=1)[:, None]) * inverse[:, None]
    d = a * (d_a - tl.sum(a * d_a, axis=1)[:, None]) * (scale * up)
    tl.store(grad + at, d, mask=inside)


def _power(n: int) -> int:
    return max(16, int(triton.next_power_of_2(n)))


class _UnitFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y, _, inverse = unit_parts(x, torch.float32)
        ctx.save_for_backward(y, inverse)
        ctx.kind = x.dtype
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        y, inverse = ctx.saved_tensors
        return unit_back(grad.contiguous(), None, y, inverse, ctx.kind)


class _SmoothFunction(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, cosines: Tensor, index: Tensor, valid: Tensor, span: Tensor, gamma: float, log_mean: bool,
        with_self: bool,
    ) -> Tensor:  # fmt: skip
        loss, grad = smooth_parts(cosines, index, valid, span, gamma, 1.0, log_mean, with_self)
        ctx.save_for_backward(grad)
        return loss

    @staticmethod
    def backward(ctx: Any, up: Tensor) -> tuple[Tensor | None, ...]:
        (grad,) = ctx.saved_tensors
        return grad * up[:, None, None], None, None, None, None, None, None


def unit(x: Tensor) -> Tensor:
    """Vectors (..., D) at length 1, in float32."""
    made: Tensor = _UnitFunction.apply(x)  # type: ignore[no-untyped-call]
    return made


def unit_parts(x: Tensor, kind: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Vectors (..., D) at length 1 in float32, the same in type ``kind``, and one over their lengths; no gradient."""
    x, D = x.contiguous(), x.shape[-1]
    y = torch.empty(x.shape, device=x.device)
    half = y if kind == y.dtype else torch.empty_like(y, dtype=kind)
    inverse = torch.empty(x.shape[:-1], device=x.device)
    _unit[(x.numel() // D,)](x, y, half, inverse, D, HALF=half is not y, WIDTH=_power(D))
    return y, half, inverse


def unit_back(grad: Tensor, up: Tensor | None, y: Tensor, inverse: Tensor, kind: torch.dtype) -> Tensor:
    """The gradient of what y was made of from that of y, times ``up`` () where it is given."""
    dx, D = torch.empty(y.shape, dtype=kind, device=y.device), y.shape[-1]
    _unit_back[(y.numel() // D,)](grad, up, y, inverse, dx, D, SCALED=up is not None, WIDTH=_power(D))
    return dx


def smooth_parts(
    cosines: Tensor, index: Tensor, valid: Tensor, span: Tensor, gamma: float, up: float, log_mean: bool,
    with_self: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """:func:`smooth`, and ``up`` times its gradient by the cosines (B, I, K)."""
    B, frames, K = cosines.shape
    loss, grad = cosines.new_empty(B), torch.empty_like(cosines, memory_format=torch.contiguous_format)
    _smooth[(B,)](
        cosines.contiguous(), index.contiguous(), valid.contiguous().view(torch.uint8), span.contiguous(), loss, grad,
        1 / gamma, up, frames, K, LOG_MEAN=log_mean, WITH_SELF=with_self, FRAMES=_power(frames), SLOTS=_power(K),
        num_warps=8,
    )  # fmt: skip
    return loss, grad


def smooth(
    cosines: Tensor, index: Tensor, valid: Tensor, span: Tensor, gamma: float, log_mean: bool, with_self: bool
) -> Tensor:
    """The smoothness loss of each video, (B,).

    cosines (B, I, K) of drawn frames with slots, index and valid (B, I), span (B,) in frames.
    """
    made: Tensor = _SmoothFunction.apply(  # type: ignore[no-untyped-call]
        cosines, index, valid, span, gamma, log_mean, with_self
    )
    return made


def log_sums(products: Tensor, mask: Tensor, gamma: float, both_ways: bool) -> tuple[Tensor, Tensor]:
    """See :func:`stepformer.core.log_sums._sums`."""
    rows, J = products.shape
    by_row = products.new_empty(rows)
    _row_sums[(rows,)](products, mask.view(torch.uint8), by_row, J, 1 / gamma, BLOCK=2048, num_warps=8)
    if not both_ways:
        return by_row, products.new_zeros(0)
    part = 256
    parts = products.new_empty(triton.cdiv(rows, part), J)
    _column_sums[(triton.cdiv(J, 64), len(parts))](products, parts, rows, J, 1 / gamma, PART=part, ROWS=32, BLOCK=64)
    return by_row, parts.logsumexp(0)


def shares(
    products: Tensor, mask: Tensor, gamma: float, over_z: Tensor, d_rows: Tensor, down: tuple[Tensor, Tensor] | None,
    kind: torch.dtype,
) -> Tensor:  # fmt: skip
    """See :func:`stepformer.core.log_sums._shares`; written over the products where the type is theirs."""
    rows, J = products.shape
    out = products if kind == products.dtype else torch.empty_like(products, dtype=kind)
    columns, d_columns = (None, None) if down is None else (down[0], down[1].contiguous())
    _shares[(rows, triton.cdiv(J, 2048))](
        products, mask.view(torch.uint8), over_z, d_rows, columns, d_columns, out, J, 1 / gamma,
        DOWN=down is not None, BLOCK=2048, num_warps=8,
    )  # fmt: skip
    return out


def _tile(slots: int, phrases: int) -> dict[str, int]:
    """How a program holds a video's cosines."""
    size = {"SLOTS": _power(slots), "WIDTH": _power(phrases)}
    return size | {"num_warps": 4 if size["SLOTS"] * size["WIDTH"] <= 1 << 12 else 8}


def own_sums(cosines: Tensor, lengths: Tensor, gamma: float) -> tuple[Tensor, Tensor]:
    """Log-sums of exp(cosines / gamma) over each video's own phrases, (B, K), and over its slots, (B, L)."""
    B, K, L = cosines.shape
    over_phrases, over_slots = cosines.new_empty(B, K), cosines.new_empty(B, L)
    _own_sums[(B,)](cosines, lengths, over_phrases, over_slots, 1 / gamma, K, L, **_tile(K, L))
    return over_phrases, over_slots


def nce(
    own: Tensor, every: Tensor, valid: Tensor, value: Tensor, weight: float, log_mean: bool
) -> tuple[Tensor, Tensor]:
    """Writes the loss of own - every, (n,), to ``value``; returns its gradients by both, times a weight.

    valid: of any type, 0 where an entry does not count; each of its elements stands for as many entries as fit.
    """
    n = own.numel()
    d_own, d_every = own.new_empty(n), own.new_empty(n)
    _nce[(1,)](
        own, every, valid, value, d_own, d_every, n, weight, n // valid.numel(), LOG_MEAN=log_mean, BLOCK=1024,
        num_warps=8,
    )  # fmt: skip
    return d_own, d_every


def local(
    cosines: Tensor, lengths: Tensor, rows: Tensor, d_phrases: Tensor, d_slots: Tensor | None, gamma: float, up: float,
    average_all: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The local loss and the number of matches of each video, (B,), and the gradient of the cosines (B, K, L).

    rows (B, L) int32: the slot of each phrase, or -1. The gradient is that of ``up`` times the local losses, and of the
    log-sums of :func:`own_sums`, whose gradients are d_phrases and d_slots.
    """
    B, K, L = cosines.shape
    grad, seq, hits = torch.empty_like(cosines), cosines.new_empty(B), cosines.new_empty(B)
    _own[(B,)](
        cosines, lengths, rows, d_phrases, d_slots, grad, seq, hits, 1 / gamma, up, K, L,
        AVERAGE_ALL=average_all, DOWN=d_slots is not None, **_tile(K, L),
    )  # fmt: skip
    return seq, hits, grad


def apart(slots: Tensor, grad: Tensor, own: Tensor, smooth: Tensor | None, up: float) -> Tensor:
    """Parts whose sum is that of the cosines of all pairs of unit slots (B, K, D); ``up`` times its gradient is added
    to ``grad``, and so are the other two gradients."""
    B, K, D = slots.shape
    parts = slots.new_empty(B, triton.cdiv(D, 128))
    _apart[(B, parts.shape[1])](
        slots, grad, own, smooth, parts, K, D, up, SMOOTH=smooth is not None, SLOTS=_power(K), BLOCK=128
    )
    return parts


def totals(
    seq: Tensor, hits: Tensor, spread: Tensor, smooth: Tensor | None, glob: Tensor, pairs: int, weights: list[float]
) -> Tensor:
    """(6,): the weighted sum of the losses, seq, glob, div, smooth, and the mean number of matches."""
    out = seq.new_empty(6)
    _totals[(1,)](
        seq, hits, spread, smooth, glob, out, len(seq), spread.numel(), pairs, *weights, SMOOTH=smooth is not None,
        BLOCK=1024,
    )  # fmt: skip
    return out
