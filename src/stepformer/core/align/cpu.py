"""The compiled CPU kernel: `core.align.reference` in numba, for costs without NaN and -inf. Import only where numba is.

D and E are kept instead of choices, which the back-trace compares again along its path. Four rows advance together,
each one column behind the row above, so that four chains of dependent additions overlap: about a quarter of the time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

_WORTH_A_THREAD = 1 << 19
"""Cells of a batch from which each further thread pays for its start: about a millisecond of work."""
_KEPT_CELLS = 1 << 17
"""Up to this size (1 MiB) a thread keeps the room for D and E: new memory takes a fifth of a small alignment's time."""
_kept = threading.local()


def jit(function: Callable[..., Any], **options: Any) -> Any:
    """Compiles without the GIL, and keeps the result on disk where there is a place to write it."""
    try:
        return numba.njit(nogil=True, cache=True, **options)(function)
    except RuntimeError:  # neither the package's folder nor the user's cache can be written
        return numba.njit(nogil=True, **options)(function)


@jit
def _is_plain(values):  # type: ignore[no-untyped-def]
    """Whether ``values`` (any shape, contiguous) holds neither NaN nor -inf, so that sums need no care."""
    plain = True
    for value in values.flat:
        plain &= value > -np.inf
    return plain


@jit
def _use(e, corner, cost, drop, one_to_one, skips):  # type: ignore[no-untyped-def]
    """E of a cell, from E of the cell before and D of the one above that."""
    used = (corner if one_to_one else min(e, corner)) + cost
    return min(used, e + drop) if skips else used


def _forward_kernel(one_to_one: bool, skips: bool) -> Any:
    """The forward pass with the rule compiled in: asked for in each cell, it would cost half as much again."""

    @jit
    def forward(costs, column_drop, row_drop, D, E):  # type: ignore[no-untyped-def]
        """Fills D and E, (K + 1, N + 1) each; row 0 of E is not used."""
        K, N = costs.shape
        inf = np.inf
        D[0, 0] = 0.0
        for j in range(N):
            D[0, j + 1] = D[0, j] + column_drop[j]
        i = 0
        while i + 4 <= K:
            c0, c1, c2, c3 = costs[i], costs[i + 1], costs[i + 2], costs[i + 3]
            v0, v1, v2, v3 = row_drop[i], row_drop[i + 1], row_drop[i + 2], row_drop[i + 3]
            above, D0, D1, D2, D3 = D[i], D[i + 1], D[i + 2], D[i + 3], D[i + 4]
            E0, E1, E2, E3 = E[i + 1], E[i + 2], E[i + 3], E[i + 4]
            corner = above[0]  # D of the row above, one column to the left
            d0 = corner + v0
            d1 = d0 + v1
            d2 = d1 + v2
            d3 = d2 + v3
            D0[0], D1[0], D2[0], D3[0] = d0, d1, d2, d3
            E0[0] = E1[0] = E2[0] = E3[0] = inf
            x0 = x1 = x2 = inf  # d0 to d2 one column earlier: the corners of the rows below them
            e0 = e1 = e2 = e3 = inf
            for j in range(N + 3):  # row i + p is at column j - p
                n0, n1, n2, n3 = d0, d1, d2, d3
                if j > 2:
                    e3 = _use(e3, x2, c3[j - 3], column_drop[j - 3], one_to_one, skips)
                    n3 = min(d3 + column_drop[j - 3], e3, d2 + v3)
                    E3[j - 2], D3[j - 2] = e3, n3
                if 1 < j < N + 2:
                    e2 = _use(e2, x1, c2[j - 2], column_drop[j - 2], one_to_one, skips)
                    n2 = min(d2 + column_drop[j - 2], e2, d1 + v2)
                    E2[j - 1], D2[j - 1] = e2, n2
                if 0 < j < N + 1:
                    e1 = _use(e1, x0, c1[j - 1], column_drop[j - 1], one_to_one, skips)
                    n1 = min(d1 + column_drop[j - 1], e1, d0 + v1)
                    E1[j], D1[j] = e1, n1
                if j < N:
                    up = above[j + 1]
                    e0 = _use(e0, corner, c0[j], column_drop[j], one_to_one, skips)
                    n0 = min(d0 + column_drop[j], e0, up + v0)
                    E0[j + 1], D0[j + 1] = e0, n0
                    corner = up
                x0, x1, x2 = d0, d1, d2
                d0, d1, d2, d3 = n0, n1, n2, n3
            i += 4
        while i < K:  # the rows that make no four
            above, here, in_use = D[i], D[i + 1], E[i + 1]
            here[0] = above[0] + row_drop[i]
            in_use[0] = e = inf
            for j in range(N):
                e = _use(e, above[j], costs[i, j], column_drop[j], one_to_one, skips)
                in_use[j + 1] = e
                here[j + 1] = min(here[j] + column_drop[j], e, above[j + 1] + row_drop[i])
            i += 1

    return forward


