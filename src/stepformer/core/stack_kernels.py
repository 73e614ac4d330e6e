"""The Triton kernels of :mod:`stepformer.core.stack`: what stands between the matrix products of a decoder layer.

Each does in one pass over its operands what takes five to ten passes as separate operations. What they compute is
written in plain torch in tests/core/step/plain.py. Import only where Triton is.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _mix(x):  # type: ignore[no-untyped-def]  # compiled: Triton types it
    """A 32-bit integer hash."""
    x = x ^ (x >> 16)
    x = x * 0x7FEB352D
    x = x ^ (x >> 15)
    return x * 0x046CA68B


@triton.jit
def _kept(seed, site, index, THRESHOLD: tl.constexpr):  # type: ignore[no-untyped-def]
    """Which elements dropout keeps: a function of the seed in memory, the place in the network and the element."""
    key = _mix(_mix(tl.load(seed).to(tl.uint32)) + site.to(tl.uint32))
    return (_mix(index.to(tl.uint32) * 0x1E3779B1 + key) >> 8).to(tl.int32) >= THRESHOLD


@triton.jit(do_not_specialize=["site"])
def _add_norm(  # type: ignore[no-untyped-def]
    x, branch, bias, weight, shift, query, x_out, y, y_query, mean, rstd, seed, site, K, x_rows, eps,
    DIM: tl.constexpr, WIDTH: tl.constexpr, ADD: tl.constexpr, PLAIN: tl.constexpr, QUERY: tl.constexpr,
    THRESHOLD: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    c = tl.arange(0, WIDTH)
    ok = c < DIM
    at = row * DIM + c
    value = tl.load(x + (row % x_rows) * DIM + c, mask=ok, other=0.0).to(tl.float32)
    if ADD:
        added = tl.load(branch + at, mask=ok, other=0.0).to(tl.float32) + tl.load(bias + c, mask=ok, other=0.0)
        if THRESHOLD > 0:
            added = tl.where(_kept(seed, site, at, THRESHOLD), added * (16777216.0 / (16777216.0 - THRESHOLD)), 0.0)
        value += added
    tl.store(x_out + at, value, mask=ok)
    middle = tl.sum(value, axis=0) / DIM
    value = tl.where(ok, value - middle, 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(value * value, axis=0) / DIM + eps)
    tl.store(mean + row, middle)
    tl.store(rstd + row, scale)
    out = value * scale * tl.load(weight + c, mask=ok, other=0.0) + tl.load(shift + c, mask=ok, other=0.0)
    if PLAIN:
        tl.store(y + at, out, mask=ok)
    if QUERY:
        tl.store(y_query + at, out + tl.load(query + (row % K) * DIM + c, mask=ok, other=0.0), mask=ok)


@triton.jit(do_not_specialize=["site"])
def _add_norm_back(  # type: ignore[no-untyped-def]
    dy, x, weight, mean, rstd, dx, d_branch, sums, seed, site, rows,
    DIM: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr, MORE: tl.constexpr, ADD: tl.constexpr,
    THRESHOLD: tl.constexpr,
):  # fmt: skip
    """ROWS rows, and over them the sums that are the gradients of weight, shift and the bias of the branch before."""
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    c = tl.arange(0, WIDTH)
    here = r < rows
    inside = c < DIM
    ok = here[:, None] & inside[None, :]
    # four numbers of each row to a thread, in bf16 too: sums over rows then need no other thread
    at = tl.max_contiguous(r[:, None] * DIM + c[None, :], [1, 4])
    g = tl.load(dy + at, mask=ok, other=0.0).to(tl.float32)
    scale = tl.load(rstd + r, mask=here, other=0.0)[:, None]
    middle = tl.load(mean + r, mask=here, other=0.0)[:, None]
    unit = tl.where(ok, (tl.load(x + at, mask=ok, other=0.0) - middle) * scale, 0.0)
    by = tl.load(weight + c, mask=inside, other=0.0)[None, :]
    sums += tl.program_id(0) * (3 * DIM) + c
    tl.store(sums, tl.sum(g * unit, axis=0), mask=inside)
    tl.store(sums + DIM, tl.sum(g, axis=0), mask=inside)
    g *= by
    along = tl.sum(unit * g, axis=1)[:, None] / DIM
    level = tl.sum(g, axis=1)[:, None] / DIM
    total = scale * (g - unit * along - level)
    if MORE:
        total += tl.load(dx + at, mask=ok, other=0.0)
    tl.store(dx + at, total, mask=ok)
    if ADD:
        if THRESHOLD > 0:
            kept = _kept(seed, site, at, THRESHOLD)
            total = tl.where(kept, total * (16777216.0 / (16777216.0 - THRESHOLD)), 0.0)
        tl.store(d_branch + at, total, mask=ok)
        tl.store(sums + 2 * DIM, tl.sum(tl.where(ok, total, 0.0), axis=0), mask=inside)


@triton.jit
def _add_codes(  # type: ignore[no-untyped-def]
    x, codes, out, plain, places, DIM: tl.constexpr, WIDTH: tl.constexpr, PLAIN: tl.constexpr, LEVEL: tl.constexpr
):
    row = tl.program_id(0)
    c = tl.arange(0, WIDTH)
    ok = c < DIM
    at = row.to(tl.int64) * DIM + c
    value = tl.load(x + at, mask=ok, other=0.0).to(tl.float32)
    if LEVEL:
        value *= tl.sqrt(DIM + 0.0) / tl.maximum(tl.sqrt(tl.sum(value * value, axis=0)), 1e-12)
    if PLAIN:
        tl.store(plain + at, value, mask=ok)
    value += tl.load(codes + (row % places).to(tl.int64) * DIM + c, mask=ok, other=0.0).to(tl.float32)
    tl.store(out + at, value, mask=ok)


@triton.jit(do_not_specialize=["site"])
def _activate(  # type: ignore[no-untyped-def]
    before, bias, out, seed, site, total, F, THRESHOLD: tl.constexpr, BLOCK: tl.constexpr
):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    ok = at < total
    value = tl.load(before + at, mask=ok, other=0.0).to(tl.float32) + tl.load(bias + at % F, mask=ok, other=0.0)
    value = tl.maximum(value, 0.0)
    if THRESHOLD > 0:
        value = tl.where(_kept(seed, site, at, THRESHOLD), value * (16777216.0 / (16777216.0 - THRESHOLD)), 0.0)
    tl.store(out + at, value, mask=ok)


@triton.jit(do_not_specialize=["site"])
def _activate_back(  # type: ignore[no-untyped-def]
    grad, before, bias, sums, seed, site, rows, F,
    PART: tl.constexpr, THRESHOLD: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    r = tl.program_id(0) * PART + tl.arange(0, PART)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    ok = (r < rows)[:, None] & (c < F)[None, :]
    at = r[:, None] * F + c[None, :]
    g = tl.load(grad + at, mask=ok, other=0.0).to(tl.float32)
    value = tl.load(before + at, mask=ok, other=0.0).to(tl.float32)
    value += tl.load(bias + c, mask=c < F, other=0.0)[None, :]
    if THRESHOLD > 0:
        g = tl.where(_kept(seed, site, at, THRESHOLD), g * (16777216.0 / (16777216.0 - THRESHOLD)), 0.0)
    g = tl.where(value > 0, g, 0.0)
    tl.store(grad + at, g, mask=ok)
    tl.store(sums + tl.program_id(0) * F + c, tl.sum(g, axis=0), mask=c < F)


@triton.jit
def _logits(scores, seen, scale, c, N: tl.constexpr):  # type: ignore[no-untyped-def]
    """A row of scores, times a scale, minus infinity where there is no frame."""
    value = tl.load(scores + c, mask=c < N, other=0.0).to(tl.float32)
    return tl.where(tl.load(seen + c, mask=c < N, other=0) != 0, value * scale, float("-inf"))


@triton.jit
def _row():  # type: ignore[no-untyped-def]
    """The last row first: the product before wrote it last and the one behind reads it last, so that the GPU's cache
    holds what this kernel begins with, and what it ends with is there for the other."""
    return tl.num_programs(0) - 1 - tl.program_id(0)


@triton.jit
def _kept_two(seed, site, index, THRESHOLD: tl.constexpr):  # type: ignore[no-untyped-def]
    """Which of two elements dropout keeps, by the halves of one number: drawing takes longer than all else here."""
    bits = index.to(tl.uint32) * 0x1E3779B1 + _mix(_mix(tl.load(seed).to(tl.uint32)) + site.to(tl.uint32))
    bits = (bits ^ (bits >> 16)) * 0x7FEB352D
    bits = bits ^ (bits >> 15)
    return (bits & 0xFFFF).to(tl.int32) >= THRESHOLD, (bits >> 16).to(tl.int32) >= THRESHOLD


@triton.jit(do_not_specialize=["site"])
def _softmax(  # type: ignore[no-untyped-def]
    scores, seen, out, level, seed, site, scale, PER_ITEM, PITCH,
    N: tl.constexpr, HALF: tl.constexpr, THRESHOLD: tl.constexpr,
):  # fmt: skip
    row = _row()
    a = tl.arange(0, HALF)  # a row in two halves
    b = a + HALF
    scores += row.to(tl.int64) * PITCH
    out += row.to(tl.int64) * PITCH
    seen += (row // PER_ITEM) * N
    x, y = _logits(scores, seen, scale, a, N), _logits(scores, seen, scale, b, N)
    top = tl.maximum(tl.maximum(tl.max(x, axis=0), tl.max(y, axis=0)), -1e30)
    x, y = tl.exp2(x - top), tl.exp2(y - top)
    total = tl.sum(x, axis=0) + tl.sum(y, axis=0)
    tl.store(level + row, tl.where(total > 0, top + tl.log2(total), float("inf")))
    share = (65536.0 / (65536.0 - THRESHOLD)) / tl.where(total > 0, total, 1.0)
    x, y = x * share, y * share
    if THRESHOLD > 0:
        kept_x, kept_y = _kept_two(seed, site, row * HALF + a, THRESHOLD)
        x, y = tl.where(kept_x, x, 0.0), tl.where(kept_y, y, 0.0)
    tl.store(out + a, x, mask=a < N)
    tl.store(out + b, y, mask=b < N)


@triton.jit
def _attention_back(  # type: ignore[no-untyped-def]
    grad, scores, seen, level, extra, dropped, scale, c, kept, HEADS,
    N: tl.constexpr, EXTRA: tl.constexpr, DROPPED: tl.constexpr, THRESHOLD: tl.constexpr,
):  # fmt: skip
    """Half a row of the attention, and of its gradient."""
    g = tl.load(grad + c, mask=c < N, other=0.0).to(tl.float32)
    p = tl.exp2(_logits(scores, seen, scale, c, N) - level)
    if THRESHOLD > 0:
        g = tl.where(kept, g * (65536.0 / (65536.0 - THRESHOLD)), 0.0)
    if DROPPED:
        left = p
        if THRESHOLD > 0:
            left = tl.where(kept, p * (65536.0 / (65536.0 - THRESHOLD)), 0.0)
        tl.store(dropped + c, left, mask=c < N)
    if EXTRA:
        g += tl.load(extra + c, mask=c < N, other=0.0) / HEADS
    return p, g


@triton.jit(do_not_specialize=["site"])
def _softmax_back(  # type: ignore[no-untyped-def]
    grad, scores, seen, level, extra, dropped, seed, site, scale, scale_2, HEADS, PER_ITEM, PITCH, N: tl.constexpr,
    HALF: tl.constexpr, EXTRA: tl.constexpr, DROPPED: tl.constexpr, THRESHOLD: tl.constexpr,
):  # fmt: skip
    row = _row()
    a = tl.arange(0, HALF)
    b = a + HALF
    start = row.to(tl.int64) * PITCH
    grad += start
    scores += start
    if DROPPED:
        dropped += start
    if EXTRA:
        extra += (row // HEADS).to(tl.int64) * N
    seen += (row // PER_ITEM) * N
    kept_x, kept_y = a < N, b < N
    if THRESHOLD > 0:
        kept_x, kept_y = _kept_two(seed, site, row * HALF + a, THRESHOLD)
    up = tl.load(level + row)
    p, g = _attention_back(
        grad, scores, seen, up, extra, dropped, scale_2, a, kept_x, HEADS, N, EXTRA, DROPPED, THRESHOLD
    )
    q, h = _attention_back(
        grad, scores, seen, up, extra, dropped, scale_2, b, kept_y, HEADS, N, EXTRA, DROPPED, THRESHOLD
    )
    along = tl.sum(p * g, axis=0) + tl.sum(q * h, axis=0)
    tl.store(grad + a, p * (g - along) * scale, mask=a < N)
    tl.store(grad + b, q * (h - along) * scale, mask=b < N)


@triton.jit
def _mean_weights(  # type: ignore[no-untyped-def]
    scores, seen, level, out, scale, HEADS, SLOTS, PITCH, N: tl.constexpr, WIDTH: tl.constexpr
):
    slot = tl.program_id(0)
    c = tl.arange(0, WIDTH)
    total = tl.zeros([WIDTH], tl.float32)
    for head in range(0, HEADS):
        row = slot * HEADS + head
        logits = _logits(scores + row.to(tl.int64) * PITCH, seen + (slot // SLOTS) * N, scale, c, N)
        total += tl.exp2(logits - tl.load(level + row))
    tl.store(out + slot.to(tl.int64) * N + c, total / HEADS, mask=c < N)


@triton.jit
def _with_bias(x, bias, c, ok, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    value = tl.load(x, mask=ok, other=0.0)
    added = tl.load(bias + c, mask=c < SIZE, other=0.0)[None, :]
    return tl.where(ok, value.to(tl.float32) + added, 0.0).to(value.dtype)


@triton.jit(do_not_specialize=["site"])
def _attend(  # type: ignore[no-untyped-def]
    qkv, bias, out, grad, d_qkv, sums, seed, site, scale, K, HEADS,
    DIM: tl.constexpr, SIZE: tl.constexpr, SLOTS: tl.constexpr, WIDTH: tl.constexpr, SHARED: tl.constexpr,
    BACK: tl.constexpr, THRESHOLD: tl.constexpr,
):  # fmt: skip
    """One head of one video: its slots attend to each other. SIZE: width of a head. SHARED: one qkv for all videos."""
    program = tl.program_id(0)
    item, head = program // HEADS, program % HEADS
    i = tl.arange(0, SLOTS)
    c = tl.arange(0, WIDTH)
    ok = (i < K)[:, None] & (c < SIZE)[None, :]
    at = (item * K + i)[:, None] * (3 * DIM) + head * SIZE + c[None, :]
    bias += head * SIZE
    qkv += at - item * K * (3 * DIM) if SHARED else at
    q = _with_bias(qkv, bias, c, ok, SIZE)
    k = _with_bias(qkv + DIM, bias + DIM, c, ok, SIZE)
    v = _with_bias(qkv + 2 * DIM, bias + 2 * DIM, c, ok, SIZE)
    pair = (i < K)[:, None] & (i < K)[None, :]
    p = tl.where(pair, tl.dot(q, tl.trans(k)) * scale, -1e30)
    p = tl.where(pair, tl.exp(p - tl.max(p, axis=1)[:, None]), 0.0)
    p = p / tl.maximum(tl.sum(p, axis=1), 1e-30)[:, None]
    passed = p
    if THRESHOLD > 0:
        kept = _kept(seed, site, (program * K + i)[:, None] * K + i[None, :], THRESHOLD)
        passed = tl.where(kept, p * (16777216.0 / (16777216.0 - THRESHOLD)), 0.0)
    here = (item * K + i)[:, None] * DIM + head * SIZE + c[None, :]
    if not BACK:
        tl.store(out + here, tl.dot(passed.to(v.dtype), v), mask=ok)
    else:
        g = tl.load(grad + here, mask=ok, other=0.0)
        dp = tl.dot(g, tl.trans(v))
        if THRESHOLD > 0:
            dp = tl.where(kept, dp * (16777216.0 / (16777216.0 - THRESHOLD)), 0.0)
        ds = p * (dp - tl.sum(p * dp, axis=1)[:, None]) * scale
        ds = ds.to(q.dtype)
        here = item * 3 * DIM + head * SIZE + c
        d = tl.dot(ds, k)  # rows behind the last slot are zero
        tl.store(d_qkv + at, d, mask=ok)
        tl.store(sums + here, tl.sum(d, axis=0), mask=c < SIZE)
        d = tl.dot(tl.trans(ds), q)
        tl.store(d_qkv + at + DIM, d, mask=ok)
        tl.store(sums + here + DIM, tl.sum(d, axis=0), mask=c < SIZE)
        d = tl.dot(tl.trans(passed.to(v.dtype)), g)
        tl.store(d_qkv + at + 2 * DIM, d, mask=ok)
        tl.store(sums + here + 2 * DIM, tl.sum(d, axis=0), mask=c < SIZE)


@triton.jit
def _store_moment(to, value, chance, ok):  # type: ignore[no-untyped-def]
    """In bf16 up or down by chance, so that it is right on average: rounded to the nearest, a moment that steps change
    by less than half its last bit would never change. chance: 16 bits."""
    if to.dtype.element_ty == tl.bfloat16:
        value = ((value.to(tl.int32, bitcast=True) + chance) & -65536).to(tl.float32, bitcast=True)
    tl.store(to, value, mask=ok)


@triton.jit
def _update(  # type: ignore[no-untyped-def]
    values, grads, first, second, mean, half, control, norm, bad, total, clip, beta1, beta2, decay, eps,
    DECOUPLED: tl.constexpr, MEAN: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    length = tl.load(norm)
    fine = (tl.load(bad) == 0) & (length < float("inf"))  # False for NaN
    if (tl.program_id(0) == 0) & (not fine):
        tl.store(bad, 1)  # the others see the length, whichever comes first
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    ok = (at < total) & fine
    lr = tl.load(control).to(tl.float32)
    follow = tl.load(control + 1).to(tl.float32)
    bias1 = tl.load(control + 2).to(tl.float32)
    bias2 = tl.load(control + 3).to(tl.float32)
    g = tl.load(grads + at, mask=ok, other=0.0).to(tl.float32) * tl.minimum(clip / (length + 1e-6), 1.0)
    p = tl.load(values + at, mask=ok, other=0.0)
    if DECOUPLED:
        p = p * (1.0 - lr * decay)
    else:
        g += decay * p
    m = tl.load(first + at, mask=ok, other=0.0).to(tl.float32)
    m += (g - m) * (1.0 - beta1)
    v = beta2 * tl.load(second + at, mask=ok, other=0.0).to(tl.float32) + (1.0 - beta2) * g * g
    p -= lr / bias1 * m / (tl.sqrt(v) / bias2 + eps)
    seed = tl.load((control + 4).to(tl.pointer_type(tl.int64), bitcast=True))
    bits = _mix(at.to(tl.uint32) * 0x1E3779B1 + _mix(seed.to(tl.uint32)))
    _store_moment(first + at, m, (bits & 0xFFFF).to(tl.int32), ok)
    _store_moment(second + at, v, (bits >> 16).to(tl.int32), ok)
    tl.store(values + at, p, mask=ok)
    tl.store(half + at, p, mask=ok)
    if MEAN:
        old = tl.load(mean + at, mask=ok, other=0.0)
        tl.store(mean + at, old + (p - old) * follow, mask=ok)


_LOG2E = math.log2(math.e)


def _width(n: int) -> int:
    return max(16, int(triton.next_power_of_2(n)))


def _warps(width: int) -> int:
    """How many warps share a row: one needs no barrier, and holds up to 2,048 elements."""
    return 1 if width <= 2048 else 8


def add_norm(
    x: Tensor, branch: Tensor | None, bias: Tensor | None, weight: Tensor, shift: Tensor, query: Tensor | None,
    x_out: Tensor, y: Tensor | None, y_query: Tensor | None, mean: Tensor, rstd: Tensor, seed: Tensor, site: int,
    threshold: int, eps: float,
) -> None:  # fmt: skip
    """x_out = x + dropout(branch + bias), y = norm(x_out), y_query = y + query of its slot, all (R, D); query (K, D).

    x has all rows, or those that repeat. Also writes each row's mean and one over its standard deviation, (R,).
    """
    rows, dim = x_out.shape
    width = _width(dim)
    _add_norm[(rows,)](
        x, branch, bias, weight, shift, query, x_out, y, y_query, mean, rstd, seed, site,
        1 if query is None else len(query), len(x), eps,
        DIM=dim, WIDTH=width, ADD=branch is not None, PLAIN=y is not None, QUERY=y_query is not None,
        THRESHOLD=threshold, num_warps=_warps(width),
    )  # fmt: skip


def norm_parts(rows: int, dim: int) -> int:
    """How many sums over rows :func:`add_norm_back` makes: a program has as many rows as its registers hold."""
    return int(triton.cdiv(rows, max(1, 4096 // _width(dim))))


def add_norm_back(
    dy: Tensor, x: Tensor, weight: Tensor, mean: Tensor, rstd: Tensor, dx: Tensor, more: bool,
    d_branch: Tensor | None, sums: Tensor, seed: Tensor, site: int, threshold: int,
) -> None:  # fmt: skip
    """The backward pass of :func:`add_norm`, x its x_out: dx, added to what it holds if ``more``, and d_branch.

    sums (:func:`norm_parts`, 3, D): gradients of weight, shift and the branch's bias, each part from some of the rows;
    without d_branch the last is not written.
    """
    rows, dim = x.shape
    width = _width(dim)
    _add_norm_back[(len(sums),)](
        dy, x, weight, mean, rstd, dx, d_branch, sums, seed, site, rows, DIM=dim, WIDTH=width,
        ROWS=max(1, 4096 // width), MORE=more, ADD=d_branch is not None, THRESHOLD=threshold, num_warps=8,
    )  # fmt: skip


def add_codes(
    x: Tensor, codes: Tensor, level: bool, both: bool, out: tuple[Tensor, Tensor] | None = None
) -> tuple[Tensor, Tensor]:
    """x (B, N, D), at length sqrt(D) if ``level``, and x + codes (B or 1, N, D), in bf16 and in one pass.

    Without ``both`` the first is not made, and the second is given in its place.
    """
    x, codes = x.contiguous(), codes.contiguous()
    placed = torch.empty(x.shape, dtype=torch.bfloat16, device=x.device) if out is None else out[1]
    plain = placed if not both else torch.empty_like(placed) if out is None else out[0]
    B, N, dim = x.shape
    width = _width(dim)
    _add_codes[(B * N,)](
        x, codes, placed, plain, len(codes) * N, DIM=dim, WIDTH=width, PLAIN=both, LEVEL=level, num_warps=_warps(width)
    )
    return plain, placed


def activate(before: Tensor, bias: Tensor, out: Tensor, seed: Tensor, site: int, threshold: int) -> None:
    """out = dropout(relu(before + bias)): (R, F)."""
    total = before.numel()
    _activate[(triton.cdiv(total, 1024),)](
        before, bias, out, seed, site, total, before.shape[1], THRESHOLD=threshold, BLOCK=1024
    )


def activate_back(
    grad: Tensor, before: Tensor, bias: Tensor, sums: Tensor, seed: Tensor, site: int, threshold: int
) -> None:
    """The backward pass of :func:`activate`; ``grad`` is that of the output, and then that of ``before``.

    sums (S, F): that of the bias, each row from some of the rows.
    """
    rows, width = before.shape
    part = int(triton.next_power_of_2(triton.cdiv(rows, len(sums))))  # rows that one program sums over
    if triton.cdiv(rows, part) < len(sums):
        sums[triton.cdiv(rows, part) :].zero_()
    _activate_back[(triton.cdiv(rows, part), triton.cdiv(width, 64))](
        grad, before, bias, sums, seed, site, rows, width, PART=part, THRESHOLD=threshold, BLOCK=64,
        num_warps=2 if part <= 32 else 4,
    )  # fmt: skip


def softmax(
    scores: Tensor, seen: Tensor, out: Tensor, level: Tensor, scale: float, seed: Tensor, site: int, threshold: int
) -> None:
    """What dropout leaves of the attention: scores (B, K H, N) -> out (B, K H, N).

    seen (B, N) bool: where there is a frame. level (B, K H): with it ``softmax_back`` makes
    the attention from the scores again, so that it is not stored; to the base of 2, which exponentials are fastest in.
    """
    B, rows, N = scores.shape
    width = _width(N)
    _softmax[(B * rows,)](
        scores, seen.view(torch.uint8), out, level, seed, site, scale * _LOG2E, rows, scores.stride(1),
        N=N, HALF=width // 2, THRESHOLD=threshold >> 8, num_warps=_warps(width),
    )  # fmt: skip


def softmax_back(
    grad: Tensor, scores: Tensor, seen: Tensor, level: Tensor, extra: Tensor | None, heads: int,
    dropped: Tensor | None, scale: float, seed: Tensor, site: int, threshold: int,
) -> None:  # fmt: skip
    """The backward pass of :func:`softmax`: grad, of what dropout left, becomes that of the scores, in place.

    extra (B, K, N): a gradient of the attention's mean over heads. ``dropped``: what dropout left, made again.
    """
    B, rows, N = grad.shape
    width = _width(N)
    _softmax_back[(B * rows,)](
        grad, scores, seen.view(torch.uint8), level, extra, dropped, seed, site, scale, scale * _LOG2E, heads, rows,
        scores.stride(1), N=N, HALF=width // 2, EXTRA=extra is not None, DROPPED=dropped is not None,
        THRESHOLD=threshold >> 8, num_warps=_warps(width),
    )  # fmt: skip


def mean_weights(scores: Tensor, seen: Tensor, level: Tensor, heads: int, scale: float) -> Tensor:
    """The attention's mean over heads: scores (B, K H, N) -> (B, K, N)."""
    B, rows, N = scores.shape
    out = torch.empty((B, rows // heads, N), dtype=torch.float32, device=scores.device)
    _mean_weights[(B * rows // heads,)](
        scores, seen.view(torch.uint8), level, out, scale * _LOG2E, heads, rows // heads, scores.stride(1), N=N,
        WIDTH=_width(N),
    )  # fmt: skip
    return out


def attend(
    qkv: Tensor, bias: Tensor, out: Tensor | None, grad: Tensor | None, d_qkv: Tensor | None, sums: Tensor | None,
    slots: int, heads: int, seed: Tensor, site: int, threshold: int,
) -> None:  # fmt: skip
    """The slots of a video attend to each other: qkv (R, 3 D) -> out (R, D), or grad (R, D) -> d_qkv (R, 3 D).

    qkv (K, 3 D): the same for all videos. bias (3 D): added to qkv here, as products without one are faster by more
    than it takes. sums (B, 3 D): of d_qkv over each video's slots.
    """
    given = out if grad is None else grad
    assert given is not None
    rows, dim = given.shape
    size = dim // heads
    _attend[(rows // slots * heads,)](
        qkv, bias, out, grad, d_qkv, sums, seed, site, size**-0.5, slots, heads,
        DIM=dim, SIZE=size, SLOTS=_width(slots), WIDTH=_width(size), SHARED=len(qkv) < rows, BACK=grad is not None,
        THRESHOLD=threshold, num_warps=2 if slots <= 32 else 4,
    )  # fmt: skip


def update(
    values: Tensor, grads: Tensor, first: Tensor, second: Tensor, mean: Tensor | None, half: Tensor, control: Tensor,
    norm: Tensor, bad: Tensor, clip: float, betas: tuple[float, float], decay: float, eps: float, decoupled: bool,
) -> None:  # fmt: skip
    """Clipping, Adam (decoupled: AdamW), the mean of the weights and their copy in bf16, in one pass on a GPU.

    All but the scalars (P,), as in :class:`Flat`. control: learning rate, how far the mean follows, 1 - beta1^t, the
    root of 1 - beta2^t, and the step's seed as an integer. norm: of the gradient. Where it is not finite ``bad``
    becomes 1, and where ``bad`` is 1 nothing changes: the weights stay as when the first gradient went wrong.
    """
    total = values.numel()
    _update[(triton.cdiv(total, 2048),)](
        values, grads, first, second, mean, half, control, norm, bad, total, clip, *betas, decay, eps,
        DECOUPLED=decoupled, MEAN=mean is not None, BLOCK=2048, num_warps=8,
    )  # fmt: skip
