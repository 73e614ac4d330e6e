"""How many common steps a task has, chosen from the videos themselves."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from stepformer.app.procedure.clustering import (
    OUTLIER,
    ClusterOptions,
    FloatArray,
    IntArray,
    StepClusters,
    cluster_steps,
    prepare,
)

MOST = 24
HOLDS = 0.95
"""Set on the dev split (35 COIN tasks, simulated features); see `stepformer bench procedure`."""


def candidates(lengths: Sequence[int]) -> range:
    """The numbers of common steps worth trying for videos with so many steps each.

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
    values = []
    for i, label in enumerate(labels):
        if label == OUTLIER:
            values.append(0.0)
            continue
        own = used.index(label)
        a, b = to_cluster[i, own], np.delete(to_cluster[i], own).min()
        values.append(0.0 if not (np.isfinite(a) and np.isfinite(b)) else (b - a) / max(a, b, 1e-9))
    return float(np.mean(values)) if values else 0.0


def choose_count(
    vectors: Sequence[npt.ArrayLike], places: Sequence[npt.ArrayLike], options: ClusterOptions | None = None
) -> tuple[StepClusters, dict[int, float]]:
    """The clusters of the finest division that holds, and the silhouette of every number tried.

    Of the numbers that score better than their neighbours, the largest is taken that reaches ``HOLDS`` of the best.
    """
    options = options or ClusterOptions()
    lengths = [len(np.asarray(v)) for v in vectors]
    points = prepare(vectors, options.centre)
    videos = np.repeat(np.arange(len(lengths)), lengths)
    scores: dict[int, float] = {}
    tried: list[StepClusters] = []
    for count in candidates(lengths):
        found = cluster_steps(vectors, places, count, options)
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
