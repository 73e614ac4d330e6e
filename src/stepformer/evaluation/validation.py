"""Both of the paper's tasks on simulated videos, for a model or for a control, during training and for tables.

A :class:`Trial` is a split of the world rendered once. :func:`score_slots` gives a set of
slots (a model's, or a control's) both tasks' numbers: zero-shot localisation of the video's own ordered step texts
(per video, then averaged) and unsupervised discovery (K-means of the discovered steps of a task's videos into the
task's number of steps, 60% of each cluster kept, one Hungarian matching per task, averaged over tasks). Frames and
labels are one per second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from stepformer.core.inference import InferenceConfig, Spread, find_steps, find_texts
from stepformer.core.model import Slots, StepDecoder
from stepformer.core.segments import spread_out
from stepformer.data.simulator import Batch, Sight, Simulator
from stepformer.evaluation.hungarian import assign
from stepformer.evaluation.metrics import score_video
from stepformer.evaluation.statistics import by_task, discovery_scores
from stepformer.evaluation.table1 import Table1Options, cluster_segments

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
SlotMaker = Callable[[Batch], Slots]
Segments = tuple[list[IntArray], list[npt.NDArray[np.float32]] | None]  # per video; vectors, or None: cluster ids

ZERO_SHOT = ("iou", "precision", "recall", "mof")
QUICK = Table1Options(unit_norm=True, restarts=4, seeds=(0,))
"""K-means as it is run during training: one seed, few restarts. Tables use :data:`FULL`."""
FULL = Table1Options(unit_norm=True)


@dataclass(frozen=True, slots=True)
class Trial:
    """Videos of one split with everything that is known of them.

    ``kinds`` (P, S) is each step instance's number within its task.
    """

    batches: list[Batch]
    texts: list[Tensor]  # per batch (B, S, D): vectors of the step texts
    tasks: IntArray  # (P,)
    kinds: IntArray  # (P, S)
    rate_hz: float = 1.0
    _spread: dict[int, Spread] = field(default_factory=dict, init=False, repr=False, compare=False)

    def structure(self, number: int) -> Spread:
        """What boundaries of a batch's videos are placed by, whoever asks: their raw frames."""
        if number not in self._spread:
            batch = self.batches[number]
            self._spread[number] = Spread(spread_out(batch.video, batch.video_mask))
        return self._spread[number]

    def find(self, video: int) -> tuple[Batch, int]:
        """The batch that a video stands in, and its row there."""
        for batch in self.batches:
            if video < len(batch.video):
                return batch, video
            video -= len(batch.video)
        raise IndexError(video)

    def labels(self) -> list[IntArray]:
        """Per video (N,): step instance of each frame, -1 background."""
        return [row for batch in self.batches for row in per_video(batch.labels, batch.video_mask)]

    def task_labels(self) -> list[IntArray]:
        """Per video (N,): step number within the task, -1 background."""
        return [np.where(y >= 0, self.kinds[i, np.maximum(y, 0)], -1) for i, y in enumerate(self.labels())]


def make_trial(
    simulator: Simulator, split: str, limit: int | None = None, seed: int = 0, sight: Sight | None = None
) -> Trial:
    """Renders a split; ``limit`` takes every n-th video so that about that many remain, all tasks included."""
    videos = simulator.world.split(split)
    if limit is not None and limit < len(videos):
        # whole tasks stay together in the file; a stride keeps every task
        videos = videos.pick(torch.linspace(0, len(videos) - 1, limit).long())
    batches = simulator.render_all(videos, sight, seed)
    texts = [simulator.vectors[batch.steps.clamp(min=0)] for batch in batches]
    return Trial(batches, texts, videos.tasks.numpy(), videos.kinds.numpy())


def per_video(values: Tensor, mask: Tensor) -> list[IntArray]:
    """A padded (B, N) tensor as one array per video."""
    lengths = mask.sum(1).tolist()
    return [row[:n].astype(np.int64) for row, n in zip(values.cpu().numpy(), lengths, strict=True)]


@torch.inference_mode()
def model_slots(model: StepDecoder) -> SlotMaker:
    """The slots of a trained (or untrained) decoder."""

    def make(batch: Batch) -> Slots:
        model.eval()
        with torch.inference_mode():
            return model(batch.video, batch.video_mask)  # type: ignore[no-any-return]

    return make


def locate_units(trial: Trial, found: Sequence[IntArray]) -> FloatArray:
    """(V, 4): IoU, precision, recall and MoF of each video."""
    scores = [score_video(p, y) for p, y in zip(found, trial.labels(), strict=True)]
    return np.array([[getattr(s, name) for name in ZERO_SHOT] for s in scores])


def discover_units(trial: Trial, segments: Segments, options: Table1Options) -> IntArray:
    """(S, V, 5): counts of each video (:data:`stepformer.evaluation.statistics.COUNTS`) for each K-means seed.

    One Hungarian matching per task and seed, as Table 1 asks; summed over a task's videos, the counts give its scores.
    """
    found, vectors = segments
    labels = trial.task_labels()
    out = np.zeros((len(options.seeds), len(found), 5), np.int64)
    for group in by_task(trial.tasks):
        own = [found[i] for i in group]
        truth = np.concatenate([labels[i] for i in group])
        video = np.repeat(np.arange(len(group)), [len(s) for s in own])
        for number, seed in enumerate(options.seeds):
            if vectors is not None:
                own = cluster_segments(
                    [found[i] for i in group], [vectors[i] for i in group], task_steps(trial, group), seed, options
                )
            elif number:
                out[number][group] = out[0][group]
                continue
            out[number][group] = video_counts(np.concatenate(own), truth, video, len(group))
    return out


