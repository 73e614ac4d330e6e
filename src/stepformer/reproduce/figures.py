"""The paper's figures on one task: what all methods find against the truth, where slots look, how they align.

The videos are those of one task of a split, simulated or real. The video that is drawn is the one of median zero-shot
IoU under the model (of median F1 where there are no step texts), unless another is asked for: neither best nor worst.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from stepformer.app.discover.loading import checkpoint_file
from stepformer.base.files import replacing
from stepformer.core.checkpoint import load_checkpoint
from stepformer.core.inference import find_texts, no_slots
from stepformer.core.losses import LossConfig, cosines, match
from stepformer.core.model import Slots
from stepformer.core.options import InferenceConfig
from stepformer.data.simulator import Batch
from stepformer.errors import UsageError
from stepformer.evaluation.metrics import IntArray, matched
from stepformer.evaluation.table1 import cluster_segments
from stepformer.evaluation.validation import FULL, Trial, locate_units, task_steps
from stepformer.reproduce.methods import Method, Stage, answer, first_options
from stepformer.reproduce.sources import Source, Words
from stepformer.show.export.pictures import UNMATCHED, bar, color, draw_alignment, text_of

PUBLISHED = (("kukleva", "Kukleva et al."), ("elhamifar", "Elhamifar et al."), ("shen", "Shen et al."))
_UPDATES = 500  # of a published method: enough for a picture


@dataclass(frozen=True, slots=True)
class Scene:
    """One task's videos as methods see them, one in each batch; which of them is drawn, and the words beside it."""

    stage: Stage
    words: Words
    video: int
    simulated: bool
    loss: LossConfig  # that the model was trained with

    @property
    def config(self) -> InferenceConfig:
        """The options that the model brings."""
        return InferenceConfig.from_dict(dict(self.stage.inference or {}))

    def drawn(self) -> tuple[Slots, Trial]:
        """The slots and the trial of the drawn video alone, without padding."""
        batch, texts = self.stage.trial.batches[self.video], self.stage.trial.texts[self.video]
        output, n = self.stage.outputs[self.video], int(batch.video_mask.sum())
        one = batch._replace(**{name: getattr(batch, name)[:, :n] for name in ("video", "video_mask", "labels")})
        own = replace(self.stage.trial, batches=[one], texts=[texts[:, : int((one.steps >= 0).sum())]])
        return Slots(output.slots, output.frames[:, :n], None), own


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
    stage = Stage(_only(whole, own), source.has_texts, 0, device, loaded.model, asdict(loaded.inference))
    video = median_video(stage)
    trained = loaded.provenance.get("config", {}).get("loss", {})
    loss = LossConfig(**{name: trained[name] for name in ("keep", "best_per_slot") if name in trained})
    return Scene(stage, source.words(split, int(own[video]), whole), video, not source.real, loss)


def _only(trial: Trial, members: IntArray) -> Trial:
    """Some videos of a trial, one in each batch."""
    places = [(number, row) for number, batch in enumerate(trial.batches) for row in range(len(batch.video))]
    picked = [(number, slice(row, row + 1)) for number, row in (places[i] for i in members)]
    batches = [Batch(*(value[row] for value in trial.batches[number])) for number, row in picked]
    texts = [trial.texts[number][row] for number, row in picked]
    cutting = trial.cutting and [trial.cutting[number][row] for number, row in picked]
    return replace(
        trial, batches=batches, texts=texts, tasks=trial.tasks[members], kinds=trial.kinds[members], cutting=cutting
    )


