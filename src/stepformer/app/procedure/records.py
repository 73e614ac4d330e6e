"""What a procedure is: the common steps of a task, their order, and each video in terms of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from stepformer.errors import InputError
from stepformer.timeline import Timeline

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True, eq=False)
class VideoSteps:
    """One video as discovered: its timeline, and vectors (n, D), one per step, of the same encoder for all videos.

    ``stretches`` (S, D), means of equal stretches of the whole video, and ``said`` (L, D), vectors of what is said in
    it, are what tells whether videos are of one task.
    """

    timeline: Timeline
    vectors: npt.NDArray[np.floating[Any]]
    stretches: npt.NDArray[np.floating[Any]] | None = None
    said: npt.NDArray[np.floating[Any]] | None = None

    def __post_init__(self) -> None:
        if np.ndim(self.vectors) != 2 or len(self.vectors) != len(self.timeline):
            raise InputError(
                f"{self.timeline.video}: vectors must have one row for each of {len(self.timeline)} steps, got shape "
                f"{np.shape(self.vectors)}"
            )

    @property
    def places(self) -> FloatArray:
        """(n,) the middle of each step as a share of the video's length."""
        end_s = self.timeline.duration_s or max((step.end_s for step in self.timeline), default=0.0) or 1.0
        return np.array([(step.start_s + step.end_s) / 2 / end_s for step in self.timeline], np.float64)


@dataclass(frozen=True, slots=True)
class CommonStep:
    """One step of the task.

    Attributes:
        name: What it is called.
        videos: How many videos have it.
        times: How often it happens in all of them; more where a video repeats it.
        share: Videos with it / videos.
        place: The mean share of the video's length at which it happens.
        duration_s: Median seconds.
        agreement: The mean cosine of its occurrences with their centre.
        guess: Its name is the nearest phrase of a bank; it was not said.
        similarity: Of the name, where it is such a phrase.
    """

    name: str
    videos: int
    times: int
    share: float
    place: float
    duration_s: float
    agreement: float
    guess: bool = False
    similarity: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        values = {name: value for name, value in asdict(self).items() if value is not None}
        return {name: round(value, 4) if isinstance(value, float) else value for name, value in values.items()}


@dataclass(frozen=True, slots=True, eq=False)
class Procedure:
    """The ordered common steps of a task (C of them), and each video in terms of them.

    ``before[i, j]`` is the share of videos with both steps in which i first happens before j (NaN where no video has
    both); ``both[i, j]`` how many have both. ``follows`` (C + 1, C + 1) counts which step comes next: row 0 is the
    start of a video, the last column its end, row i + 1 and column j are steps i and j. A timeline's steps carry
    ``meta["common"]``, the number of the common step, or None for what only few videos do.
    """

    steps: tuple[CommonStep, ...]
    before: FloatArray  # (C, C)
    both: IntArray  # (C, C)
    follows: IntArray  # (C + 1, C + 1)
    timelines: tuple[Timeline, ...]
    consistency: float  # share of ordered pairs within videos that agree with the common order
    scores: Mapping[int, float] = field(default_factory=dict)  # silhouette of each number of steps tried
    meta: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values, as ``stepformer procedure --json`` prints them."""
        return {
            "schema_version": SCHEMA_VERSION,
            "videos": len(self.timelines),
            "steps": [{"number": i + 1} | step.to_dict() for i, step in enumerate(self.steps)],
            "order": {
                "consistency": round(self.consistency, 4),
                "before": [[None if np.isnan(x) else round(float(x), 4) for x in row] for row in self.before],
                "both": self.both.tolist(),
                "follows": self.follows.tolist(),
            },
            "counts_tried": {str(count): round(score, 4) for count, score in self.scores.items()},
            "timelines": [timeline.to_dict() for timeline in self.timelines],
            "meta": dict(self.meta),
        }
