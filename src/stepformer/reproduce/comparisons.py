"""Tables 1 and 2: every method on every dataset, the paper's numbers beside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stepformer.evaluation.tables import Cell, Table
from stepformer.reproduce import paper
from stepformer.reproduce.paper import UNSUPERVISED, ZERO_SHOT, Numbers
from stepformer.reproduce.results import Results
from stepformer.reproduce.tables import (
    SHORT,
    Measured,
    as_cell,
    compare,
    notes,
    paper_cell,
    scores_of,
    spearman,
    with_bold,
)

DATASETS = {"crosstask": "CrossTask", "procel": "ProceL", "coin": "COIN", "grammar": "grammar tasks"}


@dataclass(frozen=True, slots=True)
class Method:
    """A row: what a method may know, which run it is, and the name under which the paper's table has it.

    fitted: a published method, fitted on the very videos it is scored on.
    """

    supervision: str
    label: str
    name: str
    view: str = "grid"
    paper: str | None = None
    fitted: bool = False


_SHEN_WEAK = Method("weak", "Shen et al.", "shen weak", paper="shen weak", fitted=True)
_SHEN = Method("unsupervised", "Shen et al.", "shen unsupervised", paper="shen unsupervised", fitted=True)
OURS = Method("unsupervised", "StepFormer (default)", "default", "own", paper="stepformer")
_MODELS = (
    Method("unsupervised", "StepFormer (preset paper)", "paper", paper="stepformer"),
    Method("unsupervised", "StepFormer (preset released)", "released", paper="stepformer"),
    OURS,
)

TABLE1_ROWS = (
    Method("none", "uniform", "uniform"),
    Method("none", "frame K-means", "kmeans"),
    Method("none", "random slots", "random"),
    Method("none", "pooled32", "pooled"),
    Method("weak", "Kukleva et al.", "kukleva weak", paper="kukleva weak", fitted=True),
    Method("weak", "Elhamifar et al.", "elhamifar weak", paper="elhamifar weak", fitted=True),
    _SHEN_WEAK,
    Method("unsupervised", "Kukleva et al.", "kukleva unsupervised", paper="kukleva unsupervised", fitted=True),
    _SHEN,
    *_MODELS,
)
TABLE2_ROWS = (
    Method("none", "uniform", "uniform"),
    Method("none", "random slots", "random"),
    Method("none", "pooled32", "pooled"),
    _SHEN_WEAK,
    Method("unsupervised", "GT text features", "text", paper="text"),
    Method("unsupervised", "GT text, smoothed frames", "text smoothed"),
    _SHEN,
    *_MODELS,
)


def comparison_table(results: Results, table: str) -> Table:
    """Table 1 or 2 on the datasets that the results have."""
    rows, metrics, numbers = (
        (TABLE1_ROWS, UNSUPERVISED, paper.TABLE1) if table == "table1" else (TABLE2_ROWS, ZERO_SHOT, paper.TABLE2)
    )
    datasets: Mapping[str, str] = results.facts[table]["datasets"]
    real = bool(results.facts[table].get("features"))  # what cannot be run on given features has no row
    measured = {split: _column(results, table, rows, split) for split in datasets}
    body: list[tuple[Cell | str | None, ...]] = []
    for number, row in enumerate(rows):
        cells: list[Cell | str | None] = []
        for split, dataset in datasets.items():
            found = measured[split][number]
            cells += [as_cell(found.get(metric)) for metric in metrics]
            cells.append(paper_cell(_paper(numbers, row, dataset), metrics))
        if not real or any(isinstance(cell, Cell) for cell in cells):
            body.append((row.supervision, row.label, *cells))
    columns = ["supervision", "method"]
    for split, dataset in datasets.items():
        name = _called(split, dataset, datasets)  # names are keys in the JSON
        columns += [*(f"{name} {SHORT[m]}" for m in metrics), f"paper: {name}"]
    what = "unsupervised step discovery" if table == "table1" else "zero-shot step localisation"
    title = f"Table {table[-1]}: {what}, {'real' if real else 'simulated'} features"
    said = list(notes(results, table))
    said.append(
        "Published methods are fitted on the very videos they are scored on, without labels; StepFormer and the "
        "controls are not fitted on them. Supervision: none = nothing learned, weak = one model a task."
    )
    said += [] if real else _remarks(datasets)
    for split, dataset in datasets.items():
        said += _verdict(rows, measured[split], metrics[0], _called(split, dataset, datasets), numbers, dataset)
    return Table(title, tuple(columns), with_bold(body), tuple(said))


def _called(split: str, dataset: str, datasets: Mapping[str, str]) -> str:
    """The name of a column: the dataset, with the split where two splits are of one dataset."""
    name = DATASETS.get(dataset, dataset)
    return name if list(datasets.values()).count(dataset) == 1 else f"{name} ({split})"


def _column(results: Results, table: str, rows: Sequence[Method], split: str) -> list[dict[str, Measured]]:
    return [scores_of(results.of(table, row.name), row.view, split) for row in rows]


def _paper(numbers: Mapping[str, Mapping[str, Numbers]], row: Method, dataset: str) -> Numbers | None:
    return numbers[row.paper].get(dataset) if row.paper is not None else None


def _remarks(datasets: Mapping[str, str]) -> list[str]:
    """How our columns differ from the datasets that the paper used."""
    said = {
        "crosstask": "CrossTask: the 360 validation videos of the 18 primary tasks.",
        "procel": "ProceL: the one task whose annotations are at hand, of twelve; a single task's score is noisy.",
        "coin": "COIN: test videos of held-out tasks that served neither training nor the choice of options.",
    }
    return [said[name] for name in dict.fromkeys(datasets.values()) if name in said]


def _verdict(
    rows: Sequence[Method],
    found: Sequence[Mapping[str, Measured]],
    metric: str,
    name: str,
    numbers: Mapping[str, Mapping[str, Numbers]],
    dataset: str,
) -> list[str]:
    labels = [f"{row.label}, {row.supervision}" if row.fitted else row.label for row in rows]
    values = {label: m[metric] for label, m in zip(labels, found, strict=True) if metric in m}
    if OURS.label not in values or len(values) < 2:
        return []
    others = {label: m for label, m in values.items() if label != OURS.label}
    out = [f"{name} {SHORT[metric]}: {compare(values[OURS.label], others, OURS.label)}"]
    pairs = [
        (m[metric].mean, theirs[metric])
        for row, m in zip(rows, found, strict=True)
        if metric in m and (row is OURS or row not in _MODELS) and (theirs := _paper(numbers, row, dataset)) is not None
    ]
    if len(pairs) > 2:
        rho = spearman([a for a, _ in pairs], [b for _, b in pairs])
        out.append(
            f"{name}: the rank correlation (Spearman) of {len(pairs)} methods with the paper's order is {rho:+.2f}."
        )
    return out
