"""Chapter marks written into a copy of a video, without encoding anything again."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from stepformer.base import files
from stepformer.errors import InputError, UsageError
from stepformer.media.container import VideoInfo, copy_packets, opened, origin_s, packets_of, probe, video_stream
from stepformer.timeline import Step, Timeline

CHAPTER_SUFFIXES = (".mp4", ".m4v", ".mov", ".mkv", ".webm")
_FROM_ZERO = (".mp4", ".m4v", ".mov")
"""Containers that know chapter starts only, the first at zero: what lies before the first step gets a chapter too."""

OPENING = "Intro"
_COPIED = ("video", "audio", "subtitle")


def write_chapters(
    source: str | os.PathLike[str], target: str | os.PathLike[str], steps: Timeline | Iterable[Step]
) -> VideoInfo:
    """Copies ``source`` to ``target`` with these chapters in place of its own; streams are copied bit for bit.

    A step without a name is called by its number. The container is chosen by the suffix of ``target``: mp4, m4v, mov,
    mkv or webm. ``target`` may be ``source``.
    mp4, m4v and mov keep only where chapters start and want the first at zero: where the first step starts later, a
    chapter called "Intro" goes before it, and a chapter lasts until the next.
    Data tracks (telemetry, time codes) are left behind, as they are by ffmpeg itself.

    Raises:
        UsageError: a suffix of another container.
        InputError: the source is no video.

    Examples:
        >>> info = write_chapters("pancakes.mp4", "chapters.mkv", [Step(0, 10, "crack the eggs"), Step(10, 30)])
        >>> [chapter.label for chapter in info.chapters]
        ['crack the eggs', 'Step 2']
    """
    import av

    suffix = Path(target).suffix.lower()
    if suffix not in CHAPTER_SUFFIXES:
        raise UsageError(
            f"chapters can be written into {', '.join(CHAPTER_SUFFIXES)}, not into {suffix or 'no suffix'}"
        )
    chapters = [replace(step, label=step.label or f"Step {number}") for number, step in enumerate(steps, 1)]
    if suffix in _FROM_ZERO and chapters and chapters[0].start_s > 0:
        chapters.insert(0, Step(0.0, chapters[0].start_s, OPENING))
    with opened(source) as inside:
        origin = origin_s(inside, video_stream(inside, source))
        try:
            with files.replacing(target) as temporary, av.open(str(temporary), "w") as outside:
                outside.metadata.update(inside.metadata)
                tracks = _copied_tracks(inside, outside)
                outside.set_chapters([
                    {"id": number, "start": round(step.start_s * 1000), "end": round(step.end_s * 1000),
                     "time_base": Fraction(1, 1000), "metadata": {"title": step.label or ""}}
                    for number, step in enumerate(chapters, 1)
                ])  # fmt: skip
                packets = packets_of(inside, [inside.streams[index] for index in tracks], source)
                # the copy starts at zero, so that players and chapters agree
                copy_packets(packets, outside, tracks, -origin)
        except (av.error.FFmpegError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            raise InputError(
                f"{source} cannot be copied into a {suffix[1:]} file: {why}; try .mkv, which takes almost any codec"
            ) from None
    return probe(target)


def _copied_tracks(inside: Any, outside: Any) -> dict[int, Any]:
    """A track of the copy for each that can be copied, by its index."""
    tracks = {}
    for stream in inside.streams:
        if stream.type not in _COPIED or (stream.type == "subtitle" and stream.codec_context is None):
            continue
        copy = outside.add_stream_from_template(stream)
        copy.metadata.update(stream.metadata)
        copy.disposition = stream.disposition
        tracks[stream.index] = copy
    return tracks
