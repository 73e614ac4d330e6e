"""Scores of predictions: metrics, the paper's protocols and those of neighbouring work, tables. NumPy only.

Predictions and labels are int arrays, one id per frame, -1 background.
"""

from __future__ import annotations

from stepformer.evaluation.metrics import (
    LengthError,
    Score,
    frame_count,
    own_labels,
    rasterise,
    resample,
    score_table2,
    score_task,
    score_video,
    task_labels,
)
from stepformer.evaluation.neighbours import (
    moments,
    score_crosstask_recall,
    score_macro,
    score_per_video,
    score_segmental,
)
from stepformer.evaluation.table1 import (
    Table1Options,
    Table1Result,
    TaskInput,
    score_table1,
)

__all__ = [
    "LengthError", "Score", "Table1Options", "Table1Result", "TaskInput", "frame_count", "moments", "own_labels",
    "rasterise", "resample", "score_crosstask_recall", "score_macro", "score_per_video", "score_segmental",
    "score_table1", "score_table2", "score_task", "score_video", "task_labels",
]  # fmt: skip
