"""Colours of steps, the same in the terminal, the plot, the contact sheet and the page.

Ten hues of about the same lightness, in an order that keeps neighbours apart; dark text reads on all of them, and they
read on a dark and on a light ground. Colour never is the only mark: a number and a name stand beside it everywhere.
"""

from __future__ import annotations

from stepformer.timeline import Timeline

STEP_COLORS = (
    "#65a7fa", "#fb9d59", "#5bbd74", "#f990c4", "#c0a320", "#00d1da", "#f07f77", "#c4a4fe", "#91b349", "#43c7fd",
)  # fmt: skip


def step_colors(timeline: Timeline) -> list[str]:
    """One colour per step as ``#rrggbb``: steps of one name have the same, neighbours of different names differ."""
    seen: dict[object, int] = {}
    colors: list[int] = []
    for i, step in enumerate(timeline):
        key: object = step.label if step.label else ("step", i)
        if key not in seen:
            # the next colour, or the one after it where that would repeat the neighbour's
            at = len(seen) % len(STEP_COLORS)
            seen[key] = (at + 1) % len(STEP_COLORS) if colors and colors[-1] == at else at
        colors.append(seen[key])
    return [STEP_COLORS[i] for i in colors]


def rgb(color: str) -> tuple[int, int, int]:
    """``#rrggbb`` as three numbers from 0 to 255."""
    return int(color[1:3], 16), int(color[3:5], 16), int(color[5:7], 16)
