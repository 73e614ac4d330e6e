"""Questions to a search index."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from stepformer.app.search.index import (
    KINDS,
    IndexInfo,
    Vectors,
    generation_folder,
    load_array,
    load_entries,
    open_graph,
    read_info,
    read_videos,
    uncentred,
    unit,
)
from stepformer.base.files import no_such
from stepformer.errors import UsageError

PER_VIDEO = 3
HERE = 0.6
"""A text is taken to be in the library if it fits some moment better than this share of the phrase bank fits any:
``stepformer bench names`` has both error rates."""
_LOOKED_AT = 64  # moments beside those of the sample that a question is compared with
_WIDER = 8  # neighbours asked for each result wanted: several moments of one step are one result


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
    found_by: str  # "steps", "moments" or "names"
    source: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {name: round(v, 4) if isinstance(v, float) else v for name, v in asdict(self).items()}


class SearchIndex:
    """A library's index, opened for asking. The graphs stay on disk and are mapped into memory."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        if not self.folder.is_dir():
            raise no_such(folder, "folder")
        self.info: IndexInfo = read_info(self.folder)
        place = generation_folder(self.folder, self.info.generation)
        self.graphs = {kind: open_graph(place / f"{kind}.usearch", self.info.dim, view=True) for kind in KINDS}
        self.entries = {kind: load_entries(place / f"{kind}.npy") for kind in KINDS}
        self.means = load_array(place, "means.npy", {0: 3, 1: self.info.dim})
        self._samples = {kind: load_array(place, f"sample-{kind}.npy", {1: self.info.dim}) for kind in KINDS}
        bank = place / "bank.npy"
        self._bank = load_array(place, "bank.npy", {0: 1})[0] if bank.is_file() else None
        self._place = place

    @cached_property
    def videos(self) -> list[dict[str, Any] | None]:
        """What is known of each video; read when the first answer needs it."""
        return read_videos(self._place)

    @cached_property
    def encoder(self) -> Any:
        """The text side of the encoder the library was processed with."""
        return text_side(self.info.encoder)

    def search(self, text: str, top: int = 10, per_video: int = PER_VIDEO, exact: bool = False) -> list[Hit]:
        """The best places for a text, best first; at most ``per_video`` of one video."""
        if not text.strip():
            raise UsageError("the question is empty; say what to look for")
        return self.search_vector(self.encoder.encode_text([text])[0], top, per_video, exact)

    def search_vector(
        self, vector: npt.ArrayLike, top: int = 10, per_video: int = PER_VIDEO, exact: bool = False
    ) -> list[Hit]:
        """As :meth:`search`, for a vector (D,) of the encoder's text space."""
        if top < 1 or per_video < 1:
            raise UsageError("top and per_video are at least 1")
        query = np.asarray(vector, np.float32).reshape(-1)
        if len(query) != self.info.dim:
            raise UsageError(f"the index has vectors of width {self.info.dim}, the question {len(query)}")
        query = unit(unit(query) - self.means[2])
        best: dict[tuple[int, int, float], tuple[float, float, float, str]] = {}
        for kind in KINDS:
            keys, similarity = self.nearest(kind, query, top * _WIDER, exact)
            if not len(keys):
                continue
            usual = np.einsum("nd,d->n", self._samples[kind], query)  # too small to wake a thread pool for
            scores = (similarity - float(usual.mean())) / max(float(usual.std()), 1e-6)
            for entry, score, cosine in zip(self.entries[kind][keys], scores, similarity, strict=True):
                if entry["video"] < 0:
                    continue
                # all moments of one step are one place; a moment in no step is one of its own
                step = int(entry["step"])
                place = (int(entry["video"]), step, -1.0 if step >= 0 else float(entry["start_s"]))
                # a step as a whole says where it begins; one of its moments says where it fits best
                at = float(entry["start_s"])
                if place not in best or score > best[place][0]:
                    best[place] = (float(score), float(cosine), at, kind)
        hits: list[Hit] = []
        used: dict[int, int] = {}
        for (number, step, start), (score, cosine, at, kind) in sorted(best.items(), key=lambda item: -item[1][0]):
            if used.get(number, 0) >= per_video:
                continue
            used[number] = used.get(number, 0) + 1
            hits.append(self._hit(number, step, start, score, cosine, at, kind))
            if len(hits) == top:
                break
        return hits

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

    def _hit(self, number: int, step: int, start: float, score: float, cosine: float, at: float, kind: str) -> Hit:
        video = self.videos[number]
        assert video is not None
        if step >= 0:
            first, last = video["spans_s"][step]
            label = video["labels"][step]
        else:
            first, last, label = start, min(start + self.info.moment_s, max(video["duration_s"], start)), None
        return Hit(video["video"], first, last, max(first, at), label, score, cosine, kind, video["source"])


def open_index(folder: str | os.PathLike[str]) -> SearchIndex:
    """The index of a library folder.

    Raises:
        InputError: there is none yet (the message says how to make it), or it is damaged.
    """
    return SearchIndex(folder)


def text_side(encoder: str) -> Any:
    """An encoder's text tower, without its video networks where they are not needed for it."""
    from stepformer import encoders

    if encoder.partition(":")[0] == "sentence":
        from stepformer.encoders.sentence import default_sentence_encoder

        return default_sentence_encoder()
    if encoder.partition(":")[0] == "captions":
        from stepformer.encoders.clip import ClipText

        return ClipText()
    return encoders.load(encoder)
