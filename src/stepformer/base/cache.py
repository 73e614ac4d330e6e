"""The folder of everything that can be made or downloaded again: weights, features, transcripts, tables' runs."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path

from stepformer.base.files import sha256_of, write_text


def cache_folder(part: str = "") -> Path:
    """``$STEPFORMER_CACHE``, or the platform's cache folder; ``part`` is the folder of one kind in it."""
    given = os.environ.get("STEPFORMER_CACHE")
    if given:
        return Path(given).expanduser() / part
    try:
        from platformdirs import user_cache_dir
    except ImportError:  # a bare GPU image
        return Path.home() / ".cache" / "stepformer" / part
    return Path(user_cache_dir("stepformer", appauthor=False)) / part


def kept_file(part: str, source: Path, *key: str, suffix: str) -> Path:
    """Where what was made of ``source`` is kept: named by its content and by ``key``, so that a copy is known too.

    Raises:
        OSError: there is no such file.
    """
    return cache_folder(part) / f"{_short_hash(content_hash(source), *key)}{suffix}"


def content_hash(path: Path) -> str:
    """The SHA-256 of a file's content. It is noted by path, size and time of change, and a file read only once.

    Raises:
        OSError: there is no such file, or it cannot be read.
    """
    stat = path.stat()
    note = cache_folder("content") / _short_hash(str(path.resolve()), str(stat.st_size), str(stat.st_mtime_ns))
    with suppress(OSError, UnicodeDecodeError):
        known = note.read_text("ascii")
        if len(known) == 64:
            return known
    digest = sha256_of(path)
    with suppress(OSError):  # a full or read-only disk costs the second look its speed, nothing else
        write_text(note, digest)
    return digest


def _short_hash(*parts: str) -> str:
    return hashlib.sha256("|".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:32]
