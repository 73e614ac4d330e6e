"""The paper's figures on one simulated task: what all methods find against the truth, where slots look, how they align.

The videos are those of one task of a split. The video that is drawn is the one of median zero-shot IoU under the
model, unless another is asked for: neither the best nor the worst.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from stepformer.core.inference import InferenceConfig, find_texts, no_slots, slot_similarity, slots_of_texts
from stepformer.core.losses import cosines, match
from stepformer.core.model import Slots, StepDecoder
from stepformer.data.simulator import Simulator
from stepformer.data.world import World
from stepformer.errors import UsageError
from stepformer.evaluation.baselines import baseline
from stepformer.evaluation.hungarian import assign
from stepformer.evaluation.metrics import score_video
from stepformer.evaluation.table1 import Table1Options, cluster_segments
from stepformer.evaluation.validation import FULL, Trial, make_trial, model_slots, segment_vectors
from stepformer.reproduce import drawing, methods, scoring
from stepformer.reproduce.worker import pooled
from stepformer.show.alignments import draw_alignment

IntArray = npt.NDArray[np.int64]

PUBLISHED = (("kukleva", "Kukleva et al."), ("elhamifar", "Elhamifar et al."), ("shen", "Shen et al."))


@dataclass(frozen=True, slots=True)
class Scene:
    """One task's videos, the model's slots for them, and which video is drawn."""

    trial: Trial
    outputs: list[Slots]
    task: str
    step_names: tuple[str, ...]  # of the task, by step number
    instance_names: tuple[str, ...]  # of the drawn video's step list
    phrase_texts: tuple[str, ...]  # of the drawn video's narration, in order
    video: int
    config: InferenceConfig

    @property
    def place(self) -> tuple[int, int]:
        """(batch, row) of the drawn video."""
        at = self.video
        for number, batch in enumerate(self.trial.batches):
            if at < len(batch.video):
                return number, at
            at -= len(batch.video)
        raise UsageError(f"there is no video {self.video}")

    def drawn(self) -> tuple[Slots, int]:
        """The slots of the drawn video alone, and its number of frames."""
        number, row = self.place
        output = self.outputs[number]
        n = int(self.trial.batches[number].video_mask[row].sum())
        return Slots(output.slots[row : row + 1], output.frames[row : row + 1, :n], None), n


def make_scene(
    world: World, model: StepDecoder, config: InferenceConfig, split: str, task: int, video: int | None, encoder: str
) -> Scene:
    """Renders the videos of the ``task``-th task of a split and runs the model on them."""
    videos = world.split(split)
    tasks = sorted(set(videos.tasks.tolist()))
    if not 0 <= task < len(tasks):
        raise UsageError(f"the split {split} has tasks 0 to {len(tasks) - 1}, not {task}")
    own = videos.pick(torch.nonzero(videos.tasks == tasks[task]).squeeze(1))
    device = next(model.parameters()).device
    simulator = Simulator(replace(world, extra={**world.extra, "figure": own}), device=device)
    trial = make_trial(simulator, "figure", encoder, seed=200)
    outputs = scoring.all_slots(trial, model_slots(model))
    found = scoring.located(trial, outputs, config)
    ious = [score_video(p, y).iou for p, y in zip(found, trial.labels(), strict=True)]
    if video is None:
        video = int(np.argsort(ious)[len(ious) // 2])
    if not 0 <= video < len(ious):
        raise UsageError(f"the task has videos 0 to {len(ious) - 1}, not {video}")
    count = int(own.kinds.max()) + 1
    names = [""] * count
    for ids, kinds in zip(own.steps.tolist(), own.kinds.tolist(), strict=True):
        for text, kind in zip(ids, kinds, strict=True):
            if kind >= 0:
                names[kind] = world.texts[text]
    number, row = Scene(trial, outputs, "", (), (), (), video, config).place
    batch = trial.batches[number]
    steps = tuple(world.texts[i] for i in batch.steps[row].tolist() if i >= 0)
    said = tuple(world.texts[i] for i in batch.phrase_ids[row].tolist() if i >= 0)
    known: Sequence[str] = world.meta.get("task_names", ())
    name = known[tasks[task]] if tasks[task] < len(known) else f"task {task}"
    return Scene(trial, outputs, name, tuple(names), steps, said, video, config)


def draw_figures(
    scene: Scene, out: Path, seed: int = 0, fit: Sequence[str] = ("kukleva", "elhamifar", "shen")
) -> list[Path]:
    """All figures of a scene as PNG files; ``fit``: published methods to fit on the task's videos."""
    out.mkdir(parents=True, exist_ok=True)
    paths = [out / f"{name}.png" for name in ("timelines", "attention", "alignment", "phrases")]
    where = f"{scene.task}, video {scene.video} (simulated features)"
    number, row = scene.place
    batch = scene.trial.batches[number]
    truth = scene.trial.task_labels()[scene.video]
    drawing.timelines(paths[0], timelines(scene, fit, seed), truth, scene.step_names, where)
    drawing.attention(paths[1], attention(scene), scene.trial.labels()[scene.video], scene.instance_names, where)
    one = batch._replace(**{name: getattr(batch, name)[row : row + 1] for name in batch._fields})
    output = scene.outputs[number]
    own = Slots(output.slots[row : row + 1], output.frames[row : row + 1], None)
    draw_alignment(
        paths[2], own, one, scene.config, title=f"slots and frames: {where}", names=list(scene.instance_names)
    )
    drawing.phrases(paths[3], *matched_phrases(scene), where)
    return paths


