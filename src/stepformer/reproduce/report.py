"""Tables out of results: mean and spread over seeds, the difference to one row with its interval, the paper's numbers,
and sentences that say no more than the intervals do.

The interval of a difference covers three paired bootstrap intervals of 95%: over videos, over tasks where there are at
least five, and over tasks and seeds where there are several seeds. A difference is called better or worse only where it
does not print as 0.0 and the interval lies on one side of 0, at the level at which all verdicts of a column hold
together (Bonferroni).
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
from stepformer.base.guard import read_json, reading
from stepformer.errors import InputError
from stepformer.evaluation.statistics import by_task, discovery_scores, f1_draws, interval, mean_draws, seed_draws
from stepformer.evaluation.tables import Cell, Table
from stepformer.reproduce.execute import RunStore, stamp
from stepformer.reproduce.plan import TABLES

METRICS = {
    "zs": (("zs_iou", "IoU"), ("zs_precision", "P"), ("zs_recall", "R"), ("zs_mof", "MoF")),
    "un": (("un_f1", "F1"), ("un_precision", "P"), ("un_recall", "R"), ("un_mof", "MoF")),
}
_LEAST_TASKS = 5
_LEVEL = 0.95
_PRINTED = 5e-4  # tables have one decimal of a percent


@dataclass(frozen=True, slots=True)
class Shown:
    """A row as the plan file keeps it (:func:`stepformer.reproduce.plan.plan_entry`), with the results there are."""

    label: str
    knows: str
    kind: str
    control: bool
    paper: Mapping[str, Mapping[str, float]]
    results: Sequence[Mapping[str, Any]]  # by seed

    def cell(self, place: str, metric: str) -> Cell | None:
        """Mean and spread over the seeds that were scored there."""
        scores = [run["scores"].get(place, {}).get(metric) for run in self.results]
        there = [value for value in scores if value is not None]
        if not there:
            return None
        return Cell(float(np.mean(there)), float(np.std(there, ddof=1)) if len(there) > 1 else None)


@dataclass(frozen=True, slots=True)
class Difference:
    """How much higher the reference row is than another."""

    value: float
    interval: tuple[float, float]
    together: tuple[float, float]  # at the level at which all of a column hold together

    @property
    def cell(self) -> Cell:
        """As tables print it."""
        return Cell(self.value, interval=self.interval)

    @property
    def verdict(self) -> str:
        """``better``, ``worse`` or ``level``."""
        low, high = self.together
        if abs(self.value) < _PRINTED or low <= 0 <= high:
            return "level"
        return "better" if self.value > 0 else "worse"


def build_table(name: str, entry: Mapping[str, Any], store: RunStore) -> Table:
    """The table of a plan's entry, from the results that are there; rows without any are left out."""
    spec = TABLES[name]
    often = Counter(row["label"] for row in entry["rows"])  # a method in two settings is two rows
    rows = []
    for row in entry["rows"]:
        label = f"{row['label']} ({row['knows']})" if often[row["label"]] > 1 else row["label"]
        if results := [r for i in row["ids"] if (r := store.read(i)) is not None]:
            rows.append(Shown(label, row["knows"], row["kind"], row["control"], row["paper"], results))
    if not rows:
        raise InputError(f"there are no results for {name} yet; run: stepformer reproduce {name}")
    columns = ["method"] if spec.tasks == ("zs", "un") else ["knows", "method"]
    body: list[list[Cell | str | None]] = [[row.label] if len(columns) == 1 else [row.knows, row.label] for row in rows]

    def add(column: str, cells: Sequence[Cell | str | None]) -> None:
        columns.append(column)
        for line, cell in zip(body, cells, strict=True):
            line.append(cell)

    sentences: list[str] = []
    for place, called in entry["places"].items():
        papers = [row.paper.get(entry["datasets"].get(place, ""), {}) for row in rows]
        for task in spec.tasks:
            metrics = METRICS[task][:1] if spec.main_only else METRICS[task]
            head = f"{called} " if called else "ZS " if task == "zs" and len(spec.tasks) > 1 else ""
            for metric, short in metrics:
                add(f"{head}{short}", [row.cell(place, metric) for row in rows])
            main, shown = metrics[0][0], f"{head}{metrics[0][1]}"
            gaps = differences(rows, store, entry["reference"], place, task)
            if gaps:
                cells = [gaps[row.label].cell if row.label in gaps else None for row in rows]
                add(f"{entry['reference']} − row, {shown}", cells)
                sentences += verdicts(gaps, rows, shown, entry["reference"])
            pairs = [(cell.value, paper[main]) for row, paper in zip(rows, papers, strict=True)
                     if main in paper and (cell := row.cell(place, main)) is not None]  # fmt: skip
            if len(pairs) >= 3:
                said = f"rank correlation (Spearman) of {len(pairs)} rows with the paper's"
                sentences.append(f"{shown}: {said}: {spearman(*zip(*pairs, strict=True)):+.2f}.")
            if any(main in paper for paper in papers):
                names, shorts = zip(*metrics, strict=True)
                printed = [
                    "/".join(f"{100 * paper[m]:.1f}" for m in names) if all(m in paper for m in names) else ""
                    for paper in papers
                ]
                add(f"paper: {head}{'/'.join(shorts)}", printed)
    title = f"{spec.title}, {'real' if entry['real'] else 'simulated'} features"
    return Table(title, tuple(columns), with_bold(body), (*_origin(entry, rows), *sentences))


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


