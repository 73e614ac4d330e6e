"""What is cut from the video: a copy with chapters, and clips."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from stepformer.base.files import make_folder, replacing
from stepformer.base.guard import reason
from stepformer.errors import InputError
from stepformer.show.export import Options, need_media_file
from stepformer.show.writing import flat, spans, step_name, within_video
from stepformer.timeline import Step, Timeline


def save_media(timeline: Timeline, path: Path, options: Options) -> tuple[str, ...]:
    """A copy of the video with the steps as its chapters (mp4, m4v, mov, mkv, webm); nothing is encoded again.

    A step is cut where the next begins and at the end of the video, since players know one chapter at a time; one of no
    length is a millisecond long. The mp4 family has no gaps: there a chapter goes on to the next, and what comes before
    the first step is a chapter of its own, "Intro", because the first would otherwise begin at zero. Milliseconds.
    """
    from stepformer.media import probe, write_chapters

    source = need_media_file(timeline, options, "a copy with chapters")
    if not timeline.duration_s:
        timeline = replace(timeline, duration_s=probe(source).duration_s)
    timeline, notes = within_video(timeline)
    kept, cut = flat(spans(timeline, 1000))
    write_chapters(source, path, [Step(span.start / 1000, span.end / 1000, span.name) for span in kept])
    return notes + cut


def parse_media(path: Path) -> Timeline:
    """The chapters of a video as steps; no chapters, no steps."""
    from stepformer.media import probe

    info = probe(path)
    return Timeline(str(path), info.duration_s, tuple(sorted(info.chapters, key=lambda step: step.start_s)))


_QUALITY = "18"  # constant rate factor of x264: no loss that is seen
_EPSILON_S = 0.0006  # Matroska rounds time stamps to milliseconds


def save_clips(timeline: Timeline, folder: Path, options: Options) -> tuple[str, ...]:
    """A folder with one clip per step: ``01_crack-the-eggs.mp4``, ``02_whisk.mp4``, ...

    Encoded again (H.264 and AAC), so that a clip has exactly the frames that come on screen from the step's start to
    before its end. A step of no length has no clip, and what lies past the end of the video is cut or left out. Each
    clip is written beside and renamed.
    """
    import av

    from stepformer.media import probe

    source = need_media_file(timeline, options, "cutting clips")
    info = probe(source)
    end_s = min(timeline.duration_s or info.duration_s, info.duration_s)
    timeline, cut = within_video(replace(timeline, duration_s=end_s))
    notes = list(cut)
    make_folder(folder)
    digits = max(2, len(str(len(timeline))))
    for i, step in enumerate(timeline):
        if step.duration_s <= 0:
            notes.append(f"step {i + 1} has no length: no clip")
            continue
        target = folder / f"{i + 1:0{digits}d}_{_slug(step_name(step, i))}.mp4"
        try:
            with replacing(target) as temporary:
                encode_clip(source, temporary, step.start_s, step.end_s)
        except (av.error.FFmpegError, ValueError, OverflowError, IndexError) as error:  # of a damaged video
            raise InputError(f"{source} cannot be cut: {reason(error)}") from None
    return tuple(notes)


def encode_clip(source: Path, target: Path, start_s: float, end_s: float) -> None:
    """Encodes the frames that come on screen in ``[start_s, end_s)`` and the sound of exactly these seconds."""
    import av

    from stepformer.media.container import opened, origin_s, probe, video_stream

    info = probe(source)
    with opened(source) as inside, av.open(str(target), "w", options={"movflags": "+faststart"}) as outside:
        video = video_stream(inside, source)
        origin = origin_s(inside, video)
        video.thread_type = "AUTO"
        rate = Fraction(info.rate_hz or 25).limit_denominator(1001)
        picture = outside.add_stream("libx264", rate=rate, options={"crf": _QUALITY, "preset": "veryfast"})
        picture.width, picture.height = info.width // 2 * 2, info.height // 2 * 2  # 4:2:0 has no odd sizes
        picture.pix_fmt = "yuv420p"
        sounds = [s for s in inside.streams.audio if s.codec_context is not None][:1]
        sound = outside.add_stream("aac", rate=sounds[0].codec_context.sample_rate) if sounds else None
        if sound is not None:
            sound.layout = sounds[0].codec_context.layout
        if not _encode_video(inside, outside, video, picture, start_s + origin, end_s + origin):
            raise InputError(f"{source} shows no new frame between {start_s:g} s and {end_s:g} s")
        if sound is not None:
            _encode_audio(inside, outside, sounds[0], sound, start_s + origin, end_s + origin)


def _encode_video(inside: Any, outside: Any, video: Any, picture: Any, start_s: float, end_s: float) -> int:
    from av import VideoFrame

    from stepformer.media.container import pixel_aspect
    from stepformer.media.picture import Painter

    painter = Painter((picture.height, picture.width), "fit")  # turns what a phone filmed sideways
    aspect = pixel_aspect(video)
    base = Fraction(1, 90000)
    count = 0
    for time_s, frame in _decoded(inside, video, start_s, end_s - _EPSILON_S):
        if time_s < start_s - _EPSILON_S:
            continue
        plain = (
            aspect == 1 and not round(frame.rotation) and (frame.width, frame.height) == (picture.width, picture.height)
        )
        shown = frame.reformat(format="yuv420p") if plain else VideoFrame.from_ndarray(painter(frame, aspect), "rgb24")
        shown.pts = max(0, round((time_s - start_s) / base))
        shown.time_base = base
        shown.pict_type = 0  # the encoder chooses, and does not copy the source's
        outside.mux(picture.encode(shown))
        count += 1
    outside.mux(picture.encode(None))
    return count


def _encode_audio(inside: Any, outside: Any, source: Any, sound: Any, start_s: float, end_s: float) -> None:
    from av import AudioFrame, AudioResampler

    rate = sound.rate
    resampler = AudioResampler(format="fltp", layout=sound.layout, rate=rate)
    written = 0
    for time_s, frame in _decoded(inside, source, start_s, end_s):
        for piece in resampler.resample(frame):
            skip, keep = (max(0, round((edge_s - time_s) * rate)) for edge_s in (start_s, end_s))
            samples = piece.to_ndarray()[:, skip:keep]  # (channels, n)
            time_s += piece.samples / rate  # noqa: PLW2901 (a frame may come back in several pieces)
            if not samples.shape[1]:
                continue
            cut = AudioFrame.from_ndarray(samples.copy(), format="fltp", layout=sound.layout.name)
            cut.rate, cut.pts, cut.time_base = rate, written, Fraction(1, rate)
            written += samples.shape[1]
            outside.mux(sound.encode(cut))
    outside.mux(sound.encode(None))


def _decoded(inside: Any, stream: Any, start_s: float, end_s: float) -> Iterator[tuple[float, Any]]:
    """(container time, frame) from the key frame at or before ``start_s`` to before ``end_s``."""
    inside.seek(int((start_s + _EPSILON_S) / stream.time_base), stream=stream, backward=True)
    stream.codec_context.flush_buffers()
    for frame in inside.decode(stream):
        if frame.pts is not None:
            time_s = float(frame.pts * frame.time_base)
            if time_s >= end_s:
                return
            yield time_s, frame


def _slug(name: str) -> str:
    """A name as part of a file name: letters and digits of any script, hyphens between."""
    slug = re.sub(r"[\W_]+", "-", name.casefold()).strip("-")
    # file systems limit bytes, not letters
    return slug.encode("utf-8")[:80].decode("utf-8", "ignore").strip("-") or "step"
