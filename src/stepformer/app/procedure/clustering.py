"""Steps of many videos of one task, clustered into the task's common steps.

A step comes at about the same place in each video of a task; steps mostly keep their order; and two steps of one video
are rarely the same common step, unless they stand side by side. So clusters have a place in time, and the steps of one
video are assigned together: the cheapest path through the clusters in their order (Viterbi), where staying is free,
going on costs ``_CHANGE``, going back costs ``_BACK`` more, and a step that is far from every cluster may be left out,
as something only this video does. Paths and clusters take turns until nothing changes; the best of several starts is
kept. How many clusters there are is chosen by the silhouette between videos.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from stepformer.app.procedure.records import FloatArray, IntArray
from stepformer.base.arrays import unit
from stepformer.core.evidence import divided, otsu_threshold
from stepformer.errors import InputError, UsageError
from stepformer.evaluation.kmeans import kmeans

OUTLIER = -1
MOST = 24
HOLDS = 0.95
"""Set on the dev split (35 COIN tasks, simulated features); see `stepformer bench procedure`."""
# what a path through the clusters costs; a step's distance to a cluster is 1 - cosine, so 0 to 2
_PLACE = 0.5  # of a step at the other end of the video than its cluster, as a squared share of the length
_CHANGE, _BACK = 0.1, 0.2  # of going to another cluster, and in addition of going to an earlier one
_APART = 0.3  # two kinds of distances whose means lie this far apart: near, and far enough to be left out
_CENTRE = 0.3  # share of each video's own mean that is taken off its steps
_STARTS, _ITERATIONS = 4, 20


@dataclass(frozen=True, slots=True, eq=False)
class StepClusters:
    """Clusters of the steps of V videos: ``labels[v]`` (n_v,) is the cluster of each step, -1 = left out.

    There are ``count`` of them, numbered by their mean place.
    """

    labels: tuple[IntArray, ...]
    count: int


def prepare(vectors: Sequence[npt.ArrayLike]) -> FloatArray:
    """All videos' step vectors, end to end: unit, minus what they have in common, unit again (M, D).

    What all steps share (the task, the encoder's offset) says nothing of which step it is. A part of each video's own
    mean is taken off too: its look. Not all of it, because a video that lacks steps has another mean.
    """
    parts = []
    for number, value in enumerate(vectors):
        array = np.asarray(value, np.float64)
        if array.ndim != 2:
            raise InputError(f"the step vectors of video {number} must be (steps, D), got {array.shape}")
        if not np.isfinite(array).all():
            raise InputError(f"the step vectors of video {number} have a value that is not finite")
        part = unit(array)
        parts.append(part - _CENTRE * part.mean(0) if len(part) else part)
    if len({part.shape[1] for part in parts}) > 1:
        raise InputError(f"step vectors of different widths: {sorted({part.shape[1] for part in parts})}")
    points = np.concatenate(parts)
    return unit(points - points.mean(0)) if len(points) > 1 else points


def cluster_steps(
    vectors: Sequence[npt.ArrayLike], places: Sequence[npt.ArrayLike], count: int, seed: int = 0
) -> StepClusters:
    """Clusters the steps of V videos into ``count`` common steps (fewer where there are fewer different steps).

    vectors: per video (n_v, D), in temporal order; places: per video (n_v,), the middle of each step as a share of
    the video's length. A video may have no steps.
    """
    if count < 1:
        raise UsageError(f"a procedure has at least one step, not {count}")
    lengths = [len(np.asarray(v)) for v in vectors]
    where = [np.asarray(p, np.float64).reshape(-1) for p in places]
    if [len(p) for p in where] != lengths:
        raise InputError("each step needs one place in its video")
    if not sum(lengths):
        raise InputError("none of the videos has a step; nothing can be clustered")
    points, place = prepare(vectors), np.concatenate(where)
    bounds = np.cumsum([0, *lengths])
    groups = [np.arange(a, b) for a, b in itertools.pairwise(bounds) if b > a]
    spread = np.concatenate((points, np.sqrt(_PLACE) * place[:, None]), axis=1)
    count = min(count, len(np.unique(points.round(6), axis=0)))

    best, lowest = np.empty(0, np.int64), np.inf
    for start in range(_STARTS):
        labels = kmeans(spread, count, seed=seed * 1009 + start, restarts=2).labels
        cost, labels = _alternate(points, place, groups, labels, count)
        if cost < lowest - 1e-12:
            best, lowest = labels, cost
    return StepClusters(tuple(best[a:b] for a, b in itertools.pairwise(bounds)), count)


def _alternate(
    points: FloatArray, place: FloatArray, groups: list[IntArray], labels: IntArray, count: int
) -> tuple[float, IntArray]:
    """Paths and clusters in turn: what the paths cost, and the labels, clusters in order of place."""
    total = np.inf
    for _ in range(_ITERATIONS):
        centers, places = _means(points, place, labels, count)
        order = np.argsort(places, kind="stable")
        centers, places = centers[order], places[order]
        distance = 1 - points @ centers.T + _PLACE * (place[:, None] - places) ** 2  # (M, C)
        # going to a cluster costs a change that leaving out spares, so the penalty has it too
        penalty = _dividing(distance.min(1)) + _CHANGE + _BACK
        found = np.empty_like(labels)
        total = 0.0
        for rows in groups:
            found[rows], cost = cheapest_path(distance[rows], _CHANGE, _BACK, penalty)
            total += cost
        if (found == labels).all():
            break
        labels = found
    return total, labels


def _dividing(distances: FloatArray) -> float:
    """The threshold (Otsu) between near and far distances (M,), inf where the two kinds are not apart: how many of a
    task's pieces are background, or done by one video only, differs from task to task, so no fixed share serves all."""
    values = torch.from_numpy(distances)[None]
    every = torch.ones_like(values, dtype=torch.bool)
    apart = float(divided(values, every)[1])
    return float(otsu_threshold(values, every)) if apart >= _APART else np.inf


def _means(points: FloatArray, place: FloatArray, labels: IntArray, count: int) -> tuple[FloatArray, FloatArray]:
    """Unit centres (C, D) and mean places (C,); a cluster that ran empty restarts at the step worst served."""
    centers, places = np.zeros((count, points.shape[1])), np.zeros(count)
    empty = []
    for c in range(count):
        members = labels == c
        if members.any():
            centers[c], places[c] = points[members].mean(0), place[members].mean()
        else:
            empty.append(c)
    centers = unit(centers)
    taken: list[int] = []
    for c in empty:
        served = (points @ centers.T).max(1)
        served[taken] = np.inf
        worst = int(served.argmin())
        taken.append(worst)
        centers[c], places[c] = points[worst], place[worst]
    return centers, places


def cheapest_path(distance: FloatArray, change: float, back: float, left_out: float) -> tuple[IntArray, float]:
    """The cluster of each step of one video, -1 = left out, and what the path costs: distance (n, C), C in order.

    A step that is left out is as if it were not there: the path goes on from the cluster before it.
    """
    n, count = distance.shape
    j = np.arange(count)
    move = np.where(j[:, None] == j, 0.0, change + back * (j < j[:, None]))  # (from, to)
    # state = cluster last used; a step is either matched to a cluster or left out, which keeps the state
    best = np.zeros(count)
    came = np.empty((n, count), np.int64)
    skipped = np.empty((n, count), bool)
    for t in range(n):
        # before the first matched step every cluster is as good a state as any other, so entering is free
        ways = best[:, None] + move
        came[t] = ways.argmin(0)
        matched = ways.min(0) + distance[t]
        skip = best + left_out
        skipped[t] = skip < matched
        best = np.where(skipped[t], skip, matched)
    path = np.empty(n, np.int64)
    state = int(best.argmin())
    total = float(best[state])
    for t in range(n - 1, -1, -1):
        if skipped[t, state]:
            path[t] = OUTLIER
        else:
            path[t] = state
            state = int(came[t, state])
    return path, total


# -- how many ----------------------------------------------------------------------------------------------------


def candidates(lengths: Sequence[int]) -> range:
    """The numbers of common steps worth trying for videos with ``lengths`` steps.

    Two clusters often score best, because beginning and end of anything look different; that tells a user nothing, so
    where videos have four steps or more at least three are looked for.
    """
    some = [n for n in lengths if n]
    if not some:
        return range(1, 2)
    middle = float(np.median(some))
    high = min(MOST, sum(some), max(3, round(1.5 * middle) + 1))
    return range(min(3 if middle >= 4 else 2, high), high + 1)


def silhouette(points: FloatArray, labels: IntArray, videos: IntArray) -> float:
    """Mean silhouette (1 - cosine) of the steps, each compared with the steps of *other* videos only.

    Steps of one video share its look, so within a video everything seems alike; what a common step is shows between
    videos. A step whose cluster no other video has counts 0, and so does one that is left out: few clusters that leave
    most steps out are no good division.
    """
    used = [c for c in np.unique(labels) if c != OUTLIER]
    if len(used) < 2:
        return 0.0
    distance = 1 - points @ points.T
    other = videos[:, None] != videos
    to_cluster = np.full((len(points), len(used)), np.inf)
    for column, c in enumerate(used):
        members = other & (labels == c)
        number = members.sum(1)
        sums = (distance * members).sum(1)
        to_cluster[:, column] = np.where(number > 0, sums / np.maximum(number, 1), np.inf)
    row, own = np.arange(len(points)), np.searchsorted(used, labels)
    a = to_cluster[row, own]
    to_cluster[row, own] = np.inf
    b = to_cluster.min(1)
    counted = (labels != OUTLIER) & np.isfinite(a) & np.isfinite(b)
    return float(((b - a)[counted] / np.maximum(np.maximum(a, b)[counted], 1e-9)).sum() / len(labels))


def choose_count(
    vectors: Sequence[npt.ArrayLike], places: Sequence[npt.ArrayLike], seed: int = 0
) -> tuple[StepClusters, dict[int, float]]:
    """The clusters of the finest division that holds, and the silhouette of every number tried.

    Of the numbers that score better than their neighbours, the largest is taken that reaches ``HOLDS`` of the best.
    """
    lengths = [len(np.asarray(v)) for v in vectors]
    points = prepare(vectors)
    videos = np.repeat(np.arange(len(lengths)), lengths)
    scores: dict[int, float] = {}
    tried: list[StepClusters] = []
    for count in candidates(lengths):
        found = cluster_steps(vectors, places, count, seed)
        if tried and found.count == tried[-1].count:
            break  # there are no more different steps
        tried.append(found)
        scores[found.count] = silhouette(points, np.concatenate(found.labels), videos)
        if all(scores[t.count] < 0.5 * max(scores.values()) for t in tried[-3:]):
            break  # finer divisions only get worse
    threshold = HOLDS * max(scores.values())
    values = [-np.inf, *(scores[t.count] for t in tried), -np.inf]
    peaks = [
        t
        for t, left, value, right in zip(tried, values, values[1:], values[2:], strict=False)
        if value >= threshold and value > left and value >= right
    ]
    return (peaks or tried)[-1], scores
