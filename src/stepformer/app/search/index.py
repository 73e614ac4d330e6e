"""The search index on disk: three usearch graphs (steps, moments, names) and what their keys stand for.

::

    FOLDER/.stepformer-search/
      index.json            format, encoder and its fingerprint, dim, counts, and which generation is current
      000001/steps.usearch  one vector per discovered step (its slot and its frames, half each), int8, cosine
      000001/moments.usearch  one vector per few seconds of video: the mean of its frames
      000001/names.usearch  one vector per named step of a timeline that came without vectors: the name's own
      000001/steps.npy, moments.npy, names.npy
                            a row per key: video, start_s, end_s, step (-1 = in no step); video -1 = taken out
      000001/videos.jsonl   name, source, duration, stamp, and the steps' names
      000001/means.npy      (3, D): mean of step vectors, of moments, of texts, taken off before comparing
      000001/sample-steps.npy, ...   vectors at random, to tell what a similarity is worth
      000001/bank.npy       (1, P): how well each phrase of the bank fits at its best, to tell whether a text is here;
                            only where the encoder knows how pictures at large lie in its space

A change writes a new generation beside the old one and then renames ``index.json`` into place: a reader, or a run
that is killed, has the old index or the new one.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from stepformer.base import arrays, guard
from stepformer.base.files import json_text, write_json, write_text
from stepformer.errors import InputError, NonFiniteError

if TYPE_CHECKING:
    from stepformer.app.naming import PhraseBank

FORMAT = "stepformer-search"
FORMAT_VERSION = 2
FOLDER = ".stepformer-search"
KINDS = ("steps", "moments", "names")
"""Each with a graph; the row of ``means.npy`` that is taken off its vectors is in the same place."""
MOMENT_S = 4.0
SAMPLE = 2000
ENTRY = np.dtype([("video", "<i4"), ("start_s", "<f4"), ("end_s", "<f4"), ("step", "<i4")])
_CONNECTIVITY, _EFFORT_ADD, _EFFORT_SEARCH = 16, 96, 128

Vectors = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class IndexedVideo:
    """One video as the index takes it; vectors of one encoder's space, any length.

    spans_s: (n, 2) start and end of each step; step_vectors: (n, D); frames: (N, D), ``rate_hz`` a second. stamp
    changes whenever the video or its features do; source is where the video is, for people. A timeline without
    vectors has ``name_vectors`` (n, D) of its steps' names instead, with zeros where a step has none; then step_vectors
    and frames are empty.
    """

    video: str
    duration_s: float
    spans_s: npt.NDArray[np.float64]
    labels: tuple[str | None, ...]
    step_vectors: Vectors
    frames: Vectors
    rate_hz: float = 1.0
    stamp: str = ""
    source: str = ""
    name_vectors: Vectors | None = None

    def __post_init__(self) -> None:
        spans = np.asarray(self.spans_s, np.float64).reshape(-1, 2)
        object.__setattr__(self, "spans_s", spans)
        vectors = self.step_vectors if self.name_vectors is None else self.name_vectors
        if not len(spans) == len(self.labels) == len(vectors):
            raise InputError(f"{self.video}: each step needs a span, a label and a vector")
        if np.ndim(self.frames) != 2 or (len(spans) and np.shape(self.step_vectors)[1] != self.frames.shape[1]):
            raise InputError(f"{self.video}: frames and step vectors must have the same width")
        if not (np.isfinite(self.frames).all() and np.isfinite(self.step_vectors).all()):
            raise NonFiniteError(f"{self.video}: a vector has a value that is not finite")

    def moments(self, moment_s: float) -> tuple[npt.NDArray[Any], Vectors]:
        """Entries (video 0) and mean vectors of about ``moment_s`` seconds each; none crosses a step's edge."""
        n = len(self.frames)
        if n == 0:
            return np.zeros(0, ENTRY), np.zeros((0, self.frames.shape[1]), np.float32)
        middle = (np.arange(n) + 0.5) / self.rate_hz
        owner = np.full(n, -1, np.int32)
        for number, (start, end) in enumerate(self.spans_s):
            owner[(middle >= start) & (middle < end)] = number
        size = max(1, round(moment_s * self.rate_hz))
        starts: list[int] = []
        edges = np.flatnonzero(np.diff(owner)) + 1
        for first, stop in zip([0, *edges], [*edges, n], strict=True):
            starts += range(int(first), int(stop), size)
        begin = np.array(starts, np.int64)
        stops = np.append(begin[1:], n)
        entries = np.zeros(len(begin), ENTRY)
        entries["start_s"], entries["end_s"] = begin / self.rate_hz, stops / self.rate_hz
        entries["step"] = owner[begin]
        means = np.add.reduceat(np.asarray(self.frames, np.float32), begin, axis=0) / (stops - begin)[:, None]
        return entries, np.asarray(means, np.float32)


