"""Both of the paper's tasks on videos, simulated or real, for a model or for a control, during training and for tables.

A :class:`Trial` is a split of the world rendered once. :func:`score_slots` gives a set of
slots (a model's, or a control's) both tasks' numbers: zero-shot localisation of the video's own ordered step texts
(per video, then averaged) and unsupervised discovery (K-means of the discovered steps of a task's videos into the
task's number of steps, 60% of each cluster kept, one Hungarian matching per task, averaged over tasks). Frames and
labels are one per second.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from stepformer.core.inference import Spread, find_steps, find_texts
from stepformer.core.model import ModelConfig, Slots, StepDecoder
from stepformer.core.options import InferenceConfig
from stepformer.core.segments import programme, solve, spread_out
from stepformer.data.simulator import Batch, Sight, Simulator
from stepformer.data.world import Videos
from stepformer.evaluation.metrics import matched, score_video
from stepformer.evaluation.statistics import FloatArray, IntArray, by_task, discovery_scores
from stepformer.evaluation.table1 import Table1Options, cluster_segments

SlotMaker = Callable[[Batch], Slots]
Segments = tuple[list[IntArray], list[npt.NDArray[np.float32]] | None]  # per video; vectors, or None: cluster ids

ZERO_SHOT = ("iou", "precision", "recall", "mof")
QUICK = Table1Options(unit_norm=True, restarts=4, seeds=(0,))
"""K-means as it is run during training: one seed, few restarts. Tables use :data:`FULL`."""
FULL = Table1Options(unit_norm=True)
_PER_TASK = 4


@dataclass(frozen=True, slots=True)
class Trial:
    """Videos of one split with everything that is known of them.

    ``kinds`` (P, S) is each step instance's number within its task. ``cutting``: per batch (B, N, S) what boundaries
    are placed by where the encoder has such vectors; else it is the frames.
    """

    batches: list[Batch]
    texts: list[Tensor]  # per batch (B, S, D): vectors of the step texts
    tasks: IntArray  # (P,)
    kinds: IntArray  # (P, S)
    rate_hz: float = 1.0
    cutting: list[Tensor] | None = None
    _spread: dict[int, Spread] = field(default_factory=dict, init=False, repr=False, compare=False)

    def structure(self, number: int) -> Spread:
        """What boundaries of a batch's videos are placed by. Computed once."""
        if number not in self._spread:
            batch = self.batches[number]
            values = batch.video if self.cutting is None else self.cutting[number]
            self._spread[number] = Spread(spread_out(values, batch.video_mask))
        return self._spread[number]

    def labels(self) -> list[IntArray]:
        """Per video (N,): step instance of each frame, -1 background."""
        return [row for batch in self.batches for row in per_video(batch.labels, batch.video_mask)]

    def task_labels(self) -> list[IntArray]:
        """Per video (N,): step number within the task, -1 background."""
        return [np.where(y >= 0, self.kinds[i, np.maximum(y, 0)], -1) for i, y in enumerate(self.labels())]


def make_trial(
    simulator: Simulator, split: str, limit: int | None = None, seed: int = 0, sight: Sight | None = None
) -> Trial:
    """Renders a split, or ``limit`` videos of it."""
    videos = few(simulator.world.split(split), limit)
    batches = simulator.render_all(videos, sight, seed)
    texts = [simulator.vectors[batch.steps.clamp(min=0)] for batch in batches]
    return Trial(batches, texts, videos.tasks.numpy(), videos.kinds.numpy())


def few(videos: Videos, limit: int | None) -> Videos:
    """At most ``limit`` videos, evenly of all tasks; of fewer tasks where that leaves less than four videos of a task
    that has them, because steps are matched across the videos of a task."""
    if limit is None or limit >= len(videos):
        return videos
    tasks = by_task(videos.tasks.numpy())
    for count in range(1, len(tasks)):
        some = [tasks[i] for i in _evenly(len(tasks), count)]
        if sum(min(len(task), _PER_TASK) for task in some) >= limit:
            break
    else:
        some = tasks
    counts = [0] * len(some)
    for i in itertools.cycle(range(len(some))):
        counts[i] += counts[i] < len(some[i])
        if sum(counts) == limit:
            break
    picked = [task[_evenly(len(task), count)] for task, count in zip(some, counts, strict=True)]
    return videos.pick(torch.from_numpy(np.concatenate(picked)))


