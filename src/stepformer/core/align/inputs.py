"""Checks what callers give to the single-pair functions and brings it into one form: float64 NumPy arrays."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from stepformer.errors import NonFiniteError, UsageError

Matching = Literal["one_to_one", "many_to_one"]
MATCHINGS = ("one_to_one", "many_to_one")


def check_matching(matching: str) -> bool:
    """Whether the matching is one-to-one; an error for a name that is neither."""
    if matching not in MATCHINGS:
        raise UsageError(f"matching is {' or '.join(map(repr, MATCHINGS))}, not {matching!r}")
    return matching == "one_to_one"


def as_float64(value: Any, name: str) -> NDArray[np.float64]:
    """A list, array or tensor (of any device and float type) as a float64 array."""
    if type(value) is np.ndarray and value.dtype == np.float64 and value.flags.c_contiguous:
        return value
    if hasattr(value, "detach"):  # a tensor, told without importing torch
        try:
            value = value.numpy()  # NumPy is quicker to widen float32
        except (RuntimeError, TypeError):  # with a gradient, on a GPU, or of a type that NumPy has not
            value = value.detach().cpu().double().numpy()
    try:
        return np.array(value, np.float64, order="C", copy=None)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{name} must be numbers in a rectangular array: {error}") from error


def as_costs(value: Any, name: str = "costs") -> NDArray[np.float64]:
    """(K, N) float64; NaN is for :func:`raise_if_nan` to find."""
    costs = as_float64(value, name)
    if costs.shape == (0,):
        costs = costs.reshape(0, 0)  # [] is what tolist() makes of no rows
    if costs.ndim != 2:
        raise UsageError(f"{name} must have two axes, rows and columns; the shape is {costs.shape}")
    return costs


def as_drop(value: Any, length: int, name: str, axis: str) -> NDArray[np.float64]:
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
