"""Which files are videos. What stepformer wrote itself is never taken for input."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable
from pathlib import Path

from stepformer.base.files import no_such
from stepformer.errors import InputError

SUFFIXES = (
    ".mp4", ".m4v", ".mov", ".mkv", ".webm", ".avi", ".mpg", ".mpeg", ".ts", ".m2ts", ".mts", ".flv", ".wmv", ".asf",
    ".3gp", ".ogv", ".vob", ".mxf", ".gif",
)  # fmt: skip
"""Endings by which videos are found in a folder; a file given by name may have any."""

_OURS = ("steps", "chapters")  # talk.steps.mp4, talk.steps.vtt, and the clips in talk.steps/


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
    return any(part.rpartition(".")[2] in _OURS for part in (*path.parts[:-1], path.stem) if "." in part)
