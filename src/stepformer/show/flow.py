"""The flow of a procedure as a graph: Mermaid text, and a picture.

Nodes are the common steps in their order; an edge says how often one comes right after the other. Edges that fewer than
``LEAST`` of the cases take are left out, except where a step would have no way in or out.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from stepformer.app.procedure.records import FloatArray, Procedure
from stepformer.show.palette import STEP_COLORS
from stepformer.show.writing import one_line

LEAST = 0.15
_MAX_NAME = 48


def edges(procedure: Procedure, least: float = LEAST) -> list[tuple[int, int, float, int]]:
    """(from, to, share of the ways out of from, count); -1 is the start, C the end."""
    follows = procedure.follows
    out_of = follows.sum(1, keepdims=True)
    share: FloatArray = np.where(out_of > 0, follows / np.maximum(out_of, 1), 0.0)
    kept = share >= least
    for row in range(len(follows)):
        if follows[row].any():
            kept[row, int(follows[row].argmax())] = True
    for column in range(len(follows)):
        if follows[:, column].any():
            kept[int(follows[:, column].argmax()), column] = True
    kept &= follows > 0
    return [
        (int(row) - 1, int(column), float(share[row, column]), int(follows[row, column]))
        for row, column in np.argwhere(kept)
    ]


def mermaid(procedure: Procedure, least: float = LEAST) -> str:
    """A Mermaid flowchart; GitHub, GitLab and Notion draw it from a ```mermaid block."""
    count = len(procedure.steps)
    lines = ["flowchart TD", "    start([start])"]
    for i, step in enumerate(procedure.steps):
        mark = " ?" if step.guess else ""
        text = _quoted(f"{i + 1}. {one_line(step.name)}{mark}")
        lines.append(f'    s{i + 1}["{text}<br/>{step.videos} of {len(procedure.timelines)} videos"]')
    lines.append("    finish([end])")

    def node(i: int) -> str:
        return "start" if i < 0 else "finish" if i == count else f"s{i + 1}"

    for a, b, share, _ in edges(procedure, least):
        # a solid arrow is the usual way, a dotted one goes some of the time
        arrow = "-->" if share >= 0.5 else "-.->"
        lines.append(f"    {node(a)} {arrow}|{share:.0%}| {node(b)}")
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    """Text inside a Mermaid string: its own entity codes, because a quote or a tag would end or enter it."""
    # "#" first: it begins the codes of the others
    for char, code in (("#", "#35;"), ('"', "#quot;"), ("<", "#lt;"), (">", "#gt;"), ("`", "#96;")):
        text = text.replace(char, code)
    return text


