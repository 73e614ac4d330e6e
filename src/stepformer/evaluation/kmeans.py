"""K-means in NumPy: k-means++ starts, several restarts at once, seeded.

All restarts are one matrix of centres, so that one product gives all distances; restarts that have settled leave
the work. Rows are taken in chunks, so memory is bounded by ``_CHUNK_ENTRIES`` numbers whatever the number of points.
Not SciPy's, which has no restarts, and is not on every machine that trains.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from stepformer.errors import InputError, NonFiniteError, UsageError

KEEP = 0.6  # share of a cluster's members that stay: the others are background
_CHUNK_ENTRIES = 4_000_000

FloatArray = npt.NDArray[np.floating[Any]]


@dataclass(frozen=True, slots=True)
class Clustering:
    """What K-means found: ``labels`` (n,) in [0, k), ``centers`` (k, d), the sum of squared distances."""

    labels: npt.NDArray[np.int64]
    centers: FloatArray
    inertia: float


def kmeans(
    points: npt.ArrayLike, k: int, *, seed: int = 0, restarts: int = 10, max_iterations: int = 100, tol: float = 1e-6
) -> Clustering:
    """The best of ``restarts`` runs of Lloyd's algorithm from k-means++ starts, by sum of squared distances.

    points: (n, d) finite numbers; float32 stays float32. With fewer points than ``k`` there are n clusters of one
    point each. A cluster that runs empty takes the point that lies farthest from its centre, so all k are used
    wherever there are k different points. A run ends when no label changes, or when the centres move less than
    ``tol`` times the spread of the data. The same seed gives the same result.

    Raises:
        InputError: not a matrix, k < 1, or NaN or infinity among the points.
    """
    x = np.asarray(points)
    if x.ndim != 2:
        raise InputError(f"K-means needs points of shape (n, d), got {x.shape}")
    if k < 1 or restarts < 1 or max_iterations < 1:
        raise InputError(
            f"K-means needs k, restarts and max_iterations of at least 1, got {k}, {restarts}, {max_iterations}"
        )
    if x.dtype not in (np.float32, np.float64):
        x = x.astype(np.float64)
    if not np.isfinite(x).all():
        raise NonFiniteError("K-means was given points with NaN or infinity")
    n, width = x.shape
    if n <= k:
        return Clustering(np.arange(n), x.copy(), 0.0)

    mean = x.mean(axis=0)
    x = x - mean  # distances as |x|² - 2xc + |c|² lose less when the data is centred
    rng = np.random.default_rng(seed)
    centers = _starts(x, k, restarts, rng)  # (R, k, d)
    threshold = tol * float(x.var(axis=0).mean()) if width else 0.0

    labels = np.full((restarts, n), -1, np.int64)
    active = np.arange(restarts)
    for _ in range(max_iterations):
        new_labels, distances = _nearest(x, centers[active])  # (A, n) both
        moved_to = _means(x, new_labels, distances, k)
        shift = ((moved_to - centers[active]) ** 2).sum(axis=(1, 2))
        settled = (new_labels == labels[active]).all(axis=1) | (shift <= threshold)
        labels[active], centers[active] = new_labels, moved_to
        active = active[~settled]
        if not active.size:
            break

    labels, distances = _nearest(x, centers)
    inertia = distances.sum(axis=1, dtype=np.float64)
    best = int(np.argmin(inertia))
    return Clustering(labels[best], centers[best] + mean, float(inertia[best]))


def keep_nearest(
    labels: npt.NDArray[np.int64], distances: npt.NDArray[Any], keep: float = KEEP
) -> npt.NDArray[np.int64]:
    """Labels (n,) with the members of each cluster that lie farthest from its centre turned into background, -1.

    ``distances`` (n,) are to the own centre. A cluster of n members keeps floor(keep · n) of them, at least one.
    """
    if not 0 < keep <= 1:
        raise UsageError(f"keep must be in (0, 1], got {keep}")
    order = np.lexsort((distances, labels))  # by cluster, nearest first; ties as they came
    sizes = np.bincount(labels)
    rank = np.arange(len(labels)) - (np.cumsum(sizes) - sizes)[labels[order]]
    kept = np.maximum(1, np.floor(keep * sizes + 1e-9))
    out = labels.copy()
    out[order[rank >= kept[labels[order]]]] = -1
    return out


def _chunks(n: int, per_row: int) -> list[slice]:
    size = max(1, _CHUNK_ENTRIES // max(1, per_row))
    return [slice(i, min(i + size, n)) for i in range(0, n, size)]


def _starts(x: FloatArray, k: int, restarts: int, rng: np.random.Generator) -> FloatArray:
    """k-means++ for all restarts: each next centre is drawn with probability ~ squared distance to the nearest."""
    n, width = x.shape
    centers = np.empty((restarts, k, width), x.dtype)
    squares = np.einsum("nd,nd->n", x, x)
    nearest = np.full((restarts, n), np.inf, x.dtype)
    chosen = rng.integers(n, size=restarts)
    for j in range(k):
        if j:
            cumulative = np.cumsum(nearest, axis=1, dtype=np.float64)  # (R, n)
            total = cumulative[:, -1]
            draw = rng.random(restarts)
            chosen = np.array(
                [
                    # all points coincide with a centre: any will do
                    np.searchsorted(cumulative[r], draw[r] * total[r], side="right") if total[r] > 0 else draw[r] * n
                    for r in range(restarts)
                ]
            ).astype(np.int64)
            chosen = np.minimum(chosen, n - 1)
        centers[:, j] = x[chosen]
        distance = squares[None] - 2 * (centers[:, j] @ x.T) + squares[chosen][:, None]  # (R, n)
        np.minimum(nearest, np.maximum(distance, 0), out=nearest)
        nearest[np.arange(restarts), chosen] = 0  # exactly, against rounding
    return centers


def _nearest(x: FloatArray, centers: FloatArray) -> tuple[npt.NDArray[np.int64], FloatArray]:
    """Label and squared distance of every point in every restart: (R, n) both."""
    restarts, k, width = centers.shape
    labels = np.empty((restarts, len(x)), np.int64)
    distances = np.empty((restarts, len(x)), x.dtype)
    flat = centers.reshape(-1, width)
    squares = np.einsum("kd,kd->k", flat, flat)
    for rows in _chunks(len(x), restarts * k):
        part = (squares - 2 * (x[rows] @ flat.T)).reshape(-1, restarts, k)  # |x|² is the same for all centres
        found = part.argmin(axis=2)  # (chunk, R)
        labels[:, rows] = found.T
        lowest = np.take_along_axis(part, found[:, :, None], axis=2)[:, :, 0]
        distances[:, rows] = np.maximum(lowest + np.einsum("nd,nd->n", x[rows], x[rows])[:, None], 0).T
    return labels, distances


def _means(x: FloatArray, labels: npt.NDArray[np.int64], distances: FloatArray, k: int) -> FloatArray:
    """The mean of each cluster (R, k, d); an empty one takes the point farthest from its centre."""
    restarts, n = labels.shape
    sums = np.zeros((restarts * k, x.shape[1]), x.dtype)
    offsets = np.arange(restarts)[:, None] * k
    sizes = np.bincount((labels + offsets).ravel(), minlength=restarts * k).reshape(restarts, k)
    for rows in _chunks(n, restarts * k):
        member = np.zeros((restarts * k, rows.stop - rows.start), x.dtype)
        member[(labels[:, rows] + offsets).ravel(), np.tile(np.arange(member.shape[1]), restarts)] = 1
        sums += member @ x[rows]
    centers = sums.reshape(restarts, k, -1) / np.maximum(sizes, 1)[:, :, None].astype(x.dtype)
    for r in np.flatnonzero((sizes == 0).any(axis=1)):
        empty = np.flatnonzero(sizes[r] == 0)
        far = np.argsort(-distances[r], kind="stable")[: len(empty)]
        centers[r, empty] = x[far]
    return centers
