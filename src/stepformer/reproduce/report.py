"""Tables out of results: mean and spread over seeds, the difference to one row with its interval, the paper's numbers,
and sentences that say no more than the intervals do.

A difference is called better or worse only where both bootstrap intervals, over videos and over tasks, lie on one side
of 0. The interval that is shown is the one over tasks, where there are at least five, else the one over videos.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from stepformer.base.files import write_json, write_text
from stepformer.errors import InputError
from stepformer.evaluation.statistics import by_task, discovery_scores, excludes_zero, f1_draws, interval, mean_draws
from stepformer.evaluation.tables import Cell, Table
from stepformer.reproduce.execute import RunStore, stamp
from stepformer.reproduce.plan import TABLES, PlannedRow, TableSpec
from stepformer.reproduce.sources import DATASET_NAMES, Source

METRICS = {
    "zs": (("zs_iou", "IoU"), ("zs_precision", "P"), ("zs_recall", "R"), ("zs_mof", "MoF")),
    "un": (("un_f1", "F1"), ("un_precision", "P"), ("un_recall", "R"), ("un_mof", "MoF")),
}
_LEAST_TASKS = 5


@dataclass(frozen=True, slots=True)
class Shown:
    """A row as the plan file keeps it: enough to draw the table without the options that it was run with."""

    label: str
    knows: str
    kind: str
    control: bool
    paper: Mapping[str, Mapping[str, float]]
    ids: tuple[str, ...]  # by seed


@dataclass(frozen=True, slots=True)
class Difference:
    """How much higher the reference row is than another, with both intervals."""

    value: float
    over_videos: tuple[float, float]
    over_tasks: tuple[float, float]
    tasks: int

    @property
    def shown(self) -> tuple[float, float]:
        """The interval that tables print."""
        return self.over_tasks if self.tasks >= _LEAST_TASKS else self.over_videos

    @property
    def verdict(self) -> str:
        """``better`` or ``worse`` where both intervals agree on it, else ``level``."""
        clear = excludes_zero(self.over_videos) and (self.tasks < _LEAST_TASKS or excludes_zero(self.over_tasks))
        return "level" if not clear else "better" if self.value > 0 else "worse"


def places_of(spec: TableSpec, source: Source) -> dict[str, str]:
    """The places that a table reports, with the names of their columns."""
    splits = [s for s in source.datasets if spec.splits is None or s in spec.splits]
    splits = splits or list(source.datasets)[:1]
    names = {s: DATASET_NAMES.get(source.datasets[s], source.datasets[s]) for s in splits}
    return {s: name if len(splits) > 1 else "" for s, name in names.items()}


def plan_entry(name: str, rows: Sequence[PlannedRow], source: Source, training: str) -> dict[str, Any]:
    """What the plan file keeps of a table."""
    spec = TABLES[name]
    model = next((row.label for row in rows if row.row.label == spec.reference), "")
    return {
        "rows": [
            {
                "label": row.label, "knows": row.row.knows, "kind": row.row.kind, "control": row.row.control,
                "paper": {k: dict(v) for k, v in row.row.paper.items()}, "ids": [run.id for run in row.runs.values()],
            }
            for row in rows
        ],
        "reference": model,
        "places": places_of(spec, source),
        "datasets": dict(source.datasets),
        "real": source.real,
        "about": source.about,
        "training": training,
        "chosen": source.has_dev,
        "seeds": sorted({seed for row in rows for seed in row.runs}),
    }  # fmt: skip


def build_table(name: str, entry: Mapping[str, Any], store: RunStore) -> Table:
    """The table of a plan's entry, from the results that are there; rows without any are left out."""
    spec = TABLES[name]
    rows = [Shown(**{**row, "ids": tuple(row["ids"])}) for row in entry["rows"]]
    often = Counter(row.label for row in rows)  # a method in two settings is two rows, each with its own results
    rows = [replace(row, label=f"{row.label} ({row.knows})") if often[row.label] > 1 else row for row in rows]
    found = {row.label: [r for i in row.ids if (r := store.read(i)) is not None] for row in rows}
    rows = [row for row in rows if found[row.label]]
    if not rows:
        raise InputError(f"there are no results for {name} yet; run: stepformer reproduce {name}")
    columns = ["method"] if spec.tasks == ("zs", "un") else ["knows", "method"]
    body: list[list[Cell | str | None]] = [[row.label] if len(columns) == 1 else [row.knows, row.label] for row in rows]
    sentences: list[str] = []
    for place, called in entry["places"].items():
        dataset = entry["datasets"].get(place, "")
        for task in spec.tasks:
            metrics = METRICS[task][:1] if spec.main_only else METRICS[task]
            head = f"{called} " if called else "ZS " if task == "zs" and len(spec.tasks) > 1 else ""
            columns += [f"{head}{short}" for _, short in metrics]
            for line, row in zip(body, rows, strict=True):
                line += [_cell([r["scores"].get(place, {}).get(m) for r in found[row.label]]) for m, _ in metrics]
            main = METRICS[task][0]
            gaps = differences(rows, found, store, entry["reference"], place, task)
            if gaps:
                columns.append(f"{entry['reference']} − row, {head}{main[1]}")
                for line, row in zip(body, rows, strict=True):
                    gap = gaps.get(row.label)
                    line.append(None if gap is None else Cell(gap.value, interval=gap.shown))
                sentences += verdicts(gaps, rows, f"{head}{main[1]}", entry["reference"])
            sentences += _order(rows, found, place, dataset, main, head)
            if any(main[0] in row.paper.get(dataset, {}) for row in rows):
                columns.append(f"paper: {head}{'/'.join(short for _, short in metrics)}")
                for line, row in zip(body, rows, strict=True):
                    line.append(paper_cell(row.paper.get(dataset, {}), [m for m, _ in metrics]))
    title = f"{spec.title}, {'real' if entry['real'] else 'simulated'} features"
    notes = (*_origin(entry, rows, found), *sentences)
    return Table(title, tuple(columns), with_bold(body), notes)


