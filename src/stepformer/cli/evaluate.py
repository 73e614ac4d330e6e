"""``stepformer evaluate``: audits a dataset, or scores predictions on it."""

from __future__ import annotations

import argparse
import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepformer.base.guard import plain_file
from stepformer.cli.log import answer, log
from stepformer.cli.options import add, share
from stepformer.errors import UsageError, near

if TYPE_CHECKING:
    from stepformer.data.records import Dataset
    from stepformer.evaluation.table1 import Table1Options

HELP = """Audits a dataset folder (--check), or scores a folder of predictions on it under the paper's protocols and
those of related papers. DATASET is CrossTask (folder or tar.gz), COIN (JSON), ProceL (folder, data.mat or JSON),
HowTo100M (--check only) or a plain folder of your own; docs/evaluation.md has all layouts.

Predictions are one file per video, called <task>_<video> or <video>: what discover and locate write, in any format that
can be read back; ids per frame (.npy, .npz with vectors, .txt); or rows step,start,end (.csv). --json also has the
scores of every video. --check looks for the files of the videos that are scored; the exit code is 5 if it finds
problems."""

EXAMPLES = [
    "stepformer evaluate crosstask_release.tar.gz --check",
    "stepformer evaluate COIN.json --check --features features --rate 1",
    "stepformer evaluate crosstask --predictions out --protocol table1 --per-task",
    "stepformer evaluate crosstask --predictions out              # all protocols side by side",
    "stepformer discover features/ --out out && stepformer evaluate crosstask --predictions out --missing skip",
]

