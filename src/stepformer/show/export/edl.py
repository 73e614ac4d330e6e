"""CMX 3600 edit decision list (.edl): an event a step, at its own place in time. Whole frames, non-drop timecode.

One video track, so a step is cut where the next begins and one that is then empty is left out, as is what lies past
the end of the video; the notes say so. A step of no length is a frame long. Timecode counts at the nominal rate (30 for
29.97). The format ends at 24 hours and has no escape: names are one line behind ``FROM CLIP NAME``.
"""

from __future__ import annotations

from pathlib import Path

from stepformer.errors import StepFormerError
from stepformer.show.export.options import Options, Rendered, frame_rate
from stepformer.show.writing import flat, one_line, spans, stamp, step_name, within_video
from stepformer.timeline import Timeline

_REEL = "AX"  # what editing programs call a source that is a file and not a tape


def render(timeline: Timeline, options: Options) -> Rendered:
    """The EDL text."""
    stamped = stamp(timeline)
    rate, rate_notes = frame_rate(timeline, options)
    timeline, notes = within_video(timeline)
    nominal = max(1, round(rate))
    title = one_line(options.title or Path(timeline.video).stem) or "steps"
    lines = [f"TITLE: {title}", "FCM: NON-DROP FRAME", ""]
    events, cut = flat(spans(timeline, rate))
    for event, (i, span) in enumerate(events, 1):
        start, end = (_timecode(at, nominal) for at in (span.start, span.end))
        lines.append(f"{event:03d}  {_REEL:<8} V     C        {start} {end} {start} {end}")
        lines.append(f"* FROM CLIP NAME: {step_name(timeline[i], i)}")
    if events:  # a comment belongs to an event; strict readers stumble over one without
        lines.append(f"* {stamped}")
    return Rendered("\n".join(lines) + "\n", (*rate_notes, *notes, *cut))


def _timecode(frame: int, nominal: int) -> str:
    seconds, rest = divmod(frame, nominal)
    if seconds >= 24 * 3600:
        raise StepFormerError("an EDL ends at 24 hours and a step is later than that; write .otio instead")
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}:{rest:02d}"
