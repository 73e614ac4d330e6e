"""Uniform: every video cut into as many equal parts as its task has steps; the n-th part is step n. No background."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from stepformer.evaluation.baselines.base import FeatureVideo, IntArray, Setting, check_setting, steps_of


@dataclass(frozen=True, slots=True)
class Uniform:
    """The baseline that looks at nothing but the length of the video."""

    name: ClassVar[str] = "uniform"
    settings: ClassVar[tuple[Setting, ...]] = ("weak", "unsupervised")

    def fit(
        self,
        videos: Sequence[FeatureVideo],
        n_steps: Mapping[str, int],
        *,
        setting: Setting = "weak",
        seed: int = 0,
        device: str = "cpu",
    ) -> FittedUniform:
        """Nothing is learned."""
        check_setting(self, setting, videos)
        return FittedUniform(dict(n_steps))


@dataclass(frozen=True, slots=True)
class FittedUniform:
    """Knows the number of steps of each task."""

    n_steps: Mapping[str, int]

    def segment(self, videos: Sequence[FeatureVideo]) -> list[IntArray]:
        """floor(n K / N) for frame n of N."""
        out = []
        for video in videos:
            n = len(video.features)
            out.append(np.arange(n, dtype=np.int64) * steps_of(video.task, self.n_steps) // n)
        return out
