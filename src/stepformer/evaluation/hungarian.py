"""Optimal one-to-one assignment in NumPy: the Hungarian method by shortest augmenting paths.

Given weights (R, C), finds min(R, C) pairs, no row or column twice, of greatest total. Rows are added one
by one; each finds the cheapest chain of re-assignments to a free column with Dijkstra's algorithm on reduced costs,
where one step is one vector operation. O(n³) at worst, with whole numbers exact up to 2⁵³.

Ties are broken as SciPy's ``linear_sum_assignment`` breaks them, because the historical MoF depends on it. SciPy itself
is not needed: validation runs inside training, where there may be torch and NumPy alone.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from stepformer.errors import InputError

IntArray = npt.NDArray[np.int64]


def assign(weights: npt.ArrayLike) -> tuple[IntArray, IntArray]:
    """The best pairs as (rows, columns), rows ascending; both have min(R, C) entries.

    Raises:
        InputError: not a matrix, or an entry that is not finite.
    """
    matrix = np.asarray(weights, dtype=np.float64)  # (R, C)
    if matrix.ndim != 2:
        raise InputError(f"an assignment needs a matrix of weights, got shape {matrix.shape}")
    if not np.isfinite(matrix).all():
        raise InputError("an assignment needs finite weights; there is a NaN or an infinity among them")
    cost = -matrix
    if 0 in cost.shape:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    flipped = cost.shape[0] > cost.shape[1]
    column_of = _solve(cost.T.copy() if flipped else cost)
    if not flipped:
        return np.arange(len(column_of), dtype=np.int64), column_of
    order = np.argsort(column_of)
    return column_of[order], order.astype(np.int64)


def _solve(cost: npt.NDArray[np.float64]) -> IntArray:
    """The column of each row, for a cost (R, C) with R <= C."""
    n_rows, n_columns = cost.shape
    u, v = np.zeros(n_rows), np.zeros(n_columns)  # dual prices of rows and columns
    column_of = np.full(n_rows, -1, np.int64)
    row_of = np.full(n_columns, -1, np.int64)
    for new_row in range(n_rows):
        shortest = np.full(n_columns, np.inf)  # length of the shortest path to each column
        came_from = np.full(n_columns, -1, np.int64)
        open_columns = np.arange(n_columns)[::-1].copy()  # reversed, and closed by swapping: SciPy's tie order
        rows_seen: list[int] = []
        columns_seen: list[int] = []
        row, reached = new_row, 0.0
        while True:
            rows_seen.append(row)
            length = reached + cost[row, open_columns] - u[row] - v[open_columns]
            better = length < shortest[open_columns]
            shortest[open_columns[better]] = length[better]
            came_from[open_columns[better]] = row
            distance = shortest[open_columns]
            reached = float(distance.min())
            ties = np.flatnonzero(distance == reached)
            free = ties[row_of[open_columns[ties]] < 0]
            at = int(free[-1]) if free.size else int(ties[0])
            column = int(open_columns[at])
            columns_seen.append(column)
            open_columns[at] = open_columns[-1]
            open_columns = open_columns[:-1]
            if row_of[column] < 0:
                break
            row = int(row_of[column])

        u[new_row] += reached
        others = np.array(rows_seen[1:], np.int64)
        u[others] += reached - shortest[column_of[others]]
        closed = np.array(columns_seen, np.int64)
        v[closed] -= reached - shortest[closed]

        while True:  # walk the path back, shifting each row to its new column
            row = int(came_from[column])
            row_of[column] = row
            column, column_of[row] = int(column_of[row]), column
            if row == new_row:
                break
    return column_of
