"""A timeline as a picture for the terminal: a coloured bar, a time scale, and one line per step.

Colour is used where it is wanted: on a terminal, unless ``NO_COLOR`` is set or ``TERM`` is ``dumb``. Without it
neighbouring steps alternate between two shades. Widths are measured in terminal cells, so wide (CJK, emoji) and
combining characters line up; control characters in names are made harmless. The bar of rich is one span in one
colour; here several stand side by side.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from typing import TextIO

from stepformer.base.progress import clock
from stepformer.show.palette import rgb, step_colors
from stepformer.show.writing import GUESS, bare_name, is_guess, one_line, ticks
from stepformer.timeline import Step, Timeline

_EIGHTHS = " ▏▎▍▌▋▊▉█"
_MIN_NAME = 8  # cells a name has even where the terminal is too narrow for it
_GROUND = "·"
_GROUND_COLOR = "#808080"
_RESET = "\x1b[0m"
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
    lines = [_fit(f"{_safe(timeline.video)}  {clock(end_s)}  {_count(len(timeline))}", width, unicode)]
    if len(timeline) and end_s > 0:
        lines.append(_bar(timeline, end_s, colors, width, color, unicode))
        lines.append(_scale(end_s, width))
    lines += _list(timeline, colors, width, color, unicode)
    return "\n".join(lines) + "\n"


def _count(number: int) -> str:
    return "no steps" if not number else f"{number} step" if number == 1 else f"{number} steps"


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
    if not unicode:
        return _merged([f"{_back(colors[o])} " if o >= 0 else f"{_RESET}." for o in _owners(timeline, end_s, width)])
    # with colour a cell can show two steps, cut at an eighth of it
    fine = _owners(timeline, end_s, width * 8)
    out = []
    for at in range(0, width * 8, 8):
        cell = fine[at : at + 8]
        left, right = cell[0], cell[-1]
        cut = next((i for i, owner in enumerate(cell) if owner != left), 8)
        if cut == 8:
            out.append(f"{_RESET}{_fore(_color(left, colors))}{'█' if left >= 0 else _GROUND}")
        elif left < 0:
            # the ground has no colour of its own, so what begins in the cell is drawn reversed from its right side
            out.append(f"{_RESET}{_fore(_color(right if right >= 0 else max(cell), colors))}\x1b[7m{_EIGHTHS[cut]}")
        else:
            back = _back(colors[right]) if right >= 0 else ""
            out.append(f"{_RESET}{_fore(colors[left])}{back}{_EIGHTHS[cut]}")
    return _merged(out)


def _merged(cells: list[str]) -> str:
    """Cells joined; codes that repeat the cell's before are left out."""
    out, before = [], ""
    for cell in cells:
        codes, shown = cell[:-1], cell[-1]
        out.append(shown if codes == before else cell)
        before = codes
    return "".join(out) + _RESET


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
    lines = []
    for i, (step, when) in enumerate(zip(timeline, times, strict=True)):
        block = ("█" if i % 2 == 0 else "▒") if unicode else ("#" if i % 2 == 0 else "=")
        mark = f"{_fore(colors[i])}{'█' if unicode else '#'}{_RESET}" if color else block
        guess = _guess(step)
        head = f"{i + 1:>{number_width}}  {when:>{time_width}}  "
        room = width - 2 - len(head)
        if guess and room - len(guess) < _MIN_NAME:
            guess = " ?"
        name = _fit(_safe(bare_name(step, i)), max(_MIN_NAME, room - len(guess)), unicode)
        if color and guess:
            guess = f"\x1b[2m{guess}{_RESET}"
        lines.append(f"{mark} {head}{name}{guess}")
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
    """``text`` in at most ``width`` cells, cut with an ellipsis."""
    from rich.cells import cell_len, set_cell_size

    if not unicode:
        text = text.encode("ascii", "replace").decode("ascii")
    if cell_len(text) <= width:
        return text
    dots = "…" if unicode else "..."
    return set_cell_size(text, width - len(dots)).rstrip() + dots


def _color(owner: int, colors: Sequence[str]) -> str:
    return colors[owner] if owner >= 0 else _GROUND_COLOR


def _fore(color: str) -> str:
    return f"\x1b[38;{_code(color)}m"


def _back(color: str) -> str:
    return f"\x1b[48;{_code(color)}m"


def _code(color: str) -> str:
    """The colour exactly where the terminal says it can, else the nearest of the 6 x 6 x 6 cube all of them have."""
    red, green, blue = rgb(color)
    if os.environ.get("COLORTERM") in ("truecolor", "24bit"):
        return f"2;{red};{green};{blue}"
    levels = (0, 95, 135, 175, 215, 255)
    r, g, b = (min(range(6), key=lambda i: abs(levels[i] - value)) for value in (red, green, blue))
    return f"5;{16 + 36 * r + 6 * g + b}"
