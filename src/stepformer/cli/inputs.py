"""Videos as people name them on a command line: files, folders, patterns, or a list on stdin."""

from __future__ import annotations

import glob
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TextIO

from stepformer.errors import InputError, UsageError

_OURS = ("steps", "chapters")  # talk.steps.mp4 is what we wrote


def find_videos(names: Sequence[str], stdin: TextIO | None = None, ids: bool = False) -> list[Path]:
    """The videos that ``names`` stand for, each once, in order.

    A folder gives the videos in it and below; ``*``, ``?`` and ``**`` work where the shell left them; ``-`` reads a
    name a line from stdin. ``ids`` lets a name that is no file pass, for encoders that look features up by name.

    Raises:
        UsageError: no name was given.
        InputError: a name leads to nothing; says which.
    """
    if not names:
        raise UsageError("name at least one video: a file, a folder, a pattern, or - for a list on stdin")
    out: dict[Path, None] = {}
    for name in names:
        if name == "-":
            lines = (line.strip() for line in (stdin if stdin is not None else sys.stdin))
            for line in lines:
                if line and not line.startswith("#"):
                    out.update(dict.fromkeys(_expand(line, ids)))
        else:
            out.update(dict.fromkeys(_expand(name, ids)))
    if not out:
        raise InputError("the list of videos on stdin is empty")
    return list(out)


def _expand(name: str, ids: bool) -> Iterable[Path]:
    from stepformer.media import SUFFIXES

    path = Path(name).expanduser()
    if path.is_dir():
        found = sorted(p for p in path.rglob("*") if p.suffix.lower() in SUFFIXES and p.is_file() and _wanted(p))
        if not found:
            raise InputError(f"the folder {path} holds no video ({', '.join(SUFFIXES[:5])}, ...)")
        return found
    if path.exists() or ids:
        return [path]
    if glob.has_magic(name):
        matched = sorted(Path(p) for p in glob.glob(str(path), recursive=True))  # noqa: PTH207 (absolute patterns)
        if not matched:
            raise InputError(f"no file matches {name}")
        files = [p for p in matched if p.is_file()]
        return [p for p in files if p.suffix.lower() in SUFFIXES and _wanted(p)] or files
    raise InputError(f"there is no file {name}")


def _wanted(path: Path) -> bool:
    """Not hidden, and not a copy with chapters or a clip that we wrote."""
    parts = path.name.split(".")
    return not path.name.startswith(".") and not (len(parts) > 2 and parts[-2] in _OURS)
