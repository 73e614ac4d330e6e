"""Pictures through torchcodec instead of PyAV, where it is installed: decoding on an NVIDIA GPU, mostly."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from stepformer.errors import InputError, MissingError
from stepformer.media.container import VideoInfo
from stepformer.media.picture import Painter, Picture

_BATCH = 16  # pictures asked for at once


class TorchcodecFrames:
    """The same seconds as :class:`stepformer.media.decode.FrameDecoder` gives, decoded by torchcodec."""

    def __init__(
        self, path: str | os.PathLike[str], info: VideoInfo, painter: Painter, hardware: str | None = None
    ) -> None:
        try:
            from torchcodec.decoders import VideoDecoder
        except ImportError:
            raise MissingError(
                "backend 'torchcodec' needs torchcodec; install it with: pip install torchcodec"
            ) from None
        except (OSError, RuntimeError) as error:
            raise MissingError(
                f"torchcodec is installed but cannot start (it needs FFmpeg's libraries): {error}"
            ) from None
        try:
            self._decoder: Any = VideoDecoder(
                str(path), dimension_order="NHWC", device=hardware or "cpu", seek_mode="exact"
            )
        except (ValueError, RuntimeError) as error:
            raise InputError(f"torchcodec cannot open {path}: {error}") from None
        self._painter = painter
        meta = self._decoder.metadata
        # torchcodec counts in the container's own time stamps
        self._first_s = float(meta.begin_stream_seconds)
        self._last_s = float(meta.end_stream_seconds)
        self._origin = info.start_s
        self.end_s = self._last_s - self._origin

    def pictures(self, times_s: Iterable[float]) -> Iterator[tuple[float, float, Picture]]:
        """(wanted second, presentation time, picture) up to the end of the video."""
        import av

        wanted = itertools.takewhile(lambda t: t < self.end_s, times_s)
        while chunk := list(itertools.islice(wanted, _BATCH)):
            inside = [min(max(t + self._origin, self._first_s), self._last_s - 1e-3) for t in chunk]
            batch = self._decoder.get_frames_played_at(inside)
            for time_s, stamp, data in zip(chunk, batch.pts_seconds.tolist(), batch.data.cpu().numpy(), strict=True):
                # torchcodec has turned the picture already; the painter only scales
                frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(data), format="rgb24")
                yield time_s, stamp - self._origin, self._painter(frame)
