"""How good an encoder's vectors are for steps, measured on videos whose steps people have marked. NumPy only.

Each function takes one video: ``labels`` (N,) int, the step of each vector in the order of the video, -1 where there
is none. Cosine similarity throughout; "centred" takes the video's own mean from its vectors and the step texts' own
mean from theirs.

- ``own_step_accuracy``: does a vector's nearest step, among the video's own, name it?
- ``recall_at``: is the step among the k nearest of a pool of texts, most of them of other tasks?
- ``ordered_mof``: share of vectors right when each goes to one step, in order, no step left out (dynamic programme).
- ``within_between_auc``: probability that two vectors of one step are more alike than two of different steps.
- ``boundaries``: where the video is best cut into as many pieces as it has (least squares, dynamic programme).
- ``boundary_f1``: cuts found within a tolerance, one to one.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepformer.base.arrays import unit
from stepformer.errors import InputError

Floats = NDArray[np.floating]
Ints = NDArray[np.integer]


def similarity(video: Floats, texts: Floats, *, centred: bool = False) -> NDArray[np.float64]:
    """Cosines (N, L) of vectors (N, D) and texts (L, D)."""
    video, texts = unit(video, np.float64), unit(texts, np.float64)
    if centred:
        video, texts = unit(video - video.mean(0)), unit(texts - texts.mean(0))
    return np.asarray(video @ texts.T)


def own_step_accuracy(scores: Floats, labels: Ints, same: Ints) -> tuple[int, int]:
    """(right, counted): ``scores`` (N, K) against the video's K steps; ``same`` (K,) gives equal numbers to steps
    with the same text, which cannot be distinguished."""
    marked = labels >= 0
    best = scores[marked].argmax(1)
    return int((same[best] == same[labels[marked]]).sum()), int(marked.sum())


def recall_at(k: int, scores: Floats, labels: Ints, column_of: Ints) -> tuple[int, int]:
    """(hits, counted): ``scores`` (N, P) against a pool, ``column_of`` (K,) the pool's column of each step."""
    marked = np.flatnonzero(labels >= 0)
    right = scores[marked, column_of[labels[marked]]]
    above = (scores[marked] > right[:, None]).sum(1)
    return int((above < k).sum()), len(marked)


def ordered_assignment(scores: Floats) -> Ints:
    """(N,) step of each row of ``scores`` (N, K): rising, every step taken, total score largest. Needs N >= K."""
    n, k = scores.shape
    if n < k:
        raise InputError(f"{n} vectors cannot take {k} steps in order")
    best = np.full((n, k), -np.inf)
    moved = np.zeros((n, k), bool)
    best[0, 0] = scores[0, 0]
    for i in range(1, n):
        stay, move = best[i - 1], np.concatenate([[-np.inf], best[i - 1, :-1]])
        moved[i] = move > stay
        best[i] = np.maximum(stay, move) + scores[i]
    out = np.empty(n, int)
    step = k - 1
    for i in range(n - 1, -1, -1):
        out[i] = step
        step -= int(moved[i, step])
    return out


def ordered_mof(scores: Floats, labels: Ints) -> tuple[int, int]:
    """(right, counted) over the marked vectors, aligned in order with the steps that are marked at this rate."""
    marked = np.flatnonzero(labels >= 0)
    present = np.unique(labels[marked])
    assigned = present[ordered_assignment(scores[np.ix_(marked, present)])]
    return int((assigned == labels[marked]).sum()), len(marked)


