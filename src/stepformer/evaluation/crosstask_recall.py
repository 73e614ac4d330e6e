"""CrossTask recall (Zhukov et al. 2019): one moment for each step.

Specification
-------------
For every video a method names one moment for each step of the task. The moment counts if it falls into any annotation
of that step in that video, on a grid of one second: floor(start) <= floor(moment) < ceil(end). The recall of a task is
the number of moments that count over the number of different steps annotated, both summed over its videos;
tasks are averaged (18 in CrossTask). Moments for steps that are not annotated in the video cost nothing, and
where a method names no moment for a step, that step is missed.

Frame-wise predictions name the middle of the longest run of frames of each step (:func:`moments`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from stepformer.data.records import Annotation
from stepformer.errors import InputError
from stepformer.evaluation.metrics import LengthError, check_ids, ratio
from stepformer.evaluation.segmental import runs

_EPSILON = 1e-9


def moments(prediction: npt.ArrayLike, rate_hz: float) -> dict[int, float]:
    """Second of the middle of the longest run of each step id in a frame-wise prediction (N,); the first of equals."""
    ids, starts, ends = runs(check_ids(prediction, "prediction"))
    out: dict[int, float] = {}
    longest: dict[int, int] = {}
    for step, start, end in zip(ids.tolist(), starts.tolist(), ends.tolist(), strict=True):
        if step >= 0 and end - start > longest.get(step, 0):
            longest[step] = end - start
            out[step] = (start + end) / 2 / rate_hz
    return out


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
        raise InputError("there is no task to score; are there predictions for any annotated video?")
    recalls = []
    for name, (named, truth) in tasks.items():
        if len(named) != len(truth):
            raise LengthError(f"task {name}: {len(named)} videos have moments and {len(truth)} annotations")
        pairs = [hits(m, a) for m, a in zip(named, truth, strict=True)]
        recalls.append(ratio(sum(found for found, _ in pairs), sum(total for _, total in pairs)))
    return {"recall": float(np.mean(recalls))}
