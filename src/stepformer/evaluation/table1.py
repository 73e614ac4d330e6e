"""Table 1: unsupervised step discovery and localisation, a task at a time.

Specification
-------------
Input, for each video of a task: which discovered segment (step slot) each frame belongs to, -1 for none; one vector
a segment; the frame labels in the task's step indices, -1 for none; and the task's number of steps K.

1. The segments of all videos of the task that own at least one frame are clustered together by K-means into K clusters
   (into as many as there are segments, if those are fewer). The vector of a segment is its step slot (the paper), or
   the mean feature of its frames (the released code).
2. In each cluster of n members the floor(0.6 n) nearest to the centre are kept, at least one; the others become
   background. "Nearest" is Euclidean (the paper names none), or cosine (the released code).
3. Frames take the cluster of their segment. ONE Hungarian matching for the task relates clusters and steps, and
   precision, recall, F1 and MoF are pooled over the task's frames: :mod:`stepformer.evaluation.metrics`.
4. Scores are averaged over tasks, each counting the same.
5. Steps 1 to 4 are repeated for several K-means seeds; the result is the mean over seeds, and the spread is the
   standard deviation over seeds (n - 1) of the average over tasks; 0 with one seed.

A video whose every slot is dropped is all background. A method that already names clusters across the videos of a
task (Kukleva et al.) skips 1 and 2: pass no vectors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from stepformer.base.arrays import unit
from stepformer.errors import InputError, UsageError
from stepformer.evaluation.kmeans import KEEP, Clustering, keep_nearest, kmeans
from stepformer.evaluation.metrics import BACKGROUND, IntArray, LengthError, Score, check_ids, score_task

METRICS = ("f1", "precision", "recall", "mof", "mof_historical")
DISTANCES = ("euclidean", "cosine")

FloatArray = npt.NDArray[np.floating[Any]]


@dataclass(frozen=True, slots=True)
class Table1Options:
    """How segments become clusters; the released code takes the cosine distance of mean frame features.

    Attributes:
        keep: Share of a cluster's members that stay.
        distance: "euclidean" or "cosine", for which members are nearest to the centre.
        unit_norm: Scale the vectors to length 1 before clustering.
        restarts: Of K-means.
        seeds: Of K-means; scores are averaged over them.
    """

    keep: float = KEEP
    distance: str = "euclidean"
    unit_norm: bool = False
    restarts: int = 10
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)

    def __post_init__(self) -> None:
        if not 0 < self.keep <= 1:
            raise UsageError(f"keep must be above 0 and at most 1, got {self.keep}")
        if self.distance not in DISTANCES:
            raise UsageError(f"distance must be one of {', '.join(DISTANCES)}, got {self.distance!r}")
        if not self.seeds:
            raise UsageError("Table 1 needs at least one K-means seed")


@dataclass(frozen=True, slots=True, eq=False)
class TaskInput:
    """One task, as Table 1 scores it.

    Attributes:
        segments: Of each video (N_v,) row numbers of its vectors, or -1. Without vectors they are cluster ids that mean
            the same in all videos.
        labels: Of each video (N_v,), at the same rate: indices into the task's steps, or -1.
        n_steps: How many steps the task has.
        vectors: Of each video (S_v, D), one row per segment.
    """

    segments: Sequence[npt.ArrayLike]
    labels: Sequence[npt.ArrayLike]
    n_steps: int
    vectors: Sequence[FloatArray] | None = None


@dataclass(frozen=True, slots=True)
class Table1Result:
    """The scores of a dataset, by metric.

    Attributes:
        mean: Of the average over tasks, over seeds.
        spread: Its standard deviation over seeds.
        per_task: The mean over seeds of each task.
    """

    mean: Mapping[str, float]
    spread: Mapping[str, float]
    per_task: Mapping[str, Mapping[str, float]]


@lru_cache(128)  # the tasks of a split: shares that stay of the same clusters are tried one after the other
def _kmeans(points: bytes, dtype: str, n: int, k: int, seed: int, restarts: int) -> Clustering:
    return kmeans(np.frombuffer(points, dtype).reshape(n, -1), k, seed=seed, restarts=restarts)


def _clusters(points: FloatArray, k: int, seed: int, options: Table1Options) -> IntArray:
    """Cluster of each vector (n, D): K-means into k, then the farthest of each cluster become -1."""
    if len(points) == 0 or k < 1:
        return np.full(len(points), BACKGROUND, np.int64)
    if options.unit_norm:
        points = unit(points)
    found = _kmeans(points.tobytes(), points.dtype.str, len(points), k, seed, options.restarts)
    centers = found.centers[found.labels]  # (n, D)
    if options.distance == "cosine":
        distances: FloatArray = 1 - np.einsum("nd,nd->n", unit(points), unit(centers))
    else:
        distances = ((points - centers) ** 2).sum(axis=1)
    return keep_nearest(found.labels, distances, options.keep)


def cluster_segments(
    segments: Sequence[npt.ArrayLike],
    vectors: Sequence[FloatArray],
    n_steps: int,
    seed: int = 0,
    options: Table1Options | None = None,
) -> list[IntArray]:
    """The videos of a task with segment ids replaced by cluster ids, -1 where there is none or it was dropped."""
    if len(segments) != len(vectors):
        raise LengthError(f"{len(segments)} videos have segments and {len(vectors)} have vectors")
    numbered: list[IntArray] = []  # through all videos, those with frames only
    points: list[FloatArray] = []
    total = 0
    for v, (given, given_vectors) in enumerate(zip(segments, vectors, strict=True)):
        ids = check_ids(given, f"segments of video {v}")
        rows = np.asarray(given_vectors)
        top = int(ids.max(initial=-1))
        if rows.ndim != 2 or len(rows) <= top:
            raise InputError(f"video {v} has segment {top} but vectors of shape {rows.shape}; give one row per segment")
        present = np.bincount(ids[ids >= 0], minlength=len(rows)) > 0
        new = np.append(np.where(present, np.cumsum(present) - 1 + total, BACKGROUND), BACKGROUND)
        numbered.append(new[ids])  # -1 picks the last entry, background
        points.append(rows[present])
        total += int(present.sum())
    width = {part.shape[1] for part in points if len(part)}
    if len(width) > 1:
        raise InputError(f"the videos of a task have vectors of different widths: {sorted(width)}")
    stacked = [part for part in points if len(part)]
    joined = np.concatenate(stacked) if stacked else np.zeros((0, 1))
    clusters = np.append(_clusters(joined, n_steps, seed, options or Table1Options()), BACKGROUND)  # [-1] is background
    return [clusters[ids] for ids in numbered]


def score_table1_task(task: TaskInput, options: Table1Options | None = None) -> list[Score]:
    """The scores of one task, one for each seed."""
    options = options or Table1Options()
    if task.vectors is None:
        return [score_task(task.segments, task.labels)] * len(options.seeds)
    return [
        score_task(cluster_segments(task.segments, task.vectors, task.n_steps, seed, options), task.labels)
        for seed in options.seeds
    ]


def score_table1(tasks: Mapping[str, TaskInput], options: Table1Options | None = None) -> Table1Result:
    """The Table 1 scores of a dataset.

    Raises:
        InputError: no tasks, or arrays that do not fit together (the message names the task).

    Examples:
        >>> task = TaskInput(segments=[[0, 0, 1], [1, 0, 0]], labels=[[0, 0, 1], [1, 0, 0]], n_steps=2)
        >>> score_table1({"pancakes": task}).mean["f1"]
        1.0
    """
    options = options or Table1Options()
    if not tasks:
        raise InputError("there is no task to score; are there predictions for any annotated video?")
    values = np.empty((len(tasks), len(options.seeds), len(METRICS)))
    for t, (name, task) in enumerate(tasks.items()):
        try:
            scores = score_table1_task(task, options)
        except InputError as error:
            raise type(error)(f"task {name}: {error}") from None
        values[t] = [[getattr(score, metric) for metric in METRICS] for score in scores]
    by_seed = values.mean(axis=0)  # (seeds, metrics)
    spread = by_seed.std(axis=0, ddof=1) if len(by_seed) > 1 else np.zeros(len(METRICS))
    return Table1Result(
        dict(zip(METRICS, by_seed.mean(axis=0).tolist(), strict=True)),
        dict(zip(METRICS, spread.tolist(), strict=True)),
        {name: dict(zip(METRICS, values[t].mean(axis=0).tolist(), strict=True)) for t, name in enumerate(tasks)},
    )
