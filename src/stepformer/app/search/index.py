"""The search index: two usearch graphs (steps, moments) on disk, what their keys stand for, and questions to them.

::

    FOLDER/.stepformer-search/
      index.json            format, encoder and its fingerprint, dim, counts, which generation is current, a checksum
      000001/steps.usearch  one vector per discovered step (its slot and its frames, half each), int8, cosine
      000001/moments.usearch  one vector per few seconds of video: the mean of its frames
      000001/steps.npy, moments.npy
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

import hashlib
import itertools
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property, partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import numpy as np
import numpy.typing as npt

from stepformer.base import arrays, guard
from stepformer.base.cache import content_hash
from stepformer.base.defaults import TOP
from stepformer.base.files import json_text, no_such, replacing, utf8, write_json, write_text
from stepformer.base.many import most_memory, run_many
from stepformer.errors import InputError, NonFiniteError, StepFormerError, UsageError, WriteError

if TYPE_CHECKING:
    from stepformer.app.naming import PhraseBank

FORMAT = "stepformer-search"
FORMAT_VERSION = 4
FOLDER = ".stepformer-search"
KINDS = ("steps", "moments")
"""Each with a graph; the row of ``means.npy`` that is taken off its vectors is in the same place."""
MOMENT_S = 4.0
SAMPLE = 2000
ENTRY = np.dtype([("video", "<i4"), ("start_s", "<f4"), ("end_s", "<f4"), ("step", "<i4")])
PER_VIDEO = 3  # places of one video in an answer
HERE = 0.6
"""A text is taken to be in the library if it fits some moment better than this share of the phrase bank fits any:
``stepformer bench names`` has both error rates."""
_CONNECTIVITY, _EFFORT_ADD, _EFFORT_SEARCH = 16, 96, 128
_LOOKED_AT = 64  # moments beside those of the sample that a question is compared with
_WIDER = 8  # neighbours asked for each result wanted: several moments of one step are one result
_SILENCE_S = 1800.0  # what one change of a graph may take; a forged one can lead in circles

P = ParamSpec("P")
T = TypeVar("T")
Vectors = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class IndexedVideo:
    """One video as the index takes it; vectors of one encoder's space, any length.

    spans_s: (n, 2) start and end of each step; step_vectors: (n, D); frames: (N, D), ``rate_hz`` per second. stamp
    changes whenever the video or its features do; source is where the video is, for people.
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

    def __post_init__(self) -> None:
        spans = np.asarray(self.spans_s, np.float64).reshape(-1, 2)
        object.__setattr__(self, "spans_s", spans)
        if not len(spans) == len(self.labels) == len(self.step_vectors):
            raise InputError(f"{self.video}: each step needs a span, a label and a vector")
        if np.ndim(self.frames) != 2 or (len(spans) and np.shape(self.step_vectors)[1] != self.frames.shape[1]):
            raise InputError(f"{self.video}: frames and step vectors must have the same width")
        if not (np.isfinite(self.frames).all() and np.isfinite(self.step_vectors).all()):
            raise NonFiniteError(f"{self.video}: a vector has a value that is not finite")

    def moments(self, moment_s: float) -> tuple[npt.NDArray[Any], Vectors]:
        """Entries (video 0) and mean vectors of about ``moment_s`` seconds each; none crosses a step's edge."""
        n = len(self.frames)
        middle = (np.arange(n) + 0.5) / self.rate_hz
        owner = np.full(n, -1, np.int32)
        for number, (start, end) in enumerate(self.spans_s):
            owner[(middle >= start) & (middle < end)] = number
        size = max(1, round(moment_s * self.rate_hz))
        edges = [0, *(np.flatnonzero(np.diff(owner)) + 1), n]
        begin = np.concatenate([np.arange(first, stop, size) for first, stop in itertools.pairwise(edges)])
        stops = np.append(begin, n)[1:]
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
    dead: int = 0  # keys taken out since the graphs were last built whole
    checksum: str = ""  # of all of this and of every file of the generation: a damaged graph crashes its reader

    def checked(self, place: Path) -> str:
        """The checksum as it should be; ``place`` is the folder of the generation. A file is read only once."""
        digest = hashlib.sha256(json_text(asdict(replace(self, checksum=""))).encode())
        for path in sorted(path for path in place.iterdir() if not path.name.startswith(".")):
            digest.update(f"{path.name} {content_hash(path)}".encode())
        return digest.hexdigest()


class _DamagedError(InputError):
    """Says already how to get the index back."""


