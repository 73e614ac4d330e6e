"""The untrained control "pooled32": slots are the means of 32 equal chunks of the video.

A method whose slots do not beat these has learned nothing that averaging does not give.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch

from stepformer.core.inference import pooled_slots
from stepformer.evaluation.baselines.base import FeatureVideo, FloatArray, Setting, check_setting


@dataclass(frozen=True, slots=True)
class Pooled:
    """``slots``: how many chunks."""

    slots: int = 32
    name: ClassVar[str] = "pooled"
    settings: ClassVar[tuple[Setting, ...]] = ("unsupervised", "weak")

    def fit(
        self,
        videos: Sequence[FeatureVideo],
        n_steps: Mapping[str, int],
        *,
        setting: Setting = "unsupervised",
        seed: int = 0,
        device: str = "cpu",
    ) -> FittedPooled:
        """Nothing is learned."""
        check_setting(self, setting, videos)
        return FittedPooled(self.slots)


@dataclass(frozen=True, slots=True)
class FittedPooled:
    """Knows how many chunks."""

    count: int

    def slots(self, video: FeatureVideo) -> FloatArray:
        """(K, D) chunk means; where the video has fewer frames than chunks, empty chunks repeat the nearest frame."""
        features = torch.from_numpy(video.features)[None]
        mask = torch.ones(features.shape[:2], dtype=torch.bool)
        out: FloatArray = pooled_slots(features, mask, self.count).slots[0].numpy()
        return out
