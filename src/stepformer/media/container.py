"""Opening any container, and what its header says: length, start, size, tracks, chapters.

Time zero is what a player shows as zero: the earliest start of the file's tracks. Subtitles and chapters count from
there, whatever time stamps the container carries inside.
"""

from __future__ import annotations

import itertools
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stepformer.base.files import no_such
from stepformer.base.guard import plain_file, reader
from stepformer.errors import InputError
from stepformer.timeline import LONGEST_S, Step

_FORMATS = (
    "3g2,3gp,aac,ac3,aiff,amr,ape,apng,asf,av1,avi,caf,dirac,dts,dv,eac3,evc,flac,flv,gif,gxf,h261,h263,h264,hevc,ivf,"
    "live_flv,m4a,m4v,matroska,mj2,mjpeg,mlp,mov,mp3,mp4,mpeg,mpegts,mpegvideo,mxf,nsv,nut,obu,ogg,pva,rm,swf,truehd,"
    "tta,vc1,vvc,w64,wav,webm,wtv,wv,yuv4mpegpipe"
)
"""Containers that are opened. FFmpeg knows 300 more: lists that open other files (concat, hls, dash), pictures, text
drawn on a terminal, devices. None of those is meant as a video."""

BYTES_PER_S = 50
"""No video lasts longer than its bytes at this rate (0.4 kbit/s; slides without sound have ten times as much)."""
STEP_S = 10.0
"""Beyond what its size and header bear out, a video goes on by at most this much from one picture to the next."""
_TRIES = 200  # places that cannot be decoded, before the first frame
_GIVE_UP = 64  # read errors in a row without a good packet
_WAIT_S = 60.0  # for one packet; a file system that is slower than that is down


class VideoWarning(UserWarning):
    """A video that could be read in part; the message says where it broke."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong inside a video: ``kind`` is "truncated", "damaged" or "header"; ``at_s`` where it began."""

    kind: str
    at_s: float
    text: str


@dataclass(frozen=True, slots=True)
class VideoInfo:
    """What the header of a video file says. ``width`` and ``height`` are as shown, turned and with square pixels.

    ``duration_s`` is the header's claim; where the header makes none, or one that the file's size does not bear out
    (``problem`` says so), the file was read through once (``duration_known`` False). ``start_s`` is the container's
    own time stamp of time zero.
    """

    path: str
    duration_s: float
    duration_known: bool
    start_s: float
    width: int
    height: int
    rotation_deg: int  # counter-clockwise turn that the display matrix asks for
    rate_hz: float | None  # average frames per second, where known
    codec: str
    container: str
    audio_tracks: int
    chapters: tuple[Step, ...] = ()
    problem: str = ""


class Clock:
    """Seconds of pictures, from time stamps that are believed as far as the file bears them out.

    One changed byte can move a picture by a billion seconds. So a stamp is believed up to ``free_s``, and beyond that
    where it is at most ``STEP_S`` after the latest; any other picture is taken to follow the latest after ``usual_s``,
    and those behind it move with it.
    """

    def __init__(self, free_s: float, rate_hz: float | None) -> None:
        self.free_s = free_s
        self.usual_s = 1.0 / rate_hz if rate_hz and 1 <= rate_hz <= 1000 else 0.04
        self.doubted = False  # the last stamp
        self._latest_s: float | None = None
        self._shift_s = 0.0

    def believes(self, time_s: float, latest_s: float) -> bool:
        """Whether a time may follow the latest so far."""
        return time_s <= max(self.free_s, latest_s + STEP_S)

    def time_s(self, stamp_s: float | None) -> float:
        """The time of the next picture; ``stamp_s``: its own, None where it has none."""
        follows_s = 0.0 if self._latest_s is None else self._latest_s + self.usual_s
        if stamp_s is None:
            time_s = follows_s
        else:
            latest_s = self._latest_s or 0.0
            near = [
                shift for shift in (0.0, self._shift_s)
                if latest_s - STEP_S <= stamp_s - shift and self.believes(stamp_s - shift, latest_s)
            ]  # fmt: skip
            self.doubted = not near
            self._shift_s = near[0] if near else stamp_s - follows_s
            time_s = stamp_s - self._shift_s
        self._latest_s = time_s if self._latest_s is None else max(self._latest_s, time_s)
        return time_s

    def length_s(self, time_s: float, own_s: float) -> float:
        """How long a picture that comes at ``time_s`` stays, of what it says itself."""
        return own_s if 0 < own_s <= max(self.free_s - time_s, STEP_S) else self.usual_s


