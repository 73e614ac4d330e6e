"""The paper's figures on one task: what all methods find against the truth, where slots look, how they align.

The videos are those of one task of a split, simulated or real. The video that is drawn is the one of median zero-shot
IoU under the model (of median F1 where there are no step texts), unless another is asked for: neither best nor worst.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from stepformer.app.discover.loading import checkpoint_file
from stepformer.core.checkpoint import load_checkpoint
from stepformer.core.inference import InferenceConfig, find_texts, no_slots
from stepformer.core.losses import cosines, match
from stepformer.core.model import Slots
from stepformer.errors import UsageError
from stepformer.evaluation.metrics import rename_ids, score_task
from stepformer.evaluation.table1 import cluster_segments
from stepformer.evaluation.validation import FULL, Trial, locate_units, task_steps
from stepformer.reproduce import drawing
from stepformer.reproduce.methods import Method, Stage, answer, first_options
from stepformer.reproduce.sources import Source, Words
from stepformer.show.export.pictures import draw_alignment

IntArray = npt.NDArray[np.int64]

PUBLISHED = (("kukleva", "Kukleva et al."), ("elhamifar", "Elhamifar et al."), ("shen", "Shen et al."))
_UPDATES = 500  # of a published method: enough for a picture


@dataclass(frozen=True, slots=True)
class Scene:
    """One task's videos as methods see them, one in each batch; which of them is drawn, and the words beside it."""

    stage: Stage
    words: Words
    video: int
    simulated: bool

    @property
    def config(self) -> InferenceConfig:
        """The options that the model brings."""
        return InferenceConfig.from_dict(dict(self.stage.inference or {}))

    def drawn(self) -> tuple[Slots, Trial]:
        """The slots and the trial of the drawn video alone, without padding."""
        batch, texts = self.stage.trial.batches[self.video], self.stage.trial.texts[self.video]
        output, n = self.stage.outputs()[self.video], int(batch.video_mask.sum())
        one = batch._replace(**{name: getattr(batch, name)[:, :n] for name in ("video", "video_mask", "labels")})
        own = replace(self.stage.trial, batches=[one], texts=[texts[:, : int((one.steps >= 0).sum())]])
        seen = None if output.video is None else output.video[:, :n]
        return Slots(output.slots, output.frames[:, :n], None, seen), own


def make_scene(source: Source, checkpoint: str, split: str = "test", task: int = 0, device: str = "cpu") -> Scene:
    """The videos of the ``task``-th task of a split, and the model on them."""
    if split not in source.datasets:
        raise UsageError(f"there is no split {split!r}; there are {', '.join(source.datasets)}")
    whole = source.trial(split, 0)
    tasks = np.unique(whole.tasks)
    if not 0 <= task < len(tasks):
        raise UsageError(f"the split {split} has tasks 0 to {len(tasks) - 1}, not {task}")
    own = np.flatnonzero(whole.tasks == tasks[task])
    loaded = load_checkpoint(checkpoint_file(checkpoint), device)
    stage = Stage(_only(whole, own), source.has_texts, 0, device, loaded.model, loaded.inference.to_dict())
    video = median_video(stage)
    return Scene(stage, source.words(split, int(own[video]), whole), video, not source.real)


def _only(trial: Trial, members: IntArray) -> Trial:
    """Some videos of a trial, one in each batch."""
    batches, texts = [], []
    for i in members.tolist():
        batch, row = trial.find(i)
        number = next(n for n, b in enumerate(trial.batches) if b is batch)
        batches.append(batch._replace(**{name: value[row : row + 1] for name, value in batch._asdict().items()}))
        texts.append(trial.texts[number][row : row + 1])
    return replace(trial, batches=batches, texts=texts, tasks=trial.tasks[members], kinds=trial.kinds[members])


