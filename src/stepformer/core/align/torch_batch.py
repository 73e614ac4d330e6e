"""The batched torch version: any device, no Python loop over cells, no synchronisation with the device.

The cells of an anti-diagonal (all i + j = d) depend only on the two anti-diagonals before it, so the Python loop runs
over K + N diagonals and each step settles one diagonal of every item at once. Sums are made exactly as the reference
makes them, not through prefix sums, which round differently and cannot hold inf. The back-trace follows pointers: the
whole table of "where did this cell come from" is made in a few operations on all cells, and then a step of the
back-trace is one gather for the batch.

A forbidden value may be inf or NaN here (inf - inf is NaN): ``fmin`` passes over NaN, NaN stays NaN in sums, and
equality with the chosen minimum never holds for it, so both mean the same and no step needs a clean-up.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F


class Problem(NamedTuple):
    """A batch to align. What lies past an item's lengths is never read into its result."""

    costs: Tensor  # (B, K, N) of sum_dtype
    column_drop: Tensor  # (B, N)
    row_drop: Tensor  # (B, K)
    row_lengths: Tensor  # (B,) int64
    lengths: Tensor  # (B,) int64


def sum_dtype(device: torch.device) -> torch.dtype:
    """What sums are made in: float64, so that all kernels agree, but for devices that lack it."""
    return torch.float32 if device.type == "mps" else torch.float64


def columns_of(matrix: Tensor) -> Tensor:
    """(..., K, N) bool matches to (..., N) int64: the row of each column, -1 = dropped.

    Examples:
        >>> columns_of(torch.tensor([[True, False, False], [False, False, True]])).tolist()
        [0, -1, 1]
    """
    if matrix.shape[-2] == 0:
        return torch.full(matrix.shape[:-2] + matrix.shape[-1:], -1, dtype=torch.int64, device=matrix.device)
    row = torch.arange(matrix.shape[-2], device=matrix.device)[:, None]
    return torch.where(matrix, row, -1).amax(dim=-2)


def skewed(costs: Tensor, column_drop: Tensor, outside: float) -> tuple[Tensor, Tensor]:
    """Costs (B, K, N) and drop costs (B, N) by anti-diagonal, (K + N + 1, B, K) and (K + N + 1, B, K + 1): [d, b, i] is
    of cell (i, d - i), ``outside`` where there is none."""
    _, K, N = costs.shape
    d = torch.arange(K + N + 1, device=costs.device)[:, None]
    i = torch.arange(K + 1, device=costs.device)[None, :]
    j = (d - i).clamp(0, N + 1)  # 0 and N + 1 are the paddings
    by_pair = F.pad(costs, (1, 1), value=outside)[:, i[:, 1:] - 1, j[:, 1:]]
    return by_pair.permute(1, 0, 2), F.pad(column_drop, (1, 1), value=outside)[:, j].permute(1, 0, 2)


