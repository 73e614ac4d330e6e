"""Small videos that the tests can read frame numbers from, with a tone as sound."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

import numpy as np

BITS = 12


def paint(number: int, scene: int, width: int = 320, height: int = 180) -> np.ndarray:
    """A picture (H, W, 3) with its frame number as black and white blocks along the top, coloured by its scene."""
    hue = scene * 2.4
    ground = [int(110 + 70 * math.cos(hue + k * 2.1)) for k in range(3)]
    picture = np.empty((height, width, 3), np.uint8)
    picture[:] = ground
    slope = np.linspace(-30, 30, width)[None, :, None] + np.linspace(-25, 25, height)[:, None, None]
    picture = np.clip(picture + slope, 0, 255).astype(np.uint8)
    x = int((number * 2) % (width - 60))
    picture[80:140, x : x + 60] = [min(255, g + 80) for g in ground]
    block = width // BITS
    for bit in range(BITS):
        picture[:24, bit * block : (bit + 1) * block] = 235 if number >> bit & 1 else 20
    return picture


def number_of(picture: np.ndarray) -> int:
    """The frame number painted into a picture, whatever its size."""
    height, width = picture.shape[:2]
    block, row = width // BITS, max(1, round(height * 12 / 180))
    return sum(int(picture[row, bit * block + block // 2].mean() > 128) << bit for bit in range(BITS))


def make_video(
    path: Path, seconds: float = 12.0, rate: int = 25, gop: int = 50, scene_s: float = 3.0, sound: bool = True,
    codec: str = "libx264",
) -> Path:  # fmt: skip
    """Writes a video; frame n shows the number n and comes on screen at n / rate."""
    import av

    with av.open(str(path), "w") as out:
        options = {"g": str(gop), "keyint_min": str(gop), "sc_threshold": "0", "bf": "2"} if "264" in codec else {}
        video = out.add_stream(codec, rate=rate, options=options)
        video.width, video.height, video.pix_fmt = 320, 180, "yuv420p"
        if "264" not in codec:
            video.gop_size = gop
        audio = out.add_stream("aac" if path.suffix != ".webm" else "libopus", rate=48000) if sound else None
        if audio is not None:
            audio.layout = "mono"
            t = np.arange(int(seconds * 48000)) / 48000
            tone = (0.2 * np.sin(2 * np.pi * (220 + 40 * np.floor(t)) * t)).astype(np.float32)
        block = 48000 // rate
        for number in range(round(seconds * rate)):
            frame = av.VideoFrame.from_ndarray(paint(number, int(number / rate / scene_s)), "rgb24")
            frame.pts, frame.time_base = number, Fraction(1, rate)
            out.mux(video.encode(frame))
            if audio is not None:
                piece = av.AudioFrame.from_ndarray(tone[None, number * block : (number + 1) * block], "fltp", "mono")
                piece.rate, piece.pts, piece.time_base = 48000, number * block, Fraction(1, 48000)
                out.mux(audio.encode(piece))
        out.mux(video.encode(None))
        if audio is not None:
            out.mux(audio.encode(None))
    return path


def numbers_in(path: Path) -> list[int]:
    """The frame numbers of all frames of a video, decoded by PyAV alone, in the order they are shown."""
    import av

    with av.open(str(path)) as container:
        return [number_of(frame.to_ndarray(format="rgb24")) for frame in container.decode(video=0)]
