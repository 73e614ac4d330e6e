"""A copy of the video with the steps as its chapters (mp4, m4v, mov, mkv, webm); nothing is encoded again.

A step is cut where the next begins and at the end of the video, since players know one chapter at a time; one of no
length is a millisecond long. The mp4 family has no gaps: there a chapter goes on to the next, and what comes before the
first step is a chapter of its own, "Intro", because the first would otherwise begin at zero. Milliseconds.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from stepformer.show.export.options import Options, need_media_file
from stepformer.show.writing import flat, spans, step_name, within_video
from stepformer.timeline import Step, Timeline

_MP4_FAMILY = (".mp4", ".m4v", ".mov")


def save(timeline: Timeline, path: Path, options: Options) -> tuple[str, ...]:
    """Writes the copy; the container is that of the suffix."""
    from stepformer.media import Chapter, probe, write_chapters

    source = need_media_file(timeline, options, "a copy with chapters")
    if not timeline.duration_s:
        timeline = replace(timeline, duration_s=probe(source).duration_s)
    timeline, notes = within_video(timeline)
    kept, cut = flat(spans(timeline, 1000))
    chapters = [Chapter(span.start / 1000, span.end / 1000, step_name(timeline[i], i)) for i, span in kept]
    if path.suffix.lower() in _MP4_FAMILY and chapters and chapters[0].start_s > 0:
        chapters.insert(0, Chapter(0.0, chapters[0].start_s, "Intro"))
    write_chapters(source, path, chapters)
    return notes + cut


def load(path: Path) -> Timeline:
    """The chapters of a video as steps; no chapters, no steps."""
    from stepformer.media import probe

    info = probe(path)
    steps = [Step(chapter.start_s, chapter.end_s, chapter.title or None) for chapter in info.chapters]
    return Timeline(str(path), info.duration_s, tuple(sorted(steps, key=lambda step: step.start_s)))