def _of_index(function: Callable[P, T]) -> Callable[P, T]:
    """Decorates a reader whose first argument says of what: all that damaged or forged content raises is one error."""

    @wraps(function)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except StepFormerError as error:
            if type(error) is not InputError:  # a sentence of its own
                raise
            raise _damaged(args[0], str(error)) from None
        except guard.DAMAGE as error:
            raise _damaged(args[0], guard.reason(error)) from None

    return guarded


def _damaged(what: object, why: str) -> InputError:
    return _DamagedError(f"{what} cannot be read: {why}; make it again with --update --rebuild")


def read_info(folder: Path) -> IndexInfo:
    """``index.json`` of a library's index, checked with all that it stands for; ``folder`` is the library."""
    file = folder / FOLDER / "index.json"
    if not file.exists():
        raise InputError(f"{folder} has no search index yet; make it with: stepformer search {folder} --update")
    return _read_info(file)


@_of_index
def _read_info(file: Path) -> IndexInfo:
    data = guard.json_of(guard.read_bytes(file), "it")
    if not isinstance(data, dict) or data.get("format") != FORMAT or data.get("version") != FORMAT_VERSION:
        raise InputError("it is not a search index of this version")
    kinds = {"str": str, "int": int, "float": float}
    info = IndexInfo(**{field.name: kinds[str(field.type)](data[field.name]) for field in fields(IndexInfo)})
    if not 0 < info.moment_s < 1e6:
        raise InputError(f"its moments are {info.moment_s:g} s long")
    if info.checksum != info.checked(generation_folder(file.parents[1], info.generation)):
        raise InputError("it or a file of the index is damaged")
    return info


def generation_folder(folder: Path, generation: int) -> Path:
    """Where one generation of a library's index lies."""
    return folder / FOLDER / f"{generation:06d}"


@_of_index
def load_entries(path: Path) -> npt.NDArray[Any]:
    """Rows of ``steps.npy`` or ``moments.npy``."""
    entries = guard.load_array(path)
    if entries.dtype != ENTRY or entries.ndim != 1:
        raise InputError("its columns are not the expected ones")
    if not (np.isfinite(entries["start_s"]).all() and np.isfinite(entries["end_s"]).all()):
        raise InputError("it has a time that is not a number")
    return np.asarray(entries)


@_of_index
def load_array(path: Path, rows: int | None, width: int | None) -> Vectors:
    """A float array with these numbers of rows and columns, None for any."""
    array = guard.load_array(path)
    if array.ndim != 2 or rows not in (None, len(array)) or width not in (None, array.shape[1]):
        raise InputError(f"it has the shape {array.shape}")
    if array.dtype.kind != "f" or not np.isfinite(array).all():
        raise InputError("it has a value that is not a number")
    return np.asarray(array, np.float32)


def _save(path: Path, array: npt.NDArray[Any]) -> None:
    with replacing(path) as temporary:
        np.save(temporary, array, allow_pickle=False)


@_of_index
def read_videos(path: Path) -> list[dict[str, Any] | None]:
    """Lines of ``videos.jsonl``; None where a video was taken out."""
    return [_video(guard.json_of(line, "a line")) for line in guard.read_bytes(path).splitlines()]


def _video(line: Any) -> dict[str, Any] | None:
    """One line, of which nothing is believed but what is checked here."""
    if line is None:
        return None
    texts = [line["video"], line["source"], line["stamp"], *(name for name in line["labels"] if name is not None)]
    times = [line["duration_s"], *(time for start, end in line["spans_s"] for time in (start, end))]
    if not all(isinstance(text, str) for text in texts) or not all(isinstance(time, int | float) for time in times):
        raise InputError("a video has unexpected values")
    if len(line["spans_s"]) != len(line["labels"]):
        raise InputError("a video does not have as many names as steps")
    return dict(line)


unit = partial(arrays.unit, dtype=np.float32)  # rows of length 1 as they are stored


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


@_of_index
def open_graph(path: Path, dim: int, view: bool) -> Any:
    """A graph from its file: memory-mapped for asking (``view``), or loaded for changing."""
    graph = new_graph(dim)
    (graph.view if view else graph.load)(str(path))
    if graph.ndim != dim:
        raise InputError(f"it has vectors of width {graph.ndim}, not {dim}")
    return graph


