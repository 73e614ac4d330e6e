"""The definition of the problem, and its slow, obvious solution: one Python step per cell.

Given costs ``c`` (K, N), column drop costs ``u`` (N,) and row drop costs ``v`` (K,), choose for each column
one row or none, so that the rows of the matched columns never decrease and

- ``one_to_one``: a row has at most one column;
- ``many_to_one``: a row may have several columns; if ``contiguous``, no dropped column lies between them.

A column never has two rows. The cost of a choice is the sum of ``c`` over matched pairs, ``u`` over dropped columns
and ``v`` over rows without a column, and the cheapest choice wins.

**Infinite costs.** ``+inf`` forbids: a choice with a ``+inf`` term costs ``+inf``, even if another term is ``-inf``.
Otherwise a choice with a ``-inf`` term costs ``-inf``, and all such choices are equally good. ``row_drop=None`` is
``+inf`` for every row, ``column_drop=None`` for every column. If every choice costs ``+inf`` the problem is infeasible:
the cost is ``+inf`` and every column is -1.

**Recurrences.** ``D[i, j]`` settles the first i rows and j columns; ``E[i, j]`` does so with row i in use, so that it
may take the next column::

    E[i, j] = c[i, j] + D[i-1, j-1]                                          one_to_one
            = c[i, j] + min(D[i-1, j-1], E[i, j-1])                          many_to_one, contiguous
            = min(c[i, j] + min(D[i-1, j-1], E[i, j-1]), E[i, j-1] + u[j])   many_to_one, not contiguous
    D[i, j] = min(E[i, j], D[i, j-1] + u[j], D[i-1, j] + v[i])

**Ties.** A match goes before a dropped column and that before a dropped row; a row newly begun goes before a row
continued (as seen from the end, where the back-trace starts). Every implementation here follows these rules on the
same float64 sums, so all return the same path.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_INF = math.inf


def _plus(a: float, b: float) -> float:
    """a + b where +inf forbids: inf + -inf is inf, never NaN."""
    return _INF if _INF in (a, b) else a + b


def align(
    costs: NDArray[np.float64],  # (K, N)
    column_drop: NDArray[np.float64],  # (N,)
    row_drop: NDArray[np.float64],  # (K,)
    one_to_one: bool,
    contiguous: bool,
) -> tuple[float, NDArray[np.int64]]:
    """The cost and the (N,) assignment of the cheapest alignment, -1 = dropped. Inputs hold no NaN."""
    K, N = costs.shape
    c: Sequence[Sequence[float]] = costs.tolist()
    u: Sequence[float] = column_drop.tolist()
    v: Sequence[float] = row_drop.tolist()
    D = [[_INF] * (N + 1) for _ in range(K + 1)]
    E = [[_INF] * (N + 1) for _ in range(K + 1)]
    D[0][0] = 0.0
    # how each best value came about: D by "use" (E), "column" or "row"; E by "begin", "continue" or "skip"
    how_d = [[""] * (N + 1) for _ in range(K + 1)]
    how_e = [[""] * (N + 1) for _ in range(K + 1)]

    for i in range(K + 1):
        for j in range(N + 1):
            if i == 0 and j == 0:
                continue
            if i > 0 and j > 0:
                # the sums are made as printed above, min first: another order rounds differently
                came_from, how = D[i - 1][j - 1], "begin"
                if not one_to_one and E[i][j - 1] < came_from:
                    came_from, how = E[i][j - 1], "continue"
                E[i][j], how_e[i][j] = _plus(came_from, c[i - 1][j - 1]), how
                if not one_to_one and not contiguous and _plus(E[i][j - 1], u[j - 1]) < E[i][j]:
                    E[i][j], how_e[i][j] = _plus(E[i][j - 1], u[j - 1]), "skip"
            options = [(E[i][j], "use")]
            if j > 0:
                options.append((_plus(D[i][j - 1], u[j - 1]), "column"))
            if i > 0:
                options.append((_plus(D[i - 1][j], v[i - 1]), "row"))
            D[i][j], how_d[i][j] = min(options, key=lambda option: option[0])  # the first of equals

    assignment = np.full(N, -1, dtype=np.int64)
    if D[K][N] == _INF:
        return _INF, assignment
    i, j, in_use = K, N, False
    while i > 0 or j > 0:
        how = how_d[i][j]
        if in_use or how == "use":
            how = how_e[i][j]
            if how != "skip":
                assignment[j - 1] = i - 1
            in_use = how != "begin"
            i, j = (i - 1 if how == "begin" else i), j - 1
        elif how == "column":
            j -= 1
        else:
            i -= 1
    return D[K][N], assignment
