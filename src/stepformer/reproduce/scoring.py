"""How a method's slots become the numbers of a table: options chosen on held-out tasks, applied to the others.

The inference options are chosen for each method, and for each of the two tasks, from one small grid (:data:`GRID`),
the same for models and for untrained controls, on videos of *choosing* tasks: half of the world's ``dev`` tasks, dense
and sparse timelines alike (:func:`half_sparse`). Those are in no table. The other half of them is the table's COIN
column. Nothing is ever chosen on what is reported.

*Views* of a method: ``grid`` (the whole grid), ``keep`` (the paper's inference: slots as they are, percentile drop
line, only its share chosen) and ``fixed`` (the same at 10%, nothing chosen).

Needs torch, NumPy and safetensors alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from stepformer.core.inference import InferenceConfig, find_steps, find_texts, no_slots
from stepformer.core.model import Slots
from stepformer.data.simulator import Simulator
from stepformer.data.world import Videos, World
from stepformer.evaluation.table1 import Table1Options
from stepformer.evaluation.validation import (
    FULL,
    QUICK,
    SlotMaker,
    Trial,
    make_trial,
    segment_vectors,
    smoothed,
    unsupervised,
    zero_shot,
)

MAIN_ENCODER = "concepts"
OTHER_ENCODERS = ("plain", "joint")
KEEPS = (0.05, 0.1, 0.2, 0.4)
READS = (0.0, 0.5, 1.0)
TEXTS = (0.0, 0.5)
CLUSTER_BY = ("slots", "frames")
WINDOWS = (5, 9, 15)
"""Frames over which the smoothed ground-truth text control averages the video."""
GRID: dict[str, Any] = {
    "line": ["auto", *(f"keep {keep}" for keep in KEEPS)],
    "read": list(READS),
    "text": list(TEXTS),
    "cluster_by": list(CLUSTER_BY),
}
"""What is chosen from, as the results say it."""

IntArray = npt.NDArray[np.int64]
Scores = dict[str, float]


@dataclass(frozen=True, slots=True)
class Chosen:
    """The options of both tasks, and what they scored on the choosing videos."""

    zero_shot: InferenceConfig
    unsupervised: InferenceConfig
    cluster_by: str
    dev: Mapping[str, float]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for the results file."""
        return {
            "zero_shot": asdict(self.zero_shot),
            "unsupervised": asdict(self.unsupervised),
            "cluster_by": self.cluster_by,
            "dev": dict(self.dev),
        }


# -- splits -----------------------------------------------------------------------------------------------------


def divided(world: World) -> World:
    """The world with ``choose`` and ``unseen`` as further splits: its dev tasks, every other one."""
    tasks = sorted(set(world.dev.tasks.tolist()))
    chosen = torch.isin(world.dev.tasks, torch.tensor(tasks[::2]))
    parts = {"choose": half_sparse(_pick(world.dev, chosen)), "unseen": _pick(world.dev, ~chosen)}
    return replace(world, extra={**world.extra, **{k: v for k, v in parts.items() if len(v)}})


def half_sparse(videos: Videos) -> Videos:
    """Every second video with twice as much background added as its steps last, spread evenly between them.

    COIN's steps fill half of its videos, those of other datasets a quarter. A drop line chosen on dense videos alone
    fails on sparse ones, and how dense the tested videos are must not be known; so options have to serve both kinds.
    """
    there = videos.steps >= 0
    odd = torch.arange(len(videos)) % 2 == 1
    lengths = torch.where(there, videos.ends - videos.starts, 0.0).nan_to_num().clamp(min=0).sum(1)  # (P,)
    added = torch.where(odd, 2.0 * lengths, 0.0)
    pause = added / (there.sum(1) + 1)  # NaN times stay to be sampled
    later = pause[:, None] * torch.arange(1, there.shape[1] + 1)
    return replace(videos, starts=videos.starts + later, ends=videos.ends + later, durations=videos.durations + added)


def _pick(videos: Videos, mask: Tensor) -> Videos:
    return videos.pick(torch.nonzero(mask).squeeze(1))


def dataset_of(world: World, split: str) -> str:
    """Which dataset the timelines of a split come from: ``crosstask``, ``coin``, ``procel`` or ``grammar``."""
    names: Sequence[str] = world.meta.get("task_names", ())
    first = int(world.split(split).tasks[0])
    return names[first].partition(":")[0] if first < len(names) else "unknown"


def report_splits(world: World) -> tuple[str, ...]:
    """The splits that tables report, in the order of their columns."""
    return tuple(name for name in ("test", "procel", "unseen") if name in world.splits)


def trial(simulator: Simulator, split: str, encoder: str, seed: int) -> Trial:
    """Videos of a split. Each seed draws its own frames, the same for every method, so that methods are compared on
    the same videos and the spread over seeds has the chance of the simulation in it too.
    """
    salt = {"choose": 100, "test": 200, "unseen": 300, "procel": 400}.get(split, 500)
    return make_trial(simulator, split, encoder, seed=salt + seed)


# -- scores -----------------------------------------------------------------------------------------------------


def per_video(values: Tensor, mask: Tensor) -> list[IntArray]:
    """A padded (B, N) tensor as one array a video."""
    lengths = mask.sum(1).tolist()
    return [row[:n].astype(np.int64) for row, n in zip(values.cpu().numpy(), lengths, strict=True)]


@torch.inference_mode()
def all_slots(trial: Trial, make: SlotMaker) -> list[Slots]:
    """The slots of every batch, made once."""
    return [make(batch) for batch in trial.batches]