@torch.no_grad()
def align_batch(problem: Problem, one_to_one: bool, contiguous: bool) -> tuple[Tensor, Tensor]:
    """Matches (B, K, N) bool and costs (B,)."""
    costs, column_drop, row_drop, row_lengths, lengths = problem
    B, K, N = costs.shape
    device = costs.device
    T, W = K + N + 1, K + 1  # diagonals; cells of a diagonal, by row
    if B == 0:
        return torch.zeros(B, K, N, dtype=torch.bool, device=device), costs.new_zeros(B)
    skip_allowed = not one_to_one and not contiguous

    c, u = (x.contiguous() for x in skewed(costs, column_drop, torch.inf))  # (T, B, K), (T, B, W)
    v = row_drop.contiguous()  # (B, K)

    # one diagonal of padding in front and one row to the left keep all the shifts inside
    D = costs.new_full((T + 1, B, W + 1), torch.inf)  # D[d + 1, b, i + 1] is cell (i, d - i)
    E = costs.new_full((T + 1, B, W + 1), torch.inf)
    D[1, :, 1] = 0.0
    by_column = costs.new_empty((B, W))
    by_row = costs.new_full((B, W), torch.inf)  # row 0 has no row above
    by_row_tail = by_row[:, 1:]
    # views of all diagonals made at once: slicing inside the loop would take longer than the sums
    D_here, D_above = D[:, :, 1:].unbind(), D[:, :, 1:-1].unbind()
    E_all, E_rows = E[:, :, 1:].unbind(), E[:, :, 2:].unbind()  # row 0 is never in use
    u_all, u_rows, c_all = u.unbind(), u[:, :, 1:].unbind(), c.unbind()
    for t in range(2, T + 1):
        use = E_rows[t]
        if one_to_one:
            torch.add(D_above[t - 2], c_all[t - 1], out=use)
        else:
            torch.fmin(D_above[t - 2], E_rows[t - 1], out=use)
            use.add_(c_all[t - 1])
            if skip_allowed:
                torch.fmin(use, E_rows[t - 1] + u_rows[t - 1], out=use)
        torch.add(D_here[t - 1], u_all[t - 1], out=by_column)
        torch.add(D_above[t - 1], v, out=by_row_tail)
        torch.fmin(E_all[t], by_column, out=by_column)
        torch.fmin(by_column, by_row, out=D_here[t])

    items = torch.arange(B, device=device)
    cost = D[row_lengths + lengths + 1, items, row_lengths + 1]  # (B,)
    feasible = cost < torch.inf  # False for NaN
    visited, matched = _trace(D, E, c, u, row_lengths, lengths, feasible, one_to_one, skip_allowed)

    # cell (b, i, j) of each visited node; what did not match is written to one spare element behind the matrix
    cell = visited % (T * B * W)
    row, item = cell % W, cell // W % B
    column = cell // (B * W) - row
    target = torch.where(matched, (item * K + row - 1) * N + column - 1, B * K * N)
    matrix = torch.zeros(B * K * N + 1, dtype=torch.bool, device=device)
    matrix.index_fill_(0, target.reshape(-1), True)
    return matrix[:-1].view(B, K, N), torch.where(feasible, cost, torch.inf)


def _trace(
    D: Tensor, E: Tensor, c: Tensor, u: Tensor, row_lengths: Tensor, lengths: Tensor, feasible: Tensor,
    one_to_one: bool, skip_allowed: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The nodes each item's path visits, (T, B) int64, and whether there a row and a column are matched, (T, B).

    Node (d * B + b) * W + i is D at cell (i, d - i) of item b; E at the same cell is T * B * W nodes further on. A node
    points at the node before it on the cheapest path; (0, 0) points at itself.
    """
    T, B, W = u.shape
    half = T * B * W
    here = torch.arange(half, device=D.device).view(T, B, W)
    left, up, diagonal = here - B * W, here - B * W - 1, here - 2 * B * W - 1

    value, use = D[1:, :, 1:], E[1:, :, 1:]  # (T, B, W)
    use_left = E[:-1, :, 1:]
    began = torch.full_like(value, torch.inf)  # D[i - 1, j - 1]
    began[1:] = D[:-2, :, :-1]
    if one_to_one:
        use_from, use_matches = diagonal, torch.ones_like(here, dtype=torch.bool)
    else:
        came_from = torch.fmin(began, use_left)
        use_from = torch.where(began == came_from, diagonal, left + half)
        use_matches = torch.ones_like(here, dtype=torch.bool)
        if skip_allowed:
            use_matches[:, :, 1:] = came_from[:, :, 1:] + c == use[:, :, 1:]
            use_from = torch.where(use_matches, use_from, left + half)
    in_use = use == value
    value_from = torch.where(in_use, use_from, torch.where(D[:-1, :, 1:] + u == value, left, up))
    value_from[0] = here[0]  # (0, 0) stays; the other cells of the first diagonal do not exist
    in_use[:, :, 0] = False
    pointer, matches = value_from.view(-1), (in_use & use_matches).view(-1)
    if not one_to_one:  # one to one, no path visits E: a row in use is never continued
        pointer, matches = torch.cat([pointer, use_from.reshape(-1)]), torch.cat([matches, use_matches.view(-1)])

    items = torch.arange(B, device=D.device)
    start = ((row_lengths + lengths) * B + items) * W + row_lengths
    visited = torch.empty((T, B), dtype=torch.int64, device=D.device)
    visited[0] = torch.where(feasible, start, items * W)
    steps = visited.unbind()
    for t in range(1, T):
        torch.take(pointer, steps[t - 1], out=steps[t])
    return visited, matches[visited]
