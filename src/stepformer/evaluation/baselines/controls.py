"""Controls that learn nothing: a method that does not beat them has learned nothing that they do not give."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch

from stepformer.base.arrays import unit
from stepformer.core.align import drop_dtw, percentile_drop
from stepformer.core.inference import pooled_slots, random_slots
from stepformer.errors import InputError
from stepformer.evaluation.baselines.base import (
    BACKGROUND,
    FeatureVideo,
    FloatArray,
    IntArray,
    Setting,
    check_setting,
    steps_of,
)


class Untrained:
    """A control: :meth:`fit` checks what it is given and learns nothing."""

    name: ClassVar[str]
    settings: ClassVar[tuple[Setting, ...]] = ("unsupervised", "weak")

    def fit(
        self,
        videos: Sequence[FeatureVideo],
        n_steps: Mapping[str, int],
        *,
        setting: Setting = "unsupervised",
        seed: int = 0,
        device: str = "cpu",
    ) -> Any:
        """What knows the number of steps of each task and the seed, and nothing of the videos."""
        check_setting(self, setting, videos)
        return self.fitted(dict(n_steps), seed)

    def fitted(self, n_steps: Mapping[str, int], seed: int) -> Any:
        """The control after its fit."""
        raise NotImplementedError


@dataclass(frozen=True)
class Uniform(Untrained):
    """Every video cut into as many equal parts as its task has steps; the n-th part is step n. No background."""

    name: ClassVar[str] = "uniform"

    def fitted(self, n_steps: Mapping[str, int], seed: int) -> FittedUniform:
        """Knows the number of steps."""
        return FittedUniform(n_steps)


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


@dataclass(frozen=True)
class Pooled(Untrained):
    """The paper's "pooled32": slots are the means of ``slots`` equal chunks of the video."""

    slots: int = 32
    name: ClassVar[str] = "pooled"

    def fitted(self, n_steps: Mapping[str, int], seed: int) -> FittedPooled:
        """Knows how many chunks."""
        return FittedPooled(self.slots)


@dataclass(frozen=True, slots=True)
class FittedPooled:
    """Knows how many chunks."""

    count: int

    def slots(self, video: FeatureVideo) -> FloatArray:
        """(K, D) chunk means; where the video has fewer frames than chunks, empty chunks repeat the nearest frame."""
        features = torch.from_numpy(video.features)[None]
        out: FloatArray = pooled_slots(features, _all_frames(features), self.count).slots[0].numpy()
        return out


@dataclass(frozen=True)
class RandomSlots(Untrained):
    """Knows nothing of the video: ``slots`` Gaussian slots at length 1, the same for a video at the same seed."""

    slots: int = 32
    name: ClassVar[str] = "random"

    def fitted(self, n_steps: Mapping[str, int], seed: int) -> FittedRandomSlots:
        """Knows how many slots, and the seed."""
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
        out: FloatArray = random_slots(features, _all_frames(features), self.count, generator).slots[0].numpy()
        return out


def _all_frames(features: torch.Tensor) -> torch.Tensor:
    return torch.ones(features.shape[:2], dtype=torch.bool)


@dataclass(frozen=True)
class GroundTruthText(Untrained):
    """The paper's "GT text features": the video's ordered step texts aligned with its frames by Drop-DTW.

    It is told which steps happen and in which order, so it stands in Table 2 alone. Every step takes at least one
    frame; frames below the similarity that the share ``keep`` of all pairs reaches are background.
    """

    keep: float = 0.1
    name: ClassVar[str] = "text"

    def fitted(self, n_steps: Mapping[str, int], seed: int) -> FittedText:
        """Knows the share of pairs that reach the threshold."""
        return FittedText(self.keep)


@dataclass(frozen=True, slots=True)
class FittedText:
    """Knows the drop line's share."""

    keep: float

    def slots(self, video: FeatureVideo) -> FloatArray:
        """(S, D) the step texts themselves."""
        if video.step_vectors is None:
            raise InputError(f"video {video.video}: the ground-truth text baseline needs its step_vectors")
        return video.step_vectors

    def locate(self, video: FeatureVideo) -> IntArray:
        """(N,) position in the video's own step list of each frame, -1 background."""
        similarity = unit(self.slots(video)) @ unit(video.features).T  # (S, N)
        steps, frames = similarity.shape
        # a list longer than the video cannot have a frame for each step: the worst go without, at a high price
        row_drop = None if steps <= frames else 4.0
        return drop_dtw(-similarity, percentile_drop(similarity, self.keep), row_drop).assignment

    def segment(self, videos: Sequence[FeatureVideo]) -> list[IntArray]:
        """The step of each frame under the name it has across the task (``step_ids``)."""
        out = []
        for video in videos:
            where = self.locate(video)
            if video.step_ids is not None and len(video.step_ids):
                where = np.where(where >= 0, video.step_ids[where], BACKGROUND)
            out.append(where)
        return out
