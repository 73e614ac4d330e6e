"""Alignment of one pair of sequences."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepformer.core.align.inputs import Matching, as_costs, as_drop, check_matching, raise_if_nan
from stepformer.errors import UsageError


@dataclass(frozen=True, eq=False)
class Alignment:
    """One alignment of K rows (steps, slots) with N columns (frames, phrases).

    ``cost``        matched costs + drop costs of dropped columns + drop costs of dropped rows; ``inf`` if no
                    alignment is allowed, and then every column is -1
    ``assignment``  (N,) int64, read-only: the row of each column, -1 = dropped
    ``rows``        K, which the assignment alone does not tell
    """

    cost: float
    assignment: NDArray[np.int64]  # (N,)
    rows: int

    def __post_init__(self) -> None:
        assignment = np.array(self.assignment, dtype=np.int64)  # a copy, so that nobody else can write to it
        if assignment.ndim != 1:
            raise UsageError(f"an assignment has one axis, the columns; this one has shape {assignment.shape}")
        if assignment.size and (assignment.min() < -1 or assignment.max() >= self.rows):
            raise UsageError(f"an assignment to {self.rows} rows holds -1 to {self.rows - 1}, not {assignment}")
        assignment.flags.writeable = False
        object.__setattr__(self, "assignment", assignment)
        object.__setattr__(self, "cost", float(self.cost))

    @classmethod
    def trusted(cls, cost: float, assignment: NDArray[np.int64], rows: int) -> Alignment:
        """One whose assignment a kernel has just made: neither copied nor checked, which would take as long again."""
        made = object.__new__(cls)
        assignment.flags.writeable = False
        made.__dict__.update(cost=cost, assignment=assignment, rows=rows)
        return made

    @property
    def feasible(self) -> bool:
        """Whether any alignment is allowed: False if all would cost ``inf``."""
        return not math.isinf(self.cost) or self.cost < 0

    @property
    def dropped_rows(self) -> NDArray[np.int64]:
        """The rows without a column, ascending."""
        return np.setdiff1d(np.arange(self.rows), self.assignment)

    @property
    def dropped_columns(self) -> NDArray[np.int64]:
        """The columns without a row, ascending."""
        return np.flatnonzero(self.assignment < 0)

    def matrix(self) -> NDArray[np.bool_]:
        """(K, N) bool: which row and column are matched; at most one row a column."""
        matrix = np.zeros((self.rows, len(self.assignment)), dtype=np.bool_)
        columns = np.flatnonzero(self.assignment >= 0)
        matrix[self.assignment[columns], columns] = True
        return matrix

    def runs(self) -> list[tuple[int, int, int]]:
        """``(row, first column, column after the last)`` of each unbroken run of columns on one row, in order."""
        edges = np.flatnonzero(np.diff(self.assignment)) + 1
        bounds = [0, *edges.tolist(), len(self.assignment)]
        runs = [(int(self.assignment[a]), a, b) for a, b in itertools.pairwise(bounds) if a < b]
        return [run for run in runs if run[0] >= 0]


def drop_dtw(
    costs: Any, column_drop: Any, row_drop: Any = None, matching: Matching = "many_to_one", contiguous: bool = True
) -> Alignment:
    """The cheapest ordered alignment of K rows with N columns in which elements may be dropped.

    ``costs``        (K, N) list, array or tensor: the cost of matching row (step, slot) and column (frame, phrase)
    ``column_drop``  cost of dropping a column: one number, (N,), or None = columns may not be dropped
    ``row_drop``     cost of dropping a row: one number, (K,), or None = rows may not be dropped
    ``matching``     "many_to_one": several columns to one row, never several rows to one column;
                     "one_to_one": at most one column per row as well
    ``contiguous``   a row's columns have no dropped column between them (of no effect one-to-one)

    The total is the matched costs plus the drop costs of dropped columns and dropped rows. ``inf`` forbids a match or
    a drop; if nothing is allowed (more undroppable rows than columns, say) ``.cost`` is ``inf`` and every column is
    -1. ``-inf`` is better than any finite cost, but does not lift what ``+inf`` forbids. Sums are made in float64
    whatever the input. Either side may have no elements.

    >>> a = drop_dtw([[0.1, 0.2, 0.9, 0.9], [0.9, 0.9, 0.8, 0.1]], column_drop=0.5)
    >>> a.assignment.tolist(), round(a.cost, 2)      # the third column is dropped
    ([0, 0, -1, 1], 0.9)

    Raises NonFiniteError, which says where, if a cost is NaN, and UsageError for shapes that do not fit.
    """
    one_to_one = check_matching(matching)
    c = as_costs(costs)
    K, N = c.shape
    u = as_drop(column_drop, N, "column_drop", "column")
    v = as_drop(row_drop, K, "row_drop", "row")
    try:
        from stepformer.core.align import cpu
    except ImportError:  # no numba: the batched torch version, a batch of one
        cost, assignment = _with_torch(c, u, v, one_to_one, contiguous)
    else:
        cost, assignment, plain = cpu.align(c, u, v, one_to_one, contiguous)
        if not plain:
            raise_if_nan(c, "costs", ("row", "column"))
    return Alignment.trusted(cost, assignment, K)


def _with_torch(
    costs: NDArray[np.float64],
    column_drop: NDArray[np.float64],
    row_drop: NDArray[np.float64],
    one_to_one: bool,
    contiguous: bool,
) -> tuple[float, NDArray[np.int64]]:
    import torch

    from stepformer.core.align import torch_batch

    raise_if_nan(costs, "costs", ("row", "column"))
    K, N = costs.shape
    matrix, cost = torch_batch.align_batch(
        torch.from_numpy(costs)[None], torch.from_numpy(column_drop)[None], torch.from_numpy(row_drop)[None],
        torch.tensor([K]), torch.tensor([N]), one_to_one, contiguous,
    )  # fmt: skip
    found = matrix[0].numpy()  # (K, N)
    assignment = np.where(found.any(axis=0), found.argmax(axis=0), -1) if K else np.full(N, -1)
    return float(cost[0]), assignment.astype(np.int64)