@dataclass(frozen=True, slots=True)
class IndexInfo:
    """What ``index.json`` says."""

    encoder: str
    fingerprint: str
    dim: int
    model: str = ""
    model_hash: str = ""
    moment_s: float = MOMENT_S
    generation: int = 0
    videos: int = 0
    steps: int = 0
    moments: int = 0
    names: int = 0
    dead: int = 0  # keys taken out since the graphs were last built whole

    def to_dict(self) -> dict[str, Any]:
        """Plain values with the format's name and version."""
        return {"format": FORMAT, "version": FORMAT_VERSION, **asdict(self)}


def read_info(folder: Path) -> IndexInfo:
    """``index.json`` of a library's index, checked; ``folder`` is the library."""
    file = folder / FOLDER / "index.json"
    if not file.exists():
        raise InputError(f"{folder} has no search index yet; make it with: stepformer search {folder} --update")
    try:
        data = json.loads(guard.read_bytes(file))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{file} cannot be read: {error}; make it again with --update --rebuild") from None
    if not isinstance(data, dict) or data.get("format") != FORMAT or data.get("version") != FORMAT_VERSION:
        raise InputError(f"{file} is not a search index this version reads; make it again with --update --rebuild")
    try:
        return IndexInfo(**{name: data[name] for name in IndexInfo.__dataclass_fields__})
    except (KeyError, TypeError) as error:
        raise InputError(f"{file} lacks a field or has a wrong one: {error}; use --update --rebuild") from None


def generation_folder(folder: Path, generation: int) -> Path:
    """Where one generation of a library's index lies."""
    return folder / FOLDER / f"{generation:06d}"


def load_entries(path: Path) -> npt.NDArray[Any]:
    """Rows of ``steps.npy``, ``moments.npy`` or ``names.npy``."""
    try:
        entries = guard.load_array(path)
    except InputError as error:
        raise InputError(f"{error}; use --update --rebuild") from None
    if entries.dtype != ENTRY:
        raise InputError(f"{path} has other columns than expected; use --update --rebuild")
    return np.asarray(entries)


def unit(x: npt.ArrayLike) -> Vectors:
    """Rows of length 1 as they are stored, float32."""
    return arrays.unit(x, np.float32)


def uncentred(vectors: Vectors, mean: Vectors) -> Vectors:
    """Unit vectors (N, D) from what is stored of them: what is left without ``mean`` (D,), at unit length."""
    along = vectors @ mean
    length = np.sqrt(np.maximum(along**2 + 1 - float(mean @ mean), 0.0)) - along
    return np.asarray(mean + length[:, None] * vectors, np.float32)


def new_graph(dim: int) -> Any:
    """An empty usearch graph: cosine on int8, a quarter of float32; what it loses `bench search` says."""
    from usearch.index import Index

    return Index(
        ndim=dim, metric="cos", dtype="i8", connectivity=_CONNECTIVITY, expansion_add=_EFFORT_ADD,
        expansion_search=_EFFORT_SEARCH,
    )  # fmt: skip


