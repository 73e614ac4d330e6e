"""K-means over frames: the frames of all videos of a task in as many clusters as it has steps.

The share of frames farthest from their centre becomes background, 40% as in Shen et al. (2021) unless told otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from stepformer.base.arrays import unit
from stepformer.evaluation.baselines.base import (
    FeatureVideo,
    IntArray,
    Setting,
    by_task,
    check_setting,
    steps_of,
)
from stepformer.evaluation.kmeans import keep_nearest, kmeans


@dataclass(frozen=True, slots=True)
class FrameKMeans:
    """keep: share of a cluster's frames, nearest first, that stay. normalize: compare frames by direction alone."""

    keep: float = 0.6
    normalize: bool = True
    restarts: int = 5
    name: ClassVar[str] = "kmeans"
    settings: ClassVar[tuple[Setting, ...]] = ("weak", "unsupervised")

    def fit(
        self,
        videos: Sequence[FeatureVideo],
        n_steps: Mapping[str, int],
        *,
        setting: Setting = "weak",
        seed: int = 0,
        device: str = "cpu",
    ) -> FittedFrameKMeans:
        """Nothing is learned before the videos to segment are there."""
        check_setting(self, setting, videos)
        return FittedFrameKMeans(self, dict(n_steps), seed)


@dataclass(frozen=True, slots=True)
class FittedFrameKMeans:
    """Options, number of steps of each task, seed."""

    options: FrameKMeans
    n_steps: Mapping[str, int]
    seed: int

    def segment(self, videos: Sequence[FeatureVideo]) -> list[IntArray]:
        """Clusters of the frames of each task."""
        features = [unit(v.features) if self.options.normalize else v.features for v in videos]
        return cluster_by_task(videos, features, self.n_steps, self.options.keep, self.seed, self.options.restarts)


def cluster_by_task(
    videos: Sequence[FeatureVideo],
    points: Sequence[np.ndarray],
    n_steps: Mapping[str, int],
    keep: float,
    seed: int,
    restarts: int = 5,
) -> list[IntArray]:
    """K-means of ``points`` (N_i, d), one row a frame of video i, task by task; the farthest become background."""
    out: list[IntArray] = [np.empty(0, np.int64)] * len(videos)
    for task, where in by_task(videos).items():
        joined = np.concatenate([points[i] for i in where])
        found = kmeans(joined, steps_of(task, n_steps), seed=seed, restarts=restarts)
        distances = ((joined - found.centers[found.labels]) ** 2).sum(axis=1)
        labels = keep_nearest(found.labels, distances, keep)
        ends = np.cumsum([len(points[i]) for i in where])
        for i, part in zip(where, np.split(labels, ends[:-1]), strict=True):
            out[i] = part
    return out
