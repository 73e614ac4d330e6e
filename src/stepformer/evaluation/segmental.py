"""Segmental F1@{10, 25, 50} and edit score (Lea et al. 2017), which supervised action segmentation reports.

Specification
-------------
Prediction and labels use the same step ids. A segment is a run of equal ids; background is no segment.

F1@k: predicted segments are taken in order of time. Each looks for the labelled segment of the same step with the
greatest IoU in frames (the first of equals). If that IoU is at least k/100 and the labelled segment was not yet taken,
it is a true positive and takes it; otherwise a false positive. Labelled segments never taken are false negatives. The
three counts are summed over all videos before F1 is computed.

Edit: 1 - (Levenshtein distance between the two sequences of segment ids) / (length of the longer one), averaged over
videos. It punishes over-segmentation and wrong order, and ignores boundaries. With no segment on either side it
is 0/0, which is 0 here as everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from stepformer.evaluation.metrics import BACKGROUND, IntArray, ratio, some_videos

THRESHOLDS = (10, 25, 50)
METRICS = ("f1@10", "f1@25", "f1@50", "edit")


def runs(ids: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """The runs of equal ids (N,): id, first frame, frame after the last; background runs included."""
    if not len(ids):
        empty = np.empty(0, np.int64)
        return empty, empty, empty
    starts = np.flatnonzero(np.r_[True, ids[1:] != ids[:-1]])
    return ids[starts], starts, np.r_[starts[1:], len(ids)]


def _segments(ids: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    step, start, end = runs(ids)
    keep = step != BACKGROUND
    return step[keep], start[keep], end[keep]


def edit_distance(a: npt.ArrayLike, b: npt.ArrayLike) -> int:
    """Levenshtein distance of two int sequences; one vector operation for each element of ``a``."""
    first, second = np.asarray(a, np.int64), np.asarray(b, np.int64)
    row = np.arange(len(second) + 1)
    steps = np.arange(len(second) + 1)
    for i, value in enumerate(first):
        # substitution and deletion from the row above; insertions along the row are a running minimum
        new = np.minimum(row[1:] + 1, row[:-1] + (second != value))
        full = np.concatenate([[i + 1], new])
        row = np.minimum.accumulate(full - steps) + steps
    return int(row[-1])


def segment_counts(prediction: IntArray, labels: IntArray, threshold: float) -> tuple[int, int, int]:
    """(true positives, false positives, false negatives) of one video at an IoU threshold in [0, 1]."""
    p_id, p_start, p_end = _segments(prediction)
    y_id, y_start, y_end = _segments(labels)
    if not len(p_id) or not len(y_id):
        return 0, len(p_id), len(y_id)
    inter = np.minimum(p_end[:, None], y_end) - np.maximum(p_start[:, None], y_start)
    union = np.maximum(p_end[:, None], y_end) - np.minimum(p_start[:, None], y_start)
    iou = np.where(p_id[:, None] == y_id, np.maximum(inter, 0) / union, 0.0)  # (P, Y)
    best = iou.argmax(axis=1)
    good = iou[np.arange(len(p_id)), best] >= threshold
    hits = len(np.unique(best[good]))  # of several that want one labelled segment, the first gets it
    return hits, len(p_id) - hits, len(y_id) - hits


def score_segmental(predictions: Sequence[npt.ArrayLike], labels: Sequence[npt.ArrayLike]) -> Mapping[str, float]:
    """F1@10, F1@25, F1@50 and edit of videos, (N_v,) ids in the same step ids, -1 background."""
    counts = np.zeros((len(THRESHOLDS), 3), np.int64)
    edits = []
    for p, y in some_videos(predictions, labels):
        counts += [segment_counts(p, y, k / 100) for k in THRESHOLDS]
        a, b = _segments(p)[0], _segments(y)[0]
        longer = max(len(a), len(b))
        edits.append(ratio(longer - edit_distance(a, b), longer))
    f1 = [ratio(2 * int(tp), int(2 * tp + fp + fn)) for tp, fp, fn in counts]
    return dict(zip(METRICS, [*f1, float(np.mean(edits))], strict=True))
