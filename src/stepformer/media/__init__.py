"""Video files: pictures at exact seconds, clips for encoders, sound for speech recognition, chapters back in.

Examples:
    >>> reader = sf.media.VideoReader("pancakes.mp4")
    >>> reader.info.duration_s
    30.0
    >>> second, shown_s, picture = next(reader.seconds(rate_hz=1.0, size=(224, 224)))
    >>> second, picture.shape
    (0.5, (224, 224, 3))

Everything here stands on PyAV, which carries its own FFmpeg; nothing is imported before it is needed.
"""

from __future__ import annotations

from stepformer.media.audio import SAMPLE_RATE_HZ, audio_blocks, read_audio
from stepformer.media.chapters import write_chapters
from stepformer.media.container import Problem, VideoInfo, VideoWarning, probe
from stepformer.media.finding import SUFFIXES, find_videos, subtitles_beside
from stepformer.media.reader import VideoReader

__all__ = [
    "SAMPLE_RATE_HZ", "SUFFIXES", "Problem", "VideoInfo", "VideoReader", "VideoWarning", "audio_blocks",
    "find_videos", "probe", "read_audio", "subtitles_beside", "write_chapters",
]  # fmt: skip
