"""The compiled CPU kernel: `core.align.reference` cell by cell, in numba. Import only where numba is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

# choices as stored: two bits for D, two bits for E
_USE, _COLUMN, _ROW = 0, 1, 2
_BEGIN, _CONTINUE, _SKIP = 0, 4, 8


def _jit(function: Callable[..., Any]) -> Any:
    """Compiles without the GIL, and keeps the result on disk where there is a place to write it."""
    try:
        return numba.njit(nogil=True, cache=True)(function)
    except RuntimeError:  # neither the package's folder nor the user's cache can be written
        return numba.njit(nogil=True)(function)


@_jit
def _plus(a, b):  # type: ignore[no-untyped-def]  # compiled: numba types it
    total = a + b
    return np.inf if np.isnan(total) else total  # inf - inf, or a NaN that nobody checked for: forbidden


@_jit
def _align(costs, column_drop, row_drop, one_to_one, contiguous, assignment):  # type: ignore[no-untyped-def]
    """Fills ``assignment`` (N,) and returns the cost. Two rolling rows of values, one byte of choice a cell."""
    K, N = costs.shape
    choice = np.empty((K + 1, N + 1), dtype=np.uint8)
    above = np.empty(N + 1)  # D[i - 1, :]
    here = np.empty(N + 1)  # D[i, :]
    above[0] = 0.0
    for j in range(1, N + 1):
        above[j] = _plus(above[j - 1], column_drop[j - 1])
        choice[0, j] = _COLUMN
    for i in range(1, K + 1):
        drop_row = row_drop[i - 1]
        here[0] = _plus(above[0], drop_row)
        choice[i, 0] = _ROW
        in_use = np.inf  # E[i, j - 1]
        for j in range(1, N + 1):
            drop_column = column_drop[j - 1]
            came_from, how = above[j - 1], _BEGIN
            skipped = np.inf
            if not one_to_one:
                if in_use < came_from:
                    came_from, how = in_use, _CONTINUE
                if not contiguous:
                    skipped = _plus(in_use, drop_column)
            in_use = _plus(came_from, costs[i - 1, j - 1])
            if skipped < in_use:
                in_use, how = skipped, _SKIP
            best, last = in_use, _USE
            other = _plus(here[j - 1], drop_column)
            if other < best:
                best, last = other, _COLUMN
            other = _plus(above[j], drop_row)
            if other < best:
                best, last = other, _ROW
            here[j] = best
            choice[i, j] = how | last
        above, here = here, above

    assignment[:] = -1
    cost = above[N]
    if cost == np.inf:
        return cost
    i, j, using = K, N, False
    while i > 0 or j > 0:
        last = choice[i, j] & 3
        if using or last == _USE:
            how = choice[i, j] & 12
            if how != _SKIP:
                assignment[j - 1] = i - 1
            using = how != _BEGIN
            if not using:
                i -= 1
            j -= 1
        elif last == _COLUMN:
            j -= 1
        else:
            i -= 1
    return cost


@_jit
def _align_batch(  # type: ignore[no-untyped-def]
    costs, column_drop, row_drop, row_lengths, lengths, one_to_one, contiguous, matrix, cost
):
    """Fills ``matrix`` (B, K, N), all False so far, and ``cost`` (B,)."""
    assignment = np.empty(costs.shape[2], dtype=np.int64)
    for b in range(costs.shape[0]):
        k, n = row_lengths[b], lengths[b]
        cost[b] = _align(costs[b, :k, :n], column_drop[b, :n], row_drop[b, :k], one_to_one, contiguous, assignment[:n])
        for j in range(n):
            if assignment[j] >= 0:
                matrix[b, assignment[j], j] = True


def align(
    costs: NDArray[np.float64],  # (K, N)
    column_drop: NDArray[np.float64],  # (N,)
    row_drop: NDArray[np.float64],  # (K,)
    one_to_one: bool,
    contiguous: bool,
) -> tuple[float, NDArray[np.int64]]:
    """The cost and the (N,) assignment, exactly as the reference gives them."""
    assignment = np.empty(costs.shape[1], dtype=np.int64)
    return float(_align(costs, column_drop, row_drop, one_to_one, contiguous, assignment)), assignment


def align_batch(
    costs: NDArray[np.float64],  # (B, K, N)
    column_drop: NDArray[np.float64],  # (B, N)
    row_drop: NDArray[np.float64],  # (B, K)
    row_lengths: NDArray[np.int64],  # (B,)
    lengths: NDArray[np.int64],  # (B,)
    one_to_one: bool,
    contiguous: bool,
) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """Matches (B, K, N) and costs (B,) of a padded batch; NaN counts as inf."""
    matrix = np.zeros(costs.shape, dtype=np.bool_)
    cost = np.empty(costs.shape[0])
    _align_batch(costs, column_drop, row_drop, row_lengths, lengths, one_to_one, contiguous, matrix, cost)
    return matrix, cost
