"""The local, the global and the diversity loss together, on a GPU. Import only where Triton is.

`core.losses` says what each is. Their gradient is known as soon as their values are, so both are made at once, with
the alignment at the same time as the large product of all slots with all phrases.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from stepformer.core import loss_kernels
from stepformer.core.devices import Beside
from stepformer.core.log_sums import make_sums, sums_back
from stepformer.core.match_kernel import match_rows


class Pairs(NamedTuple):
    """What :func:`pair_losses` counts: weights, and the forms as in :class:`stepformer.core.losses.LossConfig`."""

    seq: float
    glob: float
    div: float
    gamma: float
    keep: float
    best_per_slot: int | None
    average_all: bool
    log_mean: bool
    both_ways: bool


def pair_losses(
    slots: Tensor, phrases: Tensor, half_phrases: Tensor, mask: Tensor, lengths: Tensor, how: Pairs
) -> tuple[Tensor, Tensor]:
    """The weighted sum of the losses, and (seq, glob, div, matched) (4,).

    slots (B, K, D) and phrases (B, L, D) at length 1; half_phrases: a copy in the type that the large product is made
    in; mask (B, L), lengths (B,).
    """
    made: tuple[Tensor, Tensor] = _PairLosses.apply(slots, phrases, half_phrases, mask, lengths, how)  # type: ignore[no-untyped-call]
    return made


class _PairLosses(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, slots: Tensor, phrases: Tensor, half_phrases: Tensor, mask: Tensor, lengths: Tensor, how: Pairs
    ) -> tuple[Tensor, Tensor]:
        B, K, D = slots.shape
        slots, seen = slots.contiguous(), mask.flatten()
        every, said = slots.view(B * K, D).to(half_phrases.dtype), half_phrases.flatten(0, 1)
        beside, aligning = Beside(slots.device), Beside(slots.device, 5)
        cosines = torch.bmm(slots, phrases.mT)  # (B, K, L); alignment takes longest, so it begins first
        with aligning:
            rows = match_rows(cosines, lengths, how.keep, how.best_per_slot)
        with beside:
            own_phrases, own_slots = loss_kernels.own_sums(cosines, lengths, how.gamma)
        over_phrases, over_slots, products = make_sums(every, said, seen, how.gamma, how.both_ways)
        beside.join()
        glob = slots.new_zeros(2)
        form = how.glob, how.log_mean
        d_phrases, d_rows = loss_kernels.nce(own_phrases, over_phrases, lengths, glob, *form)
        down = d_slots = None
        if how.both_ways:
            valid = seen.view(torch.uint8)
            d_slots, d_columns = loss_kernels.nce(own_slots, over_slots, valid, glob[1:], *form)
            down = over_slots, d_columns
        grad, _ = sums_back(every, said, seen, how.gamma, over_phrases, d_rows, down, products)
        assert grad is not None

        aligning.join()
        seq, hits, d_cosines = loss_kernels.local(
            cosines, lengths, rows, d_phrases, d_slots, how.gamma, how.seq / B, how.average_all
        )
        grad = grad.view(B, K, D).baddbmm_(d_cosines, phrases)
        pairs = B * K * max(1, K - 1)
        spread = loss_kernels.apart(slots, grad, how.div / pairs)
        values = loss_kernels.totals(seq, hits, spread, glob, pairs, (how.seq, how.glob, how.div))
        total, values = values[0], values[1:]
        ctx.save_for_backward(grad)
        ctx.mark_non_differentiable(values)
        return total, values

    @staticmethod
    def backward(ctx: Any, up: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        (grad,) = ctx.saved_tensors
        return grad * up, None, None, None, None, None