@torch.inference_mode()
def located(trial: Trial, outputs: Iterable[Slots], config: InferenceConfig) -> list[IntArray]:
    """Per video (N,): position in its own step list of each frame, -1 background."""
    found: list[IntArray] = []
    for batch, texts, output in zip(trial.batches, trial.texts, outputs, strict=True):
        lengths = (batch.steps >= 0).sum(1)
        placed = find_texts(output, batch.video_mask, texts, lengths, config, structure=batch.video)
        found += per_video(placed.assignment, batch.video_mask)
    return found


@torch.inference_mode()
def discovered(trial: Trial, outputs: Iterable[Slots], config: InferenceConfig) -> list[Tensor]:
    """Per batch (B, N): slot of each frame, -1 background."""
    pairs = zip(trial.batches, outputs, strict=True)
    return [find_steps(o, b.video_mask, config, structure=b.video).assignment for b, o in pairs]


def locate_scores(trial: Trial, outputs: Sequence[Slots], config: InferenceConfig) -> Scores:
    """``zs_*``: zero-shot localisation of each video's own step texts."""
    return {f"zs_{k}": v for k, v in zero_shot(trial, located(trial, outputs, config)).items()}


def cluster_scores(
    trial: Trial, outputs: Sequence[Slots], found: Sequence[Tensor], cluster_by: str, options: Table1Options
) -> Scores:
    """``un_*``: the discovered segments of a task's videos clustered, as Table 1 asks."""
    segments = [s for batch, f in zip(trial.batches, found, strict=True) for s in per_video(f, batch.video_mask)]
    vectors = [v for o, f in zip(outputs, found, strict=True) for v in segment_vectors(o, f, cluster_by)]
    scores = {f"un_{k}": v for k, v in unsupervised(trial, segments, vectors, options).items()}
    scores["un_slots"] = float(np.mean([len(np.unique(s[s >= 0])) for s in segments]))
    return scores


def scores_with(trial: Trial, outputs: Sequence[Slots], chosen: Chosen, options: Table1Options = FULL) -> Scores:
    """Both tasks under chosen options."""
    scores = locate_scores(trial, outputs, chosen.zero_shot)
    found = discovered(trial, outputs, chosen.unsupervised)
    return scores | cluster_scores(trial, outputs, found, chosen.cluster_by, options)


# -- choosing ---------------------------------------------------------------------------------------------------


def lines(view: str) -> list[InferenceConfig]:
    """The drop lines of a view."""
    made = [InferenceConfig(keep=keep, locate_keep=keep) for keep in KEEPS]
    return made if view == "keep" else [InferenceConfig(threshold="automatic"), *made]


def choose(
    trial: Trial, outputs: Sequence[Slots], view: str = "grid", ordered: bool = True, cluster_by: str | None = None
) -> Chosen:
    """The best of the grid on a trial: by IoU for localisation, by F1 for discovery.

    cluster_by: not chosen but given, as a preset prescribes it.
    """
    reads, texts = (READS, TEXTS) if view == "grid" else ((0.0,), (0.0,))
    ways = CLUSTER_BY if view == "grid" and cluster_by is None else (cluster_by or "slots",)
    dev: Scores = {"zs_iou": -1.0, "un_f1": -1.0}
    best = Chosen(InferenceConfig(), InferenceConfig(), ways[0], {})
    for line, read in itertools.product(lines(view), reads):
        base = replace(line, read_share=read, ordered=ordered)
        for text in texts:
            config = replace(base, text_share=text)
            value = locate_scores(trial, outputs, config)["zs_iou"]
            if value > dev["zs_iou"]:
                dev["zs_iou"], best = value, replace(best, zero_shot=config)
        found = discovered(trial, outputs, base)
        for way in ways:
            value = cluster_scores(trial, outputs, found, way, QUICK)["un_f1"]
            if value > dev["un_f1"]:
                dev["un_f1"], best = value, replace(best, unsupervised=base, cluster_by=way)
    return replace(best, dev=dev)


def choose_locate(trial: Trial, outputs: Sequence[Slots]) -> InferenceConfig:
    """The grid's best for localisation alone."""
    grid = itertools.product(lines("grid"), READS, TEXTS)
    tried = (replace(line, read_share=read, text_share=text) for line, read, text in grid)
    return max(tried, key=lambda config: locate_scores(trial, outputs, config)["zs_iou"])


def plain(config: InferenceConfig) -> dict[str, Any]:
    """Options as plain values."""
    return asdict(config)


@torch.inference_mode()
def text_located(trial: Trial, config: InferenceConfig, window: int = 1) -> list[IntArray]:
    """Ground-truth texts aligned with the video, which is first averaged over a window of frames."""
    found: list[IntArray] = []
    for batch, texts in zip(trial.batches, trial.texts, strict=True):
        frames = smoothed(batch.video, batch.video_mask, window)
        lengths = (batch.steps >= 0).sum(1)
        placed = find_texts(no_slots(frames), batch.video_mask, texts, lengths, config)
        found += per_video(placed.assignment, batch.video_mask)
    return found


def choose_text(trial: Trial, windows: Sequence[int] = (1,)) -> tuple[InferenceConfig, int, float]:
    """The best drop line (and window) for ground-truth texts, and its IoU."""
    tried = (
        (zero_shot(trial, text_located(trial, line, window))["iou"], line, window)
        for line in lines("grid")
        for window in windows
    )
    iou, line, window = max(tried, key=lambda row: row[0])
    return line, window, iou