def open_graph(path: Path, dim: int, view: bool) -> Any:
    """A graph from its file: memory-mapped for asking (``view``), or loaded for changing."""
    graph = new_graph(dim)
    try:
        (graph.view if view else graph.load)(str(path))
    except (RuntimeError, OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {error}; use --update --rebuild") from None
    if graph.ndim != dim:
        raise InputError(f"{path} has vectors of width {graph.ndim}, not {dim}; use --update --rebuild")
    return graph


class IndexWriter:
    """Builds or changes the index of a library; nothing is seen by readers before :meth:`commit`.

    means: (3, D) of steps, moments and texts, fixed for the life of the graphs, so that vectors stay comparable. bank:
    phrases that a question is compared with, to tell whether what it asks for is here.
    """

    def __init__(
        self,
        folder: Path,
        info: IndexInfo,
        means: Vectors,
        old: IndexInfo | None = None,
        bank: PhraseBank | None = None,
    ) -> None:
        self.folder, self.info, self.means, self.old = folder, info, np.asarray(means, np.float32), old
        if self.means.shape != (3, info.dim):
            raise InputError(f"the index needs three mean vectors of width {info.dim}, got {self.means.shape}")
        self.videos: list[dict[str, Any] | None] = []
        if old is None:
            self.graphs = {kind: new_graph(info.dim) for kind in KINDS}
            self.entries = {kind: [np.zeros(0, ENTRY)] for kind in KINDS}
        else:
            place = generation_folder(folder, old.generation)
            self.graphs = {kind: open_graph(place / f"{kind}.usearch", info.dim, view=False) for kind in KINDS}
            self.entries = {kind: [load_entries(place / f"{kind}.npy")] for kind in KINDS}
            self.videos = list(read_videos(place))
        self.dead = 0 if old is None else old.dead
        self.bank = bank

    def stamps(self) -> dict[str, str]:
        """Video to stamp of everything in the index."""
        return {video["video"]: video["stamp"] for video in self.videos if video is not None}

    def remove(self, names: Iterable[str]) -> int:
        """Takes videos out; how many there were."""
        gone = {i for i, video in enumerate(self.videos) if video is not None and video["video"] in set(names)}
        if not gone:
            return 0
        for kind in KINDS:
            whole = np.concatenate(self.entries[kind])
            rows = np.flatnonzero(np.isin(whole["video"], list(gone)))
            if len(rows):
                self.graphs[kind].remove(rows.astype(np.uint64))
                whole["video"][rows] = -1
            self.entries[kind] = [whole]
            self.dead += len(rows)
        for i in gone:
            self.videos[i] = None
        return len(gone)

    def add(self, videos: Sequence[IndexedVideo], threads: int = 0) -> None:
        """Puts videos in, a batch at a time (one call into the graph is many times faster than one per video)."""
        parts: dict[str, list[tuple[npt.NDArray[Any], Vectors]]] = {kind: [] for kind in KINDS}
        for video in videos:
            if video.frames.shape[1] != self.info.dim:
                raise InputError(f"{video.video} has vectors of width {video.frames.shape[1]}, not {self.info.dim}")
            number = len(self.videos)
            steps = np.zeros(len(video.spans_s), ENTRY)
            steps["start_s"], steps["end_s"] = video.spans_s[:, 0], video.spans_s[:, 1]
            steps["step"] = np.arange(len(steps))
            moments, means = video.moments(self.info.moment_s)
            steps["video"] = moments["video"] = number
            if video.name_vectors is None:
                parts["steps"].append((steps, np.asarray(video.step_vectors, np.float32).reshape(-1, self.info.dim)))
                parts["moments"].append((moments, means))
            else:
                named = np.asarray(video.name_vectors, np.float32)
                there = np.any(named != 0, axis=1)
                parts["names"].append((steps[there], named[there]))
            self.videos.append(
                {
                    "video": video.video, "source": video.source, "duration_s": round(video.duration_s, 3),
                    "stamp": video.stamp, "labels": list(video.labels),
                    "spans_s": video.spans_s.round(3).tolist(),
                }
            )  # fmt: skip
        for row, kind in enumerate(KINDS):
            some = [(entries, vectors) for entries, vectors in parts[kind] if len(entries)]
            if not some:
                continue
            first = sum(len(block) for block in self.entries[kind])
            entries = np.concatenate([entries for entries, _ in some])
            vectors = unit(unit(np.concatenate([vectors for _, vectors in some])) - self.means[row])
            keys = np.arange(first, first + len(entries), dtype=np.uint64)
            self.graphs[kind].add(keys, vectors, threads=threads)
            self.entries[kind].append(entries)

    def commit(self) -> IndexInfo:
        """Writes the generation, then the name of it; earlier generations go."""
        generation = 1 + (self.old.generation if self.old is not None else _last_generation(self.folder))
        place = generation_folder(self.folder, generation)
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        counts = {}
        rng = np.random.default_rng(0)
        for kind in KINDS:
            whole = np.concatenate(self.entries[kind])
            self.graphs[kind].save(str(place / f"{kind}.usearch"))
            np.save(place / f"{kind}.npy", whole, allow_pickle=False)
            alive = np.flatnonzero(whole["video"] >= 0)
            counts[kind] = len(alive)
            chosen = np.sort(rng.choice(alive, min(SAMPLE, len(alive)), replace=False)).astype(np.uint64)
            sample = (
                np.asarray(self.graphs[kind].get(chosen, dtype="f32")) if len(chosen) else np.zeros((0, self.info.dim))
            )
            sample = unit(sample.reshape(-1, self.info.dim))
            np.save(place / f"sample-{kind}.npy", sample, allow_pickle=False)
            if kind == "moments" and len(sample) and self.bank is not None and self.bank.pictures is not None:
                best = self.bank.standard(uncentred(sample, self.means[1])).max(0)
                np.save(place / "bank.npy", np.sort(best)[None].astype(np.float32), allow_pickle=False)
        np.save(place / "means.npy", self.means, allow_pickle=False)
        write_text(place / "videos.jsonl", "".join(json_text(v) + "\n" for v in self.videos))
        alive_videos = sum(video is not None for video in self.videos)
        info = IndexInfo(
            **(asdict(self.info) | {
                "generation": generation, "videos": alive_videos, "steps": counts["steps"],
                "moments": counts["moments"], "names": counts["names"], "dead": self.dead,
            })
        )  # fmt: skip
        write_json(self.folder / FOLDER / "index.json", info.to_dict())
        for other in (self.folder / FOLDER).iterdir():
            if other.is_dir() and other.name.isdigit() and int(other.name) != generation:
                shutil.rmtree(other, ignore_errors=True)
        return info


def read_videos(place: Path) -> list[dict[str, Any] | None]:
    """Lines of ``videos.jsonl``; None where a video was taken out."""
    try:
        lines = guard.read_bytes(place / "videos.jsonl").splitlines()
        found: list[dict[str, Any] | None] = [json.loads(line) for line in lines]
    except (ValueError, RecursionError) as error:
        raise InputError(f"{place / 'videos.jsonl'} cannot be read: {error}; use --update --rebuild") from None
    return found


def load_array(place: Path, name: str, shape: Mapping[int, int]) -> Vectors:
    """A float array of a generation; ``shape`` says which axes must have which length."""
    try:
        array = guard.load_array(place / name)
    except InputError as error:
        raise InputError(f"{error}; use --update --rebuild") from None
    if array.ndim != 2 or any(array.shape[axis] != length for axis, length in shape.items()):
        raise InputError(f"{place / name} has the shape {array.shape}; use --update --rebuild")
    return np.asarray(array, np.float32)


def _last_generation(folder: Path) -> int:
    numbers = [int(p.name) for p in (folder / FOLDER).glob("*") if p.is_dir() and p.name.isdigit()]
    return max(numbers, default=0)
