"""Per-video Hungarian: the protocol of clustering methods that treat each video alone (TW-FINCH and others).

Specification
-------------
For each video on its own, clusters are matched to the steps that occur in it so that the overlap in frames is greatest.
Each video gets precision, recall, F1, MoF and the mean Jaccard index over its steps (``iou``: matched frames over the
union of the matched pair, 0 for an unmatched step), and these are averaged over videos. Because every video has its
own matching, scores are higher than under Table 1 and must not be compared with it.

Background is left out of the matching, as in Table 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from stepformer.evaluation.metrics import ratio, score_task, some_videos

METRICS = ("mof", "iou", "f1", "precision", "recall")


def score_per_video(predictions: Sequence[npt.ArrayLike], labels: Sequence[npt.ArrayLike]) -> Mapping[str, float]:
    """Averages over videos of scores under one matching per video; (N_v,) ids each, -1 background."""
    rows = []
    for p, y in some_videos(predictions, labels):
        score = score_task([p], [y])
        rows.append([score.mof, _jaccard(p, y, score.matches), score.f1, score.precision, score.recall])
    return dict(zip(METRICS, np.mean(rows, axis=0).tolist(), strict=True))


def _jaccard(p: npt.NDArray[np.int64], y: npt.NDArray[np.int64], matches: tuple[tuple[int, int], ...]) -> float:
    """Mean over the steps that occur of matched frames / union."""
    total = 0.0
    for cluster, step in matches:
        is_p, is_y = p == cluster, y == step
        total += ratio(int((is_p & is_y).sum()), int((is_p | is_y).sum()))
    return ratio(total, len(np.unique(y[y >= 0])))