def _evenly(count: int, most: int) -> IntArray:
    """``most`` of the numbers below ``count``, at equal distances."""
    return np.linspace(0, count - 1, most).astype(np.int64)


def per_video(values: Tensor, mask: Tensor) -> list[IntArray]:
    """A padded (B, N) tensor as one array per video."""
    lengths = mask.sum(1).tolist()
    return [row[:n].astype(np.int64) for row, n in zip(values.cpu().numpy(), lengths, strict=True)]


def model_slots(model: StepDecoder) -> SlotMaker:
    """The slots of a trained (or untrained) decoder."""

    @torch.inference_mode()
    def make(batch: Batch) -> Slots:
        return model.eval()(batch.video, batch.video_mask)  # type: ignore[no-any-return]

    return make


def locate_units(trial: Trial, found: Sequence[IntArray]) -> FloatArray:
    """(V, 4): IoU, precision, recall and MoF of each video."""
    scores = [score_video(p, y) for p, y in zip(found, trial.labels(), strict=True)]
    return np.array([[getattr(s, name) for name in ZERO_SHOT] for s in scores])


def discover_units(trial: Trial, segments: Segments, options: Table1Options) -> IntArray:
    """(S, V, 5): counts of each video, as :func:`discovery_scores` takes them, for each K-means seed.

    One Hungarian matching per task and seed, as Table 1 asks; summed over a task's videos, the counts give its scores.
    """
    found, vectors = segments
    labels = trial.task_labels()
    out = np.zeros((len(options.seeds), len(found), 5), np.int64)
    for group in by_task(trial.tasks):
        own, truth = [found[i] for i in group], [labels[i] for i in group]
        if vectors is None:
            out[:, group] = video_counts(own, truth)
            continue
        for number, seed in enumerate(options.seeds):
            clusters = cluster_segments(own, [vectors[i] for i in group], task_steps(trial, group), seed, options)
            out[number, group] = video_counts(clusters, truth)
    return out


def video_counts(clusters: Sequence[IntArray], truth: Sequence[IntArray]) -> IntArray:
    """(V, 5) counts of a task's videos under one matching: clusters and steps of each frame (N_v,), -1 background."""
    rows = []
    for p, y in zip(matched(clusters, truth), truth, strict=True):
        agreeing = p == y
        rows.append([(agreeing & (y >= 0)).sum(), (p != -1).sum(), (y >= 0).sum(), agreeing.sum(), len(y)])
    return np.array(rows, np.int64)


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
    weighted = torch.cat((video * weight, weight), -1).mT
    total = torch.nn.functional.avg_pool1d(weighted, window, 1, window // 2).mT[:, : video.shape[1]]
    return total[..., :-1] / total[..., -1:].clamp(min=1e-9)


# -- controls that learn nothing: what a trained model has to beat ----------------------------------------------------


def equal_lengths(ids: IntArray) -> IntArray:
    """The same sequence of runs as in ``ids`` (N,), all of one length: the number of cuts stays, their times go."""
    starts = np.flatnonzero(np.diff(ids, prepend=ids[0] - 1))
    return np.asarray(ids[starts][np.arange(len(ids)) * len(starts) // len(ids)], np.int64)


def change_slots(video: Tensor, mask: Tensor, count: int = ModelConfig().slots, cutting: Tensor | None = None) -> Slots:
    """Slots are the means of ``count`` segments cut where the frames change: video (B, N, D), mask (B, N); or where
    other features of the frames do, ``cutting`` (B, N, S).

    What ``pooled32`` would be if it looked at the video: of all such cuts, the one of least squared distance of the
    frames to the means of their segments. A video with fewer frames repeats its last segment.
    """
    slots = video.new_zeros(len(video), count, video.shape[-1])
    seen = video if cutting is None else cutting
    for row, frames, changing, n in zip(slots, video, seen, mask.sum(1).tolist(), strict=True):
        task = programme(None, changing[None, :n].cpu(), torch.ones(1, n, dtype=torch.bool))
        ((cuts,), _) = solve(task, torch.zeros(1), count=[count])
        for i, cut in enumerate(cuts):
            row[i:] = frames[cut.first : cut.last].mean(0)
    return Slots(slots, video, None)
