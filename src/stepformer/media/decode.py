"""Frames at given seconds, decoding as little as the codec allows.

The frame at second ``t`` is the one on screen then: the last whose presentation time is not after ``t``. Which
packets that takes is known before anything is decoded, because packets carry presentation times. So packets are read a
group of pictures at a time, and then

- a group that shows no wanted second is not decoded at all;
- decoding stops at the last wanted picture of a group;
- pictures that no other picture refers to are decoded only where they are wanted themselves;
- where the next wanted second is far away, the file is sought instead of read;
- pictures that will be made much smaller are not freed of block edges first.

Memory is bounded by two groups of compressed packets, cut at ``_MAX_GROUP`` where a file has few key frames.
"""

from __future__ import annotations

import math
import os
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Any

import av

from stepformer.media import container
from stepformer.media.container import STEP_S, Clock, Problems, VideoInfo, bearable_s, opened, packets_of

TOLERANCE_S = 0.0006
"""Matroska rounds time stamps to milliseconds: a frame stamped 0.5 ms late is still the frame of that second."""

SEEK_GAP_S = 20.0
"""From this distance on, seeking beats reading on; ``stepformer bench encode`` measures it."""

_MAX_GROUP = 512  # packets: longer groups of pictures are taken in pieces
_SKIPPABLE = {"h264", "hevc", "mpeg2video", "mpeg4"}  # codecs that say which pictures nothing refers to


@dataclass(slots=True)
class _Group:
    """Packets in decoding order, from a key frame up to the next, or a piece of an overlong group."""

    packets: list[Any] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    continues: bool = False  # does not start with a key frame


class _Targets:
    """Wanted seconds in order, drawn from an iterator that may never end."""

    def __init__(self, times_s: Iterable[float]) -> None:
        self._source = iter(times_s)
        self._ahead: deque[float] = deque()

    def first(self) -> float | None:
        """The next wanted second; None when there are no more."""
        return self.after(-math.inf)

    def up_to(self, time_s: float) -> list[float]:
        """All open seconds not after ``time_s``, without taking them."""
        self.after(time_s)
        return [t for t in self._ahead if t <= time_s]

    def after(self, time_s: float) -> float | None:
        """The first open second after ``time_s``; None when there is none."""
        while not self._ahead or self._ahead[-1] <= time_s:
            if (more := next(self._source, None)) is None:
                return None
            self._ahead.append(more)
        return next(t for t in self._ahead if t > time_s)

    def take(self) -> float:
        """The next wanted second, taken."""
        return self._ahead.popleft()


