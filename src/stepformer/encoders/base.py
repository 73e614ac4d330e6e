"""The one small protocol behind which every video+text encoder stands, and what a video encoder wants to be fed.

An encoder says in ``wants`` which pixels it needs for each vector it makes; ``stepformer.media`` reads exactly
those from a file and hands them to ``encode_video``. Vectors come out at ``rate_hz`` per second: vector ``i`` stands
for the seconds ``[i / rate_hz, (i + 1) / rate_hz)``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from stepformer.errors import InputError
from stepformer.media.picture import FrameSpec

Frames = NDArray[np.uint8]
Vectors = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Encoded:
    """What ``encode_video`` gives: ``vectors`` (N, D) in the shared space, and for some encoders a second
    ``structure`` (N, S), pooled features without a text side, better where boundaries are placed."""

    vectors: Vectors
    structure: Vectors | None = None

    def __post_init__(self) -> None:
        if self.vectors.ndim != 2:
            raise InputError(f"video vectors must be (N, D), got {self.vectors.shape}")
        if self.structure is not None and (self.structure.ndim != 2 or len(self.structure) != len(self.vectors)):
            raise InputError(f"structure {self.structure.shape} does not match vectors {self.vectors.shape}")


@runtime_checkable
class Encoder(Protocol):
    """Video and texts into one space.

    ``encode_video`` takes uint8 clips (N, T, H, W, 3), or frames (N, H, W, 3) when ``wants.frames`` is 1, as
    ``wants`` asks for them, any N: batches of one video may be given in turn. Video vectors are stored raw as
    they come; centring, where a method wants it, is done by who aligns. An encoder whose structure is much cheaper
    than its vectors may have ``encode_often(frames, times)`` too, for pictures that come ``times`` as often as a vector
    of their own is worth its time; one whose texts lie by what they look like may have ``encode_sentences(texts)``, by
    what they mean, for comparing texts with texts; one that looks over the whole video after its clips (UniVL's
    transformer) ``finish(whole)``, given the vectors of all clips once.
    """

    name: str
    license: str
    dim: int
    fingerprint: str  # changes whenever the vectors would: goes into every feature file
    rate_hz: float  # vectors per second of video
    wants: FrameSpec
    structure_dim: int  # 0: no structure vectors

    def encode_text(self, texts: Sequence[str]) -> Vectors:
        """Texts to float32 (L, D) unit vectors."""
        ...

    def encode_video(self, frames: Frames) -> Encoded:
        """Clips or frames to vectors (N, D), and structure (N, S) where the encoder has it."""
        ...


def check_frames(frames: Any, wants: FrameSpec, name: str) -> Frames:
    """The frames if they are what ``wants`` asks for, else an error that says what came."""
    height, width = wants.size
    if wants.resize == "whole" and isinstance(frames, np.ndarray) and frames.ndim >= 4:
        height, width = (min(got, most) for got, most in zip(frames.shape[-3:-1], wants.size, strict=True))
    tail: tuple[int, ...] = (height, width, 3) if wants.frames == 1 else (wants.frames, height, width, 3)
    if not isinstance(frames, np.ndarray) or frames.dtype != np.uint8 or frames.shape[1:] != tail:
        got = f"{frames.dtype} {frames.shape}" if isinstance(frames, np.ndarray) else type(frames).__name__
        raise InputError(f"encoder {name} takes uint8 frames of shape (N, {', '.join(map(str, tail))}), got {got}")
    return frames
