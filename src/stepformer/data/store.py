"""The feature store: what ``prepare features`` writes, and training, evaluation and search read.

A store is a folder that NumPy, torch and safetensors can read alone::

    store.json                  format version, encoder, its fingerprint, dim, structure_dim, rate_hz
    index.jsonl                 one line per video: id, shard, n, duration_s, n_phrases, phrases, meta; a later line
                                of the same id replaces an earlier one
    shards/00000.safetensors    "<id>|features" (N, D), "<id>|structure" (N, S), "<id>|phrases" (L, D), float16;
                                "<id>|said" (L, 3) float32: start_s, end_s, 1 for chatter, so that training need not
                                parse the index
    spool/                      finished videos that are not yet in a shard, one file each

Feature row ``i`` of a video describes the seconds ``[i, i + 1) / rate_hz``. A store holds the features of exactly
one encoder, named by its fingerprint; anything else is refused.

How a kill is survived: a finished video is first one file in the spool, renamed into place. When the spool holds a
shard's worth, the shard is written beside and renamed, then its lines are appended to the index, then the spool
files go. Whatever moment the power fails at, a new :class:`StoreWriter` finds each finished video in the index or in
the spool. One process at a time holds the writer (a lock sees to it); workers hand it finished videos by :func:`spool`.
"""

from __future__ import annotations

import hashlib
import json
import math
import mmap
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, overload

import numpy as np
import numpy.typing as npt

from stepformer.base import files
from stepformer.base.guard import plain_file, read_json, reader, reading, reason
from stepformer.errors import InputError, NonFiniteError, StepFormerError, UsageError

FORMAT = "stepformer-feature-store"
FORMAT_VERSION = 1
INFO_FILE = "store.json"
INDEX_FILE = "index.jsonl"
SHARD_FOLDER = "shards"
SPOOL_FOLDER = "spool"
SHARD_BYTES = 256 << 20
"""A shard is closed once it holds this much: few files, yet each is copied or lost in one piece of modest size."""

Array = npt.NDArray[np.float32]

# neither can occur inside a JSON string, where the quotes would be escaped
_PHRASES_MARK, _CHATTER_MARK = b', "phrases": ', b'"chatter": true'
_KINDS = {"F16": "<f2", "F32": "<f4"}
_LINE_BYTES = 64 << 20  # of the index: a video with all that is said in it
_LOOK_EVERY_S = 0.5  # looking through a spool of a thousand files after every video would cost more than the videos
_OPEN_SHARDS = 64  # memory-mapped shards kept open at once, well under the usual limit on open files


@dataclass(frozen=True, slots=True)
class StoreInfo:
    """What a whole store has in common: the encoder and the shape of what it gives.

    ``dim`` is D of features and phrase vectors, ``structure_dim`` S of the second vector that only places
    boundaries (0 = none). ``meta`` holds licence, options, the product's version.
    """

    encoder: str
    fingerprint: str
    dim: int
    rate_hz: float = 1.0
    structure_dim: int = 0
    meta: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.encoder or not self.fingerprint:
            raise UsageError("a feature store names its encoder and the encoder's fingerprint")
        if self.dim < 1 or self.structure_dim < 0:
            raise UsageError(
                f"a feature store needs dim >= 1 and structure_dim >= 0, got {self.dim}, {self.structure_dim}"
            )
        if not (math.isfinite(self.rate_hz) and self.rate_hz > 0):
            raise UsageError(f"rate_hz must be positive, got {self.rate_hz!r}")

    def require_encoder(self, fingerprint: str, name: str, where: str | os.PathLike[str]) -> None:
        """Raises unless these are vectors of the encoder with this fingerprint."""
        if self.fingerprint != fingerprint:
            raise InputError(
                f"{where} holds features of encoder {self.encoder!r} ({self.fingerprint}), not of {name} "
                f"({fingerprint}); features of two encoders are never mixed: fill another folder with stepformer "
                "prepare features"
            )

    def require_same(self, other: StoreInfo, where: str | os.PathLike[str]) -> None:
        """Raises unless ``other`` holds vectors of the same space, at the same rate, of the same shape."""
        self.require_encoder(other.fingerprint, repr(other.encoder), where)
        for name in ("dim", "structure_dim", "rate_hz"):
            if getattr(self, name) != getattr(other, name):
                raise InputError(
                    f"{where} has {name} {getattr(self, name)}, not {getattr(other, name)}; features of two shapes are "
                    "never mixed: fill another folder"
                )


