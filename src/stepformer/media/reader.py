"""Pictures at given seconds and clips for encoders, in batches of bounded size."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from stepformer.errors import InputError, UsageError
from stepformer.media.container import Problem, Problems, VideoInfo, probe
from stepformer.media.picture import FrameSpec, Painter, Picture, Resize


class VideoReader:
    """One video file, read as often as wanted; ``threads`` are the decoder's (0: as FFmpeg likes).

    ``info`` is what the header says, ``end_s`` where the last full reading found the picture to end.
    """

    def __init__(self, path: str | os.PathLike[str], *, threads: int = 0) -> None:
        self.path = Path(path)
        self._threads = threads
        self.info: VideoInfo = probe(path)
        self._problems = Problems(self.path)
        if self.info.problem:
            self._problems.add("header", 0.0, self.info.problem)
        self.end_s: float | None = None
        self.longest_gap_s = 0.0  # between pictures so far; a reading that starts later goes on from it
        self._last: Picture | None = None  # the very last picture, for what is wanted after it
        self.stats: dict[str, int] = {}

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What was found wrong so far; grows while frames are read."""
        return tuple(self._problems.found)

    def frames_at(
        self,
        times_s: Iterable[float],
        size: tuple[int, int] | None = None,
        resize: Resize = "crop",
        sparse: bool = True,
    ) -> Iterator[tuple[float, float, Picture]]:
        """(second, when the picture on screen then came, the picture (H, W, 3)) at rising ``times_s`` (which may never
        end), up to the end of the video.

        A second before the first picture shows the first picture. ``sparse=False`` decodes every frame on the way.
        """
        return self._pictures(_rising(times_s), Painter(size, resize), sparse=sparse)

    def pictures_at(
        self, times_s: Sequence[float], size: tuple[int, int] | None = None, resize: Resize = "crop"
    ) -> list[tuple[float, Picture] | None]:
        """When the picture at each second came on screen, and the picture (H, W, 3), for seconds in any order; None
        after the end of the video."""
        order = sorted(range(len(times_s)), key=times_s.__getitem__)
        shown = self.frames_at((times_s[i] for i in order), size, resize)
        found = {i: (shown_s, picture) for (_, shown_s, picture), i in zip(shown, order, strict=False)}
        return [found.get(i) for i in range(len(times_s))]

    def seconds(
        self,
        rate_hz: float = 1.0,
        size: tuple[int, int] | None = None,
        resize: Resize = "crop",
        sparse: bool = True,
    ) -> Iterator[tuple[float, float, Picture]]:
        """As :meth:`frames_at`, the picture in the middle of each ``1 / rate_hz`` seconds."""
        if not rate_hz > 0:
            raise UsageError(f"rate_hz must be positive, got {rate_hz}")
        return self.frames_at(((i + 0.5) / rate_hz for i in itertools.count()), size, resize, sparse)

    def clips(
        self, wants: FrameSpec, rate_hz: float = 1.0, batch: int = 8, start: int = 0
    ) -> Iterator[npt.NDArray[np.uint8]]:
        """What an encoder ``wants``, in order: batches (n, H, W, 3), or (n, T, H, W, 3) when it wants T > 1 frames.

        Clip ``i`` stands for the seconds ``[i, i + 1) / rate_hz``; there is one for every such interval whose middle
        lies in the video, and at least one. Pictures before the start or after the end are the first or last. ``start``
        is the first clip to give; it and those behind it are as without ``start``.
        """
        clips = self._clips(wants, rate_hz, start)
        while chunk := list(itertools.islice(clips, batch)):
            stacked = np.stack(chunk)  # (n, T, H, W, 3)
            yield stacked[:, 0] if wants.frames == 1 else stacked

    def _clips(self, wants: FrameSpec, rate_hz: float, start: int) -> Iterator[npt.NDArray[np.uint8]]:
        pictures = self._pictures(
            _merged_times(wants, rate_hz, start),
            Painter(wants.size, wants.resize),
            longest_gap_s=self.longest_gap_s if start else 0.0,
            rough=self.info.height >= 2 * wants.size[0] and self.info.width >= 2 * wants.size[1],
        )
        window: dict[float, Picture] = {}
        last: Picture | None = None
        given = start
        for time_s, _, picture in pictures:
            window[time_s] = last = picture
            while (clip := _clip_times(wants, rate_hz, given))[-1] <= time_s:
                yield np.stack([window[t] for t in clip])
                given += 1
                oldest = _clip_times(wants, rate_hz, given)[0]
                window = {t: kept for t, kept in window.items() if t >= oldest}
        last = self._last if self._last is not None else last
        if last is None:
            raise InputError(f"{self.path}: no frame can be decoded")
        end_s = self.end_s if self.end_s is not None else self.info.duration_s
        while given == 0 or (given + 0.5) / rate_hz < end_s:
            yield np.stack([window.get(t, last) for t in _clip_times(wants, rate_hz, given)])
            given += 1

    def _pictures(
        self, times_s: Iterable[float], painter: Painter, **how: Any
    ) -> Iterator[tuple[float, float, Picture]]:
        from stepformer.media.decode import FrameDecoder

        self.end_s, self._last = None, None
        decoder = FrameDecoder(self.path, self.info, self._problems, threads=self._threads, **how)
        before: tuple[float, Picture] | None = None
        for time_s, shown_s, frame in decoder.frames(times_s):
            # a still picture shown for many seconds is painted once
            if before is None or before[0] != shown_s:
                before = (shown_s, painter(frame, decoder.pixel_aspect))
            self.longest_gap_s = decoder.longest_gap_s
            yield time_s, shown_s, before[1]
        self.end_s = decoder.end_s
        if decoder.last_frame is not None:
            self._last = painter(decoder.last_frame, decoder.pixel_aspect)
        self.stats = {"packets": decoder.read, "decoded": decoder.decoded, "seeks": decoder.seeks}


def _rising(times_s: Iterable[float]) -> Iterator[float]:
    before = -math.inf
    for time_s in times_s:
        if not math.isfinite(time_s) or time_s < before:
            raise UsageError(f"seconds must be finite and increase, got {time_s} after {before}")
        before = time_s
        yield max(0.0, float(time_s))


def _clip_times(wants: FrameSpec, rate_hz: float, index: int) -> list[float]:
    """Seconds of one clip, on a grid of a microsecond, so that clips that overlap share pictures."""
    return [max(0.0, round(t, 6)) for t in wants.times_s(index, rate_hz)]


def _merged_times(wants: FrameSpec, rate_hz: float, start: int) -> Iterator[float]:
    """The seconds of all clips from ``start`` on, each once, rising, without end."""
    pending: set[float] = set()
    for index in itertools.count(start):
        pending.update(_clip_times(wants, rate_hz, index))
        next_first = _clip_times(wants, rate_hz, index + 1)[0]
        ready = sorted(t for t in pending if t < next_first)
        yield from ready
        pending.difference_update(ready)
