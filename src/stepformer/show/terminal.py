"""A timeline as a picture for the terminal: a coloured bar, a time scale, and one line per step.

Rich says what the terminal can do: no colour in a pipe, with ``NO_COLOR`` or on a dumb one, where neighbouring steps
alternate between two shades; ASCII where the encoding has no blocks. Widths are measured in terminal cells, so wide
(CJK, emoji) and combining characters line up; control characters in names are made harmless.
"""

from __future__ import annotations

import io
import itertools

from rich.console import Console
from rich.text import Text

from stepformer.base.progress import clock
from stepformer.show.writing import GUESS, bare_name, fit, is_guess, one_line, step_colors, ticks
from stepformer.timeline import Step, Timeline

_MIN_NAME = 8  # cells a name has even where the terminal is too narrow for it
# bidirectional controls would reorder the rest of the line; isolates put around a name keep its order its own
_BIDI = dict.fromkeys(map(ord, "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"))


def draw(timeline: Timeline, width: int | None = None, color: bool | None = None, unicode: bool | None = None) -> str:
    """The picture as text that ends in a line end.

    ``width`` in terminal cells (default: the terminal's, at most 120), ``color`` and ``unicode`` as stdout can have
    them by default.
    """
    there = Console()
    width = max(24, min(there.width, 120) if width is None else width)
    color = there.color_system is not None and not there.no_color if color is None else color
    unicode = not there.options.ascii_only if unicode is None else unicode
    end_s = timeline.duration_s or max((step.end_s for step in timeline), default=0.0)
    colors = step_colors(timeline)
    marks = "█▒·" if unicode else "#=."

    def marked(step: int, cells: int = 1) -> tuple[str, str]:
        if step < 0:
            return marks[2] * cells, "#808080"
        return marks[0 if color else step % 2] * cells, colors[step]

    count = "no steps" if not len(timeline) else f"{len(timeline)} step" + "s" * (len(timeline) > 1)
    lines = [Text(_fit(f"{_safe(timeline.video)}  {clock(end_s)}  {count}", width, unicode))]
    if len(timeline) and end_s > 0:
        runs = itertools.groupby(_owners(timeline, end_s, width))
        lines.append(Text.assemble(*(marked(owner, len(list(run))) for owner, run in runs)))
        lines.append(Text(_scale(end_s, width)))
    # no step may seem to end when it begins
    tenths = any(clock(s.start_s) == clock(s.end_s) for s in timeline)
    times = [f"{clock(s.start_s, tenths)} {'–' if unicode else '-'} {clock(s.end_s, tenths)}" for s in timeline]
    number_width, time_width = len(str(len(timeline))), max(map(len, times), default=0)
    for i, (step, when) in enumerate(zip(timeline, times, strict=True)):
        head = f" {i + 1:>{number_width}}  {when:>{time_width}}  "
        room, guess = width - 1 - len(head), _guess(step)
        if guess and room - len(guess) < _MIN_NAME:
            guess = " ?"
        name = _fit(_safe(bare_name(step, i)), max(_MIN_NAME, room - len(guess)), unicode)
        lines.append(Text.assemble(marked(i), head, name, (guess, "dim")))
    out = Console(file=io.StringIO(), force_terminal=color, color_system="auto" if color else None)
    out.print(*lines, sep="\n", soft_wrap=True)
    return out.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def _owners(timeline: Timeline, end_s: float, cells: int) -> list[int]:
    """For each of ``cells`` equal parts of the video the step on screen there, or -1; every step owns at least one."""
    owners = [-1] * cells
    for i, step in enumerate(timeline):
        # what lies past the end is drawn at the end
        first = min(cells - 1, int(min(step.start_s / end_s, 1.0) * cells))
        last = max(first + 1, round(min(step.end_s / end_s, 1.0) * cells))
        owners[first:last] = [i] * (last - first)
    return owners


def _scale(end_s: float, width: int) -> str:
    """Times under the bar, as many as fit with space between them."""
    line = ""
    for second in ticks(end_s, max(1, width // 10)):
        at, text = int(second / end_s * width), clock(second)
        if at >= len(line) + (1 if line else 0) and at + len(text) <= width:
            line += " " * (at - len(line)) + text
    return line


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
