"""The paper's "GT text features": the video's ordered step texts aligned with its frames by Drop-DTW.

Nothing is learned. It is told which steps happen and in which order, so it stands in Table 2 alone. Every step takes
at least one frame; frames below the similarity that the share ``keep`` of all pairs reaches are background.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from stepformer.base.arrays import unit
from stepformer.core.align import drop_dtw, percentile_drop
from stepformer.errors import InputError
from stepformer.evaluation.baselines.base import BACKGROUND, FeatureVideo, FloatArray, IntArray, Setting, check_setting


@dataclass(frozen=True, slots=True)
class GroundTruthText:
    """``keep``: share of text-frame similarities that reach the drop line."""

    keep: float = 0.1
    name: ClassVar[str] = "text"
    settings: ClassVar[tuple[Setting, ...]] = ("unsupervised", "weak")

    def fit(
        self,
        videos: Sequence[FeatureVideo],
        n_steps: Mapping[str, int],
        *,
        setting: Setting = "unsupervised",
        seed: int = 0,
        device: str = "cpu",
    ) -> FittedText:
        """Nothing is learned."""
        check_setting(self, setting, videos)
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
