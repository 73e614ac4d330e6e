"""The Triton kernels. Import only where Triton is; `core.align.batch` falls back to plain torch where it does not work.

:func:`align_batch`: one program per item runs forward over the anti-diagonals and traces back, in one launch. Lane i of
the program holds row i of the current diagonal. All neighbours but one are in the same lane; the value of the row
above comes from the next lane, through a small double buffer in global memory (it stays in the cache) and a barrier.

:func:`match_rows`: the alignment of training, one-to-one with rows that are dropped for nothing. The drop cost is an
order statistic, found by bisection over the bits of floats. Lane i holds row i here too, one column behind lane i - 1;
each cell says which cell of the column before its path came through, so that the way back takes one step per column.
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
    """Choices take four bits per cell: two for D (use, column, row), two for E (begin, continue, skip)."""
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
def align_batch(problem: torch_batch.Problem, one_to_one: bool, contiguous: bool) -> tuple[Tensor, Tensor]:
    """Matches (B, K, N) bool and costs (B,), as :func:`stepformer.core.align.torch_batch.align_batch` gives them."""
    costs = problem.costs
    B, K, N = costs.shape
    if min(B, K, N) == 0:  # nothing to launch for, and no memory to point at
        return torch_batch.align_batch(problem, one_to_one, contiguous)
    width = triton.next_power_of_2(K + 1)
    matrix = torch.zeros((B, K, N), dtype=torch.uint8, device=costs.device)
    cost = torch.empty(B, dtype=torch.float64, device=costs.device)
    buffer = torch.empty((B, 2, width), dtype=torch.float64, device=costs.device)
    choice = torch.empty((B, K + N + 1, width), dtype=torch.uint8, device=costs.device)
    _align[(B,)](
        *(given.contiguous() for given in problem), buffer, choice, matrix, cost, K, N,
        ONE_TO_ONE=one_to_one, MAY_SKIP=not one_to_one and not contiguous, WIDTH=width,
        num_warps=max(1, min(8, width // 64)),
    )  # fmt: skip
    return matrix.view(torch.bool), cost


@triton.jit
def _threshold(  # type: ignore[no-untyped-def]
    similarity, lengths, drops, rows, K, L, KEEP: tl.constexpr, TOP: tl.constexpr, ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
):  # fmt: skip
    """What dropping costs in one video: less the k-th largest similarity; floats as integers of the same order. Also
    writes -1 to the video's rows."""
    item = tl.program_id(0).to(tl.int64)
    n = tl.load(lengths + item).to(tl.int32)
    s = tl.arange(0, ROWS)
    c = tl.arange(0, WIDTH)
    tl.store(rows + item * L + c, -1, mask=c < L)
    counted = (s < K)[:, None] & (c < n)[None, :]
    values = tl.load(similarity + item * K * L + s[:, None] * L + c[None, :], mask=counted, other=0.0)
    bits = values.to(tl.int32, bitcast=True)
    order = tl.where(bits < 0, ~bits, bits ^ -2147483648).to(tl.uint32, bitcast=True)
    number = K * tl.minimum(n, TOP)
    k = tl.maximum(1, tl.floor(number.to(tl.float64) * KEEP + 1e-9).to(tl.int32))
    line = tl.zeros([], tl.uint32)
    for place in tl.static_range(32):
        tried = line | (tl.full([], 1, tl.uint32) << (31 - place))
        reached = (counted & (order >= tried)).to(tl.int32)
        if TOP >= WIDTH:  # every similarity counts: one sum over all
            reach = tl.sum(tl.reshape(reached, [ROWS * WIDTH], can_reorder=True), axis=0)
        else:
            reach = tl.sum(tl.minimum(tl.sum(reached, axis=1), TOP), axis=0)
        line = tl.where(reach >= k, tried, line)
    back = line.to(tl.int32, bitcast=True)
    back = tl.where(back < 0, back ^ -2147483648, ~back)
    tl.store(drops + item, tl.where(number > 0, -(back.to(tl.float32, bitcast=True)), 0.0).to(tl.float64))