@dataclass(frozen=True, slots=True)
class StoredPhrase:
    """One phrase of the narration and when it was said; ``chatter`` marks "subscribe to my channel"."""

    text: str
    start_s: float
    end_s: float
    chatter: bool = False

    def __post_init__(self) -> None:
        start, end = float(self.start_s), float(self.end_s)
        if not (math.isfinite(start) and math.isfinite(end) and start <= end):
            raise InputError(f"phrase {self.text!r} needs finite start_s <= end_s, got {self.start_s}, {self.end_s}")
        object.__setattr__(self, "start_s", start)
        object.__setattr__(self, "end_s", end)


@dataclass(frozen=True, slots=True, eq=False)
class StoredVideo:
    """Everything the store knows about one video. Arrays are float32 when read (float16 on disk), raw as encoded.

    ``phrases`` have the fields of :class:`StoredPhrase`; ``phrase_vectors`` has one row for each, or is None where the
    store was filled without a text side.
    """

    video: str
    features: Array  # (N, D)
    rate_hz: float
    duration_s: float
    structure: Array | None = None  # (N, S)
    phrases: tuple[Any, ...] = ()
    phrase_vectors: Array | None = None  # (L, D)
    meta: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.video or "\n" in self.video:
            raise InputError(f"a video in the store needs a name of one line, got {self.video!r}")
        if not (math.isfinite(self.duration_s) and self.duration_s >= 0):
            raise InputError(f"{self.video}: duration_s must be finite and not negative, got {self.duration_s!r}")
        object.__setattr__(self, "phrases", tuple(self.phrases))
        rows = {"features": None, "structure": len(self.features), "phrase_vectors": len(self.phrases)}
        for name, count in rows.items():
            if getattr(self, name) is not None:
                array = np.asarray(getattr(self, name))
                if array.ndim != 2 or count not in (None, len(array)):
                    want = f"({'N' if count is None else count}, D)"
                    raise InputError(f"{self.video}: {name} must have the shape {want}, got {array.shape}")
                object.__setattr__(self, name, array)
        if not len(self.features):
            raise InputError(f"{self.video}: no features; a video in the store has at least one row")


class Entry(NamedTuple):
    """What is held in memory of each video."""

    offset: int  # of its line in the index
    shard: int
    n: int  # feature rows
    duration_s: float
    said: int  # phrases to learn from: those that are not chatter, or all where there is nothing else


class Arrays(NamedTuple):
    """The vectors of one video as they lie in the page cache: read-only, float16, nothing copied."""

    features: npt.NDArray[np.float16]  # (N, D)
    phrases: npt.NDArray[np.float16]  # (L, D)
    said: Array  # (L, 3) start_s, end_s, 1 for chatter


