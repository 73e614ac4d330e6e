"""Filling a feature store: resumable, atomic, fed by one process or by many.

One process holds the :class:`StoreWriter` (a lock sees to it). Worker processes hand over finished videos by
:func:`spool` alone, which needs nothing but the path; the writer's :meth:`StoreWriter.collect` packs what they left.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import numpy as np

from stepformer.base import files
from stepformer.base.guard import plain_file
from stepformer.data.store import (
    INDEX_FILE,
    INFO_FILE,
    SHARD_FOLDER,
    StoredVideo,
    StoreInfo,
    index_lines,
    parse_head,
    parse_line,
    read_info,
    shard_path,
    to_half,
)
from stepformer.errors import InputError, StepFormerError

SPOOL_FOLDER = "spool"
_LOOK_EVERY_S = 0.5  # looking through a spool of a thousand files after every video would cost more than the videos
SHARD_BYTES = 256 << 20
"""A shard is closed once it holds this much: few files, yet each is copied or lost in one piece of modest size."""


def file_stamp(path: Path) -> dict[str, Any]:
    """What tells a file that features were made from apart from a later version of it; kept with the features."""
    try:
        stat = path.stat()
    except OSError:
        return {"file": path.name}  # reading it will say what is wrong
    return {"file": path.name, "bytes": stat.st_size, "mtime_s": int(stat.st_mtime)}


def spool_path(store: str | os.PathLike[str], video: str) -> Path:
    """Where a finished video waits; the name is a hash, because an id may be any text."""
    return Path(store) / SPOOL_FOLDER / f"{hashlib.sha256(video.encode()).hexdigest()[:32]}.safetensors"


def spool(store: str | os.PathLike[str], video: StoredVideo) -> int:
    """Leaves one finished video for the writer and returns its bytes. Safe from any process, at any moment."""
    from safetensors.numpy import save

    info = read_info(store)
    if video.features.shape[1] != info.dim:
        raise InputError(f"{video.video}: features have {video.features.shape[1]} columns, the store has {info.dim}")
    if (video.structure.shape[1] if video.structure is not None else 0) != info.structure_dim:
        raise InputError(f"{video.video}: the structure vectors do not have the store's {info.structure_dim} columns")
    if video.rate_hz != info.rate_hz:
        raise InputError(f"{video.video}: {video.rate_hz:g} features per second, the store has {info.rate_hz:g}")
    tensors: dict[str, Any] = {"features": to_half(video.features, f"{video.video}: features")}
    if video.structure is not None:
        tensors["structure"] = to_half(video.structure, f"{video.video}: structure vectors")
    has_vectors = video.phrase_vectors is not None
    if has_vectors and video.phrases:
        if video.phrase_vectors.shape[1] != info.dim:  # type: ignore[union-attr]
            raise InputError(f"{video.video}: phrase vectors do not have the store's {info.dim} columns")
        tensors["phrases"] = to_half(video.phrase_vectors, f"{video.video}: phrase vectors")
        tensors["said"] = np.array([(p.start_s, p.end_s, p.chatter) for p in video.phrases], np.float32)
    line: dict[str, Any] = {
        "id": video.video,
        "shard": -1,
        "n": len(video.features),
        "duration_s": round(video.duration_s, 3),
        "n_phrases": len(video.phrases),
        "phrases": [phrase.to_dict() for phrase in video.phrases],
        "phrase_vectors": has_vectors,
        "meta": dict(video.meta),
    }
    data = save(tensors, metadata={"line": _dump(line), "fingerprint": info.fingerprint})
    files.write_bytes(spool_path(store, video.video), data)
    return len(data)


class StoreWriter:
    """Creates or continues a store. Use as a context manager; what is finished is kept even after an error.

    Raises :class:`InputError` when the folder holds another encoder's features or another writer is at work.
    """

    def __init__(self, path: str | os.PathLike[str], info: StoreInfo, shard_bytes: int = SHARD_BYTES) -> None:
        self.path, self.info, self._shard_bytes = Path(path), info, shard_bytes
        self._waiting_bytes, self._next_look = 0, 0.0
        existing = self.path / INFO_FILE
        # hidden files may be our own lock and half-written description, of a run that was killed at once
        there = self.path.iterdir() if self.path.is_dir() and not existing.exists() else ()
        if any(not entry.name.startswith(".") for entry in there):
            raise InputError(f"{self.path} holds other files and is not a feature store; give a new or empty folder")
        self.path.mkdir(parents=True, exist_ok=True)
        self._lock: IO[bytes] | None = files.lock_folder(self.path)
        try:
            if existing.exists():
                read_info(self.path).require_same_encoder(info, str(self.path))
            else:
                files.write_json(existing, info.to_dict())
            (self.path / SPOOL_FOLDER).mkdir(exist_ok=True)
            self._recover()
        except BaseException:
            self._release()
            raise

    def __enter__(self) -> StoreWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __contains__(self, video: str) -> bool:
        return video in self._done or spool_path(self.path, video).exists()

    def meta(self, video: str) -> dict[str, Any]:
        """The provenance stored with a finished video; empty when there is none."""
        if spool_path(self.path, video).exists():
            return dict(_spooled(spool_path(self.path, video))["line"].get("meta", {}))
        if video in self._done:
            with (self.path / INDEX_FILE).open("rb") as index:
                index.seek(self._done_at[video])
                return dict(parse_line(index.readline(), self.path).get("meta", {}))
        return {}

    def append(self, video: StoredVideo, *, replace: bool = False) -> None:
        """Stores one video. One that is there already is an error, unless it is to be replaced."""
        if video.video in self and not replace:
            raise InputError(f"{self.path} already has {video.video!r}")
        self._waiting_bytes += spool(self.path, video)
        if self._waiting_bytes >= self._shard_bytes:
            self._pack()

    def collect(self) -> None:
        """Takes in what workers spooled; writes a shard once there is enough for one."""
        if time.monotonic() < self._next_look:
            return
        self._waiting_bytes = sum(path.stat().st_size for path in self._spool_files())
        self._next_look = time.monotonic() + _LOOK_EVERY_S
        if self._waiting_bytes >= self._shard_bytes:
            self._pack()

    def close(self) -> None:
        """Packs what is left and lets go of the store."""
        try:
            if self._lock is not None:
                self._pack()
        finally:
            self._release()

    # -- one shard ----------------------------------------------------------------------------------------------

    def _spool_files(self) -> list[Path]:
        found = (self.path / SPOOL_FOLDER).glob("*.safetensors")
        return sorted(path for path in found if not path.name.startswith("."))

    def _pack(self) -> None:
        """Moves the spool into shards, each at most about ``shard_bytes`` (a larger video has one to itself)."""
        batch: list[Path] = []
        size = 0
        for path in self._spool_files():
            bytes_here = path.stat().st_size
            if batch and size + bytes_here > self._shard_bytes:
                self._write_shard(batch)
                batch, size = [], 0
            batch.append(path)
            size += bytes_here
        if batch:
            self._write_shard(batch)
        self._waiting_bytes = 0

    def _write_shard(self, spooled: list[Path]) -> None:
        from safetensors.numpy import save_file

        tensors: dict[str, Any] = {}
        lines: list[dict[str, Any]] = []
        for path in spooled:
            entry = _spooled(path)
            line = entry["line"]
            line["shard"] = self._next_shard
            lines.append(line)
            for kind, array in entry["tensors"].items():
                tensors[f"{line['id']}|{kind}"] = array
        with files.replacing(shard_path(self.path, self._next_shard)) as temporary:
            save_file(tensors, temporary, metadata={"fingerprint": self.info.fingerprint})
        with (self.path / INDEX_FILE).open("ab") as index:
            for line in lines:
                self._done_at[line["id"]] = index.tell()
                index.write(_dump(line).encode() + b"\n")
            index.flush()
            os.fsync(index.fileno())
        self._done.update(line["id"] for line in lines)
        self._next_shard += 1
        for path in spooled:
            path.unlink()

    def _recover(self) -> None:
        """Brings a store that a kill left half-way back to a state from which work goes on."""
        index = self.path / INDEX_FILE
        self._done_at: dict[str, int] = {}
        end, last_shard = 0, -1
        for offset, line in index_lines(index):
            head = parse_head(line, self.path)
            self._done_at[head["id"]] = offset
            last_shard = max(last_shard, int(head["shard"]))
            end = offset + len(line)
        if index.exists() and index.stat().st_size > end:
            os.truncate(index, end)  # a line the kill cut short; its video is still in the spool
        self._done = set(self._done_at)
        self._next_shard = last_shard + 1  # a shard that never got into the index is written over
        for folder in (SPOOL_FOLDER, SHARD_FOLDER):
            for partial in (self.path / folder).glob(".*.partial*"):
                partial.unlink(missing_ok=True)
        for path in self._spool_files():
            try:
                entry = _spooled(path)
            except StepFormerError:
                path.unlink()  # unreadable (a failing disk): the video is done again
                continue
            # packed just before the kill, and only the removal is missing
            if entry["line"]["id"] in self._done and self._same_as_stored(entry):
                path.unlink()

    def _same_as_stored(self, entry: dict[str, Any]) -> bool:
        from safetensors import safe_open

        video = entry["line"]["id"]
        with (self.path / INDEX_FILE).open("rb") as index:
            index.seek(self._done_at[video])
            line = parse_line(index.readline(), self.path)
        try:
            with safe_open(shard_path(self.path, int(line["shard"])), framework="np") as shard:
                return all(np.array_equal(shard.get_tensor(f"{video}|{k}"), v) for k, v in entry["tensors"].items())
        except Exception:  # the shard is gone or lacks it: the spooled copy is the good one
            return False

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None


def _dump(line: dict[str, Any]) -> str:
    return files.json_text(line, allow_nan=False)


def _spooled(path: Path) -> dict[str, Any]:
    from safetensors import safe_open

    try:
        with safe_open(plain_file(path), framework="np") as entry:
            line = json.loads(entry.metadata()["line"])
            return {"line": line, "tensors": {name: entry.get_tensor(name) for name in entry.keys()}}  # noqa: SIM118
    except Exception as error:
        raise InputError(f"{path} in the spool cannot be read: {error}") from None
