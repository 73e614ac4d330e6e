"""Label Studio: a task with the steps as a prediction on the video's timeline, to correct by hand. Whole frames.

Frames are counted from 1 and both ends are inclusive, as Label Studio's ``TimelineLabels`` has them. Its labelling
configuration must know the names and the frame rate: :func:`labeling_config` writes one for a timeline, and the
file's notes hold it. Overlaps and steps past the end stay.
"""

from __future__ import annotations

import json
from typing import Any
from xml.etree import ElementTree

from stepformer.show.export.options import Options, Rendered, frame_rate
from stepformer.show.writing import spans, stamp, step_name, step_names, xml_text
from stepformer.timeline import Timeline
from stepformer.version import __version__


def render(timeline: Timeline, options: Options) -> Rendered:
    """The JSON text: a list of one task."""
    rate, notes = frame_rate(timeline, options)
    result: list[dict[str, Any]] = []
    for i, (step, span) in enumerate(zip(timeline, spans(timeline, rate), strict=True)):
        region: dict[str, Any] = {
            "id": f"step{i + 1}",
            "from_name": "steps",
            "to_name": "video",
            "type": "timelinelabels",
            "origin": "prediction",
            "value": {
                "ranges": [{"start": span.start + 1, "end": span.end}],
                "timelinelabels": [step_name(step, i)],
            },
        }
        if step.score is not None:
            region["score"] = step.score
        result.append(region)
    task = {
        "data": {"video": options.video or timeline.video},
        "meta": json.loads(stamp(timeline)),
        "predictions": [{"model_version": f"stepformer {__version__}", "result": result}],
    }
    config = f"labelling configuration for these names: {labeling_config(timeline, rate)}"
    return Rendered(json.dumps([task], indent=2, ensure_ascii=False) + "\n", (*notes, config))


def labeling_config(timeline: Timeline, rate: float) -> str:
    """The labelling configuration (XML on one line) in which the timeline's names exist."""
    view = ElementTree.Element("View")
    ElementTree.SubElement(view, "Video", {"name": "video", "value": "$video", "frameRate": f"{rate:g}"})
    labels = ElementTree.SubElement(view, "TimelineLabels", {"name": "steps", "toName": "video"})
    for name in dict.fromkeys(step_names(timeline)):
        ElementTree.SubElement(labels, "Label", {"value": xml_text(name)})
    return ElementTree.tostring(view, encoding="unicode")
