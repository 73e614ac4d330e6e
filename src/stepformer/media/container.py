"""Opening any container, and what its header says: length, start, size, tracks, chapters.

Time zero is what a player shows as zero: the earliest start of the file's tracks. Subtitles and chapters count from
there, whatever time stamps the container carries inside.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stepformer.base.files import no_such
from stepformer.errors import InputError, MissingError

# FFmpeg opens these too, but as pictures or as text drawn on a terminal: nobody who gives one means a video
_NOT_VIDEO_FORMATS = {"tty", "image2", "ico", "brender_pix", "bin", "xbin", "adf", "idf", "txd"}


class VideoWarning(UserWarning):
    """A video that could be read in part; the message says where it broke."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong inside a video: ``kind`` is "truncated", "damaged" or "header"; ``at_s`` where it began."""

    kind: str
    at_s: float
    text: str


@dataclass(frozen=True, slots=True)
class Chapter:
    """One chapter mark of a container."""

    start_s: float
    end_s: float
    title: str

    def __post_init__(self) -> None:
        start, end = float(self.start_s), float(self.end_s)
        if not (math.isfinite(start) and math.isfinite(end) and 0 <= start <= end):
            raise InputError(f"chapter {self.title!r} needs 0 <= start_s <= end_s, got {self.start_s}, {self.end_s}")
        object.__setattr__(self, "start_s", start)
        object.__setattr__(self, "end_s", end)


@dataclass(frozen=True, slots=True)
class VideoInfo:
    """What a video file says of itself. ``width`` and ``height`` are as shown, turned and with square pixels.

    ``duration_s`` is the header's claim; where the header makes none, the file was read through once
    (``duration_known`` False). ``start_s`` is the container's own time stamp of time zero.
    """

    path: str
    duration_s: float
    duration_known: bool
    start_s: float
    width: int
    height: int
    rotation_deg: int  # counter-clockwise turn that the display matrix asks for
    rate_hz: float | None  # average frames a second, where known
    codec: str
    container: str
    audio_tracks: int
    chapters: tuple[Chapter, ...] = ()


