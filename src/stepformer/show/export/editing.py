"""For editing programs: OpenTimelineIO and CMX 3600 edit decision lists."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from stepformer.errors import StepFormerError
from stepformer.show.export.options import Options, Rendered, frame_rate, media_address
from stepformer.show.writing import flat, lanes, one_line, spans, stamp, within_video
from stepformer.timeline import Timeline


def render_otio(timeline: Timeline, options: Options) -> Rendered:
    """OpenTimelineIO (.otio): one clip per step, at its own place in time, for editing programs. Whole frames.

    Overlapping steps go to further tracks. What lies past the end of the video is cut or left out; a step of no length
    is a frame long. Score, slot and meta of a step are in its clip's metadata.
    """
    stamped = json.loads(stamp(timeline))
    rate, rate_notes = frame_rate(timeline, options)
    timeline, notes = within_video(timeline)
    target = media_address(timeline, options)
    all_spans = spans(timeline, rate)
    all_lanes = lanes(all_spans)
    tracks = []
    for lane in range(max(all_lanes, default=0) + 1):
        children: list[dict[str, Any]] = []
        at = 0
        for step, span, own in zip(timeline, all_spans, all_lanes, strict=True):
            if own != lane:
                continue
            if span.start > at:
                children.append({"OTIO_SCHEMA": "Gap.1", "source_range": _range(0, span.start - at, rate)})
            children.append({
                "OTIO_SCHEMA": "Clip.2",
                "name": span.name,
                "source_range": _range(span.start, span.end - span.start, rate),
                "metadata": {"stepformer": step.to_dict()},
                "media_references": {"DEFAULT_MEDIA": {"OTIO_SCHEMA": "ExternalReference.1", "target_url": target}},
                "active_media_reference_key": "DEFAULT_MEDIA",
            })  # fmt: skip
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


def _range(start: int, duration: int, rate: float) -> dict[str, Any]:
    return {
        "OTIO_SCHEMA": "TimeRange.1",
        "start_time": {"OTIO_SCHEMA": "RationalTime.1", "value": start, "rate": rate},
        "duration": {"OTIO_SCHEMA": "RationalTime.1", "value": duration, "rate": rate},
    }


_REEL = "AX"  # what editing programs call a source that is a file and not a tape


def render_edl(timeline: Timeline, options: Options) -> Rendered:
    """CMX 3600 edit decision list (.edl): one event per step, in its place. Whole frames, non-drop timecode.

    One video track, so a step is cut where the next begins and one that is then empty is left out, as is what lies past
    the end of the video; the notes say so. A step of no length is a frame long. Timecode counts at the nominal rate (30
    for 29.97). The format ends at 24 hours and has no escape: names are one line behind ``FROM CLIP NAME``.
    """
    stamped = stamp(timeline)
    rate, rate_notes = frame_rate(timeline, options)
    timeline, notes = within_video(timeline)
    nominal = max(1, round(rate))
    title = one_line(options.title or Path(timeline.video).stem) or "steps"
    lines = [f"TITLE: {title}", "FCM: NON-DROP FRAME", ""]
    events, cut = flat(spans(timeline, rate))
    for event, span in enumerate(events, 1):
        start, end = (_timecode(at, nominal) for at in (span.start, span.end))
        lines.append(f"{event:03d}  {_REEL:<8} V     C        {start} {end} {start} {end}")
        lines.append(f"* FROM CLIP NAME: {span.name}")
    if events:  # a comment belongs to an event; strict readers stumble over one without
        lines.append(f"* {stamped}")
    return Rendered("\n".join(lines) + "\n", (*rate_notes, *notes, *cut))


def _timecode(frame: int, nominal: int) -> str:
    seconds, rest = divmod(frame, nominal)
    if seconds >= 24 * 3600:
        raise StepFormerError("an EDL ends at 24 hours and a step is later than that; write .otio instead")
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}:{rest:02d}"
