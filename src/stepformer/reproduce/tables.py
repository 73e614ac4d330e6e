"""Tables out of results: ours with mean and spread over seeds, the paper's numbers beside, and what they say."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from stepformer.evaluation.tables import Cell, Table
from stepformer.reproduce import paper
from stepformer.reproduce.paper import UNSUPERVISED, ZERO_SHOT, Numbers
from stepformer.reproduce.results import Results
from stepformer.reproduce.runs import LAYERS, LOSSES, SLOTS, TRAIN_ENCODERS
from stepformer.reproduce.scoring import MAIN_ENCODER

SHORT = {
    "zs_iou": "IoU", "zs_precision": "P", "zs_recall": "R", "zs_mof": "MoF",
    "un_f1": "F1", "un_precision": "P", "un_recall": "R", "un_mof": "MoF",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table: which run, which view of it, and what the paper prints in its place."""

    label: str
    name: str  # of the run
    view: str = "grid"
    paper: Numbers | None = None
    control: bool = False


@dataclass(frozen=True, slots=True)
class Measured:
    """Mean and spread (standard deviation, n - 1) over seeds of one score."""

    mean: float
    spread: float
    seeds: int


def measure(values: Sequence[float]) -> Measured | None:
    """Of the seeds' values; None of nothing."""
    if not values:
        return None
    spread = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
    return Measured(float(np.mean(values)), spread, len(values))


def scores_of(
    runs: Sequence[Mapping[str, Any]], view: str, split: str, encoder: str = MAIN_ENCODER
) -> dict[str, Measured]:
    """Each score of some runs, measured over them."""
    found: dict[str, list[float]] = {}
    for run in runs:
        for metric, value in run["scores"].get(view, {}).get(split, {}).get(encoder, {}).items():
            found.setdefault(metric, []).append(float(value))
    return {metric: m for metric, values in found.items() if (m := measure(values)) is not None}


TABLE3_ROWS = (
    Row("uniform", "uniform", control=True),
    Row("frame K-means", "kmeans", control=True),
    Row("random slots", "random", control=True),
    Row("pooled32", "pooled", control=True),
    Row("pooled32, default's inference", "default", "pooled own", control=True),
    Row("pooled32, default's chosen options", "default", "pooled", control=True),
    Row("GT text", "text", paper=paper.TABLE2["text"]["crosstask"], control=True),
    Row("GT text, smoothed frames", "text smoothed", control=True),
    Row("paper, its inference", "paper", "keep", paper.TABLE3["full"]),
    Row("paper", "paper", "grid", paper.TABLE3["full"]),
    Row("released, its inference", "released", "keep", paper.TABLE3["full"]),
    Row("released", "released", "grid", paper.TABLE3["full"]),
    Row("default, options chosen", "default", "grid"),
    Row("default", "default", "own", paper.TABLE3["full"]),
    *(Row(f"default without {loss}", f"default without {loss}", "own", paper.TABLE3[f"without {loss}"])
      for loss in LOSSES),
    Row("default without Drop-DTW", "default", "unordered", paper.TABLE3["without Drop-DTW"]),
)  # fmt: skip

TABLE4_ROWS = (
    Row("default", "default", "own"),
    *(Row(f"{n} slots", f"default {n} slots", "own", paper.TABLE4[f"{n} slots"]) for n in SLOTS),
    *(Row(f"{n} layers", f"default {n} layers", "own", paper.TABLE4[f"{n} layers"]) for n in LAYERS),
)


DATA_ROWS = (
    Row("pooled32 (control)", "pooled", control=True),
    Row("default: encoders mixed, open texts", "default", "own"),
    *(Row(f"trained for {encoder} alone", f"default {encoder} only", "own") for encoder in TRAIN_ENCODERS),
    Row("all texts, non-commercial ones too", "default all texts", "own"),
)