class _Graphs:
    """The graphs of a writer, and what is done with them, one call after the other: a result or an error is given."""

    def __init__(self, folder: Path, dim: int, place: Path | None) -> None:
        self.folder, self.dim, self.place = folder, dim, place
        self._loaded: dict[str, Any] = {}

    def __str__(self) -> str:
        return f"the search index of {self.folder}"

    def __call__(self, call: tuple[str, str, tuple[Any, ...], dict[str, Any]]) -> Any:
        try:
            return self._do(*call)
        except StepFormerError as error:
            return error

    @_of_index
    def _do(self, kind: str, method: str, given: tuple[Any, ...], options: dict[str, Any]) -> Any:
        if kind not in self._loaded:
            old = None if self.place is None else self.place / f"{kind}.usearch"
            self._loaded[kind] = new_graph(self.dim) if old is None else open_graph(old, self.dim, view=False)
        graph = self._loaded[kind]
        if method == "save":
            with suppress(RuntimeError):  # on a full disk; a small graph is not even that
                graph.save(given[0])
            if not (path := Path(given[0])).is_file() or path.stat().st_size != graph.serialized_length:
                raise WriteError(f"{path} cannot be written: the disk is full, or the folder may not be written to")
            return None
        result = getattr(graph, method)(*given, **options)
        return np.asarray(result, np.float32).reshape(-1, self.dim) if method == "get" else None


class IndexWriter:
    """Builds or changes the index of a library; nothing is seen by readers before :meth:`commit`.

    info: of the index that is there, or of a new one. means: (3, D) of steps, moments and texts for a new one; they are
    fixed for the life of the graphs, so that vectors stay comparable. bank: phrases that a question is compared with,
    to tell whether what it asks for is here. apart: graphs from a file are changed in a process of their own, until
    :meth:`close`: a forged one, whose checksum is right, can crash it.
    """

    def __init__(
        self, folder: Path, info: IndexInfo, means: Vectors | None = None, bank: PhraseBank | None = None,
        apart: bool = False,
    ) -> None:  # fmt: skip
        self.folder, self.info, self.bank, self.dead = folder, info, bank, info.dead
        place = generation_folder(folder, info.generation) if info.generation else None
        self.means = np.asarray(means, np.float32) if place is None else load_array(place / "means.npy", 3, info.dim)
        if self.means.shape != (3, info.dim):
            raise InputError(f"the index needs three mean vectors of width {info.dim}, got {self.means.shape}")
        self.videos = [] if place is None else read_videos(place / "videos.jsonl")
        self.entries = {k: np.zeros(0, ENTRY) if place is None else load_entries(place / f"{k}.npy") for k in KINDS}
        self._graphs = _Graphs(folder, info.dim, place)
        self._calls: list[Any] = []
        held = 0 if place is None else sum(path.stat().st_size for path in place.glob("*.usearch"))
        self._answers = run_many(
            self._graphs, iter(self._calls.pop, None), apart=apart and place is not None, silence_s=_SILENCE_S,
            memory_bytes=most_memory() + held,
        )  # fmt: skip

    def close(self) -> None:
        """Ends the process that changes the graphs, where there is one."""
        self._answers.close()

    def _graph(self, kind: str, method: str, *given: Any, **options: Any) -> Any:
        """Calls a method of a graph, wherever it is."""
        self._calls.append((kind, method, given, options))
        outcome = next(self._answers)
        answer = outcome.value if outcome.error is None else _damaged(self._graphs, outcome.error)
        if isinstance(answer, StepFormerError):
            raise answer
        return answer

    def stamps(self) -> dict[str, str]:
        """Video to stamp of everything in the index."""
        return {video["video"]: video["stamp"] for video in self.videos if video is not None}

    def remove(self, names: Iterable[str]) -> int:
        """Takes videos out; how many there were."""
        wanted = set(names)
        gone = {i for i, video in enumerate(self.videos) if video is not None and video["video"] in wanted}
        if not gone:
            return 0
        for kind, entries in self.entries.items():
            rows = np.flatnonzero(np.isin(entries["video"], list(gone)))
            if len(rows):
                self._graph(kind, "remove", rows.astype(np.uint64))
                entries["video"][rows] = -1
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
            steps = np.zeros(len(video.spans_s), ENTRY)
            steps["start_s"], steps["end_s"] = video.spans_s.T
            steps["step"] = np.arange(len(steps))
            moments, means = video.moments(self.info.moment_s)
            steps["video"] = moments["video"] = len(self.videos)
            parts["steps"].append((steps, np.asarray(video.step_vectors, np.float32).reshape(-1, self.info.dim)))
            parts["moments"].append((moments, means))
            self.videos.append({
                "video": video.video, "source": video.source, "duration_s": round(video.duration_s, 3),
                "stamp": video.stamp, "labels": list(video.labels), "spans_s": video.spans_s.round(3).tolist(),
            })  # fmt: skip
        for mean, (kind, part) in zip(self.means, parts.items(), strict=False):  # the last mean is of texts
            entries = np.concatenate([np.zeros(0, ENTRY), *(rows for rows, _ in part)])
            if len(entries):
                keys = np.arange(len(entries), dtype=np.uint64) + np.uint64(len(self.entries[kind]))
                vectors = np.concatenate([vectors for _, vectors in part])
                self._graph(kind, "add", keys, unit(unit(vectors) - mean), threads=threads)
                self.entries[kind] = np.concatenate([self.entries[kind], entries])

    def commit(self) -> IndexInfo:
        """Writes the generation, then the name of it; earlier generations go."""
        others = [path for path in (self.folder / FOLDER).glob("*") if path.is_dir() and path.name.isdigit()]
        generation = 1 + max((int(path.name) for path in others), default=0)
        place = generation_folder(self.folder, generation)
        place.mkdir(parents=True)
        counts: dict[str, Any] = {}
        rng = np.random.default_rng(0)
        for kind, entries in self.entries.items():
            self._graph(kind, "save", str(place / f"{kind}.usearch"))
            _save(place / f"{kind}.npy", entries)
            alive = np.flatnonzero(entries["video"] >= 0)
            counts[kind] = len(alive)
            chosen = np.sort(rng.choice(alive, min(SAMPLE, len(alive)), replace=False)).astype(np.uint64)
            sample = unit(self._graph(kind, "get", chosen, dtype="f32") if len(chosen) else self.means[:0])
            _save(place / f"sample-{kind}.npy", sample)
            if kind == "moments" and len(sample) and self.bank is not None and self.bank.pictures is not None:
                best = self.bank.standard(uncentred(sample, self.means[1])).max(0)
                _save(place / "bank.npy", np.sort(best)[None].astype(np.float32))
        _save(place / "means.npy", self.means)
        write_text(place / "videos.jsonl", "".join(json_text(v) + "\n" for v in self.videos))
        videos = sum(video is not None for video in self.videos)
        info = replace(self.info, generation=generation, videos=videos, dead=self.dead, **counts)
        info = replace(info, checksum=info.checked(place))
        write_json(self.folder / FOLDER / "index.json", {"format": FORMAT, "version": FORMAT_VERSION, **asdict(info)})
        for other in others:
            shutil.rmtree(other, ignore_errors=True)
        return info


