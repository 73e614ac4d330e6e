"""Log-sums over all pairs of a batch: what the global loss needs of a matrix that is too large to keep several times.

The matrix of B K slots with B L phrases is 64 MB at the paper's batch of 72 and 13 GB at 1,024. It is made in pieces of
rows; a matrix of one piece is kept for the backward pass and written over there, a larger one is made again piece by
piece, so that memory does not grow with the square of the batch.

:func:`pair_losses` makes the paper's losses at once, on a GPU: their gradient is known as soon as their values are, and
the alignment and the smoothness run at the same time as the large products of all slots with all phrases.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from stepformer.core.devices import Beside, has_triton

PIECE = 1 << 28
"""Elements of the matrix that are made at once: 1 GiB in float32."""


def log_sums(x: Tensor, z: Tensor, mask: Tensor, gamma: float, both_ways: bool) -> tuple[Tensor, Tensor]:
    """log sum over z of exp(x·z / gamma), (I,), and over x, (J,), from unit vectors x (I, D), z (J, D).

    The first sum leaves out what mask (J,) leaves out; the second is made only ``both_ways`` (else it is empty). z are
    phrases, which are data: the gradient is that of x.
    """
    with torch.autocast(x.device.type, enabled=False):
        made: tuple[Tensor, Tensor] = _LogSums.apply(x, z, mask, gamma, both_ways)  # type: ignore[no-untyped-call]
    return made


class _LogSums(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, z: Tensor, mask: Tensor, gamma: float, both_ways: bool) -> tuple[Tensor, Tensor]:
        over_z, columns, ctx.products = make_sums(x, z, mask, gamma, both_ways)
        if not both_ways:
            ctx.mark_non_differentiable(columns)
        ctx.save_for_backward(x, z, mask, over_z, columns)
        ctx.gamma, ctx.both_ways = gamma, both_ways
        return over_z, columns

    @staticmethod
    def backward(ctx: Any, d_rows: Tensor, d_columns: Tensor) -> tuple[Tensor | None, ...]:
        x, z, mask, over_z, columns = ctx.saved_tensors
        down = (columns, d_columns) if ctx.both_ways else None
        dx = sums_back(x, z, mask, ctx.gamma, over_z, d_rows.contiguous(), down, ctx.products)
        ctx.products = None  # it was written over
        return dx, None, None, None, None


def make_sums(
    x: Tensor, z: Tensor, mask: Tensor, gamma: float, both_ways: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """See :func:`log_sums`; x and z may be in half precision. Also the products, where they are one piece."""
    step = max(1, PIECE // max(1, len(z)))
    rows, columns, kept = [], x.new_zeros(0, dtype=_wide(x)), None
    for first in range(0, len(x), step):
        products = _products(x[first : first + step], z)  # (i, J)
        by_row, by_column = _sums(products, mask, gamma, both_ways)
        rows.append(by_row)
        columns = torch.logaddexp(columns, by_column) if len(columns) else by_column
        kept = products if len(x) <= step else None
    return torch.cat(rows) if len(rows) != 1 else rows[0], columns, kept


def sums_back(
    x: Tensor, z: Tensor, mask: Tensor, gamma: float, over_z: Tensor, d_rows: Tensor,
    down: tuple[Tensor, Tensor] | None, kept: Tensor | None,
) -> Tensor:  # fmt: skip
    """The gradient of :func:`make_sums` with respect to x, in at least float32; kept: its products."""
    step = max(1, PIECE // max(1, len(z)))
    dx = x.new_empty(x.shape, dtype=_wide(x))
    for first in range(0, len(x), step):
        here = slice(first, first + step)
        products = _products(x[here], z) if kept is None else kept
        shares = _shares(products, mask, gamma, over_z[here], d_rows[here], down, x.dtype)
        _mm(shares, z, dx[here])
    return dx


def _wide(x: Tensor) -> torch.dtype:
    return torch.promote_types(x.dtype, torch.float32)


def _mm(a: Tensor, b: Tensor, out: Tensor) -> Tensor:
    """a @ b, summed and written in the type of ``out``."""
    return torch.mm(a, b, out=out) if a.dtype == out.dtype else torch.mm(a, b, out_dtype=out.dtype, out=out)


def _products(x: Tensor, z: Tensor) -> Tensor:
    return _mm(x, z.mT, x.new_empty(len(x), len(z), dtype=_wide(x)))


def _sums(products: Tensor, mask: Tensor, gamma: float, both_ways: bool) -> tuple[Tensor, Tensor]:
    """Log-sums of exp(products / gamma) over the columns that the mask has, and over the rows."""
    if products.is_cuda and products.dtype == torch.float32 and has_triton():
        from stepformer.core import loss_kernels

        return loss_kernels.log_sums(products, mask, gamma, both_ways)
    logits = products / gamma
    low = torch.finfo(logits.dtype).min
    by_row = logits.masked_fill(~mask, low).logsumexp(1)
    return by_row, logits.logsumexp(0) if both_ways else logits.new_zeros(0)


def _shares(
    products: Tensor, mask: Tensor, gamma: float, over_z: Tensor, d_rows: Tensor, down: tuple[Tensor, Tensor] | None,
    kind: torch.dtype,
) -> Tensor:  # fmt: skip
    """The gradient of the log-sums with respect to the products, which may be written over, in type ``kind``."""
    if products.is_cuda and products.dtype == torch.float32 and has_triton():
        from stepformer.core import loss_kernels

        return loss_kernels.shares(products, mask, gamma, over_z, d_rows, down, kind)
    logits = products / gamma
    shares = torch.where(mask, (logits - over_z[:, None]).exp() * d_rows[:, None], 0.0)
    if down is not None:
        shares = shares + (logits - down[0]).exp() * down[1]
    return (shares / gamma).to(kind)


# -- on a GPU, where Triton is ----------------------------------------------------------------------------------


def pair_losses(
    slots: Tensor, phrases: Tensor, half_phrases: Tensor, mask: Tensor, lengths: Tensor, config: Any,
    weights: list[float], drawn: tuple[Tensor, ...] | None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The weighted sum of the losses of a :class:`stepformer.core.losses.LossConfig`, and (seq, glob, div, smooth,
    matched) (5,); weights: of the first four.

    slots (B, K, D); phrases (B, L, D) at length 1; half_phrases: a copy in the type that the large product is made in;
    mask (B, L), lengths (B,). drawn: for smoothness, frames at length 1 (B, I, D), index (B, I), valid (B, I) and
    window (B,); None leaves it out.
    """
    made: tuple[Tensor, Tensor] = _PairLosses.apply(  # type: ignore[no-untyped-call]
        slots, phrases, half_phrases, mask, lengths, config, weights, drawn
    )
    return made


