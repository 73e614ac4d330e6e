"""Vectors and matrices: rows of length 1, rows that add up to 1, and matrices of finite numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from stepformer.errors import InputError, NonFiniteError


def unit(vectors: npt.ArrayLike, dtype: npt.DTypeLike | None = None) -> npt.NDArray[Any]:
    """Vectors (..., D) at length 1; a vector of zeros stays zero. float32 stays float32 unless ``dtype`` is given.

    >>> unit([[3.0, 4.0], [0.0, 0.0]]).tolist()
    [[0.6, 0.8], [0.0, 0.0]]
    """
    array = np.asarray(vectors, dtype)
    if array.dtype.kind != "f" or array.dtype == np.float16:
        array = array.astype(np.float64)
    return np.asarray(array / np.maximum(np.linalg.norm(array, axis=-1, keepdims=True), 1e-12))


def softmax(x: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """(M, P) shares that add up to 1 in each row.

    >>> softmax(np.log([[1.0, 3.0]])).round(2).tolist()
    [[0.25, 0.75]]
    """
    share = np.exp(x - x.max(1, keepdims=True))
    return np.asarray(share / share.sum(1, keepdims=True))


def matrix(value: Any, where: str) -> npt.NDArray[np.float32]:
    """``value`` as float32 (N, D), contiguous; ``where`` begins the sentence on what is wrong with it.

    Raises:
        InputError: it is not a matrix of numbers.
        NonFiniteError: it holds a NaN or an infinity.

    >>> matrix([[1, 2]], "talk.npy: features").dtype
    dtype('float32')
    """
    array = np.asarray(value)
    if array.ndim != 2 or array.dtype.kind not in "fiub":
        raise InputError(f"{where} must be numbers (N, D), got {array.dtype} {array.shape}")
    with np.errstate(over="ignore"):  # what float32 cannot hold is reported below
        out = np.ascontiguousarray(array, np.float32)
    bad = ~np.isfinite(out)
    if bad.any():
        row, column = np.argwhere(bad)[0]
        raise NonFiniteError(
            f"{where}[{row}, {column}] is {out[row, column]}; {int(bad.any(1).sum())} rows are not finite"
        )
    return out