def differences(rows: Sequence[Shown], store: RunStore, reference: str, place: str, task: str) -> dict[str, Difference]:
    """The reference row minus every other row, IoU or F1, with its interval.

    A pair is compared on the seeds that both rows have.
    """
    levels = (_LEVEL, 1 - (1 - _LEVEL) / max(1, len(rows) - 1))
    name = "locate" if task == "zs" else "discover"
    units: dict[str, dict[int, npt.NDArray[Any]]] = {}  # by seed: (V, 4), or (K-means seeds, V, 5)
    tasks: npt.NDArray[Any] = np.zeros(0)
    for row in rows:
        for run in row.results:
            if place in run["scores"] and name in (loaded := store.units(run["id"], place)):
                units.setdefault(row.label, {})[run["spec"]["seed"]] = loaded[name].astype(np.float64)
                tasks = loaded["tasks"]
    ours = units.pop(reference, {})
    out = {}
    for label, theirs in units.items():
        seeds = [seed for seed in ours if seed in theirs]
        if seeds:
            both = np.stack([[side[seed] for seed in seeds] for side in (ours, theirs)])
            gap, (alone, together) = gap_of(both, tasks, task, levels)
            out[label] = Difference(gap, alone, together)
    return out


def gap_of(
    both: npt.NDArray[np.float64], tasks: npt.NDArray[Any], task: str, levels: Sequence[float] = (_LEVEL,)
) -> tuple[float, list[tuple[float, float]]]:
    """What the first of two rows has above the second, and the interval at each level, which covers other videos, other
    tasks and, from two seeds on, other trainings.

    ``both`` is (2, seeds, V, 4) for IoU (``zs``) and (2, seeds, K-means seeds, V, 5) for F1, ``tasks`` is (V,).
    """
    groups = by_task(tasks)
    few = len(groups) < _LEAST_TASKS
    ways = ("videos",) if few else ("videos", "tasks")
    if task == "zs":
        per_task = np.stack([both[..., g, 0].sum(2) for g in groups], 2)  # (2, seeds, T)
        sizes = np.array([len(g) for g in groups], np.float64)
        drawn = [mean_draws(both[..., 0].mean(1), tasks, over) for over in ways]
    else:
        counts = both.reshape(2, -1, *both.shape[3:])  # (2, S, V, 5)
        per_task = np.stack([discovery_scores(both[..., g, :].sum(3))["f1"].mean(2) for g in groups], 2)
        sizes = np.ones(len(groups))
        drawn = [f1_draws(counts, tasks, over) for over in ways]
    if both.shape[1] > 1:
        drawn.append(seed_draws(per_task, sizes, few))
    ends = [[interval(d[:, 0] - d[:, 1], level) for d in drawn] for level in levels]
    covering = [(min(low for low, _ in found), max(high for _, high in found)) for found in ends]
    return float(np.subtract(*(per_task.sum(2) / sizes.sum()).mean(1))), covering


def verdicts(gaps: Mapping[str, Difference], rows: Sequence[Shown], name: str, reference: str) -> list[str]:
    """One sentence: against which rows the reference is better, worse, or neither; and the best control."""
    groups: dict[str, list[str]] = {"better": [], "level": [], "worse": []}
    for label, gap in sorted(gaps.items(), key=lambda pair: pair[1].value):
        groups[gap.verdict].append(f"{label} ({gap.cell.text()})")
    words = {"better": "is better than", "level": "cannot be told apart from", "worse": "is worse than"}
    said = "; ".join(f"{words[kind]} {', '.join(labels)}" for kind, labels in groups.items() if labels)
    out = [f"{name}: {reference} {said}."]
    controls = {row.label: gaps[row.label] for row in rows if row.control and row.label in gaps}
    if controls:
        best = min(controls, key=lambda label: controls[label].value)
        lead = 100 * controls[best].value
        side = "below" if lead > 0 else "above"
        far = "level with" if abs(lead) < 100 * _PRINTED else f"{abs(lead):.1f} {side}"
        out.append(f"{name}: the best control is {best}, {far} {reference}.")
    return out