class Problems:
    """Collects what is wrong with one video, as data, and warns once a kind."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._found: list[Problem] = []
        self._damaged: list[float] = []

    def add(self, kind: str, at_s: float, text: str) -> None:
        """One problem; said once."""
        if not any(problem.kind == kind for problem in self._found):
            self._found.append(Problem(kind, max(0.0, at_s), text))
            warnings.warn(text, VideoWarning, stacklevel=3)

    def damage(self, at_s: float) -> None:
        """A place that could not be decoded; the places are reported together by :meth:`settle`."""
        self._damaged.append(max(0.0, at_s))

    def settle(self) -> None:
        """Turns the damaged places of a finished reading into one problem."""
        if self._damaged:
            first, last, count = min(self._damaged), max(self._damaged), len(self._damaged)
            self._damaged = []
            where = f"at {first:.1f} s" if count == 1 else f"in {count} places from {first:.1f} s to {last:.1f} s"
            self.add("damaged", first, f"{self._path} is damaged {where}; the picture before is shown there")

    @property
    def found(self) -> tuple[Problem, ...]:
        """All problems so far, in the order in which they were met."""
        return tuple(self._found)


def import_av() -> Any:
    """PyAV, or an error that says how to get it."""
    try:
        import av
    except ImportError:
        raise MissingError("reading video needs PyAV; install it with: pip install av") from None
    return av


@contextmanager
def opened(path: str | os.PathLike[str], hardware: str | None = None) -> Iterator[Any]:
    """The opened container (a PyAV ``InputContainer``); every way this can fail is an :class:`InputError`."""
    av = import_av()
    file = Path(path)
    if not file.exists():
        raise no_such(file)
    if file.is_dir():
        raise InputError(f"{file} is a folder, not a video file")
    if not file.stat().st_size:
        raise InputError(f"{file} is empty")
    # "file:" keeps a name such as "12:30.mp4" from being taken for a protocol; the whitelist keeps a playlist from
    # fetching what it names over the network
    options = {"protocol_whitelist": "file,crypto,data"}
    try:
        container = av.open(f"file:{file}", options=options, metadata_errors="replace", hwaccel=_hwaccel(av, hardware))
    except (av.error.FFmpegError, ValueError, RuntimeError) as error:
        if hardware is not None:  # the same file has been opened without, so it is not the file
            raise MissingError(f"{file} cannot be decoded on {hardware!r} hardware: {_reason(error)}") from None
        raise InputError(f"{file} is not a video that FFmpeg can open: {_reason(error)}") from None
    except PermissionError as error:
        raise InputError(f"{file} cannot be read: {error}") from None
    with container:
        yield container


def _hwaccel(av: Any, hardware: str | None) -> Any:
    if hardware is None:
        return None
    from av.codec.hwaccel import HWAccel, hwdevices_available

    there = hwdevices_available()
    if hardware not in there:
        known = ", ".join(there) or "none"
        raise MissingError(f"this FFmpeg cannot decode on {hardware!r} hardware; it knows: {known}")
    try:
        return HWAccel(hardware, allow_software_fallback=False)
    except (av.error.FFmpegError, ValueError, RuntimeError) as error:
        raise MissingError(f"no {hardware!r} device can be opened on this machine: {_reason(error)}") from None


def _reason(error: BaseException) -> str:
    return str(getattr(error, "strerror", None) or error)


def video_stream(container: Any, path: str | os.PathLike[str]) -> Any:
    """The video track a player would choose; a cover picture is not a video."""
    names = set(container.format.name.split(","))
    if names & _NOT_VIDEO_FORMATS or any(name.endswith("_pipe") for name in names):
        raise InputError(f"{path} is not a video (FFmpeg takes it for {container.format.name})")
    pictures = [stream for stream in container.streams.video if _is_cover(stream)]
    real = [stream for stream in container.streams.video if stream not in pictures]
    if not real:
        kinds = ", ".join(sorted({stream.type for stream in container.streams})) or "nothing"
        raise InputError(f"{path} has no video track (it holds: {kinds})")
    usable = [stream for stream in real if stream.codec_context is not None]
    if not usable:
        raise InputError(f"{path} holds video of a codec that this FFmpeg cannot decode")
    return max(usable, key=lambda stream: (bool(int(stream.disposition) & 1), -stream.index))  # 1: the default track


def _is_cover(stream: Any) -> bool:
    from av.stream import Disposition

    return bool(stream.disposition & Disposition.attached_pic)


def origin_s(container: Any, stream: Any) -> float:
    """The container time that players show as zero."""
    first = container.start_time / 1e6 if container.start_time is not None else 0.0
    if first < 0:
        # sound codecs start a few milliseconds early, to be thrown away; the picture does not
        own = float(stream.start_time * stream.time_base) if stream.start_time is not None else 0.0
        return min(0.0, own)
    return float(first)


def probe(path: str | os.PathLike[str]) -> VideoInfo:
    """What a video file is. Raises :class:`InputError` for a file that is none.

    Decodes one frame; reads the file through (without decoding) only where its header gives no length.
    """
    with opened(path) as container:
        stream = video_stream(container, path)
        return describe(container, stream, path)


def describe(container: Any, stream: Any, path: str | os.PathLike[str]) -> VideoInfo:
    """:class:`VideoInfo` of a container that was just opened; reads on in it."""
    origin = origin_s(container, stream)
    duration_s, known = _header_duration(container, stream, origin), True
    if duration_s is None:
        with opened(path) as again:
            duration_s, known = _scanned_duration(again, video_stream(again, path), origin), False
    frame = _first_frame(container, stream)
    if frame is None:
        raise InputError(f"{path} has a video track, but not one frame of it can be decoded")
    rotation = round(frame.rotation / 90) * 90
    context = stream.codec_context
    width, height = context.width, context.height
    aspect = stream.sample_aspect_ratio
    if aspect:
        width = max(1, round(width * float(aspect)))
    if rotation % 180:
        width, height = height, width
    rate = stream.average_rate or stream.guessed_rate
    return VideoInfo(
        str(path), max(0.0, duration_s), known, origin, width, height, rotation, float(rate) if rate else None,
        context.name, container.format.name, len(container.streams.audio), chapters_of(container, origin),
    )  # fmt: skip


def chapters_of(container: Any, origin: float) -> tuple[Chapter, ...]:
    """Chapter marks; those whose times make no sense are left out."""
    found = []
    for entry in container.chapters():
        base = float(entry["time_base"] or 0)
        start = max(0.0, entry["start"] * base - origin)
        end = max(start, entry["end"] * base - origin)
        found.append(Chapter(start, end, entry["metadata"].get("title", "")))
    return tuple(found)


def _header_duration(container: Any, stream: Any, origin: float) -> float | None:
    if container.duration is not None and container.duration > 0:
        # Matroska counts its length from time stamp zero, the others from where they start
        past = origin if "matroska" in container.format.name else 0.0
        return float(container.duration) / 1e6 - past
    if stream.duration:
        start = float(stream.start_time * stream.time_base) if stream.start_time is not None else origin
        return start + float(stream.duration * stream.time_base) - origin
    return None


def _scanned_duration(container: Any, stream: Any, origin: float) -> float:
    """The end of the last packet; where packets carry no time at all, their number by the frame rate."""
    av = import_av()
    end, count = 0.0, 0
    try:
        for packet in container.demux(stream):
            if not packet.size:
                continue
            count += 1
            stamp = packet.pts if packet.pts is not None else packet.dts
            if stamp is not None:
                end = max(end, float((stamp + (packet.duration or 0)) * stream.time_base) - origin)
    except av.error.FFmpegError:
        pass  # as far as it can be read
    if not end:
        rate = stream.average_rate or stream.guessed_rate or 25
        end = count / float(rate)
    return end


def _first_frame(container: Any, stream: Any) -> Any:
    """The first frame that decodes, over damaged ones; None if none does."""
    av = import_av()
    for _ in range(200):
        try:
            return next(iter(container.decode(stream)), None)
        except av.error.FFmpegError:
            continue
    return None
