"""Per-video Hungarian: the protocol of clustering methods that treat each video alone (TW-FINCH and others).

Specification
-------------
For each video on its own, clusters are matched to the steps that occur in it so that the overlap in frames is greatest.
Each video gets precision, recall, F1, MoF and the mean Jaccard index over its steps (``iou``: matched frames over the
union of the matched pair, 0 for an unmatched step), and these are averaged over videos. Because every video has its
own matching, scores are higher than under Table 1 and must not be compared with it.

``background="ignore"`` leaves background out of the matching, as in Table 1. ``background="class"`` treats background
as one more step and the frames without prediction as one more cluster, as is usual where every frame is labelled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from stepformer.errors import InputError, UsageError
from stepformer.evaluation.metrics import LengthError, check_ids, ratio, score_task

METRICS = ("mof", "iou", "f1", "precision", "recall")


def score_per_video(
    predictions: Sequence[npt.ArrayLike], labels: Sequence[npt.ArrayLike], background: str = "ignore"
) -> Mapping[str, float]:
    """Averages over videos of scores under one matching per video; (N_v,) ids each, -1 background."""
    if background not in ("ignore", "class"):
        raise UsageError(f"background must be 'ignore' or 'class', got {background!r}")
    if len(predictions) != len(labels):
        raise LengthError(f"{len(predictions)} videos are predicted and {len(labels)} are labelled")
    if not len(predictions):
        raise InputError("there is no video to score; are there predictions for any annotated video?")
    shift = int(background == "class")
    rows = []
    for v, (prediction, truth) in enumerate(zip(predictions, labels, strict=True)):
        p, y = check_ids(prediction, f"prediction of video {v}"), check_ids(truth, f"labels of video {v}")
        score = score_task([p + shift], [y + shift])
        rows.append([score.mof, _jaccard(p + shift, y + shift, score.matches), score.f1, score.precision, score.recall])
    return dict(zip(METRICS, np.mean(rows, axis=0).tolist(), strict=True))


def _jaccard(p: npt.NDArray[np.int64], y: npt.NDArray[np.int64], matches: tuple[tuple[int, int], ...]) -> float:
    """Mean over the steps that occur of matched frames / union."""
    total = 0.0
    for cluster, step in matches:
        is_p, is_y = p == cluster, y == step
        total += ratio(int((is_p & is_y).sum()), int((is_p | is_y).sum()))
    return ratio(total, len(np.unique(y[y >= 0])))