def _cell(values: Sequence[float | None]) -> Cell | None:
    there = [v for v in values if v is not None]
    if not there:
        return None
    return Cell(float(np.mean(there)), float(np.std(there, ddof=1)) if len(there) > 1 else None)


def paper_cell(numbers: Mapping[str, float], metrics: Sequence[str]) -> str:
    """The paper's numbers as ``23.7/32.9/43.1/67.1``; empty where it has none."""
    return "/".join(f"{100 * numbers[m]:.1f}" for m in metrics) if all(m in numbers for m in metrics) else ""


def with_bold(rows: Sequence[Sequence[Cell | str | None]]) -> tuple[tuple[Cell | str | None, ...], ...]:
    """The highest of each column marked; differences are not ranked."""
    out = [list(row) for row in rows]
    for i in range(len(out[0]) if out else 0):
        cells = [(cell.value, row) for row in out if isinstance(cell := row[i], Cell) and cell.interval is None]
        for value, row in cells:
            if value == max(v for v, _ in cells):
                row[i] = replace(row[i], bold=True)  # type: ignore[type-var]
    return tuple(tuple(row) for row in out)


# -- what the numbers say ---------------------------------------------------------------------------------------


def differences(
    rows: Sequence[Shown],
    found: Mapping[str, Sequence[Mapping[str, Any]]],
    store: RunStore,
    reference: str,
    place: str,
    task: str,
) -> dict[str, Difference]:
    """The reference row minus every other row, IoU or F1, with paired bootstrap intervals.

    A pair is compared on the seeds that both rows have.
    """
    name = "locate" if task == "zs" else "discover"
    units: dict[str, dict[int, npt.NDArray[Any]]] = {}  # by seed: (V, 4), or (K-means seeds, V, 5)
    tasks: npt.NDArray[Any] = np.zeros(0)
    for row in rows:
        for run in found[row.label]:
            if place in run["scores"] and name in (loaded := store.units(run["id"], place)):
                units.setdefault(row.label, {})[run["spec"]["seed"]] = loaded[name].astype(np.float64)
                tasks = loaded["tasks"]
    ours = units.pop(reference, {})
    out = {}
    for label, theirs in units.items():
        seeds = [seed for seed in ours if seed in theirs]
        if not seeds:
            continue
        both = np.stack([[side[seed] for seed in seeds] for side in (ours, theirs)])
        if task == "zs":
            values = both[..., 0].mean(1)  # (2, V)
            gap = float(np.subtract(*values.mean(1)))
            drawn = [mean_draws(values, tasks, over) for over in ("videos", "tasks")]
        else:
            counts = both.reshape(2, -1, *both.shape[3:])  # (2, S, V, 5)
            per_task = np.stack([counts[:, :, g].sum(2) for g in by_task(tasks)], 2)
            gap = float(np.subtract(*discovery_scores(per_task)["f1"].mean((1, 2))))
            drawn = [f1_draws(counts, tasks, over) for over in ("videos", "tasks")]
        videos, whole = (interval(d[:, 0] - d[:, 1]) for d in drawn)
        out[label] = Difference(gap, videos, whole, len(np.unique(tasks)))
    return out


def verdicts(gaps: Mapping[str, Difference], rows: Sequence[Shown], name: str, reference: str) -> list[str]:
    """One sentence: against which rows the reference is better, worse, or neither; and the best control."""
    groups: dict[str, list[str]] = {"better": [], "level": [], "worse": []}
    for label, gap in sorted(gaps.items(), key=lambda pair: pair[1].value):
        low, high = gap.shown
        groups[gap.verdict].append(f"{label} ({100 * gap.value:+.1f} [{100 * low:+.1f}, {100 * high:+.1f}])")
    words = {"better": "is better than", "level": "cannot be told apart from", "worse": "is worse than"}
    said = "; ".join(f"{words[kind]} {', '.join(labels)}" for kind, labels in groups.items() if labels)
    out = [f"{name}: {reference} {said}."]
    controls = {row.label: gaps[row.label] for row in rows if row.control and row.label in gaps}
    if controls:
        best = min(controls, key=lambda label: controls[label].value)
        lead = 100 * controls[best].value
        side = "below" if lead > 0 else "above"
        out.append(f"{name}: the best control is {best}, {abs(lead):.1f} {side} {reference}.")
    return out


