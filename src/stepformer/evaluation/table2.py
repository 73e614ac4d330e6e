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

from stepformer.evaluation.metrics import paired, score_video

METRICS = ("iou", "precision", "recall", "mof")


def score_table2(predictions: Sequence[npt.ArrayLike], labels: Sequence[npt.ArrayLike]) -> dict[str, float]:
    """The Table 2 scores, averaged over videos: positions in each video's own step list, -1 background, (N_v,) each.

    Raises:
        LengthError: unequal numbers of videos, or of frames in a video (the message says which).
    """
    scores = [score_video(prediction, truth) for prediction, truth in paired(predictions, labels, least=1)]
    return {metric: float(np.mean([getattr(score, metric) for score in scores])) for metric in METRICS}