_one_to_one, _contiguous, _gaps = (_forward_kernel(*rule) for rule in ((True, False), (False, False), (False, True)))


@jit
def _align(costs, column_drop, row_drop, one_to_one, contiguous, assignment, room):  # type: ignore[no-untyped-def]
    """Fills ``assignment`` (N,) and returns the cost, NaN where a number is not plain; room: for D and E."""
    if not (_is_plain(column_drop) and _is_plain(row_drop) and _is_plain(costs)):
        return np.nan
    K, N = costs.shape
    cells = (K + 1) * (N + 1)
    D, E = room[:cells].reshape(K + 1, N + 1), room[cells : 2 * cells].reshape(K + 1, N + 1)
    skips = not one_to_one and not contiguous
    if one_to_one:
        _one_to_one(costs, column_drop, row_drop, D, E)
    elif contiguous:
        _contiguous(costs, column_drop, row_drop, D, E)
    else:
        _gaps(costs, column_drop, row_drop, D, E)
    assignment[:] = -1
    cost = D[K, N]
    if cost == np.inf:
        return cost
    i, j, using = K, N, False
    while i > 0 and j > 0:
        if using or E[i, j] == D[i, j]:
            using = not one_to_one and E[i, j - 1] < D[i - 1, j - 1]
            if skips and (E[i, j - 1] if using else D[i - 1, j - 1]) + costs[i - 1, j - 1] != E[i, j]:
                using = True  # the column is dropped inside the row
            else:
                assignment[j - 1] = i - 1
            if not using:
                i -= 1
            j -= 1
        elif D[i, j - 1] + column_drop[j - 1] == D[i, j]:
            j -= 1
        else:
            i -= 1
    return cost


@jit
def _align_batch(  # type: ignore[no-untyped-def]
    costs, column_drop, row_drop, row_lengths, lengths, one_to_one, contiguous, matrix, cost
):
    """Fills ``matrix`` (B, K, N), all False so far, and ``cost`` (B,)."""
    assignment = np.empty(costs.shape[2], dtype=np.int64)
    cells = (costs.shape[1] + 1) * (costs.shape[2] + 1)
    room = np.empty(2 * cells)  # once: new memory costs more than what is put there
    for b in range(costs.shape[0]):
        k, n = row_lengths[b], lengths[b]
        # a copy without the padding: contiguous rows, and nothing of the padding is looked at
        own = np.ascontiguousarray(costs[b, :k, :n])
        u, v = column_drop[b, :n], row_drop[b, :k]
        cost[b] = _align(own, u, v, one_to_one, contiguous, assignment[:n], room)
        for j in range(0 if np.isnan(cost[b]) else n):
            if assignment[j] >= 0:
                matrix[b, assignment[j], j] = True


def align(
    costs: NDArray[np.float64],  # (K, N)
    column_drop: NDArray[np.float64],  # (N,)
    row_drop: NDArray[np.float64],  # (K,)
    one_to_one: bool,
    contiguous: bool,
) -> tuple[float, NDArray[np.int64]]:
    """The cost and the (N,) assignment, exactly as the reference gives them; the cost is NaN, and the assignment of no
    meaning, where there is a NaN or -inf."""
    assignment = np.empty(costs.shape[1], dtype=np.int64)
    cells = 2 * (costs.shape[0] + 1) * (costs.shape[1] + 1)
    room = getattr(_kept, "room", None)
    if room is None or len(room) < cells:
        room = np.empty(cells)
        if cells <= _KEPT_CELLS:
            _kept.room = room
    return _align(costs, column_drop, row_drop, one_to_one, contiguous, assignment, room), assignment


def align_batch(
    costs: NDArray[np.float64],  # (B, K, N)
    column_drop: NDArray[np.float64],  # (B, N)
    row_drop: NDArray[np.float64],  # (B, K)
    row_lengths: NDArray[np.int64],  # (B,)
    lengths: NDArray[np.int64],  # (B,)
    one_to_one: bool,
    contiguous: bool,
    threads: int,
) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """Matches (B, K, N) and costs (B,) of a padded batch; items as in :func:`align`.

    ``threads``: at most so many, one for each ``_WORTH_A_THREAD`` cells: a batch below twice that runs in the caller's.
    """
    matrix = np.zeros(costs.shape, dtype=np.bool_)
    cost = np.empty(costs.shape[0])

    def run(items: slice) -> None:
        _align_batch(
            costs[items], column_drop[items], row_drop[items], row_lengths[items], lengths[items],
            one_to_one, contiguous, matrix[items], cost[items],
        )  # fmt: skip

    threads = min(threads, costs.shape[0], costs.size // _WORTH_A_THREAD)
    if threads < 2:
        run(slice(None))
    else:
        bounds = np.linspace(0, costs.shape[0], threads + 1).astype(int)
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(run, map(slice, bounds[:-1], bounds[1:])))
    return matrix, cost
