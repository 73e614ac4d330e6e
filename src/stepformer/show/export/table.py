"""CSV and TSV: one row a step, with the video's name and length in every row, so that files can be joined.

Times have full precision and a field is empty where there is no value. CSV keeps a name as it is, quoted where it
must be; in TSV a name is one line, so that line tools can read it. Names are not changed to please spreadsheets: one
that begins with ``=`` is a formula to them unless the column is imported as text. An empty timeline is a header.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping

from stepformer.errors import InputError
from stepformer.show.export.options import Options, Rendered
from stepformer.show.writing import is_guess, one_line, timeline_of
from stepformer.timeline import Step, Timeline

COLUMNS = ("video", "duration_s", "step", "start_s", "end_s", "label", "guess", "score", "slot")


def render_csv(timeline: Timeline, options: Options) -> Rendered:
    """Comma-separated rows under a header."""
    return Rendered(_render(timeline, "excel", lines=False))


def render_tsv(timeline: Timeline, options: Options) -> Rendered:
    """Tab-separated rows under a header; names on one line."""
    return Rendered(_render(timeline, "excel-tab", lines=True))


def parse_csv(text: str, source: str) -> Timeline:
    """A timeline of rows with at least ``start_s`` and ``end_s`` (or ``start`` and ``end``) under a header."""
    return _parse(text, source, "excel")


def parse_tsv(text: str, source: str) -> Timeline:
    """As :func:`parse_csv`, of tab-separated rows."""
    return _parse(text, source, "excel-tab")


def _render(timeline: Timeline, dialect: str, lines: bool) -> str:
    out = io.StringIO(newline="")
    # CSV ends lines as RFC 4180 says; with a bare "\n" Python 3.11 leaves a "\r" inside a label unquoted, which reads
    # as two rows. TSV has labels on one line and tools that split at "\n".
    writer = csv.writer(out, dialect, lineterminator="\n" if lines else "\r\n")
    writer.writerow(COLUMNS)
    tidy = one_line if lines else str
    for i, step in enumerate(timeline):
        writer.writerow([
            tidy(timeline.video), repr(timeline.duration_s), i + 1, repr(step.start_s), repr(step.end_s),
            tidy(step.label or ""), "true" if is_guess(step) else "",
            "" if step.score is None else repr(step.score), "" if step.slot is None else step.slot,
        ])  # fmt: skip
    return out.getvalue()


def _parse(text: str, source: str, dialect: str) -> Timeline:
    # splitlines would cut at U+2028 and the like inside names; newline="" leaves line ends to the csv module
    rows = csv.DictReader(io.StringIO(text.removeprefix("\ufeff"), newline=""), dialect=dialect)
    video: str | None = None
    duration_s: float | None = None
    steps = []
    try:
        for row in rows:
            try:
                steps.append(_step(row))
                video = video if video is not None else row.get("video")
                if row.get("duration_s"):
                    duration_s = float(row["duration_s"])
            except (KeyError, TypeError, ValueError) as error:
                missing = f"no column {error}" if isinstance(error, KeyError) else str(error)
                raise InputError(
                    f"{source}, line {rows.line_num}: {missing}; a step needs start_s and end_s in seconds"
                ) from None
    except csv.Error as error:
        raise InputError(f"{source}, line {rows.line_num}: {error}") from None
    found = timeline_of(steps, video or source, None)
    return found if duration_s is None else Timeline(found.video, duration_s, found.steps)


def _step(row: Mapping[str, str]) -> Step:
    start = row["start_s"] if "start_s" in row else row["start"]
    end = row["end_s"] if "end_s" in row else row["end"]
    return Step(
        float(start),
        float(end),
        row.get("label") or None,
        float(row["score"]) if row.get("score") else None,
        int(row["slot"]) if row.get("slot") else None,
        {"guess": True} if row.get("guess") == "true" else {},
    )
