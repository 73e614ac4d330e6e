"""The sound track as speech recognition wants it: 16 kHz, one channel, float32, sample ``i`` at ``i / 16000`` s."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from stepformer.base.files import replacing
from stepformer.errors import InputError, UsageError
from stepformer.media.container import Clock, Problems, bearable_s, copy_packets, opened, packets_of

SAMPLE_RATE_HZ = 16_000
"""Samples per second of all sound here."""
_SLACK_S = 0.05  # time stamps may wobble this much before silence is put in or samples are cut

Samples = npt.NDArray[np.float32]


def audio_blocks(path: str | os.PathLike[str], block_s: float = 30.0) -> Iterator[Samples]:
    """The sound in blocks of ``block_s`` seconds (the last may be shorter), so that a day of it fits in memory.

    Time zero is the video's: sound that starts late is preceded by silence, and gaps are filled with it, so
    that a word's sample tells its second.

    Raises:
        InputError: there is no sound track.
    """
    if not block_s > 0:
        raise UsageError(f"block_s must be positive, got {block_s}")
    size = max(1, round(block_s * SAMPLE_RATE_HZ))
    waiting: list[Samples] = []
    count = 0
    for piece in _pieces(path):
        waiting.append(piece)
        count += len(piece)
        while count >= size:
            joined = np.concatenate(waiting)
            yield joined[:size]
            waiting, count = [joined[size:]], count - size
    if count:
        yield np.concatenate(waiting)


def read_audio(path: str | os.PathLike[str]) -> Samples:
    """The whole sound track at once: mono, 64 kB per second.

    Raises:
        InputError: there is no sound track.
    """
    blocks = list(audio_blocks(path))
    if not blocks:
        raise InputError(f"{path} has a sound track, but nothing of it can be decoded")
    return np.concatenate(blocks)


def add_sound(video: str | os.PathLike[str], sound: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
    """Writes the pictures of one file with the sound of another, both as they are, not encoded anew."""
    import av

    with opened(video) as pictures, opened(sound) as voice, replacing(target) as temporary:
        sources = (pictures.streams.video[0], voice.streams.audio[0])
        with av.open(str(temporary), "w", format=Path(target).suffix[1:]) as file:
            copies = [file.add_stream_from_template(source) for source in sources]
            for container, source, copy in zip((pictures, voice), sources, copies, strict=True):
                copy_packets(container.demux(source), file, {source.index: copy})


def _pieces(path: str | os.PathLike[str]) -> Iterator[Samples]:
    import av

    rate = SAMPLE_RATE_HZ
    with opened(path) as container:
        if not container.streams.audio:
            raise InputError(f"{path} has no sound track")
        stream = container.streams.audio[0]
        if stream.codec_context is None:
            raise InputError(f"{path} holds sound of a codec that this FFmpeg cannot decode")
        problems = Problems(Path(path))
        origin = max(0.0, container.start_time / 1e6) if container.start_time is not None else 0.0
        resampler = av.AudioResampler(format="flt", layout="mono", rate=rate)
        clock = Clock(bearable_s(path), None)
        done = 0  # samples given so far: the sample clock
        for frame in _frames(container, stream, problems, origin, path):
            if done > clock.free_s * rate:
                break  # a damaged header can stretch one sample to a second
            if frame.pts is not None:
                due_s = float(frame.pts * frame.time_base) - origin
                if due_s - done / rate > _SLACK_S and clock.believes(due_s, done / rate):
                    missing = round(due_s * rate) - done
                    for first in range(0, missing, 60 * rate):
                        yield np.zeros(min(60 * rate, missing - first), np.float32)
                    done += missing
            try:
                heard = resampler.resample(frame)
            except (av.error.FFmpegError, ValueError):  # the sound changes its format, or damage makes it seem so
                problems.damage(done / rate)
                resampler = av.AudioResampler(format="flt", layout="mono", rate=rate)
                continue
            for piece in _samples(heard):
                done += len(piece)
                yield piece
        yield from _samples(resampler.resample(None))
        problems.settle()


def _frames(
    container: Any, stream: Any, problems: Problems, origin: float, path: str | os.PathLike[str]
) -> Iterator[Any]:
    import av

    at_s = 0.0

    def broken() -> None:
        problems.damage(at_s)

    for packet in packets_of(container, stream, path, broken):
        try:
            for frame in packet.decode():
                if frame.pts is not None:
                    at_s = float(frame.pts * frame.time_base) - origin
                yield frame
        except av.error.EOFError:
            return
        except av.error.FFmpegError:
            broken()


def _samples(frames: list[Any]) -> Iterator[Samples]:
    for frame in frames:
        if frame.samples:
            yield frame.to_ndarray().reshape(-1).astype(np.float32, copy=False)