class _PairLosses(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, slots: Tensor, phrases: Tensor, half_phrases: Tensor, mask: Tensor, lengths: Tensor, c: Any,
        weights: list[float], drawn: tuple[Tensor, ...] | None,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        from stepformer.core import loss_kernels
        from stepformer.core.align.triton_kernel import match_rows

        seq_weight, glob_weight, div_weight, smooth_weight = weights
        B, K, D = slots.shape
        seen, said = mask.flatten(), half_phrases.flatten(0, 1)
        beside, smoothing, aligning = (Beside(slots.device, number) for number in (0, 1, 5))
        unit, half, inverse = loss_kernels.unit_parts(slots, half_phrases.dtype)
        cosines = torch.bmm(unit, phrases.mT)  # (B, K, L); alignment takes longest, so it begins first
        with aligning:
            rows = match_rows(cosines, lengths, c.keep, c.best_per_slot)
        with beside:
            glob = slots.new_zeros(2)
            own_phrases, own_slots = loss_kernels.own_sums(cosines, lengths, c.gamma)
        smooth = smooth_grad = None
        if drawn is not None:
            with smoothing:
                picked, index, valid, window = drawn
                smooth, by_cosines = loss_kernels.smooth_parts(
                    torch.bmm(picked, unit.mT), index, valid, window, c.smooth_gamma, smooth_weight / B,
                    c.smooth_form == "log_mean", c.smooth_with_self,
                )  # fmt: skip
                smooth_grad = torch.bmm(by_cosines.mT, picked)
        every = half.view(B * K, D)
        over_phrases, over_slots, products = make_sums(every, said, seen, c.gamma, c.glob_both_ways)
        beside.join()
        asked = glob_weight, c.glob_form == "log_mean"
        d_phrases, d_rows = loss_kernels.nce(own_phrases, over_phrases, lengths, glob, *asked)
        down = d_slots = None
        if c.glob_both_ways:
            valid = seen.view(torch.uint8)
            d_slots, d_columns = loss_kernels.nce(own_slots, over_slots, valid, glob[1:], *asked)
            down = over_slots, d_columns
        with aligning:  # beside the second large product
            seq, hits, d_cosines = loss_kernels.local(
                cosines, lengths, rows, d_phrases, d_slots, c.gamma, seq_weight / B, c.seq_average == "all"
            )
            own_grad = torch.bmm(d_cosines, phrases)
        grad = sums_back(every, said, seen, c.gamma, over_phrases, d_rows, down, products)

        aligning.join()
        smoothing.join()
        grad, pairs = grad.view(B, K, D), B * K * max(1, K - 1)
        spread = loss_kernels.apart(unit, grad, own_grad, smooth_grad, div_weight / pairs)
        values = loss_kernels.totals(seq, hits, spread, smooth, glob, pairs, weights)
        total, values = values[0], values[1:]
        ctx.save_for_backward(grad, unit, inverse)
        ctx.kind = slots.dtype
        ctx.mark_non_differentiable(values)
        ctx.set_materialize_grads(False)
        return total, values

    @staticmethod
    def backward(ctx: Any, up: Tensor, _: None) -> tuple[Tensor | None, ...]:
        from stepformer.core import loss_kernels

        grad, unit, inverse = ctx.saved_tensors
        return loss_kernels.unit_back(grad, up, unit, inverse, ctx.kind), *(None,) * 7
