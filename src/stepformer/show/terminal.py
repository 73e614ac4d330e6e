"""A timeline as a picture for the terminal: a coloured bar, a time scale, and one line per step.

Colour is used where it is wanted: on a terminal, unless ``NO_COLOR`` is set or ``TERM`` is ``dumb``. Without it
neighbouring steps alternate between two shades. Widths are measured in terminal cells, so wide (CJK, emoji) and
combining characters line up; control characters in names are made harmless.
"""

from __future__ import annotations

import itertools
import os
import shutil
import sys
from collections.abc import Sequence
from typing import TextIO

from rich.color import ColorSystem
from rich.style import Style

from stepformer.base.progress import clock
from stepformer.show.writing import GUESS, bare_name, fit, is_guess, one_line, step_colors, ticks
from stepformer.timeline import Step, Timeline

_EIGHTHS = " ▏▎▍▌▋▊▉█"
_MIN_NAME = 8  # cells a name has even where the terminal is too narrow for it
_GROUND = "·"
_GROUND_COLOR = "#808080"
# bidirectional controls would reorder the rest of the line; isolates put around a name keep its order its own
_BIDI = dict.fromkeys(map(ord, "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"))


def wants_color(stream: TextIO) -> bool:
    """Whether to colour what is written to ``stream``: a terminal, and nobody has said no."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def draw(timeline: Timeline, width: int | None = None, color: bool | None = None, unicode: bool | None = None) -> str:
    """The picture as text that ends in a line end.

    ``width`` in terminal cells (default: the terminal's, at most 120), ``color`` and ``unicode`` as stdout can have
    them by default.
    """
    width = max(24, min(shutil.get_terminal_size().columns, 120) if width is None else width)
    color = wants_color(sys.stdout) if color is None else color
    unicode = _can_show_blocks(sys.stdout) if unicode is None else unicode
    end_s = timeline.duration_s or max((step.end_s for step in timeline), default=0.0)
    colors = step_colors(timeline)
    count = "no steps" if not len(timeline) else f"{len(timeline)} step" + "s" * (len(timeline) > 1)
    lines = [_fit(f"{_safe(timeline.video)}  {clock(end_s)}  {count}", width, unicode)]
    if len(timeline) and end_s > 0:
        lines.append(_bar(timeline, end_s, colors, width, color, unicode))
        lines.append(_scale(end_s, width))
    lines += _list(timeline, colors, width, color, unicode)
    return "\n".join(lines) + "\n"


def _can_show_blocks(stream: TextIO) -> bool:
    try:
        f"{_EIGHTHS}{_GROUND}–…".encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _owners(timeline: Timeline, end_s: float, cells: int) -> list[int]:
    """For each of ``cells`` equal parts of the video the step on screen there, or -1; every step owns at least one."""
    owners = [-1] * cells
    for i, step in enumerate(timeline):
        # what lies past the end is drawn at the end
        first = min(cells - 1, int(min(step.start_s / end_s, 1.0) * cells))
        last = max(first + 1, round(min(step.end_s / end_s, 1.0) * cells))
        owners[first:last] = [i] * (last - first)
    return owners


def _bar(timeline: Timeline, end_s: float, colors: Sequence[str], width: int, color: bool, unicode: bool) -> str:
    if not color:
        marks = ("█", "▒", _GROUND) if unicode else ("#", "=", ".")
        return "".join(marks[owner % 2] if owner >= 0 else marks[2] for owner in _owners(timeline, end_s, width))
    cells: list[tuple[Style, str]] = []
    # with colour a cell can show two steps, cut at an eighth of it
    parts = 8 if unicode else 1
    fine = _owners(timeline, end_s, width * parts)
    for at in range(0, len(fine), parts):
        cell = fine[at : at + parts]
        left, right = cell[0], cell[-1]
        cut = next((i for i, owner in enumerate(cell) if owner != left), 8)
        if cut == 8 and left < 0:
            cells.append((Style(color=_GROUND_COLOR), _GROUND if unicode else "."))
        elif cut == 8:
            cells.append((Style(color=colors[left]), "█") if unicode else (Style(bgcolor=colors[left]), " "))
        elif left < 0:
            # the ground has no colour of its own, so what begins in the cell is drawn reversed from its right side
            cells.append((Style(color=colors[max(cell)], reverse=True), _EIGHTHS[cut]))
        else:
            back = colors[right] if right >= 0 else None
            cells.append((Style(color=colors[left], bgcolor=back), _EIGHTHS[cut]))
    runs = itertools.groupby(cells, key=lambda cell: cell[0])
    return "".join(_styled("".join(text for _, text in run), style) for style, run in runs)


def _styled(text: str, style: Style) -> str:
    """Text with the codes of its style; exact colours where the terminal says it has them, else the nearest of 256."""
    exact = os.environ.get("COLORTERM") in ("truecolor", "24bit")
    return style.render(text, color_system=ColorSystem.TRUECOLOR if exact else ColorSystem.EIGHT_BIT)


def _scale(end_s: float, width: int) -> str:
    """Times under the bar, as many as fit with space between them."""
    line = ""
    for second in ticks(end_s, max(1, width // 10)):
        at, text = int(second / end_s * width), clock(second)
        if at >= len(line) + (1 if line else 0) and at + len(text) <= width:
            line += " " * (at - len(line)) + text
    return line


def _list(timeline: Timeline, colors: Sequence[str], width: int, color: bool, unicode: bool) -> list[str]:
    number_width = len(str(len(timeline)))
    dash = "–" if unicode else "-"
    # no step may seem to end when it begins
    tenths = any(clock(s.start_s) == clock(s.end_s) for s in timeline)
    times = [f"{clock(s.start_s, tenths)} {dash} {clock(s.end_s, tenths)}" for s in timeline]
    time_width = max(map(len, times), default=0)
    marks = "█▒" if unicode else "#="
    lines = []
    for i, (step, when) in enumerate(zip(timeline, times, strict=True)):
        mark = _styled(marks[0], Style(color=colors[i])) if color else marks[i % 2]
        guess = _guess(step)
        head = f"{i + 1:>{number_width}}  {when:>{time_width}}  "
        room = width - 2 - len(head)
        if guess and room - len(guess) < _MIN_NAME:
            guess = " ?"
        name = _fit(_safe(bare_name(step, i)), max(_MIN_NAME, room - len(guess)), unicode)
        lines.append(f"{mark} {head}{name}{_styled(guess, Style(dim=True)) if color and guess else guess}")
    return lines


def _guess(step: Step) -> str:
    if not is_guess(step):
        return ""
    score = step.meta.get("name_score")
    return f"  (guess, {score:.2f})" if isinstance(score, int | float) else GUESS


def _safe(text: str) -> str:
    """``text`` without what would move the cursor or reorder the line."""
    return one_line(text).translate(_BIDI)


def _fit(text: str, width: int, unicode: bool) -> str:
    return fit(text, width) if unicode else fit(text.encode("ascii", "replace").decode("ascii"), width, "...")
