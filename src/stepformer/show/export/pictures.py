"""Pictures drawn by Matplotlib, without a display: a timeline, a contact sheet, and what a model does with a video.

Matplotlib is imported where it is used: a training machine may not have it.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from stepformer.base.arrays import matrix
from stepformer.base.files import replacing
from stepformer.base.progress import clock
from stepformer.errors import UsageError
from stepformer.show.export import Options, need_media_file
from stepformer.show.writing import (
    STEP_COLORS,
    fit,
    lanes,
    one_line,
    spans,
    stamp,
    step_colors,
    step_name,
    ticks,
)
from stepformer.timeline import Timeline

if TYPE_CHECKING:
    from stepformer.core.model import Slots
    from stepformer.core.options import InferenceConfig
    from stepformer.data.simulator import Batch

UNMATCHED, _NOTHING = "#b9bec7", "#eef0f3"
_WIDTH_IN = 12.0
_ROW_IN = 0.26  # a name
_MAX_NAME = 60  # terminal cells
# DejaVu comes with Matplotlib; the others are used for what it lacks, where the system has them
_FONTS = ["DejaVu Sans", "Noto Sans CJK SC", "Noto Sans CJK JP", "WenQuanYi Zen Hei", "PingFang SC", "Hiragino Sans",
          "Microsoft YaHei", "Malgun Gothic", "Noto Sans Devanagari", "Noto Emoji", "Arial Unicode MS"]  # fmt: skip


@contextmanager
def look(size: float = 9) -> Iterator[None]:
    """Fonts for any script the system can show; a glyph that none has is drawn as a box, without a warning."""
    from matplotlib import font_manager, rc_context

    have = {font.name for font in font_manager.fontManager.ttflist}
    families = [name for name in _FONTS if name in have] or _FONTS[:1]  # Matplotlib complains of each that is not there
    style: Any = {"font.family": families, "font.size": size, "svg.fonttype": "none"}
    with rc_context(style), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*[Gg]lyph.*")
        yield


def text_of(name: str, cells: int = _MAX_NAME) -> str:
    """A name of at most ``cells`` terminal cells, as Matplotlib takes it: "$" would begin a formula."""
    return fit(one_line(name), cells).replace("$", r"\$")


def _described(timeline: Timeline, path: Path) -> dict[str, str] | None:
    """The provenance, for formats that have a place for it."""
    return {"Description": stamp(timeline)} if path.suffix.lower() in (".png", ".svg") else None


def _check_suffix(path: Path, what: str, suffixes: tuple[str, ...]) -> None:
    if path.suffix.lower() not in suffixes:
        raise UsageError(f"{what} is written as {', '.join(suffixes)}, not as {path.suffix or 'no suffix'}")


# -- a timeline --------------------------------------------------------------------------------------------------


def save_plot(timeline: Timeline, path: Path, options: Options) -> tuple[str, ...]:
    """PNG, SVG or PDF: the steps as a bar over time, their names, and the similarity map between them.

    ``options.similarity`` (K, N): steps or slots against frames spread evenly over the video.
    """
    from matplotlib.figure import Figure

    _check_suffix(path, "a plot", (".png", ".svg", ".pdf"))
    given = options.similarity
    similarity = None if given is None or not np.size(given) else matrix(given, "the similarity map")
    end_s = max(timeline.duration_s or max((step.end_s for step in timeline), default=0.0), 1e-3)
    heights = [0.5, max(0.3, _ROW_IN * len(timeline))]
    if similarity is not None:
        heights.insert(1, min(4.0, max(1.2, 0.11 * len(similarity))))
    with look():
        figure = Figure(figsize=(_WIDTH_IN, sum(heights) + 1.0), layout="constrained")
        axes = figure.subplots(len(heights), 1, sharex=True, height_ratios=heights, squeeze=False)[:, 0]
        _draw_bar(axes[0], timeline)
        if similarity is not None:
            _draw_map(figure, axes[1], similarity, timeline, end_s)
        _draw_names(axes[-1], timeline, end_s)
        axes[-1].set_xlim(0, end_s)
        marks = ticks(end_s, 12)
        axes[-1].set_xticks(marks, [clock(mark) for mark in marks])
        axes[0].set_title(text_of(options.title or PurePath(timeline.video).name), loc="left", fontweight="bold")
        figure.savefig(path, dpi=150, metadata=_described(timeline, path))
    return ()


def _draw_bar(axis: Any, timeline: Timeline) -> None:
    depth = lanes(spans(timeline, 1000))
    tall = 0.86 / (max(depth, default=0) + 1)  # overlapping steps share the row
    for i, (step, color) in enumerate(zip(timeline, step_colors(timeline), strict=True)):
        bottom = -0.43 + depth[i] * tall
        axis.broken_barh([(step.start_s, step.duration_s)], (bottom, tall), facecolor=color, edgecolor="white")
        middle = ((step.start_s + step.end_s) / 2, bottom + tall / 2)
        axis.text(*middle, str(i + 1), ha="center", va="center", fontsize=8, clip_on=True)
    axis.set_ylim(-0.5, 0.5)
    axis.set_yticks([])
    axis.set_facecolor(_NOTHING)
    axis.tick_params(length=0, labelbottom=False)
    axis.spines[:].set_visible(False)


def _draw_map(figure: Any, axis: Any, similarity: npt.NDArray[Any], timeline: Timeline, end_s: float) -> None:
    low, high = np.quantile(similarity, [0.02, 0.995])
    image = axis.imshow(
        similarity, aspect="auto", interpolation="nearest", cmap="magma", vmin=low, vmax=max(high, low + 1e-9),
        extent=(0, end_s, len(similarity) - 0.5, -0.5),
    )  # fmt: skip
    for i, (step, color) in enumerate(zip(timeline, step_colors(timeline), strict=True)):
        row = step.slot if step.slot is not None else i
        if 0 <= row < len(similarity):
            axis.plot([step.start_s, step.end_s], [row, row], color=color, linewidth=2, solid_capstyle="butt")
    axis.set_ylabel("slot" if any(step.slot is not None for step in timeline) else "row")
    axis.tick_params(labelbottom=False, bottom=False)
    figure.colorbar(image, ax=axis, label="similarity", pad=0.01, aspect=12)


def _draw_names(axis: Any, timeline: Timeline, end_s: float) -> None:
    for i, (step, color) in enumerate(zip(timeline, step_colors(timeline), strict=True)):
        axis.broken_barh([(step.start_s, max(step.duration_s, end_s / 500))], (-i - 0.4, 0.8), facecolor=color)
        # the name stands behind its bar, or before it where there is more room
        behind = step.end_s < end_s * 0.6
        at = step.end_s + end_s * 0.006 if behind else step.start_s - end_s * 0.006
        name = f"{i + 1}  {text_of(step_name(step, i))}"
        axis.text(at, -i, name, ha="left" if behind else "right", va="center", clip_on=True)
    axis.set_ylim(-max(1, len(timeline)) + 0.5, 0.5)
    axis.set_yticks([])
    axis.grid(axis="x", color="#dddddd", linewidth=0.6)
    axis.set_axisbelow(True)
    axis.spines[["top", "right", "left"]].set_visible(False)


# -- a contact sheet ---------------------------------------------------------------------------------------------

_THUMB, _GAP, _MARGIN, _CAPTION, _TITLE = 320, 18, 24, 52, 44  # pixels
_THUMB_CELLS = 36  # terminal cells of a name below a thumbnail
_SHEET_DPI = 100


def save_sheet(timeline: Timeline, path: Path, options: Options) -> tuple[str, ...]:
    """A contact sheet: one thumbnail per step, from its middle, with number, name and times, as PNG or JPEG."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle
    from matplotlib.transforms import IdentityTransform

    _check_suffix(path, "a contact sheet", (".png", ".jpg", ".jpeg"))
    source = need_media_file(timeline, options, "a contact sheet")
    pictures = step_pictures(source, timeline, _THUMB)
    tall = max((len(picture) for picture in pictures if picture is not None), default=round(_THUMB * 9 / 16))
    count = len(timeline)
    columns = max(1, min(5, math.ceil(math.sqrt(count))))
    rows = math.ceil(count / columns)
    wide = 2 * _MARGIN + columns * (_THUMB + _GAP) - _GAP
    high = 2 * _MARGIN + _TITLE + rows * (tall + _CAPTION + _GAP) - (_GAP if rows else 0)
    with look():
        figure = Figure(figsize=(wide / _SHEET_DPI, high / _SHEET_DPI), dpi=_SHEET_DPI)

        def put(left: float, top: float, text: str, size: float, cells: int) -> None:
            figure.text(left / wide, 1 - top / high, text_of(text, cells), va="top", fontsize=size)

        title = one_line(options.title or PurePath(timeline.video).name) or "Steps"
        put(_MARGIN, _MARGIN, f"{title}   {count} steps", 14, columns * 28)
        for i, (step, color, picture) in enumerate(zip(timeline, step_colors(timeline), pictures, strict=True)):
            left = _MARGIN + (i % columns) * (_THUMB + _GAP)
            top = _MARGIN + _TITLE + (i // columns) * (tall + _CAPTION + _GAP)
            if picture is not None:  # Matplotlib counts pixels from the bottom
                figure.figimage(picture, left, high - top - (tall + len(picture)) // 2)
            below = high - top - tall - 5
            figure.add_artist(Rectangle((left, below), _THUMB, 5, facecolor=color, transform=IdentityTransform()))
            put(left, top + tall + 10, f"{i + 1}  {step_name(step, i)}", 10.5, _THUMB_CELLS)
            put(left, top + tall + 32, f"{clock(step.start_s)} – {clock(step.end_s)}", 8.5, _THUMB_CELLS)
        figure.savefig(path, metadata=_described(timeline, path))
    return tuple(f"step {i + 1}: the video has no picture there" for i, found in enumerate(pictures) if found is None)


def step_pictures(source: Path, timeline: Timeline, width: int) -> list[npt.NDArray[np.uint8] | None]:
    """The picture (H, width, 3) in the middle of each step; None where the video has none."""
    from stepformer.media import VideoReader

    reader = VideoReader(source)
    height = min(max(2, round(width * reader.info.height / max(1, reader.info.width))), 4 * width)
    found = reader.pictures_at([(step.start_s + step.end_s) / 2 for step in timeline], (height, width), "fit")
    return [shown and shown[1] for shown in found]


# -- what a model does with a simulated video --------------------------------------------------------------------


def draw_alignment(
    path: Path, output: Slots, batch: Batch, config: InferenceConfig, title: str = "", names: list[str] | None = None
) -> None:
    """Similarity of slots and frames with the aligned path on it, and below it found and true steps, as a PNG.

    The first video of the batch is drawn. ``names``: text of each step instance, written into the truth where it fits.
    """
    from matplotlib.figure import Figure

    from stepformer.core.evidence import slot_similarity
    from stepformer.core.inference import find_steps

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


def bar(axis: Any, labels: npt.NDArray[Any], name: str, texts: list[str] | None = None) -> None:
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
