"""Both of the paper's tasks on simulated videos, for a model or for a control, during training and for tables.

A :class:`Trial` is a split of the world rendered once. :func:`score_slots` gives a set of
slots (a model's, or a control's) both tasks' numbers: zero-shot localisation of the video's own ordered step texts
(per video, then averaged) and unsupervised discovery (K-means of the discovered steps of a task's videos into the
task's number of steps, 60% of each cluster kept, one Hungarian matching per task, averaged over tasks). Frames and
labels are one per second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from stepformer.core.inference import InferenceConfig, Spread, find_steps, find_texts, no_slots
from stepformer.core.model import Slots, StepDecoder
from stepformer.core.segments import spread_out
from stepformer.data.simulator import Batch, Sight, Simulator
from stepformer.evaluation.metrics import score_video
from stepformer.evaluation.table1 import Table1Options, TaskInput, score_table1

IntArray = npt.NDArray[np.int64]
SlotMaker = Callable[[Batch], Slots]

ZERO_SHOT = ("iou", "precision", "recall", "mof")
UNSUPERVISED = ("f1", "precision", "recall", "mof")
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


def zero_shot(trial: Trial, predictions: Iterable[IntArray]) -> dict[str, float]:
    """Mean over videos of IoU, precision, recall and MoF of predicted step instances."""
    scores = [score_video(p, y) for p, y in zip(predictions, trial.labels(), strict=True)]
    return {name: float(np.mean([getattr(s, name) for s in scores])) for name in ZERO_SHOT}


def unsupervised(
    trial: Trial,
    segments: list[IntArray],
    vectors: list[npt.NDArray[np.float32]] | None = None,
    options: Table1Options = QUICK,
) -> dict[str, float]:
    """Mean over tasks (and K-means seeds) of F1, precision, recall and MoF: Table 1's protocol at one frame per second.

    segments: per video (N,) which of its vectors (K, D) a frame belongs to, -1 none; without vectors they are cluster
    ids that mean the same in all videos of a task.
    """
    labels = trial.task_labels()
    tasks = {}
    for task in np.unique(trial.tasks):
        members = np.flatnonzero(trial.tasks == task)
        tasks[str(task)] = TaskInput(
            [segments[i] for i in members],
            [labels[i] for i in members],
            int(trial.kinds[members].max()) + 1,
            None if vectors is None else [vectors[i] for i in members],
        )
    result = score_table1(tasks, options)
    return {name: result.mean[name] for name in UNSUPERVISED}


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
    scores = {f"zs_{k}": v for k, v in zero_shot(trial, locate_all(trial, outputs, config)).items()}
    segments, vectors = segments_of(trial, outputs, discover_all(trial, outputs, config), "slots")
    scores |= {f"un_{k}": v for k, v in unsupervised(trial, segments, vectors, options).items()}
    scores["un_slots"] = float(np.mean([len(np.unique(a[a >= 0])) for a in segments]))
    return scores


# -- controls ---------------------------------------------------------------------------------------------------


def uniform_scores(trial: Trial) -> dict[str, float]:
    """A split into equal parts: as many as the video has steps (zero-shot), or its task (unsupervised)."""
    labels = trial.labels()
    counts = [int((kinds >= 0).sum()) for kinds in trial.kinds]
    located = [np.arange(len(y)) * n // len(y) for y, n in zip(labels, counts, strict=True)]
    steps = {int(task): int(trial.kinds[trial.tasks == task].max()) + 1 for task in np.unique(trial.tasks)}
    parts = [np.arange(len(y)) * steps[int(t)] // len(y) for y, t in zip(labels, trial.tasks, strict=True)]
    return {f"zs_{k}": v for k, v in zero_shot(trial, located).items()} | {
        f"un_{k}": v for k, v in unsupervised(trial, parts).items()
    }


def text_scores(trial: Trial, config: InferenceConfig) -> dict[str, float]:
    """Ground-truth texts aligned to the video."""
    located = locate_all(trial, [no_slots(batch.video) for batch in trial.batches], config)
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


__all__ = [
    "SlotMaker", "Trial", "make_trial", "model_slots", "score_slots",
    "text_scores", "uniform_scores",
]  # fmt: skip
