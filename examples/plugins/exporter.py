"""An export format of your own: a function of a timeline that gives text, and optionally one that reads it back.

    stepformer export steps.json notes.md --plugin exporter.py
    stepformer discover video.mp4 --write notes.md --plugin exporter.py

Or, in an installed package:  [project.entry-points."stepformer.exporters"]  markdown = "my_package.exporter:MARKDOWN"

A format that is no text is `kind="file"`, with a writer (timeline, path, options) -> notes.
"""

from stepformer import Step, Timeline
from stepformer.show.export import FORMATS, Format, Rendered


def render(timeline, options):
    """The text, and notes on what did not fit into the format."""
    lines = [f"# {options.title or timeline.video}", "", "| start | end | step |", "|---|---|---|"]
    lines += [f"| {s.start_s:.2f} | {s.end_s:.2f} | {s.label or ''} |" for s in timeline.steps]
    unnamed = sum(not step.label for step in timeline.steps)
    notes = (f"{unnamed} steps have no name",) if unnamed else ()
    return Rendered("\n".join([*lines, "", f"{timeline.duration_s:.2f} s in all", ""]), notes)


def parse(text, source):
    """The timeline again; `source` names the video where the text does not."""
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")][1:]
    steps = [Step(float(start), float(end), label or None) for start, end, label in (row + [""] * (3 - len(row))
             for row in rows)]  # fmt: skip
    duration_s = float(text.split(" s in all")[0].split()[-1])
    return Timeline(text.splitlines()[0].removeprefix("# ") or source, duration_s, steps)


MARKDOWN = Format("markdown", (".md",), "a Markdown table", render, parse)
FORMATS.register("markdown", MARKDOWN)