@dataclass(frozen=True, slots=True)
class Hit:
    """Where something happens: a step of a video, or a moment in no step.

    ``at_s`` is the second that fits best. ``score`` says by how many standard deviations the similarity exceeds what
    this question has with vectors of the library taken at random; ``similarity`` is the (centred) cosine itself.
    """

    video: str
    start_s: float
    end_s: float
    at_s: float
    label: str | None
    score: float
    similarity: float
    source: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {name: round(v, 4) if isinstance(v, float) else v for name, v in asdict(self).items()}


class SearchIndex:
    """The index of a library folder, opened for asking. The graphs stay on disk and are mapped into memory.

    Raises:
        InputError: there is none yet (the message says how to make it), or it is damaged.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        if not self.folder.is_dir():
            raise no_such(folder, "folder")
        self.info: IndexInfo = read_info(self.folder)
        place = generation_folder(self.folder, self.info.generation)
        self.means = load_array(place / "means.npy", 3, self.info.dim)
        self.graphs = {kind: open_graph(place / f"{kind}.usearch", self.info.dim, view=True) for kind in KINDS}
        self.entries = {kind: load_entries(place / f"{kind}.npy") for kind in KINDS}
        self._samples = {kind: load_array(place / f"sample-{kind}.npy", None, self.info.dim) for kind in KINDS}
        bank = place / "bank.npy"
        self._bank = load_array(bank, 1, None)[0] if bank.is_file() else None
        self._place = place

    def __str__(self) -> str:
        return f"the search index of {self.folder}"

    @cached_property
    def videos(self) -> list[dict[str, Any] | None]:
        """What is known of each video; read when the first answer needs it."""
        return read_videos(self._place / "videos.jsonl")

    @cached_property
    def encoder(self) -> Any:
        """The text side of the encoder the library was processed with."""
        from stepformer import encoders

        return encoders.load(self.info.encoder)

    def search(self, text: str, top: int = TOP, per_video: int = PER_VIDEO, exact: bool = False) -> list[Hit]:
        """The best places for a text, best first.

        Args:
            text: What to look for, in words.
            top: How many places.
            per_video: At most so many of one video.
            exact: Compare with every vector instead of walking the graph.
        """
        return self.search_vector(self.encode(text), top, per_video, exact)

    def encode(self, text: str) -> Vectors:
        """(D,) a question in the encoder's text space, for :meth:`search_vector` and :meth:`fit_share`."""
        if not text.strip():
            raise UsageError("the query is empty; give a text to search for")
        return np.asarray(self.encoder.encode_text([utf8(text)])[0], np.float32)

    def search_vector(
        self, vector: npt.ArrayLike, top: int = TOP, per_video: int = PER_VIDEO, exact: bool = False
    ) -> list[Hit]:
        """As :meth:`search`, for a vector (D,) of the encoder's text space."""
        if top < 1 or per_video < 1:
            raise UsageError("top and per_video are at least 1")
        query = np.asarray(vector, np.float32).reshape(-1)
        if len(query) != self.info.dim:
            raise UsageError(f"the index has vectors of width {self.info.dim}, the query {len(query)}")
        return self._hits(unit(unit(query) - self.means[2]), top, per_video, exact)

    @_of_index
    def _hits(self, query: Vectors, top: int, per_video: int, exact: bool) -> list[Hit]:
        best: dict[tuple[int, int, float], tuple[float, float, float]] = {}  # score, cosine, where it fits best
        for kind in KINDS:
            keys, similarity = self.nearest(kind, query, top * _WIDER, exact)
            if not len(keys):
                continue
            usual = np.einsum("nd,d->n", self._samples[kind], query)  # too small to wake a thread pool for
            scores = (similarity - float(usual.mean())) / max(float(usual.std()), 1e-6)
            for entry, score, cosine in zip(self.entries[kind][keys], scores, similarity, strict=True):
                # all moments of one step are one place; a moment in no step is one of its own
                number, step, at = int(entry["video"]), int(entry["step"]), float(entry["start_s"])
                place = (number, step, -1.0 if step >= 0 else at)
                # a step as a whole says where it begins; one of its moments says where it fits best
                if number >= 0 and (place not in best or score > best[place][0]):
                    best[place] = (float(score), float(cosine), at)
        hits: list[Hit] = []
        used: Counter[int] = Counter()
        for (number, step, start), (score, cosine, at) in sorted(best.items(), key=lambda item: -item[1][0]):
            if used[number] >= per_video:
                continue
            used[number] += 1
            video = self.videos[number]
            assert video is not None  # its entries went with it
            if step >= 0:
                (first, last), label = video["spans_s"][step], video["labels"][step]
            else:
                first, last, label = start, min(start + self.info.moment_s, max(video["duration_s"], start)), None
            hits.append(Hit(video["video"], first, last, max(first, at), label, score, cosine, video["source"]))
            if len(hits) == top:
                break
        return hits

    @_of_index
    def fit_share(self, vector: npt.ArrayLike) -> float | None:
        """The share of the phrase bank that fits its best moment of the library worse than a text (D,) fits its own;
        below :data:`HERE` the library hardly shows it. None where the encoder says nothing about pictures at large.

        The fit is in standard deviations above what the text has with pictures of any kind, so that texts which are
        near to everything gain nothing.
        """
        if self._bank is None:
            return None
        pictures = self.encoder.pictures
        text = np.asarray(vector, np.float32).reshape(1, -1)
        keys, _ = self.nearest("moments", unit(unit(text[0]) - self.means[2]), _LOOKED_AT)
        found = np.asarray(self.graphs["moments"].get(keys.astype(np.uint64), dtype="f32")).reshape(len(keys), -1)
        moments = uncentred(np.concatenate([self._samples["moments"], unit(found)]), self.means[1])
        best = float(pictures.standard(moments, pictures.scaled(text)).max())
        return float(np.searchsorted(self._bank, best) / len(self._bank))

    def nearest(
        self, kind: str, query: Vectors, count: int, exact: bool = False
    ) -> tuple[npt.NDArray[np.int64], Vectors]:
        """Keys and cosines of the nearest vectors of one kind; ``query`` (D,) is centred and unit already."""
        graph = self.graphs[kind]
        if not len(graph):
            return np.zeros(0, np.int64), np.zeros(0, np.float32)
        found = graph.search(query, min(count, len(graph)), exact=exact)
        return np.asarray(found.keys, np.int64), 1 - np.asarray(found.distances, np.float32)


def open_index(folder: str | os.PathLike[str]) -> SearchIndex:
    """The index of a library folder, opened for asking.

    Raises:
        InputError: there is none yet (the message says how to make it), or it is damaged.
    """
    return SearchIndex(folder)
