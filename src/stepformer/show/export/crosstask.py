"""CrossTask annotation rows: ``step,start,end`` without a header, as ``annotations/<task>_<video>.csv`` holds them.

``step`` is the 1-based place of the step in its task's list. Give that list as ``task_steps``; names that are not in it
are numbered behind it, and without it steps are numbered as they first appear; the notes say which number is which
name. Milliseconds; overlaps, zero lengths and steps past the end stay.
"""

from __future__ import annotations

from stepformer.show.export.options import Options, Rendered
from stepformer.show.writing import step_name, step_numbers
from stepformer.timeline import Timeline


def render(timeline: Timeline, options: Options) -> Rendered:
    """The rows."""
    numbers = step_numbers(timeline, options.task_steps)
    rows = [f"{n},{step.start_s:.3f},{step.end_s:.3f}\n" for n, step in zip(numbers, timeline, strict=True)]
    names = {n: step_name(step, i) for i, (n, step) in enumerate(zip(numbers, timeline, strict=True))}
    added = {n: name for n, name in sorted(names.items()) if n > len(options.task_steps)}
    notes = [f"step {n} is {name!r}" for n, name in added.items()]
    return Rendered("".join(rows), tuple(notes))
