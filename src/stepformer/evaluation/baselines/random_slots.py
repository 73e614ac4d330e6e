"""The control that knows nothing of the video: Gaussian slots at length 1, the same for a video at the same seed."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch

from stepformer.core.inference import random_slots
from stepformer.evaluation.baselines.base import FeatureVideo, FloatArray, Setting, check_setting


@dataclass(frozen=True, slots=True)
class RandomSlots:
    """``slots``: how many."""

    slots: int = 32
    name: ClassVar[str] = "random"
    settings: ClassVar[tuple[Setting, ...]] = ("unsupervised", "weak")

    def fit(
        self,
        videos: Sequence[FeatureVideo],
        n_steps: Mapping[str, int],
        *,
        setting: Setting = "unsupervised",
        seed: int = 0,
        device: str = "cpu",
    ) -> FittedRandomSlots:
        """Nothing is learned."""
        check_setting(self, setting, videos)
        return FittedRandomSlots(self.slots, seed)


@dataclass(frozen=True, slots=True)
class FittedRandomSlots:
    """How many slots, and the seed."""

    count: int
    seed: int

    def slots(self, video: FeatureVideo) -> FloatArray:
        """(K, D); another video or another seed gives other slots, whatever the order in which videos come."""
        generator = torch.Generator().manual_seed(zlib.crc32(f"{self.seed}/{video.task}/{video.video}".encode()))
        features = torch.from_numpy(video.features)[None]
        mask = torch.ones(features.shape[:2], dtype=torch.bool)
        out: FloatArray = random_slots(features, mask, self.count, generator).slots[0].numpy()
        return out
