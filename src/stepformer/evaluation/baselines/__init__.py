"""Published methods, one file each: what every one is given and what it gives back, and their registry.

A baseline is fitted on a list of videos and then names, for a list of videos, the cluster of every frame: int ids that
mean the same thing in all videos of one task that are segmented in one call, -1 for background. That is what Table 1
scores. Baselines that find *slots* (one vector per step, in the space of the text) also give those, for the zero-shot
localisation of Table 2.

Two settings, as in the paper: "weak" fits one model per task, so it knows which videos show the same task;
"unsupervised" fits one model for all videos and never looks at the task while fitting. In both, clusters are made
among the videos of one task when they are segmented, because that is how the metric compares them; StepFormer's slots
are clustered so too.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from stepformer.base.arrays import matrix
from stepformer.base.lazy import lazy
from stepformer.base.plugins import Registry
from stepformer.errors import InputError, UsageError

if TYPE_CHECKING:
    from stepformer.evaluation.baselines.elhamifar import Elhamifar
    from stepformer.evaluation.baselines.kukleva import Kukleva
    from stepformer.evaluation.baselines.shen import FittedShen, Shen

__getattr__, __dir__ = lazy(__name__, {"elhamifar": "Elhamifar", "kukleva": "Kukleva", "shen": "FittedShen Shen"})

__all__ = [
    "BASELINES", "Baseline", "Elhamifar", "FeatureVideo", "Fitted", "FittedShen", "Kukleva", "Setting", "Shen",
    "baseline",
]  # fmt: skip

BACKGROUND = -1

Setting = Literal["weak", "unsupervised"]
"""One model per task, or one for all videos."""
FloatArray = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int64]
Numbers = TypeVar("Numbers", bound=np.generic)
Options = TypeVar("Options", bound="Baseline[Any]")
Model = TypeVar("Model")
Learned = TypeVar("Learned")


@dataclass(frozen=True, slots=True, eq=False)
class FeatureVideo:
    """One video as a baseline sees it; arrays are checked and made float32 when it is made.

    Attributes:
        video: Its name.
        task: What it shows.
        features: (N, D).
        rate_hz: How many there are per second.
        phrase_vectors: (L, D) narration in the space of the features.
        phrase_times_s: (L, 2) their start and end seconds.
    """

    video: str
    task: str
    features: FloatArray
    rate_hz: float = 1.0
    phrase_vectors: FloatArray | None = None
    phrase_times_s: FloatArray | None = None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.rate_hz) and self.rate_hz > 0):
            raise InputError(f"video {self.video}: rate_hz must be positive, got {self.rate_hz}")
        for name in ("features", "phrase_vectors", "phrase_times_s"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, matrix(getattr(self, name), f"video {self.video}: {name}"))
        if len(self.features) == 0:
            raise InputError(f"video {self.video}: it has no features")
        phrases = -1 if self.phrase_vectors is None else len(self.phrase_vectors)
        if self.phrase_times_s is not None and self.phrase_times_s.shape != (phrases, 2):
            raise InputError(f"video {self.video}: phrase_times_s must be (L, 2), one row per phrase vector")

    @property
    def duration_s(self) -> float:
        """Seconds the features span."""
        return len(self.features) / self.rate_hz

    @property
    def relative_time(self) -> FloatArray:
        """(N,) n / N of each frame, in [0, 1)."""
        return (np.arange(len(self.features)) / len(self.features)).astype(np.float32)


@dataclass(frozen=True, slots=True)
class Given:
    """How a method is fitted: the number of steps of each task, features of one width, and the rest as asked for."""

    n_steps: Mapping[str, int]
    width: int
    setting: Setting
    seed: int
    device: str

    def steps(self, task: str) -> int:
        """The number of steps of a task, at least one."""
        if task not in self.n_steps:
            raise UsageError(f"the number of steps of task {task!r} was not given")
        if self.n_steps[task] < 1:
            raise UsageError(f"task {task!r} must have at least one step, got {self.n_steps[task]}")
        return int(self.n_steps[task])

    def groups(self, videos: Sequence[FeatureVideo]) -> dict[str | None, list[FeatureVideo]]:
        """What one model is trained on: the videos of each task when weak, all (under None) when unsupervised."""
        if self.setting == "unsupervised":
            return {None: list(videos)}
        return {task: [videos[i] for i in where] for task, where in by_task(videos).items()}


class Baseline(ABC, Generic[Learned]):
    """One published method; its options are the fields of the dataclass that implements it."""

    name: ClassVar[str]
    settings: ClassVar[tuple[Setting, ...]]

    def fit(
        self,
        videos: Sequence[FeatureVideo],
        n_steps: Mapping[str, int],
        *,
        setting: Setting = "weak",
        seed: int = 0,
        device: str = "cpu",
    ) -> Learned:
        """Trains on videos.

        Args:
            videos: All of one width; those of a task are also segmented together.
            n_steps: The number of steps of each task.
            setting: "weak" fits one model per task, "unsupervised" one for all.
            seed: Of everything that is random.
            device: Where networks train.

        Returns:
            What was learned: it can ``segment(videos)``, as :class:`Fitted` does.

        Raises:
            UsageError: no videos, a task without a number of steps, or a setting that the method does not have.
            InputError: features of two widths.
        """
        if setting not in self.settings:
            raise UsageError(f"{self.name} has no setting {setting!r}; it has: {', '.join(self.settings)}")
        if not videos:
            raise UsageError(f"{self.name} was given no videos")
        widths = {video.features.shape[1] for video in videos}
        if len(widths) > 1:
            raise InputError(f"{self.name} needs features of one width, got {sorted(widths)}")
        return self.train(videos, Given(dict(n_steps), widths.pop(), setting, seed, device))

    @abstractmethod
    def train(self, videos: Sequence[FeatureVideo], given: Given) -> Learned:
        """What :meth:`fit` gives, of input that was checked."""


@dataclass(frozen=True, slots=True, eq=False)
class Fitted(ABC, Generic[Options, Model]):
    """What a method has learned: a model per task (weak), or one under None for all (unsupervised)."""

    options: Options
    given: Given
    models: Mapping[str | None, Model]
    curve: Sequence[Sequence[tuple[int, float]]]  # of each model: updates, loss

    def model(self, task: str) -> Model:
        """What was learned for a task."""
        name = None if None in self.models else task
        if name not in self.models:
            raise UsageError(f"nothing was learned for task {task!r}; fit on videos of it, or unsupervised")
        return self.models[name]

    def segment(self, videos: Sequence[FeatureVideo]) -> list[IntArray]:
        """The cluster of each frame of each video, (N,) each, -1 background; ids mean the same in all given videos of a
        task.
        """
        for video in videos:
            if (width := video.features.shape[1]) != self.given.width:
                raise InputError(f"video {video.video}: features of width {width} do not fit what was learned")
        out: list[IntArray] = [np.empty(0, np.int64)] * len(videos)
        for task, where in by_task(videos).items():
            for i, ids in zip(where, self.segment_task(task, [videos[i] for i in where]), strict=True):
                out[i] = ids
        return out

    @abstractmethod
    def segment_task(self, task: str, videos: Sequence[FeatureVideo]) -> list[IntArray]:
        """The same for the videos of one task."""


BASELINES: Registry[Callable[..., Baseline[Any]]] = Registry("baseline", "baselines", {
    "kukleva": "stepformer.evaluation.baselines.kukleva:Kukleva",
    "elhamifar": "stepformer.evaluation.baselines.elhamifar:Elhamifar",
    "shen": "stepformer.evaluation.baselines.shen:Shen",
})  # fmt: skip
"""Baselines by name; a plugin adds its own."""


def baseline(name: str, **options: Any) -> Baseline[Any]:
    """A baseline by its registered name, a plugin's too.

    Args:
        name: "kukleva", "elhamifar", "shen" or a plugin's.
        **options: Fields of the method's class: :class:`Kukleva`, :class:`Elhamifar` and :class:`Shen` list theirs.

    Examples:
        >>> x = np.repeat(np.eye(2, 16, dtype=np.float32), 10, axis=0)         # two steps of ten seconds
        >>> videos = [FeatureVideo(name, "pancakes", x) for name in ("one", "two")]
        >>> fitted = baseline("kukleva", epochs=1).fit(videos, {"pancakes": 2})
        >>> [len(ids) for ids in fitted.segment(videos)]
        [20, 20]
    """
    return BASELINES[name](**options)


@dataclass(slots=True)
class Curve:
    """A learning curve: the mean loss of every ``window`` updates, and whether it has stopped improving.

    It has when the lowest mean is ``patience`` windows old; a mean counts as lower by ``least`` of its size or more.
    """

    window: int = 50
    patience: int = 5
    least: float = 0.005
    points: list[tuple[int, float]] = field(default_factory=list)  # updates done, mean loss
    _losses: list[float] = field(default_factory=list)
    _best: float = math.inf
    _since: int = 0

    def add(self, loss: float) -> None:
        """The loss of one more update."""
        self._losses.append(loss)
        if len(self._losses) % self.window:
            return
        mean = float(np.mean(self._losses[-self.window :]))
        self.points.append((len(self._losses), round(mean, 6)))
        better = self._best == math.inf or mean < self._best - self.least * abs(self._best)
        self._since = 0 if better else self._since + 1
        self._best = mean if better else self._best

    @property
    def updates(self) -> int:
        """How many there were."""
        return len(self._losses)

    @property
    def flat(self) -> bool:
        """Whether the loss has stopped improving."""
        return self._since >= self.patience


def by_task(videos: Sequence[FeatureVideo]) -> dict[str, list[int]]:
    """Positions of the videos of each task, tasks in order of first appearance."""
    groups: dict[str, list[int]] = {}
    for i, video in enumerate(videos):
        groups.setdefault(video.task, []).append(i)
    return groups


def divided(joined: npt.NDArray[Numbers], parts: Sequence[npt.NDArray[Any]]) -> list[npt.NDArray[Numbers]]:
    """``joined`` (sum of lengths, ...) cut up again as the parts are long that were joined."""
    return np.split(joined, np.cumsum([len(part) for part in parts])[:-1])
