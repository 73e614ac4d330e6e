"""FiftyOne: the ``labels.json`` of a ``FiftyOneTemporalDetectionDataset``. Seconds, as ``timestamps``.

The key is the stem of the video's file, which FiftyOne finds in the folder ``data`` beside the file. Names are given as
strings (no ``classes``). Overlaps, zero lengths and steps past the end stay.
"""

from __future__ import annotations

import json
from pathlib import PurePath
from typing import Any

from stepformer.show.export.options import Options, Rendered
from stepformer.show.writing import is_guess, step_name
from stepformer.timeline import Timeline


def render(timeline: Timeline, options: Options) -> Rendered:
    """The JSON text."""
    detections: list[dict[str, Any]] = []
    for i, step in enumerate(timeline):
        detection: dict[str, Any] = {"label": step_name(step, i), "timestamps": [step.start_s, step.end_s]}
        if step.score is not None:
            detection["confidence"] = step.score
        attributes: dict[str, Any] = {"guess": True} if is_guess(step) else {}
        if step.slot is not None:
            attributes["slot"] = step.slot
        if attributes:
            detection["attributes"] = attributes
        detections.append(detection)
    key = PurePath(options.video or timeline.video).stem or "video"
    return Rendered(json.dumps({"labels": {key: detections or None}}, indent=2, ensure_ascii=False) + "\n")