def median_video(stage: Stage) -> int:
    """The video of median IoU under the model, or the middle one where there are no texts."""
    made = answer(Method("slots", rule="own"), stage)
    if made.locate is None:
        return len(stage.trial.tasks) // 2
    ious = locate_units(stage.trial, made.locate(first_options(made)["locate"]))[:, 0]
    return int(np.argsort(ious)[len(ious) // 2])


def draw_figures(scene: Scene, out: Path, published: bool = True) -> list[Path]:
    """All figures of a scene as PNG files; ``published``: also methods that are fitted on the task's videos."""
    out.mkdir(parents=True, exist_ok=True)
    where = f"{scene.words.task}, video {scene.video} ({'simulated' if scene.simulated else 'real'} features)"
    slots, own = scene.drawn()
    names, truth = list(scene.words.instances), scene.stage.trial.task_labels()[scene.video]
    drawn = [out / "timelines.png", out / "alignment.png"]
    draw_timelines(drawn[0], timelines(scene, published), truth, scene.words.steps, where)
    draw_alignment(drawn[1], slots, own.batches[0], scene.config, title=f"slots and frames: {where}", names=names)
    if scene.stage.has_texts:
        drawn.append(out / "attention.png")
        draw_attention(drawn[-1], attention(scene), own.labels()[0], names, where)
    if scene.words.phrases:
        drawn.append(out / "phrases.png")
        draw_phrases(drawn[-1], *matched_phrases(scene), where)
    return drawn


def timelines(scene: Scene, published: bool) -> dict[str, IntArray]:
    """What each method finds in the drawn video, in step numbers of the task; -1 none, -2 a cluster without a step.

    Clusters become steps by the Hungarian matching of the whole task, as Table 1 scores them. Nothing is chosen here.
    """
    trial = scene.stage.trial
    rows = {"uniform": Method("uniform"), "K-means": Method("kmeans")}
    narrated = all(bool(batch.phrase_mask.any()) for batch in trial.batches)
    rows |= {
        label: Method(name, setting="weak", rule="own", updates=_UPDATES)
        for name, label in PUBLISHED
        if published and (name != "shen" or narrated)
    }
    rows |= {"pooled32": Method("pooled", rule="own"), "StepFormer": Method("slots", rule="own")}
    labels, out = trial.task_labels(), {}
    for label, method in rows.items():
        made = answer(method, scene.stage)
        assert made.discover is not None
        found, vectors = made.discover(first_options(made)["discover"])
        if vectors is not None:
            found = cluster_segments(found, vectors, task_steps(trial, np.arange(len(found))), 0, FULL)
        out[label] = matched(found, labels)[scene.video]
    return out


def attention(scene: Scene) -> dict[str, tuple[npt.NDArray[np.float32], IntArray]]:
    """For slots and for ground-truth texts: similarity (M, N) of each step with the frames, and what it localises."""
    slots, own = scene.drawn()
    batch, texts = own.batches[0], own.texts[0]
    lengths = torch.tensor([texts.shape[1]], device=texts.device)
    out = {}
    config = replace(scene.config, text_share=0.0)  # each step by the slot it took alone
    structure = own.structure(0)
    for name, rows in (("StepFormer slots", slots), ("ground-truth texts", no_slots(batch.video))):
        found = find_texts(rows, batch.video_mask, texts, lengths, config, structure=structure, rate_hz=own.rate_hz)
        out[name] = (found.similarity[0].float().cpu().numpy(), found.assignment[0].cpu().numpy())
    return out


def matched_phrases(scene: Scene) -> tuple[tuple[str, ...], IntArray, IntArray]:
    """Phrases of the drawn video, the slot each is matched with (-1 none), and the step each names (-1 not known)."""
    slots, own = scene.drawn()
    batch, count = own.batches[0], len(scene.words.phrases)
    similarity, mask = cosines(slots.slots, batch.phrases[:, :count]), batch.phrase_mask[:, :count]
    taken = match(similarity, mask, scene.loss.keep, scene.loss.best_per_slot)[0]  # (K, L)
    slot = torch.where(taken.any(0), taken.to(torch.uint8).argmax(0), -1).cpu().numpy()
    return scene.words.phrases, slot, batch.phrase_steps[0, :count].cpu().numpy()


# -- drawing, with Matplotlib and the product's colours ------------------------------------------------------------


def _figure(height_in: float) -> Any:
    from matplotlib.figure import Figure

    return Figure(figsize=(12.0, height_in), layout="constrained")


def _save(figure: Any, path: Path) -> None:
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=110)


def _legend(figure: Any, names: Sequence[str], grey: bool = False) -> None:
    from matplotlib.patches import Patch

    handles = [Patch(facecolor=color(i), label=f"{i + 1} {name}"[:48]) for i, name in enumerate(names)]
    if grey:
        handles.append(Patch(facecolor=UNMATCHED, label="a cluster that matches no step"))
    figure.legend(handles=handles, loc="outside lower left", ncols=3, fontsize=8, frameon=False)


def draw_timelines(
    path: Path, found: Mapping[str, IntArray], truth: IntArray, step_names: Sequence[str], where: str
) -> None:
    """One bar per method over the truth."""
    rows = [*found.items(), ("ground truth", truth)]
    figure = _figure(0.46 * len(rows) + 0.2 * (len(step_names) // 3 + 1) + 1.0)
    axes = figure.subplots(len(rows), 1, sharex=True, squeeze=False)[:, 0]
    for axis, (name, labels) in zip(axes, rows, strict=True):
        bar(axis, labels, name)
        axis.tick_params(axis="x", length=0)
    axes[-1].tick_params(axis="x", length=3)
    axes[-1].set_xlabel("seconds")
    figure.suptitle(f"Steps found without labels: {where}", fontsize=10)
    _legend(figure, step_names, grey=any((labels == -2).any() for labels in found.values()))
    _save(figure, path)


def draw_attention(
    path: Path,
    shown: Mapping[str, tuple[npt.NDArray[np.float32], IntArray]],
    truth: IntArray,
    names: Sequence[str],
    where: str,
) -> None:
    """Columns: slots, texts; rows: similarity of each step over time, what is localised from it, the truth."""
    figure = _figure(4.4 + 0.2 * (len(names) // 3 + 1))
    axes = figure.subplots(3, len(shown), height_ratios=(6, 1, 1), sharex=True, squeeze=False)
    for column, (name, (similarity, found)) in enumerate(shown.items()):
        top = axes[0, column]
        for step, values in enumerate(similarity):
            # what stands out over time, not the level, says where a step is seen
            weight = np.convolve(np.ones_like(values), np.ones(5), "same")  # a running mean for the eye
            smooth = np.convolve(values - values.mean(), np.ones(5), "same") / weight
            top.plot(smooth, color=color(step), linewidth=1.3)
        top.set_title(name, fontsize=10)
        top.set_ylabel("similarity, above its mean" if column == 0 else "")
        top.spines[["top", "right"]].set_visible(False)
        bar(axes[1, column], found, "localised" if column == 0 else "")
        bar(axes[2, column], truth, "truth" if column == 0 else "")
        axes[2, column].set_xlabel("seconds")
    figure.suptitle(f"Where each step is seen, steps given: {where}", fontsize=10)
    _legend(figure, names)
    _save(figure, path)


def draw_phrases(path: Path, texts: Sequence[str], slots: IntArray, steps: IntArray, where: str) -> None:
    """Phrases in order; bold where a slot is matched, its number behind; a dot before those that name a step."""
    columns = 2 if len(texts) > 14 else 1
    rows = max(1, -(-len(texts) // columns))
    figure = _figure(0.26 * rows + 1.1)
    axis = figure.subplots()
    axis.set(xlim=(0, 1), ylim=(rows + 0.2, -0.4))
    axis.axis("off")
    for i, (text, slot, step) in enumerate(zip(texts, slots.tolist(), steps.tolist(), strict=True)):
        x, y = (i // rows) / columns, i % rows + 0.5
        if step >= 0:
            axis.plot(x + 0.006, y, "o", color=color(step), markersize=6)
        shown, style = text_of(text), {"color": "#8a919c"}
        if slot >= 0:
            shown, style = f"{shown}  ({slot + 1})", {"color": "#1b1e24", "weight": "bold"}
        axis.text(x + 0.018, y, shown, va="center", fontsize=9, **style)
    figure.suptitle(f"Narration: {where}", fontsize=10)
    right = int(((slots >= 0) & (steps >= 0)).sum())
    note = (
        f"Bold: matched with a slot (its number behind). Dot: really names a step. {int((slots >= 0).sum())} of "
        f"{len(texts)} phrases are matched, {right} of the {int((steps >= 0).sum())} that name a step."
    )
    axis.text(0, rows + 0.1, note, fontsize=8, va="top")
    _save(figure, path)


def learning_curves(path: Path, curves: Mapping[str, Sequence[Sequence[tuple[int, float]]]]) -> None:
    """One panel per method, one line per fitted model: the mean loss by number of updates, relative to the first."""
    figure = _figure(3.0)
    axes = figure.subplots(1, len(curves), sharey=True, squeeze=False)[0]
    for axis, (name, models) in zip(axes, curves.items(), strict=True):
        for points in models:
            updates, losses = np.array(points, float).T
            axis.plot(updates, losses / losses[0], linewidth=0.8, alpha=0.6, color=color(0))
        axis.set(title=name, xlabel="updates")
        axis.set_ylim(bottom=min(0.0, *axis.get_ylim()))
    axes[0].set_ylabel("loss, relative to the first mean")
    _save(figure, path)
