"""What an alignment is: a cost and the row of each column."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from stepformer.errors import UsageError

Matching = Literal["one_to_one", "many_to_one"]
MATCHINGS = ("one_to_one", "many_to_one")


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
        for name, value in (("cost", cost), ("assignment", assignment), ("rows", rows)):
            object.__setattr__(made, name, value)
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