def timelines(scene: Scene, fit: Sequence[str], seed: int = 0) -> dict[str, IntArray]:
    """What each method finds in the drawn video, in step numbers of the task; -1 none, -2 a cluster without a step.

    Clusters become steps by the Hungarian matching of the whole task, as Table 1 scores them.
    """
    trial = scene.trial
    labels = trial.task_labels()
    videos, steps = methods.feature_videos(trial)
    count = len(scene.step_names)
    found: dict[str, list[IntArray]] = {
        "uniform": [np.arange(len(y)) * count // len(y) for y in labels],
        "K-means": baseline("kmeans").fit(videos, steps, seed=seed).segment(videos),
    }
    for name, label in PUBLISHED:
        if name in fit:
            found[label] = baseline(name).fit(videos, steps, setting="weak", seed=seed).segment(videos)
    found["pooled32"] = clustered(trial, scoring.all_slots(trial, pooled), scene.config, count)
    found["StepFormer"] = clustered(trial, scene.outputs, scene.config, count)
    return {name: named(clusters, labels)[scene.video] for name, clusters in found.items()}


def clustered(trial: Trial, outputs: list[Slots], config: InferenceConfig, count: int) -> list[IntArray]:
    """Discovered segments of the task's videos as clusters."""
    assigned = scoring.discovered(trial, outputs, config)
    segments = [s for b, f in zip(trial.batches, assigned, strict=True) for s in scoring.per_video(f, b.video_mask)]
    vectors = [v for o, f in zip(outputs, assigned, strict=True) for v in segment_vectors(o, f, "slots")]
    options: Table1Options = FULL
    return cluster_segments(segments, vectors, count, 0, options)


def named(clusters: Sequence[IntArray], labels: Sequence[IntArray]) -> list[IntArray]:
    """Clusters renamed to the steps they are matched with over all videos; -2 where a cluster has none."""
    p, y = np.concatenate(list(clusters)), np.concatenate(list(labels))
    overlap = np.zeros((int(p.max(initial=-1)) + 1, int(y.max(initial=-1)) + 1))
    both = (p >= 0) & (y >= 0)
    np.add.at(overlap, (p[both], y[both]), 1)
    names = np.full(len(overlap) + 1, -2)
    names[-1] = -1
    if overlap.size:
        rows, columns = assign(overlap)
        matched = overlap[rows, columns] > 0
        names[rows[matched]] = columns[matched]
    return [names[c] for c in clusters]


def attention(scene: Scene) -> dict[str, tuple[npt.NDArray[np.float32], IntArray]]:
    """For slots and for ground-truth texts: similarity (M, N) of each step with the frames, and what it localises."""
    own, n = scene.drawn()
    number, row = scene.place
    texts = scene.trial.texts[number][row : row + 1, : len(scene.instance_names)]
    batch = scene.trial.batches[number]
    mask = batch.video_mask[row : row + 1, :n]
    lengths = torch.tensor([texts.shape[1]], device=texts.device)
    taken = slots_of_texts(cosines(texts, own.slots), lengths)[0].clamp(min=0)
    slots = slot_similarity(own, mask, scene.config)[0, taken]
    video = batch.video[row : row + 1, :n]
    direct = cosines(texts, video)[0]

    def plain(x: torch.Tensor) -> npt.NDArray[np.float32]:
        return x.float().cpu().numpy()

    def placed(output: Slots) -> IntArray:
        found = find_texts(output, mask, texts, lengths, scene.config, structure=video)
        return found.assignment[0].cpu().numpy()

    return {
        "StepFormer slots": (plain(slots), placed(own)),
        "ground-truth texts": (plain(direct), placed(no_slots(video))),
    }


def matched_phrases(scene: Scene, keep: float = 0.5) -> tuple[tuple[str, ...], IntArray, IntArray]:
    """Phrases of the drawn video, the slot each is matched with (-1 none), and the step each names (-1 none).

    keep: the share of each slot's 12 best similarities above the drop line, as in training.
    """
    own, _ = scene.drawn()
    number, row = scene.place
    batch = scene.trial.batches[number]
    count = len(scene.phrase_texts)
    if not count:
        return (), np.empty(0, np.int64), np.empty(0, np.int64)
    phrases, mask = batch.phrases[row : row + 1, :count], batch.phrase_mask[row : row + 1, :count]
    taken = match(cosines(own.slots, phrases), mask, keep, 12)[0]  # (K, L)
    slot = torch.where(taken.any(0), taken.to(torch.uint8).argmax(0), -1).cpu().numpy()
    return scene.phrase_texts, slot, batch.phrase_steps[row, :count].cpu().numpy()


def figure_notes(scene: Scene, paths: Sequence[Path]) -> Mapping[str, object]:
    """What the figures show, for the command's JSON."""
    return {"task": scene.task, "video": scene.video, "files": [str(path) for path in paths], "simulated": True}
