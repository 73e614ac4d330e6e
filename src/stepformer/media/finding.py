"""Which files are videos, and the subtitles of a video: the file beside it, and the streams inside it.

What stepformer wrote itself is never taken for input.
"""

from __future__ import annotations

import functools
import glob
import os
import re
import time
from collections.abc import Container, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stepformer.base.defaults import LANGUAGE
from stepformer.base.files import no_such
from stepformer.errors import InputError
from stepformer.media.container import opened, origin_s, packets_of

SUFFIXES = (
    ".mp4", ".m4v", ".mov", ".mkv", ".webm", ".avi", ".mpg", ".mpeg", ".ts", ".m2ts", ".mts", ".flv", ".wmv", ".asf",
    ".3gp", ".ogv", ".vob", ".mxf", ".gif",
)  # fmt: skip
"""Endings by which videos are found in a folder; a file given by name may have any."""

_OURS = ("steps", "chapters")  # talk.steps.mp4, talk.steps.vtt, and the clips in talk.steps/
_OUR_FILES = ("stepformer.options.json", "procedure.json")


def find_videos(names: Iterable[str | os.PathLike[str]], *, ids: bool = False) -> list[Path]:
    """The videos that ``names`` stand for, each once, in order.

    A folder gives the videos in it and below, but for hidden ones and our own outputs; ``*``, ``?`` and ``**`` work
    where the shell left them. A file that is named is taken whatever it is. ``ids`` lets a name that is no file pass,
    for encoders that look features up by name.

    Raises:
        InputError: a name leads to nothing; says which.
    """
    return list(dict.fromkeys(path for name in names for path in _expand(os.fspath(name), ids)))


def _expand(name: str, ids: bool) -> list[Path]:
    path = Path(name).expanduser()
    if path.is_dir():
        found = [p for p in sorted(path.rglob("*")) if is_video(p.relative_to(path)) and p.is_file()]
        if not found:
            raise InputError(f"the folder {path} holds no video ({', '.join(SUFFIXES[:5])}, ...)")
        return found
    if path.exists() or ids:
        return [path]
    if glob.has_magic(name):
        matched = sorted(Path(p) for p in glob.glob(str(path), recursive=True))  # noqa: PTH207 (absolute patterns)
        files = [p for p in matched if p.is_file()]
        if not files:
            raise InputError(f"no file matches {name}")
        return [p for p in files if is_video(Path(p.name))] or files
    raise no_such(name)


def is_video(path: Path) -> bool:
    """Whether ``path``, relative to the folder looked through, is a video by its name, not hidden and not ours."""
    hidden = any(part.startswith(".") for part in path.parts)
    return path.suffix.lower() in SUFFIXES and not hidden and not is_ours(path)


def is_ours(path: Path) -> bool:
    """Whether a file was written by stepformer, by its name or by that of a folder it is in."""
    named = (*path.parts[:-1], path.stem)
    return path.name in _OUR_FILES or any("." in part and part.rpartition(".")[2] in _OURS for part in named)


# -- subtitles ----------------------------------------------------------------------------------------------------

SUBTITLE_SUFFIXES = (".vtt", ".srt", ".json3", ".ttml", ".dfxp", ".srv3", ".srv2", ".srv1", ".sbv")
"""Endings by which subtitles are found beside a video, the most trusted first; a file given by name may have any."""
_LANGUAGE = re.compile(r"auto|[a-z]{2,3}([-_][a-z0-9]{1,8})*", re.IGNORECASE)  # en, en-US, zh-Hant, en-orig
_NOT_SAID = re.compile(r".*\.(live_chat|rechat|info)\.json3?", re.IGNORECASE)  # what downloaders leave beside a video
# containers name languages by three letters (ISO 639-2, of which some have two), people by two
_LONG_CODES = {
    "en": ("eng",), "de": ("deu", "ger"), "fr": ("fra", "fre"), "es": ("spa",), "it": ("ita",), "pt": ("por",),
    "nl": ("nld", "dut"), "ru": ("rus",), "zh": ("zho", "chi"), "ja": ("jpn",), "ko": ("kor",), "ar": ("ara",),
    "hi": ("hin",), "pl": ("pol",), "tr": ("tur",), "sv": ("swe",), "cs": ("ces", "cze"), "el": ("ell", "gre"),
}  # fmt: skip
_MARKUP = re.compile(r"\{[^{}]*\}")


@dataclass(frozen=True, slots=True)
class SubtitleStream:
    """One subtitle stream of a container. ``text`` is False for pictures of text, which cannot be read as words."""

    index: int
    language: str  # as the container has it, "" where it does not say
    title: str
    text: bool
    forced: bool  # only what a viewer of the original needs translated: signs, not what is said

    def __str__(self) -> str:
        named = self.language or "language not given"
        return f"{self.index} ({named}{', ' + self.title if self.title else ''}{'' if self.text else ', pictures'})"


def is_language(code: str, wanted: str) -> bool:
    """Whether a language code of a file name or a container ("en-US", "eng") is ``wanted`` ("en")."""
    short, wanted = code.lower().replace("_", "-").split("-")[0], wanted.lower().split("-")[0]
    return bool(short) and (short == wanted or short in _LONG_CODES.get(wanted, ()))


