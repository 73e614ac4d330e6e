"""The Triton kernel: one program an item runs forward over the anti-diagonals and traces back, in one launch.

Import only where Triton is; `core.align.batch` falls back to plain torch where it does not work. Lane i of
the program holds row i of the current diagonal. All neighbours but one are in the same lane; the value of the row
above comes from the next lane, through a small double buffer in global memory (it stays in the cache) and a barrier.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from stepformer.core.align import torch_batch


@triton.jit
def _plus(a, b):  # type: ignore[no-untyped-def]  # compiled: Triton types it
    total = a + b
    return tl.where(total == total, total, float("inf"))  # noqa: PLR0124  # inf - inf, or NaN input: forbidden


@triton.jit
def _align(  # type: ignore[no-untyped-def]
    costs, column_drop, row_drop, row_lengths, lengths, buffer, choice, matrix, cost,
    K, N, ONE_TO_ONE: tl.constexpr, MAY_SKIP: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Choices are stored as in cpu.py: two bits for D (use, column, row), two bits for E (begin, continue, skip)."""
    item = tl.program_id(0).to(tl.int64)
    k = tl.load(row_lengths + item).to(tl.int32)
    n = tl.load(lengths + item).to(tl.int32)
    costs += item * K * N
    matrix += item * K * N
    column_drop += item * N
    row_drop += item * K
    buffer += item * 2 * WIDTH
    choice += item * (K + N + 1) * WIDTH

    i = tl.arange(0, WIDTH)
    is_row = (i > 0) & (i <= k)
    v = tl.load(row_drop + i - 1, mask=is_row, other=float("inf"))
    none = tl.full([WIDTH], float("inf"), tl.float64)
    last = tl.where(i == 0, 0.0, none)  # D on the diagonal before
    in_use = none  # E on the diagonal before
    diagonal = none  # D of the row above, two diagonals before
    for d in range(1, k + n + 1):
        tl.store(buffer + (d % 2) * WIDTH + i, last)
        tl.debug_barrier()
        above = tl.load(buffer + (d % 2) * WIDTH + i - 1, mask=i > 0, other=float("inf"))
        j = d - i
        is_column = (j > 0) & (j <= n)
        u = tl.load(column_drop + j - 1, mask=is_column, other=float("inf"))
        c = tl.load(costs + (i - 1) * N + j - 1, mask=is_row & is_column, other=float("inf"))

        came_from = diagonal
        how = tl.zeros([WIDTH], tl.int32)
        if not ONE_TO_ONE:
            continued = in_use < came_from
            came_from = tl.where(continued, in_use, came_from)
            how = tl.where(continued, 4, how)
        use = _plus(came_from, c)
        if MAY_SKIP:
            skipped = _plus(in_use, u)
            how = tl.where(skipped < use, 8, how)
            use = tl.where(skipped < use, skipped, use)
        best = use
        by_column = _plus(last, u)
        how = tl.where(by_column < best, how | 1, how)
        best = tl.where(by_column < best, by_column, best)
        by_row = _plus(above, v)
        how = tl.where(by_row < best, (how & 12) | 2, how)
        best = tl.where(by_row < best, by_row, best)
        tl.store(choice + d * WIDTH + i, how.to(tl.uint8))
        diagonal = above
        last = best
        in_use = use

    total = tl.sum(tl.where(i == k, last, 0.0), axis=0)
    tl.store(cost + item, total)
    tl.debug_barrier()  # the choices of all lanes are there for the back-trace
    feasible = total < float("inf")
    row = tl.where(feasible, k, 0)
    column = tl.where(feasible, n, 0)
    using = tl.where(feasible, 0, 0)  # 1: the row must go on, as the column behind was its own
    while row + column > 0:
        came = tl.load(choice + (row + column) * WIDTH + row).to(tl.int32)
        use = (using == 1) | ((came & 3) == 0)
        how = came & 12
        tl.store(matrix + (row - 1) * N + column - 1, 1, mask=use & (how != 8))
        begun = use & (how == 0)
        drop_row = (using == 0) & ((came & 3) == 2)
        drop_column = (using == 0) & ((came & 3) == 1)
        row = tl.where(begun | drop_row, row - 1, row)
        column = tl.where(use | drop_column, column - 1, column)
        using = tl.where(use & (how != 0), 1, 0)


@torch.no_grad()
def align_batch(
    costs: Tensor,  # (B, K, N) float64
    column_drop: Tensor,  # (B, N)
    row_drop: Tensor,  # (B, K)
    row_lengths: Tensor,  # (B,) int64
    lengths: Tensor,  # (B,) int64
    one_to_one: bool,
    contiguous: bool,
) -> tuple[Tensor, Tensor]:
    """Matches (B, K, N) bool and costs (B,), as :func:`stepformer.core.align.torch_batch.align_batch` gives them."""
    B, K, N = costs.shape
    if min(B, K, N) == 0:  # nothing to launch for, and no memory to point at
        return torch_batch.align_batch(costs, column_drop, row_drop, row_lengths, lengths, one_to_one, contiguous)
    width = triton.next_power_of_2(K + 1)
    matrix = torch.zeros((B, K, N), dtype=torch.uint8, device=costs.device)
    cost = torch.empty(B, dtype=torch.float64, device=costs.device)
    buffer = torch.empty((B, 2, width), dtype=torch.float64, device=costs.device)
    choice = torch.empty((B, K + N + 1, width), dtype=torch.uint8, device=costs.device)
    _align[(B,)](
        costs.contiguous(), column_drop.contiguous(), row_drop.contiguous(), row_lengths.contiguous(),
        lengths.contiguous(),
        buffer, choice, matrix, cost, K, N,
        ONE_TO_ONE=one_to_one, MAY_SKIP=not one_to_one and not contiguous, WIDTH=width,
        num_warps=max(1, min(8, width // 64)),
    )  # fmt: skip
    return matrix.view(torch.bool), cost