@dataclass(eq=False)
class FrameDecoder:
    """Decodes one video track once, in order. ``end_s`` and ``last_frame`` are known when :meth:`frames` has run to the
    end."""

    path: str | os.PathLike[str]
    info: VideoInfo
    problems: Problems
    sparse: bool = True  # False decodes everything
    seek_gap_s: float = SEEK_GAP_S
    threads: int = 0  # 0: as many as FFmpeg likes
    longest_gap_s: float = 0.0  # between pictures so far, of which those read before may be part
    # leaves out the filter over block edges: a quarter less time, and at half the size or less about one grey level
    rough: bool = False
    read: int = field(default=0, init=False)  # packets
    decoded: int = field(default=0, init=False)  # pictures
    seeks: int = field(default=0, init=False)
    end_s: float = field(default=0.0, init=False)
    last_frame: Any = field(default=None, init=False)
    pixel_aspect: float = field(default=1.0, init=False)

    def _open(self, stack: ExitStack) -> None:
        stack.close()
        self._container = stack.enter_context(opened(self.path))
        self._stream = container.video_stream(self._container, self.path)
        self._context = self._stream.codec_context
        # FFmpeg's VP9 decoder, several frames at once, crashes on a damaged frame after it was flushed
        self._context.thread_type = "SLICE" if self._context.name == "vp9" else "AUTO"
        self._context.thread_count = self.threads
        self._base = float(self._stream.time_base)
        self.pixel_aspect = container.pixel_aspect(self._stream)
        self._skippable = self._context.name in _SKIPPABLE
        if self.rough and self._skippable:
            self._context.options = {"skip_loop_filter": "all"}
        self._held: Any = None  # the frame on screen so far
        self._held_s = self._last_end_s = float("-inf")
        self._broken_at: float | None = None
        self._origin, self._duration_s = self.info.start_s, self.info.duration_s if self.info.duration_known else None
        free_s = bearable_s(self.path) if self._duration_s is None else self._duration_s
        self._clock = Clock(free_s, self.info.rate_hz)
        self._vetted = False
        self._to_the_end = True
        self._shown_since_seek = True

    def frames(self, times_s: Iterable[float]) -> Iterator[tuple[float, float, Any]]:
        """(wanted second, presentation time of the frame shown then, the frame), for rising ``times_s``.

        Ends where the wanted seconds or the video end, whichever is first.
        """
        targets = _Targets(times_s)
        with ExitStack() as stack:
            self._open(stack)
            try:
                if self.sparse:
                    try:
                        self._vetted = True  # groups are formed of packets whose times are believed
                        yield from self._run_sparse(targets)
                        return
                    except _UntrustedError:
                        # times or key frame marks are missing or lie: read from the start and decode everything
                        self.longest_gap_s = 0.0
                        self._open(stack)
                yield from self._run_plain(targets)
            finally:
                self.problems.settle()

    # -- the two ways ---------------------------------------------------------------------------------------------

    def _run_plain(self, targets: _Targets) -> Iterator[tuple[float, float, Any]]:
        for packet in self._packets():
            for frame in self._decode(packet):
                yield from self._show(frame, targets)
            if targets.first() is None:
                break
        yield from self._finish(targets)

    def _run_sparse(self, targets: _Targets) -> Iterator[tuple[float, float, Any]]:
        groups = self._groups()
        current = next(groups, None)
        joined = True  # the decoder has seen everything right before ``current``
        may_seek = True
        furthest_s = -math.inf
        while current is not None:
            following = next(groups, None)
            known = sorted(current.times + (following.times if following else []))
            furthest_s = max(furthest_s, known[-1])
            wanted, whole, later_too = _needed(targets, known, current, following)
            count = len(current.packets)
            if not whole:
                count = max((i + 1 for i, time_s in enumerate(current.times) if time_s in wanted), default=0)
            if count and not joined:
                yield from self._drain(targets)
            if count:
                yield from self._decode_group(current, count, wanted, targets, after_jump=not joined)
            joined = count == len(current.packets)
            current = following
            if later_too:
                continue
            later = targets.after(known[-1])
            if later is None:
                self._to_the_end = False
                break  # nothing wanted lies in what has not been decoded
            if self._duration_s is not None:
                later = min(later, self._duration_s)  # the end must be seen, to know that it is the end
            if may_seek and following is not None and later - known[-1] > self.seek_gap_s:
                yield from self._drain(targets)
                # else key frames are too far apart for it to pay, or time stamps go back and so would we, endlessly
                may_seek = self._seek(later) > furthest_s
                groups = self._groups(from_key=True)
                current, joined = next(groups, None), False
        yield from self._finish(targets)

    def _decode_group(
        self, group: _Group, count: int, wanted: set[float], targets: _Targets, *, after_jump: bool
    ) -> Iterator[tuple[float, float, Any]]:
        first_s = group.times[0]
        checked = not after_jump
        for packet, time_s in zip(group.packets[:count], group.times[:count], strict=True):
            if after_jump and time_s < first_s:
                continue  # pictures before the key frame refer to the group that was not decoded
            if self._skippable:
                self._context.skip_frame = "DEFAULT" if time_s in wanted else "NONREF"
            for frame in self._decode(packet):
                if not checked:
                    checked = True
                    if not (frame.key_frame or int(frame.pict_type) == 1):
                        raise _UntrustedError  # this "key frame" needs pictures before it
                if frame.interlaced_frame:
                    self._skippable = False  # a frame may then come in two packets, of which one looks unwanted
                    self._context.skip_frame = "DEFAULT"
                yield from self._show(frame, targets)

    # -- pieces ---------------------------------------------------------------------------------------------------

    def _packets(self) -> Iterator[Any]:
        """Packets of the track, on over places that cannot be read."""
        for packet in packets_of(self._container, self._stream, self.path, self._break):
            if packet.size:
                self.read += 1
                if packet.is_corrupt:
                    self.problems.damage(self._time_of(packet))
                yield packet

    def _break(self) -> None:
        if self._broken_at is None:
            self._broken_at = self._last_end_s

    def _groups(self, from_key: bool = False) -> Iterator[_Group]:
        group = _Group()
        latest_s = 0.0
        for packet in self._packets():
            if from_key and not packet.is_keyframe:
                continue
            from_key = False
            if packet.pts is None:
                raise _UntrustedError
            time_s = packet.pts * self._base - self._origin
            if not self._clock.believes(time_s, latest_s) or time_s < latest_s - STEP_S:
                raise _UntrustedError
            latest_s = max(latest_s, time_s)
            if group.packets and (packet.is_keyframe or len(group.packets) >= _MAX_GROUP):
                yield group
                group = _Group(continues=not packet.is_keyframe)
            group.packets.append(packet)
            group.times.append(time_s)
        if group.packets:
            yield group

    def _decode(self, packet: Any) -> list[Any]:
        try:
            frames: list[Any] = self._context.decode(packet)
        except av.error.EOFError:
            return []
        except av.error.FFmpegError:
            self.problems.damage(self._time_of(packet))
            return []
        self.decoded += len(frames)
        return frames

    def _time_of(self, packet: Any) -> float:
        stamp = packet.pts if packet is not None else None
        return float(stamp * self._base - self._origin) if stamp is not None else self._last_end_s

    def _show(self, frame: Any, targets: _Targets) -> Iterator[tuple[float, float, Any]]:
        """A decoded frame comes on screen: every open second before it belongs to the frame before."""
        stamp = frame.pts if frame.pts is not None else frame.dts
        time_s = None if stamp is None else stamp * self._base - self._origin
        if time_s is None or not self._vetted:
            time_s = self._clock.time_s(time_s)
        if frame.is_corrupt:
            self.problems.damage(time_s)
        if self._clock.doubted:
            text = f"has damaged time stamps from {time_s:.1f} s on; pictures there are taken to follow each other"
            self.problems.add("header", time_s, f"{self.path} {text}")
        if time_s < self._held_s - TOLERANCE_S:
            return
        if self._held is not None:
            self.longest_gap_s = max(self.longest_gap_s, min(time_s - self._held_s, 10.0))
        while (target := targets.first()) is not None and target + TOLERANCE_S < time_s:
            shown, shown_s = (self._held, self._held_s) if self._held is not None else (frame, time_s)
            yield targets.take(), shown_s, shown
        self._held, self._held_s = frame, time_s
        self._shown_since_seek = True
        own_s = float(frame.duration * frame.time_base) if frame.duration and frame.time_base else 0.0
        self._last_end_s = time_s + self._clock.length_s(time_s, own_s)

    def _drain(self, targets: _Targets) -> Iterator[tuple[float, float, Any]]:
        """Gets the pictures the decoder still holds, and makes it forget the stream so far."""
        if self._skippable:
            self._context.skip_frame = "DEFAULT"
        for frame in self._decode(None):
            yield from self._show(frame, targets)
        self._context.flush_buffers()

    def _seek(self, time_s: float) -> float:
        """Goes to the last key frame not after ``time_s`` and returns its time.

        Transport streams land anywhere, so the first key frame from there on counts, and if that comes too late the
        jump is tried again from further back.
        """
        for back_s in (0.0, 5.0, 30.0, 120.0):
            stamp = int((max(0.0, time_s - back_s) + self._origin) / self._base)
            try:
                self._container.seek(stamp, stream=self._stream, backward=True)
                packets = packets_of(self._container, self._stream, self.path)
                key = next((p for p in packets if p.size and p.is_keyframe and p.pts is not None), None)
                if key is not None and key.pts * self._base - self._origin <= time_s + TOLERANCE_S:
                    self._container.seek(stamp, stream=self._stream, backward=True)
                    self.seeks += 1
                    self._shown_since_seek = False
                    return float(key.pts * self._base - self._origin)
            except av.error.FFmpegError:
                continue
        raise _UntrustedError  # it moved, but not to where it should: start again and read through

    def _finish(self, targets: _Targets) -> Iterator[tuple[float, float, Any]]:
        yield from self._drain(targets)
        if not self._shown_since_seek:
            raise _UntrustedError
        if self._held is None:
            return
        self.end_s, self.last_frame = self._last_end_s, self._held
        if self._to_the_end and targets.first() is not None:
            self._judge_end()
        while (target := targets.first()) is not None and target < self.end_s - TOLERANCE_S:
            yield targets.take(), self._held_s, self._held

    def _judge_end(self) -> None:
        """The packets are over: is that the end, a still picture under longer sound, or a file cut short?"""
        claimed, at = self._duration_s, self._last_end_s
        short = claimed is not None and claimed - at > max(2.0, 3 * self.longest_gap_s)
        if self._broken_at is None and (not short or self._sound_goes_on()):
            self.end_s = max(self.end_s, claimed or 0.0)
        elif claimed is None or short:
            of = f" of {claimed:.1f} s" if claimed else ""
            text = f"{self.path} breaks off at {at:.1f} s{of}; its first {at:.1f} s are used"
            self.problems.add("truncated", at, text)
        elif self._broken_at is not None:
            self.problems.damage(self._broken_at)

    def _sound_goes_on(self) -> bool:
        """Whether a sound track has packets well after the last picture."""
        after_s = self._last_end_s + 1.0 + self._origin
        for stream in self._container.streams.audio:
            with suppress(av.error.FFmpegError):
                self._container.seek(int(after_s / float(stream.time_base)), stream=stream, backward=True)
                stamps = (packet.pts for packet in packets_of(self._container, stream, self.path))
                if any(stamp is not None and float(stamp * stream.time_base) > after_s for stamp in stamps):
                    return True
        return False


class _UntrustedError(Exception):
    """The packets' time stamps or key frame marks cannot be relied on."""


def _needed(
    targets: _Targets, known: list[float], current: _Group, following: _Group | None
) -> tuple[set[float], bool, bool]:
    """Times of the pictures of ``current`` that open seconds show, whether they need the whole of it, and whether some
    show pictures of ``following``; ``known`` has the sorted times of both.

    A leading picture comes after its key frame in the file and before it on screen; it refers to the group before,
    which must then be decoded whole. So must a group that goes on in the next piece.
    """
    here = set(current.times)
    times: set[float] = set()
    whole = following is not None and following.continues
    in_following = False
    for target in targets.up_to(known[-1]):
        shown = known[max(0, bisect_right(known, target + TOLERANCE_S) - 1)]
        if shown in here:
            times.add(shown)
        else:
            in_following = True
            whole = whole or (following is not None and shown < following.times[0])
    if following is None and targets.first() is not None:
        times.add(known[-1])  # the last picture stays on screen for the seconds that are left
    return times, whole, in_following
