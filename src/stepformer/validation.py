"""Both of the paper's tasks on simulated videos, for a model or for a control, during training and for tables.

A :class:`Trial` is a split of the world rendered once through one simulated encoder. :func:`score_slots` gives a set of
slots (a model's, or a control's) both tasks' numbers: zero-shot localisation of the video's own ordered step texts
(per video, then averaged) and unsupervised discovery (K-means of the discovered steps of a task's videos into the
task's number of steps, 60% of each cluster kept, one Hungarian matching a task, averaged over tasks). Frames and
labels are one a second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from stepformer.corpus.simulator import Batch, EncoderModel, Simulator
from stepformer.evaluation.metrics import score_task, score_video
from stepformer.inference import InferenceConfig, align_to_frames, discover, locate, locate_texts
from stepformer.kmeans import kmeans
from stepformer.model import Slots, StepDecoder

IntArray = npt.NDArray[np.int64]
SlotMaker = Callable[[Batch], Slots]

ZERO_SHOT = ("iou", "precision", "recall", "mof")
UNSUPERVISED = ("f1", "precision", "recall", "mof")
KEPT_SHARE = 0.6


@dataclass(frozen=True, slots=True)
class Trial:
    """Rendered videos of one split. ``kinds`` (P, S) is each step instance's number within its task."""

    batches: list[Batch]
    texts: list[Tensor]  # per batch (B, S, D): vectors of the step texts
    tasks: IntArray  # (P,)
    kinds: IntArray  # (P, S)

    def labels(self) -> list[IntArray]:
        """Per video (N,): step instance of each frame, -1 background."""
        return [row for batch in self.batches for row in _rows(batch.labels, batch.video_mask)]

    def task_labels(self) -> list[IntArray]:
        """Per video (N,): step number within the task, -1 background."""
        return [np.where(y >= 0, self.kinds[i, np.maximum(y, 0)], -1) for i, y in enumerate(self.labels())]


def make_trial(
    simulator: Simulator, split: str, encoder: str | EncoderModel, limit: int | None = None, seed: int = 0
) -> Trial:
    """Renders a split; ``limit`` takes every n-th video so that about that many remain, all tasks included."""
    videos = simulator.world.split(split)
    if limit is not None and limit < len(videos):
        # whole tasks stay together in the file; a stride keeps every task
        videos = videos.pick(torch.linspace(0, len(videos) - 1, limit).long())
    batches = simulator.render_all(videos, encoder, seed)
    texts = [simulator.vectors[batch.steps.clamp(min=0)] for batch in batches]
    return Trial(batches, texts, videos.tasks.numpy(), videos.kinds.numpy())


def _rows(values: Tensor, mask: Tensor) -> list[IntArray]:
    """A padded (B, N) tensor as one array a video."""
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


def zero_shot(trial: Trial, predictions: Iterable[IntArray]) -> dict[str, float]:
    """Mean over videos of IoU, precision, recall and MoF of predicted step instances."""
    scores = [score_video(p, y) for p, y in zip(predictions, trial.labels(), strict=True)]
    return {name: float(np.mean([getattr(s, name) for s in scores])) for name in ZERO_SHOT}


def unsupervised(trial: Trial, predictions: list[IntArray]) -> dict[str, float]:
    """Mean over tasks of F1, precision, recall and MoF of cluster ids."""
    labels = trial.task_labels()
    scores = []
    for task in np.unique(trial.tasks):
        members = np.flatnonzero(trial.tasks == task)
        scores.append(score_task([predictions[i] for i in members], [labels[i] for i in members]))
    return {name: float(np.mean([getattr(s, name) for s in scores])) for name in UNSUPERVISED}


def cluster_segments(
    trial: Trial, assignments: list[IntArray], vectors: list[npt.NDArray[np.float32]], seed: int
) -> list[IntArray]:
    """Slot ids per frame to cluster ids per frame that mean the same in all videos of a task.

    assignments: per video (N,) slot of each frame or -1; vectors: per video (K, D) what each slot is clustered by.
    """
    out = [np.full_like(a, -1) for a in assignments]
    labels = trial.task_labels()
    for task in np.unique(trial.tasks):
        members = np.flatnonzero(trial.tasks == task)
        used = [np.unique(assignments[i][assignments[i] >= 0]) for i in members]
        owners = np.concatenate([np.full(len(u), i) for i, u in zip(members, used, strict=True)])
        if len(owners) == 0:
            continue
        slots = np.concatenate(used)
        points = np.concatenate([vectors[i][u] for i, u in zip(members, used, strict=True)])
        points = points / np.maximum(np.linalg.norm(points, axis=1, keepdims=True), 1e-9)
        number = len(np.unique(np.concatenate([labels[i][labels[i] >= 0] for i in members])))
        result = kmeans(points, max(number, 1), seed=seed, restarts=4)
        distance = np.linalg.norm(points - result.centers[result.labels], axis=1)
        clusters = keep_nearest(result.labels, distance)
        for owner, slot, cluster in zip(owners, slots, clusters, strict=True):
            out[owner][assignments[owner] == slot] = cluster
    return out