def median_video(stage: Stage) -> int:
    """The video of median IoU under the model, or the middle one where there are no texts."""
    made = answer(Method("slots", rule="own"), stage)
    if made.locate is None:
        return len(stage.trial.tasks) // 2
    ious = locate_units(stage.trial, made.locate(first_options(made)["locate"]))[:, 0]
    return int(np.argsort(ious)[len(ious) // 2])


def draw_figures(scene: Scene, out: Path, fit: Sequence[str] = ("kukleva", "elhamifar", "shen")) -> list[Path]:
    """All figures of a scene as PNG files; ``fit``: published methods to fit on the task's videos."""
    out.mkdir(parents=True, exist_ok=True)
    where = f"{scene.words.task}, video {scene.video} ({'simulated' if scene.simulated else 'real'} features)"
    slots, own = scene.drawn()
    names, truth = list(scene.words.instances), scene.stage.trial.task_labels()[scene.video]
    drawn = [out / "timelines.png", out / "alignment.png"]
    drawing.timelines(drawn[0], timelines(scene, fit), truth, scene.words.steps, where)
    draw_alignment(drawn[1], slots, own.batches[0], scene.config, title=f"slots and frames: {where}", names=names)
    if scene.stage.has_texts:
        drawn.append(out / "attention.png")
        drawing.attention(drawn[-1], attention(scene), own.labels()[0], names, where)
    if scene.words.phrases:
        drawn.append(out / "phrases.png")
        drawing.phrases(drawn[-1], *matched_phrases(scene), where)
    return drawn


def timelines(scene: Scene, fit: Sequence[str]) -> dict[str, IntArray]:
    """What each method finds in the drawn video, in step numbers of the task; -1 none, -2 a cluster without a step.

    Clusters become steps by the Hungarian matching of the whole task, as Table 1 scores them. Nothing is chosen here.
    """
    trial = scene.stage.trial
    rows = {"uniform": Method("uniform"), "K-means": Method("kmeans")}
    narrated = all(bool(batch.phrase_mask.any()) for batch in trial.batches)
    rows |= {
        label: Method(name, setting="weak", rule="own", updates=_UPDATES)
        for name, label in PUBLISHED
        if name in fit and (name != "shen" or narrated)
    }
    rows |= {"pooled32": Method("pooled", rule="own"), "StepFormer": Method("slots", rule="own")}
    labels, out = trial.task_labels(), {}
    for label, method in rows.items():
        made = answer(method, scene.stage)
        assert made.discover is not None
        found, vectors = made.discover(first_options(made)["discover"])
        if vectors is not None:
            found = cluster_segments(found, vectors, task_steps(trial, np.arange(len(found))), 0, FULL)
        out[label] = named(found, labels)[scene.video]
    return out


def named(clusters: Sequence[IntArray], labels: Sequence[IntArray]) -> list[IntArray]:
    """Clusters renamed to the steps they are matched with over all videos; -2 where a cluster has none."""
    matches = dict(score_task(clusters, labels).matches)
    return [rename_ids(ids, lambda i: matches.get(i, -2)) for ids in clusters]


def attention(scene: Scene) -> dict[str, tuple[npt.NDArray[np.float32], IntArray]]:
    """For slots and for ground-truth texts: similarity (M, N) of each step with the frames, and what it localises."""
    slots, own = scene.drawn()
    batch, texts = own.batches[0], own.texts[0]
    lengths = torch.tensor([texts.shape[1]], device=texts.device)
    out = {}
    for name, rows in (("StepFormer slots", slots), ("ground-truth texts", no_slots(batch.video))):
        found = find_texts(
            rows, batch.video_mask, texts, lengths, scene.config, structure=batch.video, rate_hz=own.rate_hz
        )
        out[name] = (found.similarity[0].float().cpu().numpy(), found.assignment[0].cpu().numpy())
    return out


def matched_phrases(scene: Scene, keep: float = 0.5) -> tuple[tuple[str, ...], IntArray, IntArray]:
    """Phrases of the drawn video, the slot each is matched with (-1 none), and the step each names (-1 not known).

    keep: the share of each slot's 12 best similarities above the drop threshold, as in training.
    """
    slots, own = scene.drawn()
    batch, count = own.batches[0], len(scene.words.phrases)
    taken = match(cosines(slots.slots, batch.phrases[:, :count]), batch.phrase_mask[:, :count], keep, 12)[0]  # (K, L)
    slot = torch.where(taken.any(0), taken.to(torch.uint8).argmax(0), -1).cpu().numpy()
    return scene.words.phrases, slot, batch.phrase_steps[0, :count].cpu().numpy()