def uniform_mof(labels: Ints) -> tuple[int, int]:
    """(right, counted) when the marked vectors are shared out equally among the steps, in order."""
    marked = np.flatnonzero(labels >= 0)
    present = np.unique(labels[marked])
    assigned = present[np.arange(len(marked)) * len(present) // max(len(marked), 1)]
    return int((assigned == labels[marked]).sum()), len(marked)


def auc(higher: NDArray[np.floating[Any]], lower: NDArray[np.floating[Any]]) -> float:
    """The chance that one of the first exceeds one of the second, the area under the ROC curve; a tie counts half."""
    order = np.sort(lower)
    below = np.searchsorted(order, higher, "left") + np.searchsorted(order, higher, "right")
    return float(below.mean() / 2 / len(order))


def within_between_auc(vectors: Floats, labels: Ints) -> tuple[float, int]:
    """(AUC, pairs): ties count half; (0.5, 0) where one of the two kinds of pair does not occur."""
    marked = np.flatnonzero(labels >= 0)
    x = unit(vectors[marked], np.float64)
    rows, columns = np.triu_indices(len(marked), 1)
    cosines = (x[rows] * x[columns]).sum(1)
    same = labels[marked][rows] == labels[marked][columns]
    inside, across = cosines[same], cosines[~same]
    pairs = len(inside) * len(across)
    return (auc(inside, across), pairs) if pairs else (0.5, 0)


def boundaries(vectors: Floats, pieces: int) -> Ints:
    """The indices (pieces - 1,) before which to cut, so that the pieces' summed squared distance to their own means
    is least."""
    n = len(vectors)
    if not 1 <= pieces <= n:
        raise InputError(f"{n} vectors cannot be cut into {pieces} pieces")
    x = np.asarray(vectors, np.float64)
    sums = np.concatenate([np.zeros((1, x.shape[1])), x.cumsum(0)])
    squares = np.concatenate([[0.0], (x * x).sum(1).cumsum()])
    start, end = np.meshgrid(np.arange(n + 1), np.arange(n + 1), indexing="ij")
    length = np.maximum(end - start, 1)
    gram = sums @ sums.T
    total = np.diag(gram)[None, :] + np.diag(gram)[:, None] - 2 * gram  # |sum of start..end|²
    cost = np.where(end > start, squares[None, :] - squares[:, None] - total / length, np.inf)  # (start, end)
    best = cost[0].copy()  # best[e]: the first e vectors in one piece
    back = np.zeros((pieces, n + 1), int)
    for piece in range(1, pieces):
        whole = best[:, None] + cost
        back[piece] = whole.argmin(0)
        best = whole.min(0)
    cuts, end_at = [], n
    for piece in range(pieces - 1, 0, -1):
        end_at = int(back[piece, end_at])
        cuts.append(end_at)
    return np.array(cuts[::-1], int)


def boundary_f1(found_s: Sequence[float], true_s: Sequence[float], tolerance_s: float = 1.0) -> float:
    """F1 of cuts in seconds, matched one to one within the tolerance; 1 when there are none of either."""
    if not len(found_s) and not len(true_s):
        return 1.0
    if not len(found_s) or not len(true_s):
        return 0.0
    return 2.0 * _matched(sorted(found_s), sorted(true_s), tolerance_s) / (len(found_s) + len(true_s))


def _matched(found: Sequence[float], true: Sequence[float], tolerance_s: float) -> int:
    """The most pairs within the tolerance: on a line, taking them greedily from the left is best."""
    i = j = count = 0
    while i < len(found) and j < len(true):
        gap = found[i] - true[j]
        if abs(gap) <= tolerance_s + 1e-9:
            count, i, j = count + 1, i + 1, j + 1
        elif gap < 0:
            i += 1
        else:
            j += 1
    return count


def true_boundaries(edges_s: Sequence[float], start_s: float, end_s: float, apart_s: float) -> list[float]:
    """The marked edges that vectors ``apart_s`` apart can show: inside the video, not nearer than that to another."""
    inside = sorted({edge for edge in edges_s if start_s + apart_s / 2 < edge < end_s - apart_s / 2})
    kept = inside[:1]
    for edge in itertools.islice(inside, 1, None):
        if edge - kept[-1] >= apart_s:
            kept.append(edge)
    return kept
