"""Small pictures of what the benchmarks measured: times against a size, beside a straight line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple


class Curve(NamedTuple):
    """Times against one size, all else being equal."""

    size: str  # what changes
    points: Sequence[tuple[float, float]]  # (size, ms)


def draw(curves: Sequence[Curve], path: Path, title: str) -> None:
    """One panel per curve on logarithmic axes; the dashed line goes through the last point and is proportional."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    from stepformer.base.files import replacing

    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "stepformer", "font.size": 9}):
        figure = Figure(figsize=(2.6 * len(curves), 2.6), layout="constrained")
        figure.suptitle(title, fontsize=9)
        for number, curve in enumerate(curves):
            sizes, times = zip(*sorted(curve.points), strict=True)
            axis = figure.add_subplot(1, len(curves), number + 1)
            axis.plot(sizes, times, marker="o", color="#1f5fa8")
            axis.plot(sizes, [times[-1] * size / sizes[-1] for size in sizes], linestyle="--", color="#8a8f98")
            axis.set(xscale="log", yscale="log", xlabel=curve.size)
            axis.set_xticks(sizes, [f"{size:g}" for size in sizes])
            axis.minorticks_off()
            ticks = sorted({float(f"{time:.2g}") for time in times})
            axis.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
            if number == 0:
                axis.set_ylabel("ms")
        with replacing(path) as temporary:
            figure.savefig(temporary, format=path.suffix.lstrip(".").lower() or "svg", metadata={"Date": None})
