"""Small generated videos that show their own time in the picture, to prove that a decoder gives the right second.

Each frame draws its presentation time in milliseconds as black and white blocks, large enough to survive any
codec; :func:`read_time_s` reads them back, after any scaling. Tests and ``stepformer bench encode`` use them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from stepformer.errors import InputError

COLUMNS, ROWS = 8, 4
_TIME_BITS, _CHECK_BITS = 26, 6  # 2^26 ms are 18 hours
_CLOCK = Fraction(1, 1000)


def draw_time(time_s: float, width: int = 256, height: int = 128) -> npt.NDArray[np.uint8]:
    """A picture (H, W, 3) that shows ``time_s``."""
    value = round(time_s * 1000)
    if not 0 <= value < 1 << _TIME_BITS:
        raise InputError(f"a time code shows 0 to {(1 << _TIME_BITS) / 1000:.0f} s, got {time_s}")
    number = value << _CHECK_BITS | _check(value)
    bits = [number >> (COLUMNS * ROWS - 1 - i) & 1 for i in range(COLUMNS * ROWS)]
    grid = np.array(bits, np.uint8).reshape(ROWS, COLUMNS) * 219 + 16
    rows = np.arange(height) * ROWS // height
    columns = np.arange(width) * COLUMNS // width
    return np.repeat(grid[rows][:, columns, None], 3, axis=2)


def read_time_s(picture: npt.NDArray[np.uint8]) -> float:
    """The time that a picture of :func:`draw_time` shows; :class:`InputError` where it shows none."""
    height, width = picture.shape[:2]
    number = 0
    for row in range(ROWS):
        for column in range(COLUMNS):
            # the middle of a block is clean even where its edges are not
            top, left = (4 * row + 1) * height // (4 * ROWS), (4 * column + 1) * width // (4 * COLUMNS)
            bottom, right = (4 * row + 3) * height // (4 * ROWS), (4 * column + 3) * width // (4 * COLUMNS)
            number = number << 1 | int(picture[top : max(bottom, top + 1), left : max(right, left + 1)].mean() > 127)
    value = number >> _CHECK_BITS
    if number & ((1 << _CHECK_BITS) - 1) != _check(value):
        raise InputError("the picture shows no time code")
    return value / 1000


def _check(value: int) -> int:
    # 0 becomes 21, so that a black picture is not read as second 0
    return (value * 37 + value // 64 * 11 + 21) % (1 << _CHECK_BITS)


def write_clip(
    path: str | os.PathLike[str],
    times_s: Iterable[float],
    *,
    codec: str = "libx264",
    size: tuple[int, int] = (128, 256),
    rate_hz: int = 25,
    group: int | None = None,
    options: Mapping[str, str] | None = None,
    rotation_deg: int = 0,
    start_s: float = 0.0,
    tone_s: float = 0.0,
    tone_start_s: float = 0.0,
    sound_codec: str = "aac",
    pixel_format: str = "yuv420p",
    container_format: str | None = None,
    constant_rate: bool = False,
) -> None:
    """Writes a video whose frame at each of ``times_s`` shows that time.

    ``start_s`` moves all time stamps, not what is shown: the file starts at an odd time. ``group`` is the distance
    of key frames. ``tone_s`` adds that much of a 440 Hz tone from ``tone_start_s`` on. ``rotation_deg`` turns the
    picture on disk and asks the player to turn it back. ``constant_rate`` is for containers without time stamps (avi).
    """
    import av

    height, width = size
    with av.open(str(path), "w", format=container_format) as container:
        stream: Any = container.add_stream(codec, rate=rate_hz, options=dict(options or {}))
        turned = rotation_deg % 180 != 0
        stream.width, stream.height = (height, width) if turned else (width, height)
        stream.pix_fmt = pixel_format
        if not constant_rate:
            stream.codec_context.time_base = _CLOCK
        if group is not None:
            stream.codec_context.gop_size = group
        if rotation_deg:
            stream.set_display_rotation(rotation_deg)
        sound: Any = container.add_stream(sound_codec, rate=48_000, layout="mono") if tone_s else None
        pending = _tone_frames(av, sound, tone_start_s + start_s, tone_s) if sound is not None else iter(())
        tone = next(pending, None)
        for index, time_s in enumerate(times_s):
            # sound goes in as its time comes, or a muxer that interleaves would hold the whole video in memory
            while tone is not None and float(tone.pts * tone.time_base) <= time_s + start_s:
                container.mux(sound.encode(tone))
                tone = next(pending, None)
            picture = draw_time(time_s, width, height)
            # the stored picture, turned counter-clockwise by rotation_deg, is the one drawn
            stored = np.rot90(picture, -(rotation_deg // 90) % 4) if rotation_deg else picture
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(stored), format="rgb24")
            frame.time_base = Fraction(1, rate_hz) if constant_rate else _CLOCK
            frame.pts = index if constant_rate else round((time_s + start_s) * 1000)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
        while tone is not None:
            container.mux(sound.encode(tone))
            tone = next(pending, None)
        if sound is not None:
            container.mux(sound.encode(None))


def _tone_frames(av: Any, stream: Any, start_s: float, length_s: float) -> Any:
    rate, size = 48_000, stream.codec_context.frame_size or 1024
    for first in range(0, round(length_s * rate), size):
        phase = 2 * np.pi * 440 * np.arange(first, first + size) / rate
        frame = av.AudioFrame.from_ndarray((0.5 * np.sin(phase)).astype(np.float32)[None], format="fltp", layout="mono")
        frame.sample_rate = rate
        frame.time_base = Fraction(1, rate)
        frame.pts = first + round(start_s * rate)
        yield frame