@triton.jit
def _next_cells(value, came, diagonal, none, similarity, drop, scratch, i, j, n, K):  # type: ignore[no-untyped-def]
    """The cell of lane i in column j, where its path came from, and what the step behind needs of those before.

    value, came: of the row in the column before; diagonal: of the row above there; none: with no row at all.
    """
    above = tl.gather(value, tl.maximum(i - 1, 0), 0)
    above_came = tl.gather(came, tl.maximum(i - 1, 0), 0)
    dropped = none + drop
    use = tl.where(i == 0, none, diagonal) - similarity.to(tl.float64)
    use = tl.where(use == use, use, float("inf"))  # noqa: PLR0124  # NaN forbids
    skip = value + drop
    skip = tl.where(skip == skip, skip, float("inf"))  # noqa: PLR0124
    used = use <= skip
    best = tl.where(used, use, skip)
    before = tl.where(i == 0, dropped, above)
    by_row = before < best  # the row goes without a column
    inside = (j >= 0) & (j < n) & (i < K)
    passed = tl.where(by_row, tl.where(i == 0, 0, above_came), i * 2 + 2 + used.to(tl.int32))
    tl.store(scratch, passed, mask=inside)
    return tl.where(inside, tl.where(by_row, before, best), value), tl.where(inside, passed, came), above, dropped


@triton.jit
def _step_back(at, came, rows, j, i):  # type: ignore[no-untyped-def]
    """Writes the row of column j and returns the cell of the column before it; all lanes hold the same."""
    came = tl.where(at > 0, tl.gather(came, tl.maximum(at - 1, 0), 0), 0)
    row = came // 2
    used = came % 2 == 1
    tl.store(rows + j + i * 0, tl.where(used, row - 1, -1), mask=(i == 0) & (j >= 0))
    return tl.where(at < 0, -1, tl.where(used, row - 1, row))


