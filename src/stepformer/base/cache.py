"""The folder of everything that can be made or downloaded again: weights, features, transcripts, tables' runs."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path


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
    """Where what was made of ``source`` is kept: named by its path, size and time of change, and by ``key``.

    Raises:
        OSError: there is no such file.
    """
    stat = source.stat()
    text = "|".join([str(source.resolve()), str(stat.st_size), str(stat.st_mtime_ns), *key])
    return cache_folder(part) / f"{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}{suffix}"
