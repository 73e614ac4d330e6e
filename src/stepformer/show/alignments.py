"""Pictures of what the model does with a simulated video: slots, alignment and truth, one above the other."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np

from stepformer.base.files import replacing
from stepformer.core.inference import InferenceConfig, find_steps, slot_similarity
from stepformer.core.model import Slots
from stepformer.data.simulator import Batch
from stepformer.show.palette import STEP_COLORS

UNMATCHED, _NOTHING = "#b9bec7", "#eef0f3"


def draw_alignment(
    path: Path, output: Slots, batch: Batch, config: InferenceConfig, title: str = "", names: list[str] | None = None
) -> None:
    """Similarity of slots and frames with the aligned path on it, and below it found and true steps, as a PNG.

    The first video of the batch is drawn. ``names``: text of each step instance, written into the truth where it fits.
    """
    from matplotlib.figure import Figure

    n = int(batch.video_mask[0].sum())
    similarity = slot_similarity(output, batch.video_mask, config)[0, :, :n].float().cpu().numpy()
    found = find_steps(output, batch.video_mask, config, structure=batch.video).assignment[0, :n].cpu().numpy()
    truth = batch.labels[0, :n].cpu().numpy()
    figure = Figure(figsize=(11, 5.5), layout="constrained")
    axes = figure.subplots(3, 1, height_ratios=(6, 1, 1), sharex=True)
    axes[0].imshow(similarity, aspect="auto", cmap="magma", interpolation="nearest", extent=(0, n, len(similarity), 0))
    frames = np.flatnonzero(found >= 0)
    axes[0].scatter(frames + 0.5, found[frames] + 0.5, s=6, color="#35d0ba", linewidths=0, label="aligned")
    axes[0].set_ylabel("slot")
    axes[0].legend(loc="upper right", framealpha=0.9)
    axes[0].set_title(title)
    bar(axes[1], found, "found")
    bar(axes[2], truth, "true", names)
    axes[2].set_xlabel("seconds")
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=110)


def color(step: int) -> str:
    """The colour of a step; a cluster without a step is grey."""
    return UNMATCHED if step < 0 else STEP_COLORS[step % len(STEP_COLORS)]


def bar(axis: Any, labels: np.ndarray[Any, Any], name: str, texts: list[str] | None = None) -> None:
    """Runs of equal labels (N,) as coloured bars, -1 empty, -2 grey; in those that have room a number, or its text."""
    edges = np.flatnonzero(np.diff(labels, prepend=-9, append=-9))
    for start, end in itertools.pairwise(edges):
        label = int(labels[start])
        if label == -1:
            continue
        axis.broken_barh([(start, end - start)], (0, 1), facecolor=color(label), edgecolor="white", linewidth=0.4)
        if label >= 0 and end - start > (0.06 if texts else 0.018) * len(labels):
            shown = texts[label] if texts else str(label + 1)
            axis.text((start + end) / 2, 0.47, shown, ha="center", va="center", fontsize=7, color="#1b1e24", wrap=True)
    axis.set_facecolor(_NOTHING)
    axis.set_xlim(0, len(labels))
    axis.set_ylim(0, 1)
    axis.set_yticks([0.5], [name])
    axis.tick_params(axis="y", length=0)
    axis.spines[:].set_visible(False)