def paper_cell(numbers: Numbers | None, metrics: Sequence[str]) -> str:
    """The paper's numbers as ``23.7/32.9/43.1/67.1``; empty where it has none."""
    if numbers is None or not any(m in numbers for m in metrics):
        return ""
    return "/".join(f"{100 * numbers[m]:.1f}" for m in metrics)


def with_bold(rows: Sequence[tuple[Cell | str | None, ...]]) -> tuple[tuple[Cell | str | None, ...], ...]:
    """The highest of each column marked."""
    out = [list(row) for row in rows]
    for i in range(len(out[0]) if out else 0):
        cells = [(row[i].value, row) for row in out if isinstance(row[i], Cell)]  # type: ignore[union-attr]
        if cells:
            best = max(value for value, _ in cells)
            for value, row in cells:
                if value == best:
                    row[i] = replace(row[i], bold=True)  # type: ignore[type-var]
    return tuple(tuple(row) for row in out)


def ablation_table(
    results: Results, table: str, rows: Sequence[Row], title: str, split: str = "test", encoder: str = MAIN_ENCODER
) -> Table:
    """Both tasks in columns, rows as given: Tables 3 and 4."""
    body: list[tuple[Cell | str | None, ...]] = []
    for row in rows:
        runs = results.of(table, row.name)
        found = scores_of(runs, row.view, split, encoder)
        if not found and results.facts.get(table, {}).get("features"):
            continue  # what is not run on given features has no row
        cells = [as_cell(found.get(metric)) for metric in (*ZERO_SHOT, *UNSUPERVISED)]
        body.append((row.label, *cells, paper_cell(row.paper, ZERO_SHOT), paper_cell(row.paper, UNSUPERVISED)))
    names = [f"ZS {SHORT[m]}" for m in ZERO_SHOT] + [SHORT[m] for m in UNSUPERVISED]  # names are keys in the JSON
    columns = ("method", *names, "paper: zero-shot", "paper: unsup.")
    return Table(title, columns, with_bold(body), (*notes(results, table), *verdict(results, table, rows, split)))


def data_table(results: Results, title: str, split: str = "test") -> Table:
    """What training on other data does: IoU and F1 seen through each simulated encoder."""
    table = "data"
    body: list[tuple[Cell | str | None, ...]] = []
    for row in DATA_ROWS:
        cells: list[Cell | str | None] = []
        for encoder in TRAIN_ENCODERS:
            found = scores_of(results.of(table, row.name), row.view, split, encoder)
            cells += [as_cell(found.get("zs_iou")), as_cell(found.get("un_f1"))]
        body.append((row.label, *cells))
    columns = ("trained on", *(f"{encoder} {name}" for encoder in TRAIN_ENCODERS for name in ("ZS IoU", "F1")))
    said = [*notes(results, table), "Columns: the encoder through which the tested videos are seen."]
    return Table(title, columns, with_bold(body), tuple(said))


def as_cell(measured: Measured | None) -> Cell | None:
    """As a table shows it; the spread where there are several seeds."""
    if measured is None:
        return None
    return Cell(measured.mean, measured.spread if measured.seeds > 1 else None)


def notes(results: Results, table: str) -> list[str]:
    """Where the numbers come from; said in the table itself, because tables travel without their page."""
    facts = results.facts.get(table, results.facts)
    if facts.get("features"):
        missing = results.missing(table)
        return [str(facts["features"]), *([f"Incomplete: {len(missing)} runs are missing."] if missing else [])]
    seeds = sorted({int(seed) for ids in results.plans.get(table, {}).values() for seed in ids})
    out = [
        "Simulated: features are the calibrated simulation, on real timelines where the world has them "
        f"({facts.get('data', 'unknown data')}); simulated encoder \"{MAIN_ENCODER}\".",
        f"Mean ± standard deviation over seeds {', '.join(map(str, seeds))}; every seed trains anew and draws its own "
        f"frames. {facts.get('training', '')}".strip(),
        "The preset default and its ablations use the inference that the preset brings with it; for every other row "
        "options (drop line, read-out, text share, what is clustered) are chosen for each seed from one grid on "
        "held-out tasks that are in no column; \"its inference\" of paper and released: only the percentile line's "
        "share is.",
    ]  # fmt: skip
    missing = results.missing(table)
    if missing:
        out.append(
            f"Incomplete: {len(missing)} runs are missing ({'; '.join(missing[:6])}{' ...' * (len(missing) > 6)})."
        )
    codes = {run.get("code") for ids in results.plans.get(table, {}).values() for run in _there(results, ids)}
    if len(codes) > 1:
        out.append(f"The runs were made by {len(codes)} states of the code ({', '.join(sorted(map(str, codes)))}).")
    return out


