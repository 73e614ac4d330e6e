"""PNG, SVG or PDF of a timeline: the steps as a bar over time, their names, and the similarity map behind them.

Matplotlib draws it without a display; nothing outside this module knows of Matplotlib.
"""

from __future__ import annotations

import warnings
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import numpy.typing as npt

from stepformer.base.progress import clock
from stepformer.errors import InputError
from stepformer.show.palette import step_colors
from stepformer.show.writing import lanes, one_line, spans, stamp, step_name, ticks
from stepformer.timeline import Timeline

_WIDTH_IN = 12.0
_ROW_IN = 0.26  # a name
_MAX_NAME = 60  # characters
# DejaVu comes with Matplotlib; the others are used for what it lacks, where the system has them
_FONTS = ["DejaVu Sans", "Noto Sans CJK SC", "Noto Sans CJK JP", "WenQuanYi Zen Hei", "PingFang SC", "Hiragino Sans",
          "Microsoft YaHei", "Malgun Gothic", "Noto Sans Devanagari", "Noto Emoji", "Arial Unicode MS"]  # fmt: skip


def save_plot(
    timeline: Timeline,
    path: str | Path,
    similarity: npt.ArrayLike | None = None,
    title: str | None = None,
) -> None:
    """Writes the picture to ``path``, in the format of its suffix.

    ``similarity`` (K, N): steps or slots against frames spread evenly over the video, drawn as a map.
    """
    matrix = check_similarity(similarity)
    end_s = max(timeline.duration_s or max((step.end_s for step in timeline), default=0.0), 1e-3)
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    names = [f"{i + 1}  {_short(step_name(step, i))}" for i, step in enumerate(timeline)]
    heights = [0.5, max(0.3, _ROW_IN * len(timeline))]
    if matrix is not None:
        heights.insert(1, min(4.0, max(1.2, 0.11 * len(matrix))))
    look: Any = {"font.family": _installed(_FONTS), "font.size": 9, "svg.fonttype": "none"}
    with rc_context(look), warnings.catch_warnings():
        # a glyph that no installed font has is drawn as a box; that is not worth a warning a character
        warnings.filterwarnings("ignore", message=".*[Gg]lyph.*")
        figure = Figure(figsize=(_WIDTH_IN, sum(heights) + 1.0), layout="constrained")
        axes = figure.subplots(len(heights), 1, sharex=True, height_ratios=heights, squeeze=False)[:, 0]
        _draw_bar(axes[0], timeline)
        if matrix is not None:
            _draw_map(figure, axes[1], matrix, timeline, end_s)
        _draw_names(axes[-1], timeline, names, end_s)
        axes[-1].set_xlim(0, end_s)
        marks = ticks(end_s, 12)
        axes[-1].set_xticks(marks, [clock(mark) for mark in marks])
        # "$" would begin a formula
        axes[0].set_title(_plain(_short(title or PurePath(timeline.video).name)), loc="left", fontweight="bold")
        suffix = Path(path).suffix.lower()
        note = {"Description": stamp(timeline)} if suffix in (".png", ".svg") else {}
        figure.savefig(path, dpi=150, metadata=note)


def check_similarity(similarity: npt.ArrayLike | None) -> npt.NDArray[np.float64] | None:
    """The map as float (K, N); None where there is none or it is empty."""
    if similarity is None:
        return None
    given = np.asarray(similarity)
    if given.dtype.kind not in "biuf":
        raise InputError(f"a similarity map is made of numbers, not of {given.dtype}")
    matrix = given.astype(np.float64)
    if matrix.ndim != 2:
        raise InputError(f"a similarity map is (steps, frames), got an array of shape {matrix.shape}")
    if not matrix.size:
        return None
    if not np.isfinite(matrix).all():
        row, column = np.argwhere(~np.isfinite(matrix))[0]
        raise InputError(f"the similarity map has a value that is no number, first at row {row}, column {column}")
    return matrix


def _draw_bar(axis: Any, timeline: Timeline) -> None:
    colors = step_colors(timeline)
    depth = lanes(spans(timeline, 1000))
    tall = 0.86 / (max(depth, default=0) + 1)  # overlapping steps share the row
    for i, step in enumerate(timeline):
        bottom = -0.43 + depth[i] * tall
        axis.broken_barh([(step.start_s, step.duration_s)], (bottom, tall), facecolor=colors[i], edgecolor="white")
        axis.text(
            (step.start_s + step.end_s) / 2, bottom + tall / 2, str(i + 1),
            ha="center", va="center", fontsize=8, clip_on=True,
        )  # fmt: skip
    axis.set_ylim(-0.5, 0.5)
    axis.set_yticks([])
    axis.set_facecolor("#eef0f3")
    axis.tick_params(length=0, labelbottom=False)
    axis.spines[:].set_visible(False)


def _draw_map(figure: Any, axis: Any, matrix: npt.NDArray[np.float64], timeline: Timeline, end_s: float) -> None:
    low, high = np.quantile(matrix, [0.02, 0.995])
    image = axis.imshow(
        matrix, aspect="auto", interpolation="nearest", cmap="magma", vmin=low, vmax=max(high, low + 1e-9),
        extent=(0, end_s, len(matrix) - 0.5, -0.5),
    )  # fmt: skip
    colors = step_colors(timeline)
    for i, step in enumerate(timeline):
        row = step.slot if step.slot is not None else i
        if 0 <= row < len(matrix):
            axis.plot([step.start_s, step.end_s], [row, row], color=colors[i], linewidth=2, solid_capstyle="butt")
    axis.set_ylabel("slot" if any(step.slot is not None for step in timeline) else "row")
    axis.tick_params(labelbottom=False, bottom=False)
    figure.colorbar(image, ax=axis, label="similarity", pad=0.01, aspect=12)


def _draw_names(axis: Any, timeline: Timeline, names: list[str], end_s: float) -> None:
    for i, (step, color) in enumerate(zip(timeline, step_colors(timeline), strict=True)):
        axis.broken_barh([(step.start_s, max(step.duration_s, end_s / 500))], (-i - 0.4, 0.8), facecolor=color)
        # the name stands behind its bar, or before it where there is more room
        behind = step.end_s < end_s * 0.6
        at = step.end_s + end_s * 0.006 if behind else step.start_s - end_s * 0.006
        axis.text(at, -i, _plain(names[i]), ha="left" if behind else "right", va="center", clip_on=True)
    axis.set_ylim(-max(1, len(timeline)) + 0.5, 0.5)
    axis.set_yticks([])
    axis.grid(axis="x", color="#dddddd", linewidth=0.6)
    axis.set_axisbelow(True)
    axis.spines[["top", "right", "left"]].set_visible(False)


def _short(text: str) -> str:
    text = one_line(text)
    return text if len(text) <= _MAX_NAME else text[: _MAX_NAME - 1].rstrip() + "…"


def _plain(text: str) -> str:
    return text.replace("$", r"\$")


def _installed(families: list[str]) -> list[str]:
    """Those of ``families`` that the system has; Matplotlib complains of each it does not find."""
    from matplotlib import font_manager

    have = {font.name for font in font_manager.fontManager.ttflist}
    return [name for name in families if name in have] or ["DejaVu Sans"]