class FeatureStore(Sequence[StoredVideo]):
    """A store opened for reading: ``len``, ``ids``, ``store["id"]``, ``store[3]``, iteration.

    Only the index's ids and positions are held in memory; features come from memory-mapped shards when asked for, in
    any number of threads.

    Examples:
        >>> store = FeatureStore("store")
        >>> len(store), store["one"].features.shape, store["one"].phrases[0].text
        (6, (20, 16), 'step 0')
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        folder = self.path = Path(path)
        self.info = read_info(self.path)
        self._positions: dict[str, Entry] = {}
        with reading(self.path / INDEX_FILE, "index of a feature store"):
            for offset, line in index_lines(self.path / INDEX_FILE):
                head = parse_head(line, self.path)
                phrases = int(head["n_phrases"])
                if not 0 <= phrases <= len(line):  # room is made for them before they are read
                    raise ValueError(f"it counts {phrases} phrases of {str(head['id'])[:60]!r}")
                shard, rows, duration_s = int(head["shard"]), int(head["n"]), float(head["duration_s"])
                said = phrases - line.count(_CHATTER_MARK)
                self._positions[str(head["id"])] = Entry(offset, shard, rows, duration_s, said or phrases)
        self.ids = tuple(self._positions)
        """Names of the videos, in the order in which they were stored."""
        self._shard = lru_cache(_OPEN_SHARDS)(lambda number: _Shard(shard_path(folder, number)))

    def __len__(self) -> int:
        return len(self.ids)

    def __contains__(self, video: object) -> bool:
        return video in self._positions

    def entry(self, video: str) -> Entry:
        """What is known of one video without reading it."""
        try:
            return self._positions[video]
        except KeyError:
            raise InputError(f"{self.path} has no video {video!r}") from None

    @overload
    def __getitem__(self, key: str | int) -> StoredVideo: ...

    @overload
    def __getitem__(self, key: slice) -> list[StoredVideo]: ...

    def __getitem__(self, key: str | int | slice) -> StoredVideo | list[StoredVideo]:
        if isinstance(key, slice):
            return [self.read(video) for video in self.ids[key]]
        return self.read(key if isinstance(key, str) else self.ids[key])

    def __str__(self) -> str:
        return str(self.path)

    @reader("feature store")
    def read(self, video: str) -> StoredVideo:
        """One video by its name."""
        line = self.line(video)
        shard, rows = self._shard(int(line["shard"])), int(line["n"])
        phrases = tuple(
            StoredPhrase(str(p["text"]), p["start_s"], p["end_s"], bool(p.get("chatter"))) for p in line["phrases"]
        )
        features = self._array(shard, video, "features", (rows, self.info.dim)).astype(np.float32)
        structure = vectors = None
        if self.info.structure_dim:
            structure = self._array(shard, video, "structure", (rows, self.info.structure_dim)).astype(np.float32)
        if phrases and line.get("phrase_vectors", True):
            vectors = self._array(shard, video, "phrases", (len(phrases), self.info.dim)).astype(np.float32)
        elif not phrases:
            vectors = np.zeros((0, self.info.dim), np.float32)
        length_s, meta = float(line["duration_s"]), line.get("meta", {})
        return StoredVideo(video, features, self.info.rate_hz, length_s, structure, phrases, vectors, meta)

    def line(self, video: str) -> dict[str, Any]:
        """One video's line of the index: everything but the vectors."""
        return line_at(self.path, self.entry(video).offset)

    def require_encoder(self, fingerprint: str, name: str = "the one asked for") -> None:
        """Raises unless the store was filled by the encoder with this fingerprint."""
        self.info.require_encoder(fingerprint, name, self.path)

    @reader("feature store")
    def arrays(self, video: str) -> Arrays:
        """The vectors of one video for training, straight from its shard."""
        entry = self.entry(video)
        shard = self._shard(entry.shard)
        features = self._array(shard, video, "features", (entry.n, self.info.dim))
        if f"{video}|phrases" not in shard.header:
            if entry.said:
                raise InputError(f"{self.path}: video {video} has phrases without vectors; prepare the store again")
            return Arrays(features, np.zeros((0, self.info.dim), np.float16), np.zeros((0, 3), np.float32))
        said = shard.array(f"{video}|said")
        if said.ndim != 2 or said.shape[1] != 3 or entry.said not in (len(said), int((said[:, 2] == 0).sum())):
            raise InputError(f"{self.path}: the times of what {video!r} says are not those that the index counts")
        return Arrays(features, self._array(shard, video, "phrases", (len(said), self.info.dim)), said)

    def _array(self, shard: _Shard, video: str, kind: str, shape: tuple[int, int]) -> npt.NDArray[Any]:
        try:
            found = shard.array(f"{video}|{kind}")
        except KeyError:
            raise InputError(f"{self.path}: {kind} of {video!r} are not in their shard") from None
        if found.shape != shape:
            raise InputError(f"{self.path}: {kind} of {video!r} have the shape {found.shape}, the index says {shape}")
        return found


