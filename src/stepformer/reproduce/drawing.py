"""How the figures of :mod:`stepformer.reproduce.figures` are drawn, with Matplotlib and the product's colours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from stepformer.base.files import replacing
from stepformer.show.export.pictures import UNMATCHED, bar, color, text_of

IntArray = npt.NDArray[np.int64]

_WIDTH_IN = 12.0
_DPI = 110


def _figure(height_in: float) -> Any:
    from matplotlib.figure import Figure

    return Figure(figsize=(_WIDTH_IN, height_in), layout="constrained")


def _save(figure: Any, path: Path) -> None:
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=_DPI)


def _legend(figure: Any, names: Sequence[str], grey: bool = False) -> None:
    from matplotlib.patches import Patch

    handles = [Patch(facecolor=color(i), label=f"{i + 1} {name}"[:48]) for i, name in enumerate(names)]
    if grey:
        handles.append(Patch(facecolor=UNMATCHED, label="a cluster that matches no step"))
    figure.legend(handles=handles, loc="outside lower left", ncols=3, fontsize=8, frameon=False)


def timelines(
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


def attention(
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
            top.plot(_smooth(values - values.mean()), color=color(step), linewidth=1.3)
        top.set_title(name, fontsize=10)
        top.set_ylabel("similarity, above its mean" if column == 0 else "")
        top.spines[["top", "right"]].set_visible(False)
        bar(axes[1, column], found, "localised" if column == 0 else "")
        bar(axes[2, column], truth, "truth" if column == 0 else "")
        axes[2, column].set_xlabel("seconds")
    figure.suptitle(f"Where each step is seen, steps given: {where}", fontsize=10)
    _legend(figure, names)
    _save(figure, path)


def _smooth(values: npt.NDArray[np.float32], window: int = 5) -> npt.NDArray[np.float32]:
    """A running mean for the eye; ends keep their own frames."""
    weight = np.convolve(np.ones_like(values), np.ones(window), "same")
    return np.asarray(np.convolve(values, np.ones(window), "same") / weight, np.float32)


def phrases(path: Path, texts: Sequence[str], slots: IntArray, steps: IntArray, where: str) -> None:
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
    """One panel per method, one line per fitted model: the mean loss after so many updates, relative to the first."""
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