def video_counts(clusters: IntArray, truth: IntArray, video: IntArray, videos: int) -> IntArray:
    """(videos, 5) counts of a task's frames: clusters and truth (N,), -1 background, ``video`` (N,) whose they are."""
    overlap = np.zeros((int(clusters.max(initial=-1)) + 2, int(truth.max(initial=-1)) + 2), np.int64)
    np.add.at(overlap, (clusters + 1, truth + 1), 1)
    rows, columns = assign(overlap[1:, 1:])
    step_of = np.full(len(overlap), -2)  # a cluster without a step agrees with nothing
    step_of[0] = -1
    step_of[rows + 1] = columns
    agreeing = step_of[clusters + 1] == truth

    def count(mask: npt.NDArray[np.bool_]) -> IntArray:
        return np.bincount(video[mask], minlength=videos)

    everything = np.ones(len(truth), bool)
    masks = (agreeing & (truth >= 0), clusters >= 0, truth >= 0, agreeing, everything)
    return np.stack([count(mask) for mask in masks], 1)


def task_steps(trial: Trial, group: IntArray) -> int:
    """The number of steps of a task, given its videos."""
    return int(trial.kinds[group].max()) + 1


def summary(units: Mapping[str, npt.NDArray[Any]], tasks: IntArray) -> dict[str, float]:
    """``zs_iou ... un_mof`` of units: means over videos, and means over tasks and K-means seeds."""
    out: dict[str, float] = {}
    if "locate" in units:
        out |= {f"zs_{k}": float(v) for k, v in zip(ZERO_SHOT, units["locate"].mean(0), strict=True)}
    if "discover" in units:
        per_task = np.stack([units["discover"][:, g].sum(1) for g in by_task(tasks)], 1)  # (S, T, 5)
        out |= {f"un_{k}": float(v.mean()) for k, v in discovery_scores(per_task).items()}
    return out


def segment_vectors(output: Slots, assignment: Tensor, by: str) -> list[npt.NDArray[np.float32]]:
    """What slots are clustered by: the slots (paper) or the mean frame of each slot's segment (released)."""
    if by == "slots":
        values = output.slots
    else:
        one_hot = torch.nn.functional.one_hot(assignment + 1, output.slots.shape[1] + 1)[..., 1:]
        weight = one_hot.to(output.frames.dtype)
        values = weight.mT @ output.frames / weight.sum(1).clamp(min=1)[..., None]
    return list(values.float().cpu().numpy())


@torch.inference_mode()
def locate_all(trial: Trial, outputs: Iterable[Slots], config: InferenceConfig) -> list[IntArray]:
    """Per video (N,): which of its own step texts each frame shows, through the slots of each batch; -1 none."""
    out: list[IntArray] = []
    for i, (batch, texts, output) in enumerate(zip(trial.batches, trial.texts, outputs, strict=True)):
        mask, lengths = batch.video_mask, (batch.steps >= 0).sum(1)
        structure = trial.structure(i)
        found = find_texts(output, mask, texts, lengths, config, structure=structure, rate_hz=trial.rate_hz)
        out += per_video(found.assignment, mask)
    return out


@torch.inference_mode()
def discover_all(trial: Trial, outputs: Iterable[Slots], config: InferenceConfig) -> list[Tensor]:
    """Per batch (B, N): which slot each frame belongs to, -1 none."""
    return [
        find_steps(output, batch.video_mask, config, structure=trial.structure(i), rate_hz=trial.rate_hz).assignment
        for i, (batch, output) in enumerate(zip(trial.batches, outputs, strict=True))
    ]


def segments_of(
    trial: Trial, outputs: Iterable[Slots], found: Iterable[Tensor], by: str
) -> tuple[list[IntArray], list[npt.NDArray[np.float32]]]:
    """Per video the slot of each frame (N,) and the slots' vectors (K, D), of what :func:`discover_all` gives."""
    segments: list[IntArray] = []
    vectors: list[npt.NDArray[np.float32]] = []
    for batch, output, assignment in zip(trial.batches, outputs, found, strict=True):
        segments += per_video(assignment, batch.video_mask)
        vectors += segment_vectors(output, assignment, by)
    return segments, vectors


def score_slots(
    trial: Trial, make: SlotMaker, config: InferenceConfig, options: Table1Options = QUICK
) -> dict[str, float]:
    """Both tasks: ``zs_iou ... zs_mof`` and ``un_f1 ... un_mof``, and how many slots a video kept (``un_slots``)."""
    outputs = [make(batch) for batch in trial.batches]
    segments, vectors = segments_of(trial, outputs, discover_all(trial, outputs, config), "slots")
    units: dict[str, npt.NDArray[Any]] = {"locate": locate_units(trial, locate_all(trial, outputs, config))}
    units["discover"] = discover_units(trial, (segments, vectors), options)
    scores = summary(units, trial.tasks)
    scores["un_slots"] = float(np.mean([len(np.unique(a[a >= 0])) for a in segments]))
    return scores


def smoothed(video: Tensor, mask: Tensor, window: int) -> Tensor:
    """(B, N, D) video averaged over ``window`` frames around each frame, within its own length."""
    if window <= 1:
        return video
    weight = mask.to(video.dtype)[..., None]
    total = torch.nn.functional.avg_pool1d(
        torch.cat((video * weight, weight), -1).mT, window, 1, window // 2, ceil_mode=False, count_include_pad=True
    ).mT[:, : video.shape[1]]
    return total[..., :-1] / total[..., -1:].clamp(min=1e-9)