class _Shard:
    """One memory-mapped shard; its arrays are views of the map, which lives as long as one of them."""

    def __init__(self, path: Path) -> None:
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(plain_file(path), framework="np"):  # checks the header, every offset and the size
                pass
            with path.open("rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError, SafetensorError) as error:
            raise InputError(f"shard {path} of the feature store cannot be read: {reason(error)}") from None
        length = int.from_bytes(self._map[:8], "little")
        self._start = 8 + length
        self.header: dict[str, Any] = json.loads(self._map[8 : self._start])

    def array(self, name: str) -> npt.NDArray[Any]:
        about = self.header[name]
        begin, end = about["data_offsets"]
        kind = np.dtype(_KINDS[about["dtype"]])
        flat = np.frombuffer(self._map, kind, (end - begin) // kind.itemsize, self._start + begin)
        return flat.reshape(about["shape"])


def open_stores(paths: Iterable[str | os.PathLike[str]]) -> list[FeatureStore]:
    """Several stores to be used as one; an error if they are not of one encoder."""
    stores = [FeatureStore(path) for path in paths]
    for store in stores[1:]:
        store.info.require_same(stores[0].info, store.path)
    return stores


@reader("feature store")
def read_info(path: str | os.PathLike[str]) -> StoreInfo:
    """``store.json`` of a store, checked."""
    file = Path(path) / INFO_FILE
    if not file.exists():
        raise InputError(f"{path} is not a feature store: it has no {INFO_FILE}")
    data = read_json(file)
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise InputError(f"{file} does not describe a feature store")
    if data.get("version") != FORMAT_VERSION:
        raise InputError(f"{file} has store version {data.get('version')!r}; version {FORMAT_VERSION} is expected")
    return StoreInfo(
        str(data["encoder"]), str(data["fingerprint"]), int(data["dim"]), float(data["rate_hz"]),
        int(data.get("structure_dim", 0)), data.get("meta", {}),
    )  # fmt: skip


def shard_path(path: Path, number: int) -> Path:
    """The file of one shard."""
    return path / SHARD_FOLDER / f"{number:05d}.safetensors"


def to_half(values: Any, what: str) -> npt.NDArray[np.float16]:
    """Values as contiguous float16; an error where one is not finite or does not fit."""
    array = np.asarray(values)
    if not np.isfinite(array).all():
        raise NonFiniteError(f"{what} have a value that is not finite")
    with np.errstate(over="ignore"):
        half = np.ascontiguousarray(array, dtype=np.float16)
    if not np.isfinite(half).all():
        raise InputError(f"{what} reach {np.abs(array).max():g}, more than float16 holds (65504); scale them down")
    return half


def index_lines(index: Path) -> Iterator[tuple[int, bytes]]:
    """Complete lines with their offsets; a last line that a kill cut short is not a line."""
    if not (index.exists() and index.stat().st_size):  # a pipe has no size, and would be waited for
        return
    with index.open("rb") as stream:
        offset = 0
        while line := stream.readline(_LINE_BYTES + 1):
            if len(line) > _LINE_BYTES:
                raise InputError(f"{index} has a line of more than {_LINE_BYTES >> 20} MiB, which cannot be a video's")
            if line.endswith(b"\n") and line.strip():
                yield offset, line
            offset += len(line)


def parse_line(line: bytes, path: Path) -> dict[str, Any]:
    """One line of the index, its required fields checked."""
    try:
        value = json.loads(line)
        value["id"], value["shard"], value["n"], value["duration_s"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(f"{path / INDEX_FILE} has a line that cannot be read: {reason(error)}") from None
    return dict(value)


def parse_head(line: bytes, path: Path) -> dict[str, Any]:
    """The fields before the phrases: parsing those alone keeps opening a large store quick."""
    head, mark, _ = line.partition(_PHRASES_MARK)
    return parse_line(head + b"}" if mark else line, path)


def line_at(path: Path, offset: int) -> dict[str, Any]:
    """The line at a place of the index."""
    with (path / INDEX_FILE).open("rb") as index:
        index.seek(offset)
        return parse_line(index.readline(), path)


# -- filling ----------------------------------------------------------------------------------------------------------


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
    if video.rate_hz != info.rate_hz:
        raise InputError(f"{video.video}: {video.rate_hz:g} features per second, the store has {info.rate_hz:g}")
    if (video.structure is None) == (info.structure_dim > 0):
        has = "has none: give an .npz with `features` and `structure`, or" if info.structure_dim else "has some:"
        store_has = f"the store has {info.structure_dim or 'no'} structure columns"
        raise InputError(f"{video.video}: {store_has}, the video {has} fill another folder")
    tensors: dict[str, Any] = {}
    for name, given, width, what in (
        ("features", video.features, info.dim, "features"),
        ("structure", video.structure, info.structure_dim, "structure vectors"),
        ("phrases", video.phrase_vectors if video.phrases else None, info.dim, "phrase vectors"),
    ):
        if given is not None:
            if given.shape[1] != width:
                raise InputError(f"{video.video}: {what} have {given.shape[1]} columns, the store has {width}")
            tensors[name] = to_half(given, f"{video.video}: {what}")
    if "phrases" in tensors:
        tensors["said"] = np.array([(p.start_s, p.end_s, p.chatter) for p in video.phrases], np.float32)
    phrases = [
        {"text": p.text, "start_s": round(p.start_s, 3), "end_s": round(p.end_s, 3)}
        | ({"chatter": True} if p.chatter else {})
        for p in video.phrases
    ]
    line: dict[str, Any] = {
        "id": video.video,
        "shard": -1,
        "n": len(video.features),
        "duration_s": round(video.duration_s, 3),
        "n_phrases": len(video.phrases),
        "phrases": phrases,
        "phrase_vectors": video.phrase_vectors is not None,
        "meta": dict(video.meta),
    }
    data = save(tensors, metadata={"line": _dump(line), "fingerprint": info.fingerprint})
    files.write_bytes(spool_path(store, video.video), data)
    return len(data)


class StoreWriter(AbstractContextManager["StoreWriter"]):
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
        files.make_folder(self.path)
        self._lock = files.lock_folder(self.path)
        try:
            if existing.exists():
                read_info(self.path).require_same(info, self.path)
            else:
                about = {"format": FORMAT, "version": FORMAT_VERSION, "dtype": "float16", **asdict(info)}
                files.write_json(existing, about)
            (self.path / SPOOL_FOLDER).mkdir(exist_ok=True)
            self._recover()
        except BaseException:
            self._lock.close()
            raise

    def __exit__(self, *error: object) -> None:
        self.close()

    def __contains__(self, video: str) -> bool:
        return video in self._done_at or spool_path(self.path, video).exists()

    def meta(self, video: str) -> dict[str, Any]:
        """The provenance stored with a finished video; empty when there is none."""
        line: dict[str, Any] = {}
        if spool_path(self.path, video).exists():
            line, _ = _spooled(spool_path(self.path, video))
        elif video in self._done_at:
            line = line_at(self.path, self._done_at[video])
        return dict(line.get("meta", {}))

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
        if not self._lock.closed:
            try:
                self._pack()
            finally:
                self._lock.close()

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
            line, arrays = _spooled(path)
            lines.append({**line, "shard": self._next_shard})
            tensors |= {f"{line['id']}|{kind}": array for kind, array in arrays.items()}
        with files.replacing(shard_path(self.path, self._next_shard)) as temporary:
            save_file(tensors, temporary, metadata={"fingerprint": self.info.fingerprint})
        with (self.path / INDEX_FILE).open("ab") as index:
            for line in lines:
                self._done_at[line["id"]] = index.tell()
                index.write(_dump(line).encode() + b"\n")
            index.flush()
            os.fsync(index.fileno())
        self._next_shard += 1
        for path in spooled:
            path.unlink()

    def _recover(self) -> None:
        """Brings a store that a kill left half-way back to a state from which work goes on."""
        index = self.path / INDEX_FILE
        self._done_at: dict[str, int] = {}  # where the line of each video is
        end, last_shard = 0, -1
        for offset, line in index_lines(index):
            head = parse_head(line, self.path)
            self._done_at[head["id"]] = offset
            last_shard = max(last_shard, int(head["shard"]))
            end = offset + len(line)
        if index.exists() and index.stat().st_size > end:
            os.truncate(index, end)  # a line the kill cut short; its video is still in the spool
        self._next_shard = last_shard + 1  # a shard that never got into the index is written over
        for folder in (SPOOL_FOLDER, SHARD_FOLDER):
            for left in (self.path / folder).glob(".*.partial*"):
                left.unlink(missing_ok=True)
        for path in self._spool_files():
            try:
                waiting, _ = _spooled(path)
            except StepFormerError:
                path.unlink()  # unreadable (a failing disk): the video is done again
                continue
            at = self._done_at.get(waiting["id"])
            if at is not None and {**line_at(self.path, at), "shard": -1} == waiting:
                path.unlink()  # packed just before the kill, and only the removal was missing


def _dump(line: dict[str, Any]) -> str:
    return files.json_text(line, allow_nan=False)


def _spooled(path: Path) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    """The line and the arrays of a finished video."""
    from safetensors import safe_open

    try:
        with safe_open(plain_file(path), framework="np") as entry:
            arrays = {name: entry.get_tensor(name) for name in entry.keys()}  # noqa: SIM118
            return json.loads(entry.metadata()["line"]), arrays
    except Exception as error:
        raise InputError(f"{path} in the spool cannot be read: {reason(error)}") from None
