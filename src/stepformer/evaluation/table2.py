"""Table 2: zero-shot localisation of a given, ordered list of steps, a video at a time.

Specification
-------------
The steps are the video's own annotated steps ordered by time, repeats included: a step done twice stands in the list
twice, at two positions; where two overlap, the later in the list has the frames. The prediction gives each frame a
position in that list, or -1. The video score
(:mod:`stepformer.evaluation.metrics`) has IoU pooled over the video's steps, precision over predicted frames,
recall over labelled frames and MoF over all frames. Scores are averaged over videos, each counting the same.

There may be more steps than slots; a position that no frame takes simply counts against recall and IoU. A video
without annotations is not scored and is not in the average; the caller says how many were left out.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from stepformer.evaluation.hungarian import assign
from stepformer.evaluation.metrics import IntArray, paired, renumber, score_video, some_videos

METRICS = ("iou", "precision", "recall", "mof")


def score_table2(predictions: Sequence[npt.ArrayLike], labels: Sequence[npt.ArrayLike]) -> dict[str, float]:
    """The Table 2 scores, averaged over videos: positions in each video's own step list, -1 background, (N_v,) each.

    Raises:
        LengthError: unequal numbers of videos, or of frames in a video (the message says which).
    """
    scores = [score_video(prediction, truth) for prediction, truth in some_videos(predictions, labels)]
    return {metric: float(np.mean([getattr(score, metric) for score in scores])) for metric in METRICS}


def matched_to_own_steps(prediction: npt.ArrayLike, labels: npt.ArrayLike) -> IntArray:
    """A prediction in ids of its own, renamed to the positions that overlap it most: an oracle's upper bound.

    Not part of the protocol, which asks the method to know which step is which. Ids that no position is left for
    become new ids, which match nothing.
    """
    ((p, y),) = paired([prediction], [labels])
    values, p = renumber(p)
    n_ids, n_steps = len(values), int(y.max(initial=-1)) + 1
    both = (p >= 0) & (y >= 0)
    overlap = np.bincount(p[both] * n_steps + y[both], minlength=n_ids * n_steps).reshape(n_ids, n_steps)
    names = np.append(n_steps + np.arange(n_ids), -1)
    rows, columns = assign(overlap)
    names[rows] = columns
    return names[p]