def subtitles_beside(video: str | os.PathLike[str], language: str = LANGUAGE) -> Path | None:
    """The subtitle file that lies beside a video, by the rule of :func:`subtitles_of`."""
    video = Path(video)
    try:
        changed_ns = video.parent.stat().st_mtime_ns
        # clocks of file systems are coarse: a folder that has just changed may change again without a new time
        known = _by_stem if abs(time.time_ns() - changed_ns) > 2_000_000_000 else _by_stem.__wrapped__
        named = known(video.parent, changed_ns).get(video.stem, ())
    except OSError:
        return None
    return subtitles_of(named, video.parent, language, known=(video.stem,)).get(video.stem)


def subtitles_of(
    files: Iterable[Path], root: Path, language: str = LANGUAGE, also: Iterable[str] = (), known: Container[str] = ()
) -> dict[str, Path]:
    """The subtitle file of each video, by the video's path below ``root`` without its ending, in order of these names.

    A file without a language before its ending comes first, then ``language``, then any other; of these the most
    trusted ending, ``also`` last. What this product wrote itself (``talk.steps.vtt``) and live chat are never taken.
    ``how.to.vtt`` is of the video ``how``, unless one called ``how.to`` is ``known``.
    """
    endings, found = (*SUBTITLE_SUFFIXES, *also), dict[str, tuple[int, int, str, Path]]()
    for path in files:
        inside, ending = path.relative_to(root), path.suffix.lower()
        if ending in endings and not is_ours(inside) and not _NOT_SAID.fullmatch(path.name) and path.is_file():
            stem, _, tag = path.stem.rpartition(".")
            plain = not stem or path.stem in known or not _LANGUAGE.fullmatch(tag)
            one = (0 if plain else 1 if is_language(tag, language) else 2, endings.index(ending), path.name, path)
            name = (inside.parent / (path.stem if plain else stem)).as_posix()
            found[name] = min(one, found.get(name, one))
    return {name: found[name][-1] for name in sorted(found)}


@functools.lru_cache(maxsize=4)
def _by_stem(folder: Path, changed_ns: int) -> dict[str, list[Path]]:
    """The subtitle files of a folder by the names of the videos they may go with: listed once, not once per video."""
    found: dict[str, list[Path]] = {}
    for path in folder.iterdir():
        if path.suffix.lower() in SUBTITLE_SUFFIXES:
            for stem in {path.stem, path.stem.rpartition(".")[0]}:
                found.setdefault(stem, []).append(path)
    return found


def subtitle_streams(video: str | os.PathLike[str]) -> tuple[SubtitleStream, ...]:
    """The subtitle streams inside a video file, in the file's order."""
    with opened(video) as container:
        return tuple(_described(stream) for stream in container.streams.subtitles)


def _described(stream: Any) -> SubtitleStream:
    from av.stream import Disposition

    context = stream.codec_context
    return SubtitleStream(
        stream.index,
        str(stream.metadata.get("language") or "").strip().replace("und", ""),
        str(stream.metadata.get("title") or "").strip(),
        # PyAV's binding has the property bits of a codec; pictures carry BITMAP_SUB
        context is not None and bool(getattr(context.codec, "text_sub", False)),
        bool(stream.disposition & Disposition.forced),
    )


def read_subtitle_stream(video: str | os.PathLike[str], index: int) -> list[tuple[float, float, str]]:
    """(start_s, end_s, text) of the lines of stream ``index``, counted from what players show as zero.

    Raises:
        InputError: the file cannot be read, or the stream holds no text.
    """
    import av

    lines: list[tuple[float, float, str]] = []
    with opened(video) as container:
        stream = next((one for one in container.streams.subtitles if one.index == index), None)
        if stream is None or stream.codec_context is None:
            raise InputError(f"{video} has no subtitle stream {index} that can be read")
        first = container.streams.video[0] if container.streams.video else stream
        origin = origin_s(container, first)
        try:
            for packet in packets_of(container, stream, video):
                if not packet.size or packet.pts is None:
                    continue
                text = " ".join(filter(None, (_plain(part) for part in packet.decode())))
                if text:
                    start_s = max(0.0, float(packet.pts * packet.time_base) - origin)
                    length_s = float((packet.duration or 0) * packet.time_base)
                    lines.append((start_s, start_s + length_s, text))
        except (av.error.FFmpegError, UnicodeDecodeError) as error:
            if not lines:
                raise InputError(f"{video}: subtitle stream {index} cannot be read: {error}") from None
    return lines


def _plain(subtitle: Any) -> str:
    """The words of one decoded subtitle, without the markup of Advanced SubStation, which FFmpeg gives all text in."""
    said = getattr(subtitle, "dialogue", b"") or getattr(subtitle, "text", b"")
    text = _MARKUP.sub("", said.decode("utf-8", "replace"))
    return " ".join(text.replace("\\N", " ").replace("\\n", " ").replace("\\h", " ").split())