_SHOWN = 20
WRITERS = {"text": "to_text", "markdown": "to_markdown", "latex": "to_latex"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from stepformer.evaluation.predictions import ID_KINDS
    from stepformer.evaluation.protocols import PROTOCOLS
    from stepformer.evaluation.table1 import DISTANCES, Table1Options

    default = Table1Options()
    parser.add_argument("dataset", metavar="DATASET", help="folder or file of the dataset")
    parser.add_argument(
        "--reader", metavar="NAME",
        help="dataset: crosstask, coin, procel, howto100m, plain or a plugin's (default: detected)",
    )  # fmt: skip
    add(parser, "subset", "features", "rate")
    check = parser.add_argument_group("audit")
    check.add_argument("--check", action="store_true", help="report what is missing, unreadable or inconsistent")
    add(check, "videos")
    scoring = parser.add_argument_group("scoring")
    scoring.add_argument("--predictions", metavar="FOLDER", help="folder of predictions")
    scoring.add_argument(
        "--protocol", choices=["all", *PROTOCOLS], default="all", help="one protocol, or all side by side"
    )
    scoring.add_argument("--ids", choices=ID_KINDS, default="auto", help="what the ids mean")
    scoring.add_argument(
        "--missing", choices=["error", "background", "skip"], default="error", help="how a missing prediction counts"
    )
    add(scoring, "seeds", "threads", seeds=[*default.seeds], threads=1)
    scoring.add_argument(
        "--keep", type=share, default=default.keep, metavar="0..1", help="share of a cluster's members kept"
    )
    scoring.add_argument(
        "--distance", choices=DISTANCES, default=default.distance, help="distance that decides which members are kept"
    )
    scoring.add_argument("--per-task", action="store_true", help="also show Table 1 task by task")
    add(scoring, "format", format={"default": ["text"], "metavar": ",".join(WRITERS)})


def run(args: argparse.Namespace) -> int:
    from stepformer.data import read_dataset

    if args.check == bool(args.predictions):
        raise UsageError("give either --check to audit the dataset or --predictions FOLDER to score")
    if unknown := set(args.format) - set(WRITERS):
        raise UsageError(f"--format: no table format {near(unknown.pop(), WRITERS)}")
    dataset = read_dataset(args.dataset, args.reader)
    return _check(args, dataset) if args.check else _score(args, dataset)


def _check(args: argparse.Namespace, dataset: Dataset) -> int:
    from stepformer.data.records import audit

    scored, _ = _chosen(args, dataset)
    needed = None if args.subset == "all" else {record.key for record in scored.videos}
    found = audit(dataset, args.features, args.videos, args.rate, needed=needed)
    lines = [f"{found.dataset}: " + ", ".join(f"{count} {name}" for name, count in found.counts.items())]
    lines += [f"note: {note}" for note in found.notes]
    kinds = ", ".join(f"{count} {kind}" for kind, count in found.by_kind().items())
    lines.append(f"{len(found.problems)} problems: {kinds}" if found.problems else "no problems")
    lines += [f"  {problem}" for problem in found.problems[:_SHOWN]]
    if len(found.problems) > _SHOWN:
        lines.append(f"  and {len(found.problems) - _SHOWN} more; --json lists all of them")
    answer(args, asdict(found), "\n".join(lines))
    return 5 if found.problems else 0


def _chosen(args: argparse.Namespace, dataset: Dataset) -> tuple[Dataset, str]:
    subset = args.subset or dataset.test_subset or "all"
    return dataset.select(None if subset == "all" else subset, annotated=True), subset


def _score(args: argparse.Namespace, dataset: Dataset) -> int:
    from stepformer.base.progress import Progress
    from stepformer.data.records import with_features
    from stepformer.evaluation.predictions import find_predictions
    from stepformer.evaluation.protocols import prepare, score, score_all, video_scores
    from stepformer.evaluation.table1 import Table1Options
    from stepformer.evaluation.tables import protocols_table

    options = Table1Options(keep=args.keep, distance=args.distance, seeds=tuple(args.seeds))
    dataset, subset = _chosen(args, dataset)
    if args.features:
        dataset = with_features(dataset, args.features, args.rate)
    if dataset.problems:
        where = f" --features {args.features}" if args.features else ""
        log.warning(f"{len(dataset.problems)} problems in the dataset; see --check{where}")
    files = find_predictions(args.predictions, endings())
    predictions = {}
    with Progress("read", len(files), "file", quiet=args.json) as progress:
        for name, path in files.items():
            predictions[name] = read_any(path, args.rate)
            progress.advance()
    prepared = prepare(dataset, predictions, args.ids, args.missing)
    results = score_all(prepared, options) if args.protocol == "all" else [score(prepared, args.protocol, options)]
    where = f"{dataset.name}, {subset}: {prepared.videos} videos of {len(prepared.tasks)} tasks"
    table = protocols_table(f"{Path(args.predictions).name} on {where}", results, prepared.notes)
    tables = [table, *([_task_table(prepared, options)] if args.per_task else [])]
    out: dict[str, Any] = {
        "dataset": dataset.name,
        "subset": subset,
        "videos": prepared.videos,
        "tasks": len(prepared.tasks),
        "ids": prepared.kind,
        "label_rate_hz": prepared.rate_hz,
        "kmeans_seeds": list(options.seeds),
        "notes": list(prepared.notes),
        "results": {r.protocol: {"values": dict(r.values), "spread": dict(r.spread), "how": r.how} for r in results},
        "per_video": video_scores(prepared) if args.json else [],
    } | ({"per_task": tables[1].to_dict()["rows"]} if args.per_task else {})
    answer(args, _finite(out), "\n\n".join(getattr(table, WRITERS[name])() for name in args.format for table in tables))
    return 0


def endings() -> list[str]:
    """The endings of files that can be read as predictions: those for evaluation, and timelines in other formats."""
    from stepformer.evaluation.predictions import SUFFIXES
    from stepformer.show.export import FORMATS

    timelines = [s for f in FORMATS.values() if f.reader and f.kind == "text" for s in f.suffixes]
    return [*SUFFIXES, *(suffix for suffix in timelines if suffix not in SUFFIXES)]


def read_any(path: Path, rate_hz: float) -> Any:
    """The Prediction in a file, be it one for evaluation or a timeline that stepformer wrote in whatever format."""
    from stepformer.evaluation.predictions import SUFFIXES, prediction_from_timeline, read_prediction
    from stepformer.show import export

    exported = path.suffix not in SUFFIXES
    if path.suffix in (".csv", ".txt"):  # start_s in its header, or 0:00 at its start: a timeline, not ids or rows
        with plain_file(path).open(encoding="utf-8", errors="replace") as file:
            first = file.readline(1000)
        exported = "start_s" in first or ":" in first.split(" ")[0]
    if not exported:
        return read_prediction(path, rate_hz)
    found = prediction_from_timeline(export.read(path))
    # chapters end with their last step; how long the video is they do not know
    return found if path.suffix in (".csv", ".tsv") else replace(found, duration_s=None)


def _finite(value: Any) -> Any:
    """JSON has no NaN: what cannot be said (the historical MoF of ids far apart) is null."""
    if isinstance(value, dict):
        return {name: _finite(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _task_table(prepared: Any, options: Table1Options) -> Any:
    from stepformer.evaluation.protocols import table1_inputs
    from stepformer.evaluation.table1 import score_table1
    from stepformer.evaluation.tables import COLUMNS, Cell, Table

    result = score_table1(table1_inputs(prepared, options), options)
    metrics = [metric for metric in COLUMNS if metric in result.mean]
    rows = []
    for name, values in result.per_task.items():
        data = prepared.tasks[name]
        cells = [Cell(values[metric]) for metric in metrics]
        rows.append((data.task.title, str(len(data.records)), str(len(data.task.steps)), *cells))
    columns = ("task", "videos", "steps", *(COLUMNS[metric] for metric in metrics))
    return Table("Table 1 by task, mean over seeds", columns, tuple(rows))