def save_flow(procedure: Procedure, path: str | os.PathLike[str], title: str | None = None) -> None:
    """The flow as a PNG, SVG or PDF (by suffix): steps from top to bottom, the usual way straight, others as arcs."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    from stepformer.base.files import replacing

    steps = procedure.steps
    count, total = len(steps), len(procedure.timelines)
    look: Any = {"font.size": 9, "svg.fonttype": "none"}
    with rc_context(look), replacing(path) as temporary:
        figure = Figure(figsize=(9.5, 0.72 * (count + 2) + 0.8), layout="constrained")
        axis = figure.subplots()
        axis.set_axis_off()
        found = edges(procedure)
        depth = _depths([(a, b) for a, b, _, _ in found if b != a + 1 and a != b])
        right = max((depth[arc] for arc in depth if arc[1] > arc[0]), default=-1)
        left = max((depth[arc] for arc in depth if arc[1] < arc[0]), default=-1)
        names = 0.9 + (0.75 * _reach(right) if right >= 0 else 0.0)
        axis.set_xlim(-0.8 - (0.75 * _reach(left) if left >= 0 else 0.0), names + 6.5)
        axis.set_ylim(-count - 1.5, 0.5)
        for i in range(-1, count + 1):
            _node(axis, procedure, i, total, names)
        for a, b, share, _ in found:
            _edge(axis, a, b, share, depth.get((a, b), 0))
        order = f"order kept in {procedure.consistency:.0%} of pairs"
        axis.set_title(
            f"{_plain(title) + ': ' if title else ''}{count} common steps of {total} videos, {order}",
            loc="left", fontweight="bold",
        )  # fmt: skip
        figure.savefig(temporary, dpi=150)


def _node(axis: Any, procedure: Procedure, i: int, total: int, names: float) -> None:
    from matplotlib.patches import FancyBboxPatch

    count = len(procedure.steps)
    if i in (-1, count):
        axis.text(0, -i - 1, "start" if i < 0 else "end", ha="center", va="center", color="#555555", fontsize=8,
                  bbox={"boxstyle": "round,pad=0.35", "facecolor": "#eef0f3", "edgecolor": "#b0b4ba"})  # fmt: skip
        return
    step = procedure.steps[i]
    color = STEP_COLORS[i % len(STEP_COLORS)]
    y = -i - 1
    # how much of the box is filled is how many of the videos have the step
    axis.add_patch(FancyBboxPatch((-0.35, y - 0.25), 0.7, 0.5, boxstyle="round,pad=0.03", facecolor="white", ec=color))
    axis.add_patch(
        FancyBboxPatch((-0.35, y - 0.25), 0.7 * max(step.share, 0.02), 0.5, boxstyle="round,pad=0.03", facecolor=color,
                       ec="none")
    )  # fmt: skip
    axis.text(0, y, str(i + 1), ha="center", va="center", fontweight="bold")
    name = one_line(step.name)
    name = name if len(name) <= _MAX_NAME else name[: _MAX_NAME - 1].rstrip() + "…"
    guess = "  (guess)" if step.guess else ""
    axis.text(names, y + 0.13, _plain(name) + guess, ha="left", va="center")
    often = f", {step.times} times" if step.times > step.videos else ""
    axis.text(
        names, y - 0.2, f"{step.videos} of {total} videos{often}, about {step.duration_s:.0f} s",
        ha="left", va="center", fontsize=7.5, color="#666666",
    )  # fmt: skip


def _edge(axis: Any, a: int, b: int, share: float, depth: int) -> None:
    from matplotlib.patches import FancyArrowPatch
    from matplotlib.path import Path

    if a == b:  # a step again, after something that is not common: the node says how many times
        return
    up, down = float(-a - 1), float(-b - 1)
    if b == a + 1:
        path = Path([(0.0, up - 0.33), (0.0, down + 0.33)])
        label = (0.1, (up + down) / 2)
    else:
        # skipped steps bend to the right, the ways back to the left; arrows leave below the middle and arrive above
        side = 1 if b > a else -1
        x, reach = side * 0.4, side * _reach(depth)
        start, end = up - 0.12, down + 0.12
        path = Path(
            [(x, start), (x + reach, start), (x + reach, end), (x, end)],
            [Path.MOVETO, Path.CURVE4, Path.CURVE4, Path.CURVE4],
        )
        label = (x + 0.75 * reach, (up + down) / 2)
    axis.add_patch(
        FancyArrowPatch(path=path, arrowstyle="-|>", mutation_scale=9, linewidth=0.6 + 2.4 * share, fill=False,
                        color=f"{0.72 - 0.5 * share:.2f}")
    )  # fmt: skip
    ground = {"boxstyle": "square,pad=0.1", "facecolor": "white", "edgecolor": "none", "alpha": 0.85}
    axis.text(*label, f"{share:.0%}", fontsize=6.5, color="#555555", va="center",
              ha="left" if b == a + 1 else "center",
              bbox=ground)  # fmt: skip


def _reach(depth: int) -> float:
    """How far the control points of an arc lie out; the curve itself goes three quarters of it."""
    return 0.8 + 0.6 * depth


def _depths(arcs: Sequence[tuple[int, int]]) -> dict[tuple[int, int], int]:
    """How far out each arc goes, so that arcs over the same rows on one side lie beside each other."""
    out: dict[tuple[int, int], int] = {}
    for side in (True, False):
        placed: list[tuple[int, int, int]] = []
        for a, b in sorted((arc for arc in arcs if (arc[1] > arc[0]) == side), key=lambda arc: abs(arc[1] - arc[0])):
            low, high = min(a, b), max(a, b)
            taken = {depth for first, last, depth in placed if first < high and low < last}
            depth = next(d for d in range(len(arcs) + 1) if d not in taken)
            placed.append((low, high, depth))
            out[(a, b)] = depth
    return out


def _plain(text: str | None) -> str:
    return (text or "").replace("$", r"\$")
