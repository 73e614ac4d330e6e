"""What neighbouring work reports: per-video matching, the macro score, segmental scores, CrossTask recall.

Predictions and labels are (N_v,) ids, one array per video, -1 background.

**Per video** (TW-FINCH and others, which treat each video alone): clusters are matched to the steps that occur in the
video so that the overlap in frames is greatest, background left out. Each video gets precision, recall, F1, MoF and
the mean Jaccard index over its steps (``iou``: matched frames over the union of the matched pair, 0 for an unmatched
step), averaged over videos. Because every video has its own matching, scores are higher than under Table 1 and must not
be compared with it.

**Macro** (CnC and EgoProceL, Bansal et al. 2022): every key-step counts the same. The number of clusters is fixed,
K = 7 in that literature, whatever the task. All videos of a task are concatenated and one Hungarian matching relates
clusters and steps, background left out. Each step of the task that is labelled anywhere gets precision (matched frames
/ frames of its cluster), recall (matched frames / its frames) and IoU (matched frames / union). They are averaged over
steps, so that a long step does not drown a short one; an unmatched step scores 0. F1 is the harmonic mean of the
averaged precision and recall. Tasks are averaged, each counting the same. The public code averages over the matched
steps alone: with K = 7 clusters and 10 steps the three that cannot be matched are then forgotten, which flatters.

**Segmental** F1@{10, 25, 50} and edit (Lea et al. 2017), which supervised action segmentation reports. Prediction and
labels use the same step ids. A segment is a run of equal ids; background is no segment. F1@k: predicted segments are
taken in order of time. Each looks for the labelled segment of the same step with the greatest IoU in frames (the first
of equals). If that IoU is at least k/100 and the labelled segment was not yet taken, it is a true positive and takes
it; otherwise a false positive. Labelled segments never taken are false negatives. The three counts are summed over all
videos before F1 is computed. Edit: 1 - (Levenshtein distance between the two sequences of segment ids) / (length of the
longer one), averaged over videos. It punishes over-segmentation and wrong order, and ignores boundaries. With no
segment on either side it is 0/0, which is 0 here as everywhere.

**CrossTask recall** (Zhukov et al. 2019): for every video a method names one moment for each step of the task. The
moment counts if it falls into any annotation of that step in that video, on a grid of one second: floor(start) <=
floor(moment) < ceil(end). The recall of a task is the number of moments that count over the number of different steps
annotated, both summed over its videos; tasks are averaged (18 in CrossTask). Moments for steps that are not annotated
in the video cost nothing, and where a method names no moment for a step, that step is missed. Frame-wise predictions
name the middle of the longest run of frames of each step (:func:`moments`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from stepformer.data.records import Annotation
from stepformer.errors import InputError
from stepformer.evaluation.hungarian import assign
from stepformer.evaluation.metrics import (
    BACKGROUND,
    IntArray,
    LengthError,
    check_ids,
    confusion,
    harmonic,
    paired,
    ratio,
    score_task,
)

FIXED_K = 7
MACRO = ("f1", "precision", "recall", "iou")
_PER_VIDEO = ("mof", "iou", "f1", "precision", "recall")
_THRESHOLDS = (10, 25, 50)
_EPSILON = 1e-9
_NO_TASK = "there is no task to score; are there predictions for any annotated video?"


def score_per_video(predictions: Sequence[npt.ArrayLike], labels: Sequence[npt.ArrayLike]) -> Mapping[str, float]:
    """Averages over videos of scores under one matching per video; (N_v,) ids each, -1 background.

    Examples:
        >>> score_per_video([[5, 5, 6]], [[0, 0, 1]])["f1"]
        1.0
    """
    rows = []
    for p, y in paired(predictions, labels, least=1):
        score = score_task([p], [y])
        rows.append([score.mof, _jaccard(p, y, score.matches), score.f1, score.precision, score.recall])
    return dict(zip(_PER_VIDEO, np.mean(rows, axis=0).tolist(), strict=True))


def _jaccard(p: IntArray, y: IntArray, matches: tuple[tuple[int, int], ...]) -> float:
    """Mean over the steps that occur of matched frames / union."""
    total = 0.0
    for cluster, step in matches:
        is_p, is_y = p == cluster, y == step
        total += ratio(int((is_p & is_y).sum()), int((is_p | is_y).sum()))
    return ratio(total, len(np.unique(y[y >= 0])))


def score_macro_task(predictions: Sequence[npt.ArrayLike], labels: Sequence[npt.ArrayLike]) -> Mapping[str, float]:
    """The macro score of one task: (N_v,) cluster ids and step ids, -1 background."""
    counts, *_ = confusion(predictions, labels)
    overlap = counts[1:, 1:]
    of_cluster, of_step = counts[1:].sum(axis=1), counts[:, 1:].sum(axis=0)
    rows, columns = assign(overlap)
    per_step = np.zeros((len(of_step), 3))  # precision, recall, iou
    for r, c in zip(rows, columns, strict=True):
        hit = int(overlap[r, c])
        union = int(of_cluster[r] + of_step[c]) - hit
        per_step[c] = ratio(hit, int(of_cluster[r])), ratio(hit, int(of_step[c])), ratio(hit, union)
    labelled = of_step > 0
    precision, recall, iou = per_step[labelled].mean(axis=0).tolist() if labelled.any() else (0.0, 0.0, 0.0)
    return {"f1": harmonic(precision, recall), "precision": precision, "recall": recall, "iou": iou}


def score_macro(tasks: Mapping[str, tuple[Sequence[npt.ArrayLike], Sequence[npt.ArrayLike]]]) -> Mapping[str, float]:
    """The macro score averaged over tasks: name -> (predictions, labels).

    Examples:
        >>> score_macro({"pancakes": ([[5, 5, 6, 6]], [[0, 0, 0, 1]])})["recall"]
        0.8333333333333333
    """
    if not tasks:
        raise InputError(_NO_TASK)
    scores = [score_macro_task(predictions, labels) for predictions, labels in tasks.values()]
    return {metric: float(np.mean([score[metric] for score in scores])) for metric in MACRO}


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
    """F1@10, F1@25, F1@50 and edit of videos, (N_v,) ids in the same step ids, -1 background.

    Examples:
        >>> score_segmental([[0, 0, 0, 1]], [[0, 1, 1, 1]])
        {'f1@10': 1.0, 'f1@25': 1.0, 'f1@50': 0.0, 'edit': 1.0}
    """
    counts = np.zeros((len(_THRESHOLDS), 3), np.int64)
    edits = []
    for p, y in paired(predictions, labels, least=1):
        counts += [segment_counts(p, y, k / 100) for k in _THRESHOLDS]
        a, b = _segments(p)[0], _segments(y)[0]
        longer = max(len(a), len(b))
        edits.append(ratio(longer - edit_distance(a, b), longer))
    f1 = [ratio(2 * int(tp), int(2 * tp + fp + fn)) for tp, fp, fn in counts]
    return {**{f"f1@{k}": value for k, value in zip(_THRESHOLDS, f1, strict=True)}, "edit": float(np.mean(edits))}


def moments(prediction: npt.ArrayLike, rate_hz: float) -> dict[int, float]:
    """Second of the middle of the longest run of each step id in a frame-wise prediction (N,); the first of equals.

    Examples:
        >>> moments([0, -1, 0, 0, 1], rate_hz=1.0)[0]
        3.0
    """
    ids, starts, ends = runs(check_ids(prediction, "prediction"))
    order = np.lexsort((-starts, ends - starts))  # the longest run of a step comes last, of equals the first
    in_order = zip(*(values[order].tolist() for values in (ids, starts, ends)), strict=True)
    return {step: (start + end) / 2 / rate_hz for step, start, end in in_order if step >= 0}


def hits(named: Mapping[int, float], annotations: Sequence[Annotation]) -> tuple[int, int]:
    """(steps whose moment counts, different steps annotated) of one video."""
    annotated = {a.step for a in annotations}
    found = {
        a.step
        for a in annotations
        if a.step in named and np.floor(a.start_s + _EPSILON) <= np.floor(named[a.step]) < np.ceil(a.end_s - _EPSILON)
    }
    return len(found), len(annotated)


def score_crosstask_recall(
    tasks: Mapping[str, tuple[Sequence[Mapping[int, float]], Sequence[Sequence[Annotation]]]],
) -> Mapping[str, float]:
    """Recall averaged over tasks: name -> (moments of each video by step id, annotations of each video)."""
    if not tasks:
        raise InputError(_NO_TASK)
    recalls = []
    for name, (named, truth) in tasks.items():
        if len(named) != len(truth):
            raise LengthError(f"task {name}: {len(named)} videos have moments and {len(truth)} annotations")
        pairs = [hits(m, a) for m, a in zip(named, truth, strict=True)]
        recalls.append(ratio(sum(found for found, _ in pairs), sum(total for _, total in pairs)))
    return {"recall": float(np.mean(recalls))}