def spearman(a: Sequence[float], b: Sequence[float]) -> float:
    """Rank correlation, ties at their mean rank; NaN where one side is all equal."""
    x, y = (np.sign(np.subtract.outer(side, side)).sum(1) for side in (a, b))  # twice the ranks, about their mean
    return float("nan") if x.std() == 0 or y.std() == 0 else float(np.corrcoef(x, y)[0, 1])


def _origin(entry: Mapping[str, Any], rows: Sequence[Shown]) -> list[str]:
    """Where the numbers come from; said in the table itself, because tables travel without their page."""
    runs = [run for row in rows for run in row.results]
    seeds = ", ".join(map(str, entry["seeds"]))
    out = [entry["about"], f"Mean ± standard deviation over seeds {seeds}. {entry['training']}".strip()]
    if entry["chosen"]:
        out.append(
            "Options of every row are chosen by one rule on the dev videos, which no column has, all slots' from one "
            "grid; rows that name other options are the exception."
        )
    else:
        out.append("Nothing is chosen: there are no dev videos. Options are fixed, the same for all such rows.")
    if entry["reference"]:
        out.append(
            "Differences: paired bootstrap, 10,000 draws, 95%. An interval covers three: over videos, over tasks "
            "(where there are five or more), and over tasks and seeds. Better and worse are said only where all "
            "verdicts of a column hold together at 95% (Bonferroni)."
        )
    if any(row.kind == "published" for row in rows):
        out.append("Published methods are fitted on the videos they are scored on, without labels; weak: per task.")
        for name, curves in fit_curves(runs).items():
            ends = [points[-1][0] for points in curves]
            out.append(f"{name}: {min(ends):,} to {max(ends):,} updates per model (curves.svg).")
    learned = []
    for row in rows:
        if pairs := [run["training"]["glob"] for run in row.results if "glob" in run.get("training", ())]:
            learned.append("{} {:.2f} to {:.2f}".format(row.label, *np.mean(pairs, 0)))
    if learned:
        out.append(f"Global loss at the start of training, which is chance, and at its end: {', '.join(learned)}.")
    wanted = sum(len(row["ids"]) for row in entry["rows"]) * len(entry["places"])
    have = sum(place in run["scores"] for run in runs for place in entry["places"])
    if have < wanted:
        out.append(f"Incomplete: {wanted - have} of {wanted} scores (row, seed, dataset) are missing.")
    # several commits may have one code: what is hashed is the part that decides numbers
    for key, name in (("commit", "Commit"), ("code", "Hash of the code that decides numbers"), ("machine", "Machine")):
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


# -- files ------------------------------------------------------------------------------------------------------


def read_plan(out: Path) -> dict[str, Any]:
    """What a folder's plan keeps of each table; nothing where there is no plan."""
    tables: dict[str, Any] = {}
    if (path := out / "plan.json").exists():
        with reading(path, "plan of tables"):
            tables.update(read_json(path)["tables"])
    return tables


def write_plan(entries: Mapping[str, Any], out: Path) -> None:
    """Adds tables to the plan of a folder."""
    write_json(out / "plan.json", {"tables": {**read_plan(out), **entries}, **stamp()})


def write_tables(names: Sequence[str], out: Path) -> dict[str, Table]:
    """Tables of a folder's plan as Markdown, LaTeX and JSON, and ``curves.svg`` of the published methods in them."""
    from stepformer.reproduce.figures import learning_curves

    entries, store, made = read_plan(out), RunStore(out / "runs"), {}
    if not entries:
        raise InputError(f"there is no {out / 'plan.json'}; run the table first, without --render")
    for name in names:
        if name not in entries:
            raise InputError(f"{out / 'plan.json'} has nothing of {name}; run: stepformer reproduce {name}")
        made[name] = table = build_table(name, entries[name], store)
        write_text(out / f"{name}.md", table.to_markdown() + "\n")
        write_text(out / f"{name}.tex", table.to_latex() + "\n")
        write_json(out / f"{name}.json", {**table.to_dict(), "written": stamp()})
    ids = dict.fromkeys(i for name in names for row in entries[name]["rows"] for i in row["ids"])
    if curves := fit_curves([run for i in ids if (run := store.read(i))]):
        learning_curves(out / "curves.svg", curves)
    return made
