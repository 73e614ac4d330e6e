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


def draw_alignment(
    path: Path, output: Slots, batch: Batch, config: InferenceConfig, title: str = "", names: list[str] | None = None
) -> None:
    """Similarity of slots and frames with the aligned path on it, and below it found and true steps, as a PNG.

    The first video of the batch is drawn. ``names``: text of each step instance, written into the truth where it fits.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    n = int(batch.video_mask[0].sum())
    similarity = slot_similarity(output, batch.video_mask, config)[0, :, :n].float().cpu().numpy()
    found = find_steps(output, batch.video_mask, config, structure=batch.video).assignment[0, :n].cpu().numpy()
    truth = batch.labels[0, :n].cpu().numpy()
    figure, axes = plt.subplots(
        3, 1, figsize=(11, 5.5), height_ratios=(6, 1, 1), sharex=True, layout="constrained"
    )  # fmt: skip
    axes[0].imshow(similarity, aspect="auto", cmap="magma", interpolation="nearest", extent=(0, n, len(similarity), 0))
    frames = np.flatnonzero(found >= 0)
    axes[0].scatter(frames + 0.5, found[frames] + 0.5, s=6, color="#35d0ba", linewidths=0, label="aligned")
    axes[0].set_ylabel("slot")
    axes[0].legend(loc="upper right", framealpha=0.9)
    axes[0].set_title(title)
    _bar(axes[1], found, "found", None)
    _bar(axes[2], truth, "true", names)
    axes[2].set_xlabel("seconds")
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=110)
    plt.close(figure)


def _bar(axis: Any, labels: np.ndarray[Any, Any], name: str, names: list[str] | None) -> None:
    """Runs of equal labels as coloured bars; -1 is empty."""
    import matplotlib as mpl

    colours = mpl.colormaps["tab20"]
    edges = np.flatnonzero(np.diff(labels, prepend=-2, append=-2))
    for start, end in itertools.pairwise(edges):
        label = int(labels[start])
        if label >= 0:
            axis.broken_barh([(start, end - start)], (0, 1), color=colours(label % 20))
            if names and end - start > 0.06 * len(labels):
                axis.text((start + end) / 2, 0.5, names[label], ha="center", va="center", fontsize=6, wrap=True)
    axis.set_yticks([])
    axis.set_ylabel(name, rotation=0, ha="right", va="center")
    axis.set_xlim(0, len(labels))
    axis.set_ylim(0, 1)
