"""Alignment by looking at every choice there is: what all the kernels are tested against."""

from __future__ import annotations

import itertools
import math

import numpy as np


def is_valid(assignment, K: int, one_to_one: bool, contiguous: bool) -> bool:
    """Whether the rows of the matched columns never decrease and the matching's own rule holds."""
    rows = [r for r in assignment if r >= 0]
    if any(not -1 <= r < K for r in assignment) or rows != sorted(rows):
        return False
    if one_to_one:
        return len(set(rows)) == len(rows)
    if contiguous:
        for row in set(rows):
            columns = [j for j, r in enumerate(assignment) if r == row]
            if columns != list(range(columns[0], columns[-1] + 1)):
                return False
    return True


def cost_of(assignment, costs, column_drop, row_drop) -> float:
    """The cost of one choice: +inf forbids, then -inf wins, otherwise the sum."""
    used = {int(r) for r in assignment if r >= 0}
    terms = [float(costs[r][j]) if r >= 0 else float(column_drop[j]) for j, r in enumerate(assignment)]
    terms += [float(row_drop[i]) for i in range(len(row_drop)) if i not in used]
    if math.inf in terms:
        return math.inf
    if -math.inf in terms:
        return -math.inf
    return math.fsum(terms)


def best_cost(costs, column_drop, row_drop, one_to_one: bool, contiguous: bool) -> float:
    """The lowest cost over all valid choices of a row or none (-1) for each column."""
    K, N = np.shape(costs)
    return min(
        cost_of(choice, costs, column_drop, row_drop)
        for choice in itertools.product(range(-1, K), repeat=N)
        if is_valid(choice, K, one_to_one, contiguous)
    )


def close(a: float, b: float) -> bool:
    """Equal to rounding, infinities exactly."""
    return a == b or (math.isfinite(a) and math.isfinite(b) and math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9))
