"""Real clips out of public packages with our own marks, and what the product does on each of them.

``data/real_clips.csv`` has the marks, made by looking at the pictures before the product saw a clip;
``data/real_clips.toml`` says which package carries each video. Every second clip by name is put aside for testing:
options are chosen on "dev" alone. The two hand-washing clips were looked at for long and are dev.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.quality import boundary_f1
from benchmarks.real_data import RealVideo, own_clips
from stepformer.app.discover.options import DiscoverOptions
from stepformer.base import weights
from stepformer.base.arrays import unit
from stepformer.base.weights import parse
from stepformer.encoders.reading import Features
from stepformer.errors import MissingError

_DATA = Path(__file__).parent / "data"
_COPIES, _NOISE = 8, 0.07
Spans = Sequence[tuple[float, float] | None]


@dataclass(frozen=True, slots=True)
class Row:
    """One clip, or the mean of several. IoU is the mean over marked steps; a step that is not placed has 0."""

    clip: str
    use: str
    marked: float
    steps: float  # found by default
    cut_f1: float  # +-1 s
    uniform_f1: float  # a uniform split into as many steps as were found
    equal_cuts_f1: float  # and with as many cuts
    locate_iou: float
    noisy_iou: float  # the same, mean over copies of the features with slight noise
    equal_iou: float  # the texts in order on equal parts
    cuts_iou: float  # the texts in order on the steps that discovery finds when it is given their number
    recall_1: float  # own text of a marked step among all marked texts
    recall_5: float


def clips(model: Any) -> tuple[dict[str, list[tuple[Path, RealVideo]]], list[str]]:
    """The clips of "dev" and "test" with their files, and a sentence on each package that could not be had."""
    marks: dict[str, list[dict[str, str]]] = {}
    with (_DATA / "real_clips.csv").open(newline="", encoding="utf-8") as stream:
        for row in csv.DictReader(stream):
            marks.setdefault(row["clip"], []).append(row)
    sets: dict[str, list[tuple[Path, RealVideo]]] = {"dev": [], "test": []}
    folder = weights.pull("demo-video").parent
    sets["dev"] += [(folder / f"{video.name}.mp4", video) for video in own_clips(model)]
    missing = []
    for package in parse((_DATA / "real_clips.toml").read_text(encoding="utf-8")):
        try:
            folder = weights.pull(package)
        except MissingError as error:
            missing.append(str(error))
            continue
        for file in package.files:
            path = folder / file.path
            rows = marks[path.stem]
            steps = tuple((float(row["start_s"]), float(row["end_s"]), row["label"]) for row in rows)
            texts = model.encoder.encode_text([label for _, _, label in steps])
            sets[rows[0]["use"]].append((path, RealVideo(path.stem, model.read(path), steps, texts)))
    return {use: sorted(found, key=lambda item: item[1].name) for use, found in sets.items()}, missing


def measure(sets: dict[str, list[tuple[Path, RealVideo]]], model: Any) -> list[Row]:
    """One row per clip and one per use, its mean."""
    from stepformer.narration.listening import narration_of

    named = {label: vector for found in sets.values() for _, video in found
             for (_, _, label), vector in zip(video.steps, video.texts, strict=True)}  # fmt: skip
    labels, vectors = list(named), unit(list(named.values()))
    rows = []
    for use, found in sets.items():
        mine = [_row(use, video, narration_of(path), model, labels, vectors) for path, video in found]
        rows += mine
        if mine:
            numbers = np.mean([[getattr(row, f.name) for f in fields(Row)[2:]] for row in mine], axis=0)
            rows.append(Row(f"mean of {len(mine)}", use, *(float(x) for x in numbers)))
    return rows


def _row(
    use: str, video: RealVideo, narration: Any, model: Any, labels: list[str], vectors: NDArray[np.floating[Any]]
) -> Row:
    from benchmarks.real import _cuts, _equal

    end_s = video.features.duration_s
    texts = [label for _, _, label in video.steps]
    marked = [(start, min(end, end_s)) for start, end, _ in video.steps]

    def found(steps: int | None) -> list[tuple[float, float]]:
        timeline = model.find(video.features, DiscoverOptions(steps=steps), narration=narration, labels="none").timeline
        return [(step.start_s, step.end_s) for step in timeline]

    default, given = found(None), found(len(marked))

    def located(features: Features) -> float:
        steps = model.place(features, texts, narration=narration).timeline
        placed = {step.meta["given"]: (step.start_s, step.end_s) for step in steps}
        return mean_iou([placed.get(i) for i in range(len(marked))], marked)

    true, cuts = _cuts(marked, end_s), _cuts(default, end_s)
    ranks = _ranks(video, labels, vectors)
    return Row(
        video.name, use, len(marked), len(default), boundary_f1(cuts, true),
        boundary_f1(_cuts(_equal(max(1, len(default)), end_s), end_s), true),
        boundary_f1(_cuts(_equal(len(cuts) + 1, end_s), end_s), true),
        located(video.features), float(np.mean([located(noisy(video.features, seed)) for seed in range(_COPIES)])),
        mean_iou(_equal(len(marked), end_s), marked), mean_iou(given, marked),
        float(np.mean(ranks < 1)), float(np.mean(ranks < 5)),
    )  # fmt: skip


def noisy(features: Features, seed: int) -> Features:
    """The features with noise of the length ``_NOISE`` on every unit vector, whose cosine with what it was is .998: a
    number of a few clips that hangs on so little says little."""
    rng = np.random.default_rng(seed)

    def shaken(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        noise = rng.standard_normal(vectors.shape) * (_NOISE / np.sqrt(vectors.shape[1]))
        return unit(unit(vectors) + noise).astype(np.float32)

    structure = None if features.structure is None else shaken(features.structure)
    return replace(features, vectors=shaken(features.vectors), structure=structure)


def mean_iou(found: Spans, marked: Sequence[tuple[float, float]]) -> float:
    """Mean over marked spans of their IoU with the found span in the same place of the list; none there is 0."""
    total = 0.0
    for mine, (start, end) in zip(found, marked, strict=False):
        if mine is not None:
            shared = max(0.0, min(mine[1], end) - max(mine[0], start))
            total += shared / (mine[1] - mine[0] + end - start - shared)
    return total / len(marked)


def _ranks(video: RealVideo, labels: list[str], vectors: NDArray[np.floating[Any]]) -> NDArray[np.int64]:
    """How many of all marked texts fit the pictures of each marked step better than its own."""
    rate = video.features.rate_hz
    frames = unit(video.features.vectors)
    ranks = []
    for start, end, label in video.steps:
        first = min(int(start * rate), len(frames) - 1)
        similarity = vectors @ unit(frames[first : max(first + 1, round(end * rate))].mean(0))
        ranks.append(int((similarity > similarity[labels.index(label)]).sum()))
    return np.asarray(ranks)
