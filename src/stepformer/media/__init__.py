"""Video files: pictures at exact seconds, clips for encoders, sound for speech recognition, chapters back in.

>>> reader = VideoReader("talk.mp4")                                # doctest: +SKIP
>>> reader.info.duration_s                                          # doctest: +SKIP
61.2
>>> for second, shown_s, picture in reader.seconds(rate_hz=1.0, size=(224, 224)):      # doctest: +SKIP
...     picture.shape
(224, 224, 3)

Everything here stands on PyAV, which carries its own FFmpeg; nothing is imported before it is needed.
"""

from __future__ import annotations

from stepformer.media.audio import SAMPLE_RATE_HZ, add_sound, audio_blocks, read_audio
from stepformer.media.chapters import CHAPTER_SUFFIXES, write_chapters
from stepformer.media.container import Problem, VideoInfo, VideoWarning, probe
from stepformer.media.finding import SUFFIXES, find_videos, is_ours, is_video, subtitles_beside
from stepformer.media.picture import FrameSpec
from stepformer.media.reader import VideoReader

__all__ = [
    "CHAPTER_SUFFIXES", "SAMPLE_RATE_HZ", "SUFFIXES", "FrameSpec", "Problem", "VideoInfo",
    "VideoReader", "VideoWarning", "add_sound", "audio_blocks", "find_videos",
    "is_ours", "is_video", "probe", "read_audio", "subtitles_beside", "write_chapters",
]  # fmt: skip
