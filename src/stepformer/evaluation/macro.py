"""The macro score of CnC and EgoProceL (Bansal et al. 2022): every key-step counts the same.

Specification
-------------
The number of clusters is fixed, K = 7 in that literature, whatever the task. All videos of a task are concatenated and
one Hungarian matching relates clusters and steps, background left out. Each step of the task that is labelled anywhere
gets precision (matched frames / frames of its cluster), recall (matched frames / its frames) and IoU (matched frames /
union). They are averaged over steps, so that a long step does not drown a short one; an unmatched step scores 0.
F1 is the harmonic mean of the averaged precision and recall. Tasks are averaged, each counting the same.

The public code averages over the matched steps alone: with K = 7 clusters and 10 steps the three that cannot be matched
are then forgotten, which flatters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from stepformer.errors import InputError
from stepformer.evaluation.hungarian import assign
from stepformer.evaluation.metrics import confusion, harmonic, ratio

FIXED_K = 7
METRICS = ("f1", "precision", "recall", "iou")


def score_macro_task(predictions: Sequence[npt.ArrayLike], labels: Sequence[npt.ArrayLike]) -> Mapping[str, float]:
    """The macro score of one task: (N_v,) cluster ids and step ids, -1 background."""
    table = confusion(predictions, labels)
    overlap = table.counts[1:, 1:]
    of_cluster, of_step = table.counts[1:].sum(axis=1), table.counts[:, 1:].sum(axis=0)
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
    """The macro score averaged over tasks: name -> (predictions, labels)."""
    if not tasks:
        raise InputError("there is no task to score; are there predictions for any annotated video?")
    scores = [score_macro_task(predictions, labels) for predictions, labels in tasks.values()]
    return {metric: float(np.mean([score[metric] for score in scores])) for metric in METRICS}
