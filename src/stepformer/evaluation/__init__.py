"""Scores of anybody's predictions: metrics, one module a protocol, tables. NumPy only.

Predictions and labels are int arrays, one id a frame, -1 background. Names are loaded when first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stepformer.evaluation.hungarian import assign
    from stepformer.evaluation.metrics import Confusion, LengthError, TaskScore, VideoScore, score_task, score_video
    from stepformer.evaluation.raster import frame_count, own_labels, rasterise, resample, task_labels

_LAZY = {
    **dict.fromkeys(("assign",), "stepformer.evaluation.hungarian"),
    **dict.fromkeys(
        ("Confusion", "LengthError", "TaskScore", "VideoScore", "confusion", "score_task", "score_video"),
        "stepformer.evaluation.metrics",
    ),
    **dict.fromkeys(
        ("frame_count", "own_labels", "rasterise", "resample", "task_labels"), "stepformer.evaluation.raster"
    ),
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'stepformer.evaluation' has no attribute {name!r}")


__all__ = [
    "Confusion", "LengthError", "TaskScore", "VideoScore",
    "assign", "frame_count", "own_labels", "rasterise", "resample", "score_task", "score_video", "task_labels",
]  # fmt: skip