def _there(results: Results, ids: Mapping[str, str]) -> Iterator[Mapping[str, Any]]:
    return (results.runs[i] for i in ids.values() if i in results.runs)


# -- what the numbers say ---------------------------------------------------------------------------------------


def verdict(results: Results, table: str, rows: Sequence[Row], split: str, ours: str = "default") -> list[str]:
    """Sentences computed from the numbers: which rows ours wins and loses against, and the order of the rows."""
    out: list[str] = []
    for metric, name in (("zs_iou", "Zero-shot IoU"), ("un_f1", "Unsupervised F1")):
        values = {
            row.label: (row, m)
            for row in rows
            if (m := scores_of(results.of(table, row.name), row.view, split).get(metric)) is not None
        }
        if ours in values and len(values) > 1:
            out.append(f"{name}: {compare(values[ours][1], {k: m for k, (_, m) in values.items() if k != ours}, ours)}")
            controls = {k: m for k, (row, m) in values.items() if row.control}
            if controls:
                best = max(controls, key=lambda k: controls[k].mean)
                gain = values[ours][1].mean / max(controls[best].mean, 1e-9) - 1
                out[-1] += f" The best control is {best}: {ours} is {100 * gain:+.1f}% relative to it."
        pairs = [(m.mean, row.paper[metric]) for row, m in values.values() if _ablation(row) and row.paper is not None]
        if len(pairs) > 2:
            rho = spearman([a for a, _ in pairs], [b for _, b in pairs])
            out.append(
                f"{name}: the rank correlation (Spearman) of our {len(pairs)} rows that the paper also has with its "
                f"order is {rho:+.2f}."
            )
    return out


def _ablation(row: Row) -> bool:
    """Rows of one model with something changed; other presets and controls are not of that order."""
    return not row.control and row.paper is not None and row.name.startswith("default")


def compare(ours: Measured, others: Mapping[str, Measured], name: str) -> str:
    """``default (29.1 ± 0.4) is above a (+1.2, 3.0 x the spread); level with b (...)``: level is within the spread."""
    groups: dict[str, list[str]] = {"above": [], "level with": [], "below": []}
    for label, other in sorted(others.items(), key=lambda pair: -pair[1].mean):
        difference = ours.mean - other.mean
        spread = max(ours.spread, other.spread)
        times = f", {abs(difference) / spread:.1f} x the spread" if spread > 0 else ""
        kind = "level with" if abs(difference) <= spread else "above" if difference > 0 else "below"
        groups[kind].append(f"{label} ({100 * difference:+.1f}{times})")
    said = [f"{kind} {', '.join(labels)}" for kind, labels in groups.items() if labels]
    return f"{name} ({Cell(ours.mean, ours.spread).text()}) is {'; '.join(said)}."


def spearman(a: Sequence[float], b: Sequence[float]) -> float:
    """Rank correlation, ties at their mean rank; NaN where one side is all equal."""
    x, y = ranks(a), ranks(b)
    if x.std() == 0 or y.std() == 0:
        return math.nan
    return float(np.corrcoef(x, y)[0, 1])


def ranks(values: Sequence[float]) -> Any:
    """(n,) ranks from 1, ties at their mean."""
    array = np.asarray(values, float)
    below = (array[:, None] > array).sum(1)
    equal = (array[:, None] == array).sum(1)
    return below + (equal + 1) / 2
