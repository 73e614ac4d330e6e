"""OpenTimelineIO (.otio): a clip a step, at its own place in time, for editing programs. Whole frames.

Overlapping steps go to further tracks. What lies past the end of the video is cut or left out; a step of no length
is a frame long. Score, slot and meta of a step are in its clip's metadata.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from stepformer.show.export.options import Options, Rendered, frame_rate, media_file
from stepformer.show.writing import lanes, spans, stamp, step_name, within_video
from stepformer.timeline import Step, Timeline


def render(timeline: Timeline, options: Options) -> Rendered:
    """The OTIO JSON text."""
    stamped = json.loads(stamp(timeline))
    rate, rate_notes = frame_rate(timeline, options)
    timeline, notes = within_video(timeline)
    all_spans = spans(timeline, rate)
    all_lanes = lanes(all_spans)
    tracks = []
    for lane in range(max(all_lanes, default=0) + 1):
        children: list[dict[str, Any]] = []
        at = 0
        for i, step in enumerate(timeline):
            if all_lanes[i] != lane:
                continue
            span = all_spans[i]
            if span.start > at:
                children.append({"OTIO_SCHEMA": "Gap.1", "source_range": _range(0, span.start - at, rate)})
            children.append(_clip(step, i, _range(span.start, span.end - span.start, rate), _media(timeline, options)))
            at = span.end
        name = "steps" if lane == 0 else f"steps {lane + 1}"
        tracks.append({"OTIO_SCHEMA": "Track.1", "name": name, "kind": "Video", "children": children})
    value = {
        "OTIO_SCHEMA": "Timeline.1",
        "name": options.title or Path(timeline.video).stem,
        "global_start_time": None,
        "metadata": {"stepformer": stamped},
        "tracks": {"OTIO_SCHEMA": "Stack.1", "name": "tracks", "children": tracks},
    }
    return Rendered(json.dumps(value, indent=2, ensure_ascii=False) + "\n", rate_notes + notes)


def _clip(step: Step, index: int, source_range: dict[str, Any], media: dict[str, Any]) -> dict[str, Any]:
    return {
        "OTIO_SCHEMA": "Clip.2",
        "name": step_name(step, index),
        "source_range": source_range,
        "metadata": {"stepformer": step.to_dict()},
        "media_references": {"DEFAULT_MEDIA": media},
        "active_media_reference_key": "DEFAULT_MEDIA",
    }


def _media(timeline: Timeline, options: Options) -> dict[str, Any]:
    found = media_file(timeline, options)
    target = found.resolve().as_uri() if found else (options.video or timeline.video)
    return {"OTIO_SCHEMA": "ExternalReference.1", "target_url": target}


def _range(start: int, duration: int, rate: float) -> dict[str, Any]:
    return {
        "OTIO_SCHEMA": "TimeRange.1",
        "start_time": {"OTIO_SCHEMA": "RationalTime.1", "value": start, "rate": rate},
        "duration": {"OTIO_SCHEMA": "RationalTime.1", "value": duration, "rate": rate},
    }
