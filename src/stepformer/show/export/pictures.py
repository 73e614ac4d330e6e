"""The plot as an export: PNG, SVG or PDF of the timeline, with the similarity map where one is given."""

from __future__ import annotations

from pathlib import Path

from stepformer.errors import UsageError
from stepformer.show.export.options import Options
from stepformer.timeline import Timeline

SUFFIXES = (".png", ".svg", ".pdf")


def save_plot(timeline: Timeline, path: Path, options: Options) -> tuple[str, ...]:
    """Writes the picture in the format of the path's suffix."""
    if path.suffix.lower() not in SUFFIXES:
        raise UsageError(f"a plot is written as {', '.join(SUFFIXES)}, not as {path.suffix or 'a file without suffix'}")
    from stepformer.show.plots import save_plot as save

    save(timeline, path, options.similarity, title=options.title)
    return ()
