"""Videos as people name them on a command line: files, folders, patterns, or a list on stdin."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from stepformer.errors import InputError, UsageError


def listed(names: Sequence[str], stdin: TextIO | None = None) -> list[str]:
    """The names, with ``-`` replaced by the lines of stdin that are neither empty nor a comment.

    Raises:
        UsageError: no name was given. InputError: the list on stdin is empty.
    """
    if not names:
        raise UsageError("name at least one video: a file, a folder, a pattern, or - for a list on stdin")
    out: list[str] = []
    for name in names:
        lines = [name] if name != "-" else [line.strip() for line in (stdin if stdin is not None else sys.stdin)]
        out += [line for line in lines if line and not line.startswith("#")]
    if not out:
        raise InputError("the list of videos on stdin is empty")
    return out


def find_videos(names: Sequence[str], ids: bool = False) -> list[Path]:
    """The videos that ``names`` stand for (:func:`stepformer.media.find_videos`), with ``-`` for a list on stdin."""
    from stepformer import media

    return media.find_videos(listed(names), ids=ids)
