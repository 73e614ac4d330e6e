"""From seconds to frames: labels at 16 frames per second, predictions brought to the same rate.

An annotation from ``start_s`` to ``end_s`` covers the frames floor(start · rate) up to and without ceil(end · rate); a
video of ``duration_s`` has ceil(duration · rate) frames, and what lies beyond its end is cut off. Where two annotations
overlap, the last one in the order given wins. Predictions usually come at one per second: each is repeated for the
label frames of its second. Time stays in seconds until here, so nothing drifts.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from stepformer.data.records import VideoRecord
from stepformer.errors import InputError
from stepformer.evaluation.metrics import BACKGROUND, IntArray, LengthError, check_ids

LABEL_RATE_HZ = 16.0
_EPSILON = 1e-6  # of a frame: 3.2 s at 10 Hz is 32.000000000000004 frames and means 32


def frame_count(duration_s: float, rate_hz: float = LABEL_RATE_HZ) -> int:
    """How many frames a video has at a rate: ceil(duration · rate)."""
    if not (duration_s >= 0 and rate_hz > 0):
        raise InputError(f"a duration must not be negative and a rate must be positive, got {duration_s} and {rate_hz}")
    return int(np.ceil(duration_s * rate_hz - _EPSILON))


def rasterise(segments: Iterable[tuple[int, float, float]], n_frames: int, rate_hz: float = LABEL_RATE_HZ) -> IntArray:
    """Ids (n_frames,) of segments (id, start_s, end_s); -1 where there is none, the last wins where two overlap."""
    out = np.full(n_frames, BACKGROUND, np.int64)
    for step, start_s, end_s in segments:
        first = max(0, int(np.floor(start_s * rate_hz + _EPSILON)))
        out[first : max(first, int(np.ceil(end_s * rate_hz - _EPSILON)))] = step
    return out


def resample(
    prediction: npt.ArrayLike, from_hz: float, n_frames: int, to_hz: float = LABEL_RATE_HZ, slack_s: float = 2.0
) -> IntArray:
    """A prediction at ``from_hz`` as ``n_frames`` ids at ``to_hz``: each frame takes the id at its middle.

    Features are often cut a second short or long, so up to ``slack_s`` missing seconds become background and extra
    ones are cut off; more than that is an error, because it means another video or another rate.
    """
    p = check_ids(prediction, "prediction")
    if not (from_hz > 0 and to_hz > 0):
        raise InputError(f"rates must be positive, got {from_hz} and {to_hz}")
    gap_s = len(p) / from_hz - n_frames / to_hz
    # one prediction stands for a whole 1 / from_hz seconds, of which the video may end anywhere
    if abs(gap_s) > slack_s + 1 / from_hz:
        raise LengthError(
            f"the prediction covers {len(p) / from_hz:.1f} s ({len(p)} at {from_hz:g} Hz) and the video lasts "
            f"{n_frames / to_hz:.1f} s; is the rate right?"
        )
    source = ((np.arange(n_frames) + 0.5) * (from_hz / to_hz)).astype(np.int64)
    out = np.full(n_frames, BACKGROUND, np.int64)
    inside = source < len(p)
    out[inside] = p[source[inside]]
    return out


def task_labels(record: VideoRecord, duration_s: float, rate_hz: float = LABEL_RATE_HZ) -> IntArray:
    """Labels of a video in its task's step indices, file order deciding overlaps: (ceil(duration · rate),)."""
    return rasterise(((a.step, a.start_s, a.end_s) for a in record.labels), frame_count(duration_s, rate_hz), rate_hz)


def own_labels(record: VideoRecord, duration_s: float, rate_hz: float = LABEL_RATE_HZ) -> IntArray:
    """Labels of a video as positions in its own ordered step list, repeats included: (ceil(duration · rate),)."""
    return rasterise(
        ((i, a.start_s, a.end_s) for i, a in enumerate(record.ordered_steps)),
        frame_count(duration_s, rate_hz),
        rate_hz,
    )
