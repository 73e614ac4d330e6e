"""The flow of a procedure as a graph: Mermaid text, and a picture.

Nodes are the common steps in their order; an edge says how often one comes right after the other. Edges that fewer than
``LEAST`` of the cases take are left out, except where a step would have no way in or out.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from stepformer.app.procedure.records import FloatArray, Procedure
from stepformer.show.export.pictures import look, text_of
from stepformer.show.writing import GUESS, STEP_COLORS, one_line

LEAST = 0.15
_BEND = 0.4  # how far an arc that skips steps, or goes back, lies out, as a share of its length
_NAME_CELLS = 48
# Mermaid's own, for what would end its text or enter another
_CODES = str.maketrans({"#": "#35;", '"': "#quot;", "<": "#lt;", ">": "#gt;", "`": "#96;"})


def edges(procedure: Procedure) -> list[tuple[int, int, float]]:
    """(from, to, share of the ways out of from); -1 is the start, C the end."""
    follows = procedure.follows
    out_of = follows.sum(1, keepdims=True)
    share: FloatArray = np.where(out_of > 0, follows / np.maximum(out_of, 1), 0.0)
    kept = share >= LEAST
    kept[np.arange(len(follows)), follows.argmax(1)] = True
    kept[follows.argmax(0), np.arange(len(follows))] = True
    kept &= follows > 0
    return [(int(row) - 1, int(column), float(share[row, column])) for row, column in np.argwhere(kept)]


def mermaid(procedure: Procedure) -> str:
    """A Mermaid flowchart; GitHub, GitLab and Notion draw it from a ```mermaid block."""
    count = len(procedure.steps)
    lines = ["flowchart TD", "    start([start])"]
    for i, step in enumerate(procedure.steps):
        mark = " ?" if step.guess else ""
        text = f"{i + 1}. {one_line(step.name)}{mark}".translate(_CODES)
        lines.append(f'    s{i + 1}["{text}<br/>{step.videos} of {len(procedure.timelines)} videos"]')
    lines.append("    finish([end])")

    def node(i: int) -> str:
        return "start" if i < 0 else "finish" if i == count else f"s{i + 1}"

    for a, b, share in edges(procedure):
        # a solid arrow is the usual way, a dotted one goes some of the time
        arrow = "-->" if share >= 0.5 else "-.->"
        lines.append(f"    {node(a)} {arrow}|{share:.0%}| {node(b)}")
    return "\n".join(lines) + "\n"


def save_flow(procedure: Procedure, path: str | os.PathLike[str], title: str | None = None) -> None:
    """The flow as a PNG, SVG or PDF (by suffix): steps from top to bottom, the usual way straight, others as arcs."""
    from matplotlib.figure import Figure

    from stepformer.base.files import replacing

    count, total = len(procedure.steps), len(procedure.timelines)
    ways = edges(procedure)
    right = 0.6 + _BEND / 2 * max((b - a for a, b, _ in ways if b > a + 1), default=0)
    left = 0.6 + _BEND / 2 * max((a - b for a, b, _ in ways if b < a), default=0)
    with look(), replacing(path) as temporary:
        figure = Figure(figsize=(left + right + 5.0, count + 2.0), layout="constrained")
        axis = figure.subplots()
        axis.set_axis_off()
        axis.set_aspect("equal")
        axis.set_xlim(-left, right + 4.4)
        axis.set_ylim(-count - 1.5, 0.5)
        for i in range(-1, count + 1):
            _node(axis, procedure, i, right)
        for a, b, share in ways:
            _edge(axis, a, b, share)
        order = f"order kept in {procedure.consistency:.0%} of pairs"
        said = procedure.meta.get("doubt") or f"{count} common steps of {total} videos, {order}"
        axis.set_title(text_of(f"{title}: {said}" if title else said, 120), loc="left")
        figure.savefig(temporary, dpi=150)


def _node(axis: Any, procedure: Procedure, i: int, names: float) -> None:
    from matplotlib.patches import FancyBboxPatch

    y = -i - 1
    if i in (-1, len(procedure.steps)):
        box = {"boxstyle": "round,pad=0.35", "facecolor": "#eef0f3", "edgecolor": "#b0b4ba"}
        axis.text(0, y, "start" if i < 0 else "end", ha="center", va="center", fontsize=8, bbox=box)
        return
    step = procedure.steps[i]
    color = STEP_COLORS[i % len(STEP_COLORS)]
    # how much of the box is filled is how many of the videos have the step
    for width, face, line in ((0.7, "white", color), (0.7 * max(step.share, 0.02), color, "none")):
        axis.add_patch(FancyBboxPatch((-0.35, y - 0.2), width, 0.4, boxstyle="round,pad=0.03", fc=face, ec=line))
    axis.text(0, y, str(i + 1), ha="center", va="center", fontweight="bold")
    axis.text(names, y + 0.1, text_of(step.name, _NAME_CELLS) + (GUESS if step.guess else ""), va="center")
    often = f", {step.times} times" if step.times > step.videos else ""
    about = f"{step.videos} of {len(procedure.timelines)} videos{often}, about {step.duration_s:.0f} s"
    axis.text(names, y - 0.14, about, va="center", fontsize=7.5, color="#666666")


def _edge(axis: Any, a: int, b: int, share: float) -> None:
    from matplotlib.patches import FancyArrowPatch

    if a == b:  # a step again, after something that is not common: the node says how many times
        return
    # skipped steps bend to the right, the ways back to the left
    side = 0 if b == a + 1 else 1 if b > a else -1
    x, apart = 0.4 * side, (0.1 if side else 0.27) * (1 if b > a else -1)
    up, down = -a - 1 - apart, -b - 1 + apart
    axis.add_patch(
        FancyArrowPatch(
            (x, up), (x, down), connectionstyle=f"arc3,rad={-_BEND if side else 0}", arrowstyle="-|>",
            mutation_scale=9, shrinkA=0, shrinkB=0, linewidth=0.6 + 2.4 * share, color=f"{0.72 - 0.5 * share:.2f}",
        )
    )  # fmt: skip
    out = x + side * _BEND / 2 * abs(up - down) if side else 0.08
    ground = {"boxstyle": "square,pad=0.1", "facecolor": "white", "edgecolor": "none", "alpha": 0.85}
    axis.text(out, (up + down) / 2, f"{share:.0%}", fontsize=6.5, color="#555555", va="center", bbox=ground,
              ha="center" if side else "left")  # fmt: skip