def _order(
    rows: Sequence[Shown],
    found: Mapping[str, Sequence[Mapping[str, Any]]],
    place: str,
    dataset: str,
    metric: tuple[str, str],
    head: str,
) -> list[str]:
    pairs = []
    for row in rows:
        cell = _cell([r["scores"].get(place, {}).get(metric[0]) for r in found[row.label]])
        theirs = row.paper.get(dataset, {}).get(metric[0])
        if cell is not None and theirs is not None:
            pairs.append((cell.value, theirs))
    if len(pairs) < 3:
        return []
    rho = spearman([a for a, _ in pairs], [b for _, b in pairs])
    return [f"{head}{metric[1]}: rank correlation (Spearman) of {len(pairs)} rows with the paper's: {rho:+.2f}."]


def spearman(a: Sequence[float], b: Sequence[float]) -> float:
    """Rank correlation, ties at their mean rank; NaN where one side is all equal."""
    x, y = ranks(a), ranks(b)
    return float("nan") if x.std() == 0 or y.std() == 0 else float(np.corrcoef(x, y)[0, 1])


def ranks(values: Sequence[float]) -> npt.NDArray[np.float64]:
    """(n,) ranks from 1, ties at their mean."""
    array = np.asarray(values, float)
    return np.asarray((array[:, None] > array).sum(1) + ((array[:, None] == array).sum(1) + 1) / 2, np.float64)


def _origin(
    entry: Mapping[str, Any], rows: Sequence[Shown], found: Mapping[str, Sequence[Mapping[str, Any]]]
) -> list[str]:
    """Where the numbers come from; said in the table itself, because tables travel without their page."""
    runs = [run for row in rows for run in found[row.label]]
    seeds = ", ".join(map(str, entry["seeds"]))
    out = [entry["about"], f"Mean ± standard deviation over seeds {seeds}. {entry['training']}".strip()]
    if entry["chosen"]:
        out.append(
            "Options of every row are chosen by one rule from one grid on the dev videos, which no column has; rows "
            "that name other options are the exception."
        )
    else:
        out.append("Nothing is chosen: there are no dev videos. Options are fixed, the same for all such rows.")
    if entry["reference"]:
        out.append("Differences: paired bootstrap, 10,000 draws, 95%; over tasks where there are five or more.")
    if any(row.kind == "published" for row in rows):
        out.append("Published methods are fitted on the videos they are scored on, without labels; weak: per task.")
        for name, curves in fit_curves(runs).items():
            ends = [points[-1][0] for points in curves]
            out.append(f"{name}: {min(ends):,} to {max(ends):,} updates per model (curves.svg).")
    wanted = sum(len(row["ids"]) for row in entry["rows"]) * len(entry["places"])
    have = sum(place in run["scores"] for some in found.values() for run in some for place in entry["places"])
    if have < wanted:
        out.append(f"Incomplete: {wanted - have} of {wanted} scores (row, seed, dataset) are missing.")
    for key, name in (("commit", "Commit"), ("machine", "Machine")):
        out.append(f"{name}: {'; '.join(sorted({str(run[key]) for run in runs}))}.")
    dates = sorted(str(run["date"]) for run in runs)
    out.append(f"Run between {dates[0]} and {dates[-1]}.")
    return out


def fit_curves(runs: Sequence[Mapping[str, Any]]) -> dict[str, list[list[tuple[int, float]]]]:
    """The learning curves of the fitted models, by method, of all seeds: (updates, mean loss) pairs."""
    out: dict[str, list[list[tuple[int, float]]]] = {}
    for run in runs:
        if curves := [curve for curve in run.get("curve", ()) if curve]:  # too few updates make no point of one
            out.setdefault(str(run["label"]).rsplit(", seed", 1)[0], []).extend(curves)
    return out


def write_curves(store: RunStore, entries: Sequence[Mapping[str, Any]], out: Path) -> None:
    """``curves.svg``, of the published methods that tables hold."""
    from stepformer.reproduce.figures import learning_curves

    ids = dict.fromkeys(i for entry in entries for row in entry["rows"] for i in row["ids"])
    if curves := fit_curves([run for i in ids if (run := store.read(i))]):
        learning_curves(out / "curves.svg", curves)


def write_table(table: Table, out: Path, name: str) -> None:
    """Markdown, LaTeX and JSON."""
    write_text(out / f"{name}.md", table.to_markdown() + "\n")
    write_text(out / f"{name}.tex", table.to_latex() + "\n")
    write_json(out / f"{name}.json", {**table.to_dict(), "written": stamp()})
