"""Hypothesis strategies for alignment problems of every kind: ties, infinities, empty sides, drops of all forms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

TIES = st.integers(-2, 3).map(float)
REALS = st.floats(-10, 10, width=32)
INFINITE = st.sampled_from([np.inf, -np.inf])
NUMBERS = st.sampled_from([TIES, REALS, TIES | INFINITE, REALS | INFINITE])


@dataclass(frozen=True)
class Problem:
    costs: np.ndarray  # (K, N)
    column_drop: Any  # as given: a number, (N,) or None
    row_drop: Any
    matching: str
    contiguous: bool

    @property
    def column_costs(self) -> np.ndarray:
        """(N,), None = inf, stated here once more so that the tests do not rely on the code they test."""
        return np.broadcast_to(
            np.float64(np.inf if self.column_drop is None else self.column_drop), self.costs.shape[1]
        )

    @property
    def row_costs(self) -> np.ndarray:
        return np.broadcast_to(np.float64(np.inf if self.row_drop is None else self.row_drop), self.costs.shape[0])

    @property
    def rule(self) -> tuple[bool, bool]:
        return self.matching == "one_to_one", self.contiguous


@st.composite
def problems(draw, max_rows=4, max_columns=5, dtypes=(np.float32, np.float64)):
    numbers = draw(NUMBERS)
    dtype = draw(st.sampled_from(dtypes))
    K, N = draw(st.integers(0, max_rows)), draw(st.integers(0, max_columns))

    def array(shape):
        return draw(hnp.arrays(np.float64, shape, elements=numbers, fill=st.nothing())).astype(dtype)

    def drop(length):
        kind = draw(st.sampled_from(["none", "number", "vector"]))
        if kind == "none":
            return None
        return array((length,)) if kind == "vector" else draw(numbers)

    return Problem(
        array((K, N)),
        drop(N),
        drop(K),
        draw(st.sampled_from(["one_to_one", "many_to_one"])),
        draw(st.booleans()),
    )