@triton.jit
def _match(  # type: ignore[no-untyped-def]
    similarity, lengths, drops, scratch, rows, K, L, SLOTS: tl.constexpr
):
    item = tl.program_id(0).to(tl.int64)
    n = tl.load(lengths + item).to(tl.int32)
    drop = tl.load(drops + item)
    rows += item * L
    scratch += item * L * SLOTS

    i = tl.arange(0, SLOTS)  # lane i: i + 1 rows are settled
    first = similarity + item * K * L + i * L - i  # in step s lane i is at column s - i
    cell = scratch + i - i * SLOTS
    none = tl.zeros([SLOTS], tl.float64)
    value = none  # dropping rows costs nothing
    above = none
    came = tl.zeros([SLOTS], tl.int32)
    # columns are read four ahead: one at a time, each would wait for memory
    a = tl.load(first, mask=(i < K) & (i <= 0) & (n > -i), other=float("-inf"))
    b = tl.load(first + 1, mask=(i < K) & (i <= 1) & (n > 1 - i), other=float("-inf"))
    c = tl.load(first + 2, mask=(i < K) & (i <= 2) & (n > 2 - i), other=float("-inf"))
    d = tl.load(first + 3, mask=(i < K) & (i <= 3) & (n > 3 - i), other=float("-inf"))
    for s in range(0, n + K - 1, 4):
        j = s - i
        next_a = tl.load(first + s + 4, mask=(i < K) & (j >= -4) & (j + 4 < n), other=float("-inf"))
        next_b = tl.load(first + s + 5, mask=(i < K) & (j >= -5) & (j + 5 < n), other=float("-inf"))
        next_c = tl.load(first + s + 6, mask=(i < K) & (j >= -6) & (j + 6 < n), other=float("-inf"))
        next_d = tl.load(first + s + 7, mask=(i < K) & (j >= -7) & (j + 7 < n), other=float("-inf"))
        at = cell + s * SLOTS
        value, came, above, none = _next_cells(value, came, above, none, a, drop, at, i, j, n, K)
        value, came, above, none = _next_cells(value, came, above, none, b, drop, at + SLOTS, i, j + 1, n, K)
        value, came, above, none = _next_cells(value, came, above, none, c, drop, at + 2 * SLOTS, i, j + 2, n, K)
        value, came, above, none = _next_cells(value, came, above, none, d, drop, at + 3 * SLOTS, i, j + 3, n, K)
        a = next_a
        b = next_b
        c = next_c
        d = next_d

    total = tl.sum(tl.where(i == K - 1, value, 0.0), axis=0)
    at = tl.where(total < float("inf"), K, -1) + i * 0
    tl.debug_barrier()  # what all lanes stored is there
    last = n - 1
    e = tl.load(scratch + last * SLOTS + i, mask=(i >= 0) & (last >= 0), other=0)
    f = tl.load(scratch + (last - 1) * SLOTS + i, mask=(i >= 0) & (last >= 1), other=0)
    g = tl.load(scratch + (last - 2) * SLOTS + i, mask=(i >= 0) & (last >= 2), other=0)
    h = tl.load(scratch + (last - 3) * SLOTS + i, mask=(i >= 0) & (last >= 3), other=0)
    for step in range(0, n, 4):
        j = last - step
        next_e = tl.load(scratch + (j - 4) * SLOTS + i, mask=(i >= 0) & (j >= 4), other=0)
        next_f = tl.load(scratch + (j - 5) * SLOTS + i, mask=(i >= 0) & (j >= 5), other=0)
        next_g = tl.load(scratch + (j - 6) * SLOTS + i, mask=(i >= 0) & (j >= 6), other=0)
        next_h = tl.load(scratch + (j - 7) * SLOTS + i, mask=(i >= 0) & (j >= 7), other=0)
        at = _step_back(at, e, rows, j, i)
        at = _step_back(at, f, rows, j - 1, i)
        at = _step_back(at, g, rows, j - 2, i)
        at = _step_back(at, h, rows, j - 3, i)
        e = next_e
        f = next_f
        g = next_g
        h = next_h


def fits(slots: int, phrases: int) -> bool:
    """Whether a program can hold a video's similarities."""
    return slots < 128 and slots * phrases <= 1 << 13


@torch.no_grad()
def match_rows(similarity: Tensor, lengths: Tensor, keep: float, top: int | None) -> Tensor:
    """Similarity (B, K, L) float32, lengths (B,) -> the row of each column or -1, (B, L) int32."""
    B, K, L = similarity.shape
    slots = max(2, int(triton.next_power_of_2(K)))
    similarity = similarity.contiguous()
    drops = torch.empty(B, dtype=torch.float64, device=similarity.device)
    scratch = torch.empty((B, L, slots), dtype=torch.int32, device=similarity.device)
    rows = torch.empty((B, L), dtype=torch.int32, device=similarity.device)
    _threshold[(B,)](
        similarity, lengths, drops, rows, K, L, KEEP=keep, TOP=top if top and top < L else 1 << 20,
        ROWS=int(triton.next_power_of_2(K)), WIDTH=int(triton.next_power_of_2(L)),
        num_warps=4 if K * L <= 1 << 12 else 8,
    )  # fmt: skip
    _match[(B,)](similarity, lengths, drops, scratch, rows, K, L, SLOTS=slots, num_warps=1)
    return rows


def match(similarity: Tensor, lengths: Tensor, keep: float, top: int | None) -> Tensor:
    """See :func:`stepformer.core.losses.match`: similarity (B, K, L) float32, lengths (B,) -> bool (B, K, L)."""
    rows = match_rows(similarity, lengths, keep, top)
    return rows[:, None, :] == torch.arange(similarity.shape[1], dtype=torch.int32, device=rows.device)[:, None]
