"""The feature store: what ``prepare features`` writes and training, evaluation and search read.

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
the spool.
"""

from __future__ import annotations

import json
import math
import mmap
import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from stepformer.base.guard import plain_file, read_bytes, reader, reading
from stepformer.errors import InputError, NonFiniteError, UsageError

FORMAT = "stepformer-feature-store"
FORMAT_VERSION = 1
INFO_FILE = "store.json"
INDEX_FILE = "index.jsonl"
SHARD_FOLDER = "shards"

Array = npt.NDArray[np.float32]

# neither can occur inside a JSON string, where the quotes would be escaped
_PHRASES_MARK, _CHATTER_MARK = b', "phrases": ', b'"chatter": true'
_KINDS = {"F16": "<f2", "F32": "<f4"}
_LINE_BYTES = 64 << 20  # of the index: a video with all that is said in it
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

    def to_dict(self) -> dict[str, Any]:
        """The content of ``store.json``."""
        return {"format": FORMAT, "version": FORMAT_VERSION, "dtype": "float16", **asdict(self)}

    def require_same_encoder(self, other: StoreInfo, where: str) -> None:
        """Raises unless ``other`` holds vectors of the same space, at the same rate, of the same shape."""
        if self.fingerprint != other.fingerprint:
            raise InputError(
                f"{where} holds features of encoder {self.encoder!r} ({self.fingerprint}), not of {other.encoder!r} "
                f"({other.fingerprint}); features of two encoders are never mixed: use another folder"
            )
        for name in ("dim", "structure_dim", "rate_hz"):
            if getattr(self, name) != getattr(other, name):
                raise InputError(f"{where} has {name} {getattr(self, name)}, not {getattr(other, name)}")


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

    @classmethod
    def of(cls, phrase: Any) -> StoredPhrase:
        """From anything with ``text``, ``start_s``, ``end_s`` and perhaps ``chatter``: a record or a mapping."""
        if isinstance(phrase, cls):
            return phrase
        if isinstance(phrase, Mapping):
            return cls(str(phrase["text"]), phrase["start_s"], phrase["end_s"], bool(phrase.get("chatter", False)))
        if not hasattr(phrase, "text"):
            raise InputError(f"a phrase needs text, start_s and end_s, got {str(phrase)[:60]!r}")
        return cls(str(phrase.text), phrase.start_s, phrase.end_s, bool(getattr(phrase, "chatter", False)))

    def to_dict(self) -> dict[str, Any]:
        """The phrase as it stands in the index."""
        out: dict[str, Any] = {"text": self.text, "start_s": round(self.start_s, 3), "end_s": round(self.end_s, 3)}
        if self.chatter:
            out["chatter"] = True
        return out


