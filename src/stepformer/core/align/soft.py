"""Soft Drop-DTW: the alignment cost with a gradient.

The hard cost is the minimum over all alignments of :mod:`stepformer.core.align.reference`. The soft cost replaces the
minimum by ``softmin(x) = -t log sum exp(-x / t)`` over the same alignments, *each counted once*. It lies below the hard
cost by at most ``t log(number of alignments)`` and goes to it as the temperature t goes to 0. Its gradient with
respect to a match cost (a drop cost) is the probability that this pair is matched (this element is dropped) when
alignments are drawn with probability proportional to ``exp(-cost / t)``.

A plain recurrence would count an alignment once for every order in which it drops rows and columns between two
matches, and so lean towards dropping. Here columns are dropped before rows: an alignment has one path::

    A[i, j] = softmin(E[i, j], A[i, j-1] + u[j])              settled, last a match or a dropped column
    R[i, j] = softmin(A[i-1, j], R[i-1, j]) + v[i]            settled, last a dropped row
    E[i, j] = c[i, j] + softmin(A[i-1, j-1], R[i-1, j-1])     one_to_one
            = c[i, j] + softmin(the same, E[i, j-1])          many_to_one
            = c[i, j] + softmin(all of these, S[i, j-1])      many_to_one, not contiguous, with
    S[i, j] = softmin(E[i, j-1], S[i, j-1]) + u[j]            row i in use, column j dropped inside it

Everything runs in log space on one anti-diagonal of the whole batch at a time; torch is all it needs.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from stepformer.core.align.batch import checked, counted
from stepformer.core.align.single import Costs, Matching, check_matching
from stepformer.core.align.torch_batch import skewed
from stepformer.errors import NonFiniteError, UsageError

_NEVER = -1e30  # log weight of what is forbidden: adds up without overflow, and has a gradient where -inf has NaN


def soft_drop_dtw(
    costs: Tensor,
    column_drop: Costs | None,
    row_drop: Costs | None = None,
    lengths: Costs | None = None,
    matching: Matching = "many_to_one",
    contiguous: bool = True,
    *,
    temperature: float = 0.1,
    row_lengths: Costs | None = None,
    check: bool = True,
) -> Tensor:
    """The soft cost of aligning each item of a batch, with gradients to costs and drop costs: (B, K, N) -> (B,).

    Arguments as in :func:`drop_dtw_batch`; ``row_drop=None`` keeps every row, a number or tensor makes the two-sided
    form. ``temperature`` is in the units of the costs. What lies past ``lengths`` and ``row_lengths`` may be anything
    and has gradient 0. An item without any allowed alignment costs ``inf`` and has gradient 0. ``-inf`` is no cost
    here. With ``check=False`` nothing waits for the device, and NaN forbids as ``inf`` does. Sums are made in float64
    (float32 on MPS); the result has the type of the costs, at least float32.

    Examples:
        First derivatives only; the gradient is the probability of each match. The middle column fits both rows.

        >>> costs = torch.tensor([[[0.0, 0.1, 0.9], [0.9, 0.1, 0.0]]], requires_grad=True)
        >>> torch.autograd.grad(soft_drop_dtw(costs, column_drop=0.5).sum(), costs)[0].abs().round(decimals=1)
        tensor([[[1.0000, 0.5000, 0.0000],
                 [0.0000, 0.5000, 1.0000]]])
    """
    one_to_one = check_matching(matching)
    if not temperature > 0:
        raise UsageError(f"temperature must be above 0, got {temperature}; drop_dtw_batch gives the hard alignment")
    c, u, v, rows, columns = checked(costs, column_drop, row_drop, lengths, row_lengths, check)
    B, K, N = c.shape
    row_counts, column_counts = counted(rows, K), counted(columns, N)
    both = row_counts[:, :, None] & column_counts[:, None]
    sides = ((c, both), (u, column_counts), (v, row_counts))
    if check and any(bool((x.isneginf() & there).any()) for x, there in sides):
        raise NonFiniteError("a cost is -inf: a soft cost has no other choice to weigh it against")
    c = _log_weight(c, both, temperature)
    u = _log_weight(u, column_counts, temperature)
    v = _log_weight(v, row_counts, temperature)
    total = _sum_over_alignments(c, u, v, one_to_one, contiguous)  # (K + N + 1, B, K + 1)
    log_weight = total[rows + columns, torch.arange(B, device=c.device), rows]  # (B,)
    cost = torch.where(log_weight > 0.5 * _NEVER, -temperature * log_weight, torch.inf)
    return cost.to(torch.promote_types(costs.dtype, torch.float32))


def _log_weight(cost: Tensor, counts: Tensor, temperature: float) -> Tensor:
    """-cost / temperature where it counts and is finite; costs that forbid, and padding, get no gradient."""
    allowed = counts & (cost < torch.inf)  # False for NaN
    weight: Tensor = torch.where(allowed, -torch.where(allowed, cost, 0.0) / temperature, _NEVER)
    return weight


def _sum_over_alignments(c: Tensor, u: Tensor, v: Tensor, one_to_one: bool, contiguous: bool) -> Tensor:
    """Log of the summed weights of all ways to settle i rows and j columns: [i + j, b, i], from log weights."""
    B, K, N = c.shape
    by_pair, by_column = (x.unbind() for x in skewed(c, u, _NEVER))  # (B, K), (B, K + 1) each
    never = c.new_full((B, K + 1), _NEVER)
    settled = F.pad(c.new_zeros(B, 1), (0, K), value=_NEVER)  # A on the diagonal before
    total = [settled]  # A or R
    use = skipped = never  # E and S on the diagonal before
    for t in range(1, K + N + 1):
        above, diagonal = total[t - 1][:, :-1], total[t - 2][:, :-1] if t > 1 else never[:, :-1]
        row_dropped = F.pad(above + v, (1, 0), value=_NEVER)
        begun, column = diagonal, by_column[t]
        if not one_to_one:
            begun = torch.logaddexp(begun, use[:, 1:])
            if not contiguous:
                begun = torch.logaddexp(begun, skipped[:, 1:])
                skipped = torch.logaddexp(use, skipped) + column
        use = F.pad(begun + by_pair[t], (1, 0), value=_NEVER)
        settled = torch.logaddexp(use, settled + column)
        total.append(torch.logaddexp(settled, row_dropped))
    return torch.stack(total)
