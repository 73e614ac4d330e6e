"""The folder of everything that can be made or downloaded again: weights, features, transcripts, tables' runs.

Arrays kept there carry a checksum over all they hold, checked on every read (about a gigabyte per second): damage on
the disk means that they are made again, never that other numbers are used.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from stat import S_ISREG
from typing import Any

import numpy as np

from stepformer.base.files import replacing, sha256_of, write_text
from stepformer.errors import WriteError


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


def stamped_file(part: str, source: Path, *key: str) -> Path:
    """Where what is being made of ``source`` is kept: named by its path, size and time of change, without reading it.

    Raises:
        OSError: there is no such file.
    """
    stat = source.stat()
    return cache_folder(part) / _short_hash(str(source.resolve()), str(stat.st_size), str(stat.st_mtime_ns), *key)


def content_hash(path: Path) -> str:
    """The SHA-256 of a file's content. It is noted by path, size and times of change, and a file read only once.

    Raises:
        OSError: there is no such file, or it cannot be read.
    """
    stat = path.stat()
    if not (S_ISREG(stat.st_mode) and stat.st_size):
        raise OSError(errno.EINVAL, "a device, a pipe or an empty file has no content that identifies it", str(path))
    # of two contents with one time of change (copied with it, or a clock that went back) the system's own time tells
    key = (stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)
    note = cache_folder("content") / _short_hash(str(path.resolve()), *map(str, key))
    with suppress(OSError, UnicodeDecodeError):
        known = note.read_text("ascii")
        if len(known) == 64:
            return known
    digest = sha256_of(path)
    if time.time_ns() - stat.st_ctime_ns > _TICK_NS:  # else another write in the same tick would go unnoticed
        with suppress(OSError):  # a full or read-only disk costs the second look its speed, nothing else
            write_text(note, digest)
    return digest


_TICK_NS = 100_000_000  # how coarse a file system's clock may be


def _short_hash(*parts: str) -> str:
    return hashlib.sha256("|".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def keep_arrays(path: Path, arrays: Mapping[str, np.ndarray[Any, Any]], info: Mapping[str, Any] | None = None) -> bool:
    """Writes arrays and facts (plain JSON values), atomically; False where the disk is full or may not be written."""
    from safetensors.numpy import save_file

    facts = json.dumps(info or {})
    metadata = {"stepformer": facts, "checksum": _checksum(arrays, facts)}
    try:
        with replacing(path) as temporary:
            save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, temporary, metadata)
    except WriteError:
        return False
    return True


def why_nothing_is_kept() -> str | None:
    """The system's word where the cache cannot be written (a full or read-only disk); None where it can."""
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(bytes(1 << 20))  # the features of a video of some minutes
            probe.flush()
    except OSError as error:
        return error.strerror or str(error)
    return None


def kept_arrays(path: Path) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """What :func:`keep_arrays` wrote; None where it is not there or damaged, and then it is made again."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="np") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
        facts = metadata["stepformer"]
        if metadata["checksum"] != _checksum(arrays, facts):
            return None
        return arrays, json.loads(facts)
    # a damaged header can name types and shapes that NumPy refuses in its own ways
    except (OSError, SafetensorError, KeyError, ValueError, TypeError, AttributeError, OverflowError, MemoryError):
        return None


def _checksum(arrays: Mapping[str, np.ndarray[Any, Any]], facts: str) -> str:
    digest = hashlib.blake2b(facts.encode(), digest_size=16)
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        digest.update(array.data if array.size else b"")
    return digest.hexdigest()
