"""Vectors as all rooms treat them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def unit(vectors: Any) -> NDArray[Any]:
    """Rows at length 1, in the floating type they came in (float64 otherwise); a row of zeros stays zero."""
    x = np.asarray(vectors)
    if not np.issubdtype(x.dtype, np.floating) or x.dtype == np.float16:
        x = x.astype(np.float64)
    return np.asarray(x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1e-12))
