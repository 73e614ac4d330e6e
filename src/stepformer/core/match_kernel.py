"""The alignment of training as one Triton kernel: similarity line, Drop-DTW, back-trace. Import only where Triton is.

One program per video. The line is an order statistic, found by bisection over the bits of the floats. With rows that
are dropped for nothing, the cells of a column follow from the column before by one running minimum over the rows, so
that K rows take one step instead of K. Sums are those of `core.align.reference`, in float64, and ties are broken as
there: the same matches come out.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _lower(value1, from1, value2, from2):  # type: ignore[no-untyped-def]
    """The lower value and where it is from; of equals the later."""
    later = value2 <= value1
    return tl.where(later, value2, value1), tl.where(later, from2, from1)


@triton.jit
def _match(  # type: ignore[no-untyped-def]
    similarity,
    lengths,
    scratch,
    rows,
    K,
    L,
    KEEP: tl.constexpr,
    TOP: tl.constexpr,
    ROWS: tl.constexpr,
    SLOTS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    item = tl.program_id(0).to(tl.int64)
    n = tl.load(lengths + item).to(tl.int32)
    similarity += item * K * L
    rows += item * L
    scratch += item * L * SLOTS

    # the k-th largest similarity; floats as integers of the same order
    s = tl.arange(0, ROWS)
    c = tl.arange(0, WIDTH)
    counted = (s < K)[:, None] & (c < n)[None, :]
    values = tl.load(similarity + s[:, None] * L + c[None, :], mask=counted, other=0.0)
    bits = values.to(tl.int32, bitcast=True)
    order = tl.where(bits < 0, ~bits, bits ^ -2147483648).to(tl.uint32, bitcast=True)
    number = K * tl.minimum(n, TOP)
    k = tl.maximum(1, tl.floor(number.to(tl.float64) * KEEP + 1e-9).to(tl.int32))
    line = tl.zeros([], tl.uint32)
    for place in tl.static_range(32):
        tried = line | (tl.full([], 1, tl.uint32) << (31 - place))
        reach = tl.sum((counted & (order >= tried)).to(tl.int32), axis=1)
        line = tl.where(tl.sum(tl.minimum(reach, TOP), axis=0) >= k, tried, line)
    back = line.to(tl.int32, bitcast=True)
    back = tl.where(back < 0, back ^ -2147483648, ~back)
    drop = tl.where(number > 0, -(back.to(tl.float32, bitcast=True)), 0.0).to(tl.float64)

    i = tl.arange(0, SLOTS)  # cell i of a column: i rows are settled
    is_row = (i > 0) & (i <= K)
    above = tl.maximum(i - 1, 0)
    nothing = tl.full([SLOTS], float("inf"), tl.float64)
    best = tl.where(i <= K, 0.0, nothing)  # dropping rows costs nothing
    after = tl.load(similarity + above * L, mask=is_row & (n > 0), other=float("-inf"))
    for j in range(0, n):
        cost = -(after.to(tl.float64))
        after = tl.load(similarity + above * L + j + 1, mask=is_row & (j + 1 < n), other=float("-inf"))
        use = tl.where(is_row, tl.gather(best, above, 0) + cost, nothing)
        use = tl.where(use == use, use, float("inf"))  # noqa: PLR0124  # NaN forbids
        skip = best + drop
        skip = tl.where(skip == skip, skip, float("inf"))  # noqa: PLR0124
        used = use <= skip
        value, came = tl.associative_scan((tl.where(used, use, skip), i * 2 + used.to(tl.int32)), 0, _lower)
        best = value
        tl.store(scratch + j * SLOTS + i, came)

    total = tl.sum(tl.where(i == K, best, 0.0), axis=0)
    at = tl.where(total < float("inf"), K, -1)
    tl.debug_barrier()  # what all lanes stored is there
    before = tl.load(scratch + (n - 1) * SLOTS + i, mask=(i >= 0) & (n > 0), other=0)
    for step in range(0, n):
        j = n - 1 - step
        came = tl.sum(tl.where(i == at, before, 0), axis=0)
        before = tl.load(scratch + (j - 1) * SLOTS + i, mask=(i >= 0) & (j > 0), other=0)
        row = came // 2
        used = (came % 2 == 1) & (at >= 0)
        tl.store(rows + j, tl.where(used, row - 1, -1))
        at = tl.where(at < 0, -1, tl.where(used, row - 1, row))


def fits(similarity: Tensor) -> bool:
    """Whether a program can hold a video's similarities: (B, K, L)."""
    return similarity.shape[1] < 128 and similarity.shape[1] * similarity.shape[2] <= 1 << 12


@torch.no_grad()
def match(similarity: Tensor, lengths: Tensor, keep: float, top: int | None) -> Tensor:
    """See :func:`stepformer.core.losses.match`: similarity (B, K, L) float32, lengths (B,) -> bool (B, K, L)."""
    B, K, L = similarity.shape
    slots = int(triton.next_power_of_2(K + 1))
    scratch = torch.empty((B, L, slots), dtype=torch.int32, device=similarity.device)
    rows = torch.full((B, L), -1, dtype=torch.int32, device=similarity.device)
    _match[(B,)](
        similarity.contiguous(), lengths, scratch, rows, K, L,
        KEEP=keep, TOP=min(top or L, L), ROWS=int(triton.next_power_of_2(K)), SLOTS=slots,
        WIDTH=int(triton.next_power_of_2(L)), num_warps=1,
    )  # fmt: skip
    return rows[:, None, :] == torch.arange(K, dtype=torch.int32, device=similarity.device)[:, None]
