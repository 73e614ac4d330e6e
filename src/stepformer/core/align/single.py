"""Alignment of one pair of sequences: what callers give becomes float64 NumPy arrays and is checked here."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stepformer.errors import NonFiniteError, UsageError

if TYPE_CHECKING:
    from torch import Tensor

Costs: TypeAlias = "ArrayLike | Tensor"

Matching = Literal["one_to_one", "many_to_one"]
MATCHINGS = ("one_to_one", "many_to_one")


@dataclass(frozen=True, eq=False)
class Alignment:
    """One alignment of K rows (steps, slots) with N columns (frames, phrases).

    Attributes:
        cost: Matched costs + drop costs of dropped columns + drop costs of dropped rows; ``inf`` if no alignment is
            allowed, and then every column is -1.
        assignment: (N,) int64, read-only: the row of each column, -1 = dropped.
        rows: K, which the assignment alone does not tell.
    """

    cost: float
    assignment: NDArray[np.int64]  # (N,)
    rows: int

    def matrix(self) -> NDArray[np.bool_]:
        """(K, N) bool: which row and column are matched; at most one row per column."""
        return np.asarray(np.arange(self.rows)[:, None] == self.assignment)


def drop_dtw(
    costs: Costs,
    column_drop: Costs | None,
    row_drop: Costs | None = None,
    matching: Matching = "many_to_one",
    contiguous: bool = True,
) -> Alignment:
    """The cheapest ordered alignment of K rows with N columns in which elements may be dropped.

    The total is the matched costs plus the drop costs of dropped columns and dropped rows. ``inf`` forbids a match or
    a drop; if nothing is allowed (more undroppable rows than columns, say) ``.cost`` is ``inf`` and every column is
    -1. ``-inf`` is better than any finite cost, but does not lift what ``+inf`` forbids. Sums are made in float64
    whatever the input. Either side may have no elements.

    Args:
        costs: (K, N) list, array or tensor: the cost of matching row (step, slot) and column (frame, phrase).
        column_drop: Cost of dropping a column: one number, (N,), or None = columns may not be dropped.
        row_drop: Cost of dropping a row: one number, (K,), or None = rows may not be dropped.
        matching: "many_to_one": several columns to one row, never several rows to one column; "one_to_one": at most
            one column per row as well.
        contiguous: A row's columns have no dropped column between them (of no effect one-to-one).

    Raises:
        NonFiniteError: a cost is NaN; the message says where.
        UsageError: shapes that do not fit.

    Examples:
        >>> a = drop_dtw([[0.1, 0.2, 0.9, 0.9], [0.9, 0.9, 0.8, 0.1]], column_drop=0.5)
        >>> a.assignment.tolist(), round(a.cost, 2)      # the third column is dropped
        ([0, 0, -1, 1], 0.9)
    """
    one_to_one = check_matching(matching)
    c = as_costs(costs)
    K, N = c.shape
    u = as_drop(column_drop, N, "column_drop", "column")
    v = as_drop(row_drop, K, "row_drop", "row")
    try:
        from stepformer.core.align import cpu
    except ImportError:  # no numba
        cost = math.nan
    else:
        cost, assignment = cpu.align(c, u, v, one_to_one, contiguous)
    if math.isnan(cost):
        raise_if_nan(c, "costs", ("row", "column"))
        cost, assignment = _with_torch(c, u, v, one_to_one, contiguous)
    assignment.flags.writeable = False
    return Alignment(cost, assignment, K)


def _with_torch(
    costs: NDArray[np.float64],
    column_drop: NDArray[np.float64],
    row_drop: NDArray[np.float64],
    one_to_one: bool,
    contiguous: bool,
) -> tuple[float, NDArray[np.int64]]:
    """A batch of one: without numba, or with a ``-inf``."""
    import torch

    from stepformer.core.align.torch_batch import Problem, align_batch, columns_of

    c, u, v = (torch.from_numpy(values)[None] for values in (costs, column_drop, row_drop))
    rows, columns = (torch.tensor([n]) for n in costs.shape)
    matrix, cost = align_batch(Problem(c, u, v, rows, columns), one_to_one, contiguous)
    return float(cost[0]), columns_of(matrix)[0].numpy()


def check_matching(matching: str) -> bool:
    """Whether the matching is one-to-one; an error for a name that is neither."""
    if matching not in MATCHINGS:
        raise UsageError(f"matching must be {' or '.join(map(repr, MATCHINGS))}, not {matching!r}")
    return matching == "one_to_one"


def as_float64(value: Costs, name: str) -> NDArray[np.float64]:
    """A list, array or tensor (of any device and float type) as a float64 array."""
    if type(value) is np.ndarray and value.dtype == np.float64 and value.flags.c_contiguous:
        return value
    if hasattr(value, "detach"):  # a tensor, recognised without importing torch
        tensor = cast("Tensor", value)
        try:
            value = tensor.numpy()  # NumPy is quicker to widen float32
        except (RuntimeError, TypeError):  # with a gradient, on a GPU, or of a type that NumPy lacks
            value = tensor.detach().cpu().double().numpy()
    try:
        return np.array(value, np.float64, order="C", copy=None)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{name} must be numbers in a rectangular array: {error}") from error


def as_costs(value: Costs, name: str = "costs") -> NDArray[np.float64]:
    """(K, N) float64; NaN is for :func:`raise_if_nan` to find."""
    costs = as_float64(value, name)
    if costs.shape == (0,):
        costs = costs.reshape(0, 0)  # [] is what tolist() makes of no rows
    if costs.ndim != 2:
        raise UsageError(f"{name} must have two axes, rows and columns; the shape is {costs.shape}")
    return costs


def as_drop(value: Costs | None, length: int, name: str, axis: str) -> NDArray[np.float64]:
    """(length,) float64 without NaN, from a scalar, a vector, or None = may not be dropped (inf)."""
    if value is None:
        value = np.inf
    if isinstance(value, float) and not math.isnan(value):
        drop = np.empty(length)
        drop.fill(value)  # a third of the time of np.full
        return drop
    drop = as_float64(value, name)
    if drop.ndim == 0:
        if np.isnan(drop):
            raise NonFiniteError(f"{name} is NaN; give a number, or None where nothing may be dropped")
        return np.full(length, float(drop))
    if drop.shape != (length,):
        raise UsageError(
            f"{name} must be one number or one for each of the {length} {axis}s; its shape is {drop.shape}"
        )
    raise_if_nan(drop, name, (axis,))
    return drop


def raise_if_nan(values: NDArray[np.float64], name: str, axes: tuple[str, ...]) -> None:
    """Raises NonFiniteError with the first position that is NaN."""
    if values.size and np.isnan(values.min()):  # one pass that makes no array: NaN is the minimum of any values with it
        bad = np.isnan(values)
        raise nan_error(name, axes, tuple(int(i) for i in np.argwhere(bad)[0]), int(bad.sum()))


def nan_error(name: str, axes: tuple[str, ...], position: tuple[int, ...], count: int) -> NonFiniteError:
    """The error that says where a NaN is; the alignment of numbers with NaN among them has no meaning."""
    where = ", ".join(f"{axis} {index}" for axis, index in zip(axes, position, strict=True))
    index = ", ".join(map(str, position))
    more = f" ({count} NaN in all)" if count > 1 else ""
    return NonFiniteError(
        f"{name}[{index}] is NaN ({where}){more}; look at what made it, or put inf there to forbid that choice"
    )