@dataclass(frozen=True, slots=True, eq=False)
class StoredVideo:
    """Everything the store knows about one video. Arrays are float32 when read (float16 on disk), raw as encoded.

    ``phrase_vectors`` has one row for each phrase, or is None where the store was filled without a text side.
    """

    video: str
    features: Array  # (N, D)
    rate_hz: float
    duration_s: float
    structure: Array | None = None  # (N, S)
    phrases: tuple[StoredPhrase, ...] = ()
    phrase_vectors: Array | None = None  # (L, D)
    meta: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.video or "\n" in self.video:
            raise InputError(f"a video in the store needs a name of one line, got {self.video!r}")
        if not (math.isfinite(self.duration_s) and self.duration_s >= 0):
            raise InputError(f"{self.video}: duration_s must be finite and not negative, got {self.duration_s!r}")
        object.__setattr__(self, "phrases", tuple(StoredPhrase.of(phrase) for phrase in self.phrases))
        for name, rows in (
            ("features", None),
            ("structure", len(self.features)),
            ("phrase_vectors", len(self.phrases)),
        ):
            value = getattr(self, name)
            if value is None:
                continue
            array = np.asarray(value)
            if array.ndim != 2 or (rows is not None and len(array) != rows):
                want = "(N, D)" if rows is None else f"({rows}, D)"
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

    Only the index's ids and positions are held in memory; features come from memory-mapped shards when asked for.
    May be pickled and used in forked or spawned data-loader workers.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.info = read_info(self.path)
        self._positions: dict[str, Entry] = {}
        with reading(self.path / INDEX_FILE, "index of a feature store"):
            for offset, line in index_lines(self.path / INDEX_FILE):
                head = parse_head(line, self.path)
                phrases = int(head["n_phrases"])
                if not 0 <= phrases <= len(line):  # room is made for so many before they are read
                    raise ValueError(f"it counts {phrases} phrases of {str(head['id'])[:60]!r}")
                shard, rows, duration_s = int(head["shard"]), int(head["n"]), float(head["duration_s"])
                said = phrases - line.count(_CHATTER_MARK)
                self._positions[str(head["id"])] = Entry(offset, shard, rows, duration_s, said or phrases)
        self._ids = tuple(self._positions)
        self._shards: dict[int, _Shard] = {}
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_shards", "_lock")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _shards={}, _lock=threading.Lock())

    @property
    def ids(self) -> tuple[str, ...]:
        """Names of the videos, in the order in which they were stored."""
        return self._ids

    def __len__(self) -> int:
        return len(self._ids)

    def __contains__(self, video: object) -> bool:
        return video in self._positions

    def entry(self, video: str) -> Entry:
        """What is known of one video without reading it."""
        try:
            return self._positions[video]
        except KeyError:
            raise InputError(f"{self.path} has no video {video!r}") from None

    def __iter__(self) -> Iterator[StoredVideo]:
        return (self[video] for video in self._ids)

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            return [self[video] for video in self._ids[key]]
        return self.read(key if isinstance(key, str) else self._ids[key])

    def read(self, video: str) -> StoredVideo:
        """One video by its name."""
        with reading(self.path, "feature store"):
            return self._read(video)
        raise AssertionError

    def _read(self, video: str) -> StoredVideo:
        line = self.line(video)
        shard, rows = self._shard(int(line["shard"])), int(line["n"])
        phrases = tuple(StoredPhrase.of(phrase) for phrase in line.get("phrases", ()))
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
        with (self.path / INDEX_FILE).open("rb") as index:
            index.seek(self.entry(video).offset)
            return parse_line(index.readline(), self.path)

    def require_encoder(self, fingerprint: str, name: str = "the one asked for") -> None:
        """Raises unless the store was filled by the encoder with this fingerprint."""
        if fingerprint != self.info.fingerprint:
            raise InputError(
                f"{self.path} holds features of encoder {self.info.encoder!r} ({self.info.fingerprint}), not of {name} "
                f"({fingerprint}); fill another store with: stepformer prepare features SRC DST --encoder NAME"
            )

    def arrays(self, video: str) -> Arrays:
        """The vectors of one video for training, straight from its shard."""
        with reading(self.path, "feature store"):
            return self._arrays(video)
        raise AssertionError

    def _arrays(self, video: str) -> Arrays:
        entry = self.entry(video)
        shard = self._shard(entry.shard)
        features = self._array(shard, video, "features", (entry.n, self.info.dim))
        if not shard.has(f"{video}|phrases"):
            if entry.said:
                raise InputError(f"{self.path}: video {video} has phrases without vectors; prepare the store again")
            return Arrays(features, np.zeros((0, self.info.dim), np.float16), np.zeros((0, 3), np.float32))
        said = shard.array(f"{video}|said")
        if said.ndim != 2 or said.shape[1] != 3 or entry.said not in (len(said), int((said[:, 2] == 0).sum())):
            raise InputError(f"{self.path}: the times of what {video!r} says are not those that the index counts")
        return Arrays(features, self._array(shard, video, "phrases", (len(said), self.info.dim)), said)

    def _shard(self, number: int) -> _Shard:
        if (shard := self._shards.get(number)) is not None:
            return shard
        with self._lock:
            if number not in self._shards:
                self._shards[number] = _Shard(shard_path(self.path, number))
                if len(self._shards) > _OPEN_SHARDS:
                    del self._shards[next(iter(self._shards))]  # the one that was opened first
            return self._shards[number]

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
            raise InputError(f"shard {path} of the feature store cannot be read: {error}") from None
        length = int.from_bytes(self._map[:8], "little")
        self._start = 8 + length
        self._header: dict[str, Any] = json.loads(self._map[8 : self._start])

    def has(self, name: str) -> bool:
        return name in self._header

    def array(self, name: str) -> npt.NDArray[Any]:
        about = self._header[name]
        begin, end = about["data_offsets"]
        kind = np.dtype(_KINDS[about["dtype"]])
        flat = np.frombuffer(self._map, kind, (end - begin) // kind.itemsize, self._start + begin)
        return flat.reshape(about["shape"])


def open_stores(paths: Iterable[str | os.PathLike[str]]) -> list[FeatureStore]:
    """Several stores to be used as one; an error if they are not of one encoder."""
    stores = [FeatureStore(path) for path in paths]
    for store in stores[1:]:
        store.info.require_same_encoder(stores[0].info, str(store.path))
    return stores


@reader("feature store")
def read_info(path: str | os.PathLike[str]) -> StoreInfo:
    """``store.json`` of a store, checked."""
    file = Path(path) / INFO_FILE
    if not file.exists():
        raise InputError(f"{path} is not a feature store: it has no {INFO_FILE}")
    try:
        data = json.loads(read_bytes(file))
    except ValueError as error:
        raise InputError(f"{file} cannot be read: {error}") from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise InputError(f"{file} does not describe a feature store")
    if data.get("version") != FORMAT_VERSION:
        raise InputError(f"{file} has the store version {data.get('version')!r}; this version reads {FORMAT_VERSION}")
    try:
        return StoreInfo(
            str(data["encoder"]), str(data["fingerprint"]), int(data["dim"]), float(data["rate_hz"]),
            int(data.get("structure_dim", 0)), data.get("meta", {}),
        )  # fmt: skip
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{file} lacks a field or has a wrong one: {error}") from None


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
                raise InputError(f"{index} has a line of more than {_LINE_BYTES >> 20} MiB, which is no video's")
            if line.endswith(b"\n") and line.strip():
                yield offset, line
            offset += len(line)


def parse_line(line: bytes, path: Path) -> dict[str, Any]:
    """One line of the index, its required fields checked."""
    try:
        value = json.loads(line)
        value["id"], value["shard"], value["n"], value["duration_s"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(f"{path / INDEX_FILE} has a line that cannot be read: {error}") from None
    return dict(value)


def parse_head(line: bytes, path: Path) -> dict[str, Any]:
    """The fields before the phrases: parsing those alone keeps opening a large store quick."""
    head, mark, _ = line.partition(_PHRASES_MARK)
    return parse_line(head + b"}" if mark else line, path)
