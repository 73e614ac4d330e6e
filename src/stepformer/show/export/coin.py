"""COIN annotation JSON: ``{"database": {video: {..., "annotation": [{id, segment, label}]}}}``. Seconds.

Ids follow ``task_steps`` as CrossTask's numbers do. ``class`` is the ``task`` option, ``subset`` is "testing", and the
video is named by the stem of its file. Overlaps, zero lengths and steps past the end stay.
"""

from __future__ import annotations

import json
from pathlib import PurePath
from typing import Any

from stepformer.show.export.options import Options, Rendered
from stepformer.show.writing import stamp, step_name, step_numbers
from stepformer.timeline import Timeline


def render(timeline: Timeline, options: Options) -> Rendered:
    """The JSON text of one video."""
    numbers = step_numbers(timeline, options.task_steps)
    key = PurePath(timeline.video).stem or "video"
    entry: dict[str, Any] = {
        "video_url": options.video or timeline.video,
        "duration": timeline.duration_s,
        "recipe_type": 0,
        "class": options.task or "",
        "subset": "testing",
        "start": timeline[0].start_s if len(timeline) else 0.0,
        "end": max((step.end_s for step in timeline), default=timeline.duration_s),
        "annotation": [
            {"id": str(n), "segment": [step.start_s, step.end_s], "label": step_name(step, i)}
            for i, (n, step) in enumerate(zip(numbers, timeline, strict=True))
        ],
    }
    value = {"database": {key: entry}, "stepformer": json.loads(stamp(timeline))}
    return Rendered(json.dumps(value, indent=2, ensure_ascii=False) + "\n")
