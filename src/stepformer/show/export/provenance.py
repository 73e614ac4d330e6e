"""Where a file came from, as one line of JSON that fits into any format's comment and can be read back."""

from __future__ import annotations

import json
from typing import Any

from stepformer.timeline import Step, Timeline
from stepformer.version import __version__


def stamp(timeline: Timeline) -> str:
    """One ASCII line: version, video, duration and the timeline's meta; holds no ``--``, which XML comments forbid."""
    value = {
        "made_by": f"stepformer {__version__}",
        "video": timeline.video,
        "duration_s": timeline.duration_s,
        "meta": dict(timeline.meta),
    }
    # inside JSON a hyphen may be written \u002d; outside strings "--" cannot occur
    return json.dumps(value, ensure_ascii=True, default=str).replace("--", "-\\u002d")


def unstamp(text: str) -> dict[str, Any] | None:
    """What :func:`stamp` wrote, or None if ``text`` is something else."""
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) and str(value.get("made_by", "")).startswith("stepformer ") else None


def timeline_of(steps: list[Step], source: str, stamped: dict[str, Any] | None) -> Timeline:
    """A timeline of steps read from a file, with video, duration and meta from its stamp where it has one.

    Without a stamp the video is named ``source`` and is as long as its last step.
    """
    steps = sorted(steps, key=lambda step: step.start_s)
    longest = max((step.end_s for step in steps), default=0.0)
    if stamped is None:
        return Timeline(source, longest, tuple(steps))
    duration, meta = stamped.get("duration_s"), stamped.get("meta")
    return Timeline(
        str(stamped.get("video", source)),
        duration if isinstance(duration, int | float) else longest,
        tuple(steps),
        meta if isinstance(meta, dict) else {},
    )