def bearable_s(path: str | os.PathLike[str]) -> float:
    """The most seconds that a file of this size is believed to hold."""
    return min(LONGEST_S, 60.0 + _size(path) / BYTES_PER_S)


@reader("video")
def _size(path: str | os.PathLike[str]) -> int:
    """Bytes; a file may vanish while it is read."""
    return Path(path).stat().st_size


class Problems:
    """Collects what is wrong with one video, as data, and warns once per kind."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.found: list[Problem] = []  # so far, in the order in which they were met
        self._damaged: list[float] = []

    def add(self, kind: str, at_s: float, text: str) -> None:
        """One problem; said once."""
        if not any(problem.kind == kind for problem in self.found):
            self.found.append(Problem(kind, max(0.0, at_s), text))
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


@contextmanager
def opened(path: str | os.PathLike[str]) -> Iterator[Any]:
    """The opened container (a PyAV ``InputContainer``); every way this can fail is an :class:`InputError`."""
    import av

    file = Path(path)
    if not file.exists():
        raise no_such(file)
    plain_file(file)
    # "file:" keeps a name such as "12:30.mp4" from being taken for a protocol; the lists keep a file from naming others
    options = {"protocol_whitelist": "file", "format_whitelist": _FORMATS}
    try:
        container = av.open(f"file:{file}", options=options, metadata_errors="replace", timeout=_WAIT_S)
    except (av.error.FFmpegError, ValueError, RuntimeError) as error:
        # what the list of containers leaves out, FFmpeg calls an invalid argument
        why = getattr(error, "strerror", None) or error
        if isinstance(error, av.error.ArgumentError):
            why = "it is not a video container (a list of files, a picture, text?)"
        raise InputError(f"{file} is not a video that FFmpeg can open: {why}") from None
    with container:
        yield container


def video_stream(container: Any, path: str | os.PathLike[str]) -> Any:
    """The video track a player would choose; a cover picture is not a video."""
    from av.stream import Disposition

    real = [stream for stream in container.streams.video if not stream.disposition & Disposition.attached_pic]
    if not real:
        kinds = ", ".join(sorted({stream.type for stream in container.streams})) or "nothing"
        raise InputError(f"{path} has no video track (it holds: {kinds})")
    usable = [stream for stream in real if stream.codec_context is not None]
    if not usable:
        raise InputError(f"{path} holds video of a codec that this FFmpeg cannot decode")
    return max(usable, key=lambda stream: (bool(int(stream.disposition) & 1), -stream.index))  # 1: the default track


def pixel_aspect(stream: Any) -> float:
    """Width of a pixel by its height; 1 where the file says none, or one that no camera has."""
    aspect = float(stream.sample_aspect_ratio or 1)
    return aspect if 0.1 <= aspect <= 10 else 1.0


def origin_s(container: Any, stream: Any) -> float:
    """The container time that players show as zero."""
    first = container.start_time / 1e6 if container.start_time is not None else 0.0
    if first < 0:
        # sound codecs start a few milliseconds early, to be thrown away; the picture does not
        own = float(stream.start_time * stream.time_base) if stream.start_time is not None else 0.0
        return min(0.0, own)
    return float(first)


def probe(path: str | os.PathLike[str]) -> VideoInfo:
    """What a video file is.

    Decodes one frame; reads the file through (without decoding) only where its header gives no length.

    Raises:
        InputError: the file is no video.

    Examples:
        >>> info = probe("pancakes.mp4")
        >>> info.duration_s, info.width, info.height
        (30.0, 64, 48)
    """
    with opened(path) as container:
        stream = video_stream(container, path)
        origin = origin_s(container, stream)
        claimed_s = _header_duration(container, stream, origin)
        duration_s, known, problem = claimed_s, True, ""
        if not 0 < claimed_s <= bearable_s(path):
            with opened(path) as again:
                scanned_s = _scanned_duration(again, video_stream(again, path), origin, path)
            # a file with pictures up to there is that long, however small they are
            known = 0 < 0.9 * claimed_s <= scanned_s <= LONGEST_S
            duration_s = claimed_s if known else scanned_s
            if claimed_s > 0 and not known:
                problem = f"{path} claims to last {claimed_s:.0f} s; its pictures cover {scanned_s:.1f} s"
        frame = _first_frame(container, stream, path)
        if frame is None:
            raise InputError(f"{path} has a video track, but not one frame of it can be decoded")
        rotation = round(frame.rotation / 90) * 90
        context = stream.codec_context
        width, height = max(1, round(context.width * pixel_aspect(stream))), context.height
        if rotation % 180:
            width, height = height, width
        rate = stream.average_rate or stream.guessed_rate
        return VideoInfo(
            str(path), max(0.0, duration_s), known, origin, width, height, rotation, float(rate) if rate else None,
            context.name, container.format.name, len(container.streams.audio), chapters_of(container, origin), problem,
        )  # fmt: skip


def chapters_of(container: Any, origin: float) -> tuple[Step, ...]:
    """Chapter marks as steps; times that make no sense are moved to where they do."""
    found = []
    for entry in container.chapters():
        base = float(entry["time_base"] or 0)
        start = min(max(0.0, entry["start"] * base - origin), LONGEST_S)
        end = min(max(start, entry["end"] * base - origin), LONGEST_S)
        found.append(Step(start, end, entry["metadata"].get("title") or None))
    return tuple(found)


def _header_duration(container: Any, stream: Any, origin: float) -> float:
    """Seconds; 0 or less where the header has none."""
    if container.duration is not None and container.duration > 0:
        # Matroska counts its length from time stamp zero, the others from where they start
        past = origin if "matroska" in container.format.name else 0.0
        return float(container.duration) / 1e6 - past
    start = float(stream.start_time * stream.time_base) if stream.start_time is not None else origin
    return start + float(stream.duration * stream.time_base) - origin if stream.duration else 0.0


def _scanned_duration(container: Any, stream: Any, origin: float, path: str | os.PathLike[str]) -> float:
    """The end of the last picture, from packets; where they carry no time at all, their number by the frame rate."""
    import av

    clock = Clock(bearable_s(path), float(stream.average_rate or stream.guessed_rate or 25))
    end = 0.0
    try:
        for packet in packets_of(container, stream, path):
            if not packet.size:
                continue
            stamp = packet.pts if packet.pts is not None else packet.dts
            time_s = clock.time_s(None if stamp is None else float(stamp * stream.time_base) - origin)
            own_s = float((packet.duration or 0) * stream.time_base)
            end = max(end, time_s + clock.length_s(time_s, own_s))
    except av.error.FFmpegError:
        pass  # as far as it can be read
    return end


def packets_of(
    container: Any, streams: Any, path: str | os.PathLike[str], broken: Callable[[], object] | None = None
) -> Iterator[Any]:
    """The packets of a file, as many as its bytes can make: a damaged index can send the reader round in circles.

    With ``broken``, which is called at each, it goes on over places that cannot be read.
    """
    import av

    left, failures = 10_000 + _size(path), 0
    while left > 0 and failures < _GIVE_UP:
        try:
            for packet in itertools.islice(container.demux(streams), left):
                left -= 1
                failures = 0 if packet.size else failures
                yield packet
            return
        except IndexError:  # PyAV's word for a packet of a stream that the file did not have when it was opened
            left -= 1
        except av.error.FFmpegError as error:
            if broken is None:
                raise
            # where nothing came for a minute, once is enough
            failures += _GIVE_UP if isinstance(error, av.error.ExitError) else 1
            broken()


def copy_packets(packets: Iterable[Any], outside: Any, tracks: Mapping[int, Any], later_s: float = 0.0) -> None:
    """Writes packets into a container, as they are but ``later_s`` seconds later; ``tracks``: its own, by the index of
    the track that a packet is from."""
    for packet in packets:
        if packet.dts is None and packet.pts is None:
            continue  # the empty packet at the end
        shift = round(later_s / packet.stream.time_base)
        if packet.pts is not None:
            packet.pts += shift
        if packet.dts is not None:
            packet.dts += shift
        packet.stream = tracks[packet.stream_index]
        outside.mux(packet)


def _first_frame(container: Any, stream: Any, path: str | os.PathLike[str]) -> Any:
    """The first frame that decodes, over damaged ones; None if none does."""
    import av

    tries = itertools.count(1)
    for packet in packets_of(container, stream, path, lambda: next(tries)):
        try:
            for frame in packet.decode():
                return frame
        except av.error.FFmpegError:
            if next(tries) >= _TRIES:
                break
    return None