def keep_nearest(labels: IntArray, distances: npt.NDArray[Any], share: float = KEPT_SHARE) -> IntArray:
    """Cluster labels with the farthest members of each cluster made background; at least one member stays."""
    out = np.full_like(labels, -1)
    for cluster in np.unique(labels):
        members = np.flatnonzero(labels == cluster)
        kept = max(1, int(np.floor(share * len(members) + 1e-9)))
        nearest = members[np.argsort(distances[members], kind="stable")[:kept]]
        out[nearest] = cluster
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
def score_slots(
    trial: Trial,
    make: SlotMaker,
    config: InferenceConfig,
    kmeans_seeds: Iterable[int] = (0,),
    cluster_by: str = "slots",
) -> dict[str, float]:
    """Both tasks: ``zs_iou ... zs_mof`` and ``un_f1 ... un_mof`` (mean over K-means seeds)."""
    located: list[IntArray] = []
    assignments: list[IntArray] = []
    vectors: list[npt.NDArray[np.float32]] = []
    for batch, texts in zip(trial.batches, trial.texts, strict=True):
        output = make(batch)
        lengths = (batch.steps >= 0).sum(1)
        located += _rows(locate(output, batch.video_mask, texts, lengths, config), batch.video_mask)
        found = discover(output, batch.video_mask, config)
        assignments += _rows(found, batch.video_mask)
        vectors += segment_vectors(output, found, cluster_by)
    scores = {f"zs_{k}": v for k, v in zero_shot(trial, located).items()}
    runs = [unsupervised(trial, cluster_segments(trial, assignments, vectors, seed)) for seed in kmeans_seeds]
    scores |= {f"un_{k}": float(np.mean([run[k] for run in runs])) for k in UNSUPERVISED}
    scores["un_slots"] = float(np.mean([len(np.unique(a[a >= 0])) for a in assignments]))
    return scores


# -- controls ---------------------------------------------------------------------------------------------------


def uniform_scores(trial: Trial) -> dict[str, float]:
    """A split into equal parts: as many as the video has steps (zero-shot), or its task (unsupervised)."""
    labels, task_labels = trial.labels(), trial.task_labels()
    counts = [int((kinds >= 0).sum()) for kinds in trial.kinds]
    located = [np.arange(len(y)) * n // len(y) for y, n in zip(labels, counts, strict=True)]
    steps: Mapping[int, int] = {
        int(task): 1 + max(int(task_labels[i].max(initial=0)) for i in np.flatnonzero(trial.tasks == task))
        for task in np.unique(trial.tasks)
    }
    parts = [np.arange(len(y)) * steps[int(t)] // len(y) for y, t in zip(labels, trial.tasks, strict=True)]
    return {f"zs_{k}": v for k, v in zero_shot(trial, located).items()} | {
        f"un_{k}": v for k, v in unsupervised(trial, parts).items()
    }


def text_scores(trial: Trial, keep: float, smooth_frames: int = 1) -> dict[str, float]:
    """Ground-truth texts aligned to the video; ``smooth_frames`` first averages the video over a window."""
    located: list[IntArray] = []
    for batch, texts in zip(trial.batches, trial.texts, strict=True):
        frames = smoothed(batch.video, batch.video_mask, smooth_frames)
        found = locate_texts(frames, batch.video_mask, texts, (batch.steps >= 0).sum(1), keep)
        located += _rows(found, batch.video_mask)
    return {f"zs_{k}": v for k, v in zero_shot(trial, located).items()}


def smoothed(video: Tensor, mask: Tensor, window: int) -> Tensor:
    """(B, N, D) video averaged over ``window`` frames around each frame, within its own length."""
    if window <= 1:
        return video
    weight = mask.to(video.dtype)[..., None]
    total = torch.nn.functional.avg_pool1d(
        torch.cat((video * weight, weight), -1).mT, window, 1, window // 2, ceil_mode=False, count_include_pad=True
    ).mT[:, : video.shape[1]]
    return total[..., :-1] / total[..., -1:].clamp(min=1e-9)


def frame_kmeans_scores(trial: Trial, seeds: Iterable[int] = (0,)) -> dict[str, float]:
    """K-means over the frames of a task's videos, 60% of each cluster kept."""
    frames = [
        v[:n].float().cpu().numpy()
        for batch in trial.batches
        for v, n in zip(batch.video, batch.video_mask.sum(1).tolist(), strict=True)
    ]
    labels = trial.task_labels()
    runs = []
    for seed in seeds:
        out = [np.full(len(y), -1) for y in labels]
        for task in np.unique(trial.tasks):
            members = np.flatnonzero(trial.tasks == task)
            points = np.concatenate([frames[i] for i in members])
            number = len(np.unique(np.concatenate([labels[i][labels[i] >= 0] for i in members])))
            result = kmeans(points, max(number, 1), seed=seed, restarts=2, max_iterations=30)
            kept = keep_nearest(result.labels, np.linalg.norm(points - result.centers[result.labels], axis=1))
            for i, part in zip(members, np.split(kept, np.cumsum([len(labels[i]) for i in members])[:-1]), strict=True):
                out[i] = part
        runs.append(unsupervised(trial, out))
    return {f"un_{k}": float(np.mean([run[k] for run in runs])) for k in UNSUPERVISED}


__all__ = [
    "SlotMaker", "Trial", "align_to_frames", "frame_kmeans_scores", "make_trial", "model_slots", "score_slots",
    "text_scores", "uniform_scores",
]  # fmt: skip
