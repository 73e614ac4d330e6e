"""What the ``stepformer reproduce`` commands share: options, running, writing and printing tables."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepformer.cli.options import set_fields

if TYPE_CHECKING:
    from stepformer.evaluation.tables import Table
    from stepformer.reproduce.results import Results
    from stepformer.reproduce.runs import Run
    from stepformer.reproduce.schedule import Machine

KINDS = ("train", "control", "baseline")
FIT = """
Trains and scores what the table needs on simulated videos, in parallel processes, and writes TABLE.md, TABLE.tex,
TABLE.json and results.json into --out. What is done already is found and not done again; a stopped call (Ctrl-C,
--time-limit) goes on where it was. Weights and optimiser states stay in the work folder.
"""


def examples(name: str) -> list[str]:
    """The examples of a command that makes tables from the simulation."""
    command = f"stepformer reproduce {name}"
    return [
        f"{command} --world world.safetensors --out results",
        f"{command} --world world.safetensors --out results --jobs 12 --device cuda --steps 2000",
        f"{command} --out results --render",
    ]


def add_run_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of every table."""
    parser.add_argument("--world", help="simulated world file (stepformer simulate --out FILE)")
    parser.add_argument("--out", required=True, help="folder of the results and tables")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="seeds (0 1 2)")
    parser.add_argument("--steps", type=int, help="training steps of every model (the preset's)")
    parser.add_argument("--batch", type=int, help="videos a training step (the preset's)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a field of all configs")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time; on a GPU they share it (1)")
    parser.add_argument("--device", default=None, help="cpu or cuda; the GPU where there is one")
    parser.add_argument("--work", help="folder in which runs work and are found again (the cache folder)")
    parser.add_argument("--time-limit", type=float, metavar="S", help="stop after this long; the same command goes on")
    parser.add_argument("--merge", action="append", default=[], metavar="RESULTS", help="finished runs to use too")
    parser.add_argument("--keep-checkpoints", action="store_true", help="keep weights in OUT/checkpoints")
    parser.add_argument("--again", action="store_true", help="do the runs again though results are there")
    parser.add_argument("--render", action="store_true", help="only write the tables from the results there are")
    parser.add_argument("--results-only", action="store_true", help="write results.json alone; --render makes tables")
    parser.add_argument(
        "--only", nargs="+", choices=KINDS, default=KINDS, metavar="KIND",
        help=f"do these runs alone: {', '.join(KINDS)} (published methods); --merge brings several results together",
    )  # fmt: skip
    parser.add_argument("--plan", action="store_true", help="only list the runs and which of them are done")


def add_real_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the tables that also run on real features."""
    real = parser.add_argument_group("real features instead of the simulation")
    real.add_argument("--features", help="folder of <task>_<video>.npy, (frames, width)")
    real.add_argument("--dataset", help="CrossTask, COIN, ProceL or a plain folder, as for stepformer evaluate")
    real.add_argument("--subset", help="the videos to score (default: the test set)")
    real.add_argument("--rate", type=float, default=1.0, help="features a second (1)")
    real.add_argument("--texts", help=".npz of step texts and their vectors in the space of the features")
    real.add_argument("--checkpoint", help="weights of the StepFormer row of Tables 1 and 2, instead of training")
    real.add_argument("--store", nargs="+", default=[], help="feature stores to train on (stepformer prepare features)")


def _unfitted(run: Run) -> bool:
    """Not one of the published methods."""
    return "setting" not in run.spec


def _execute_real(args: argparse.Namespace, tables: Sequence[str], results: Results, out: Path) -> int:
    from stepformer.cli.evaluate import _TEST_SUBSETS
    from stepformer.data import read_dataset
    from stepformer.errors import UsageError
    from stepformer.reproduce.real import SPLIT, execute_real, load_real, read_texts, real_runs
    from stepformer.reproduce.real_training import train_real, training_runs
    from stepformer.reproduce.runs import unique
    from stepformer.reproduce.schedule import work_folder

    if not args.dataset:
        raise UsageError("--features needs --dataset PATH: the annotations of the videos")
    dataset = read_dataset(args.dataset)
    subset = args.subset or _TEST_SUBSETS.get(dataset.name)
    if subset and subset != "all":
        dataset = dataset.select(subset)
    texts = read_texts(args.texts) if args.texts else None
    if texts is None and "table2" in tables:
        raise UsageError("Table 2 localises step texts: give their vectors with --texts FILE.npz")
    if args.store and args.checkpoint:
        raise UsageError("--store trains the models of the table and --checkpoint brings one: give one of the two")
    if not args.store and not set(tables) <= {"table1", "table2"}:
        raise UsageError("Tables 3 and 4 train models: give the feature stores to train on with --store")
    device = args.device or "cpu"
    data = load_real(dataset, args.features, args.rate, texts, device, args.store)
    scored = real_runs(data, args.seeds, args.checkpoint)
    weights = f"weights {args.checkpoint}" if args.checkpoint else "no weights given: no StepFormer row"
    if args.store:
        weights = f"models trained on {', '.join(args.store)}"
    narrated = "" if data.has_phrases else " Shen et al. need narration (--store) and are left out."
    wanted: list[Run] = []
    trained: list[Run] = []
    for table in tables:
        mine = []
        if args.store:
            mine = training_runs(table, data, args.store, args.seeds, args.steps, args.batch, set_fields(args.set))
        # Table 3 compares with what is not fitted, Table 4 with nothing
        beside = [] if table == "table4" else scored if table != "table3" else [r for r in scored if _unfitted(r)]
        results.plan(table, [*beside, *mine])
        wanted += beside
        trained += mine
        results.facts[table] = {
            "datasets": {SPLIT: data.name},
            "features": f"Real features of {data.videos} videos of {data.name} ({data.left_out} annotated videos have "
            f"none and are left out), {args.rate:g} a second; {weights}. Nothing is chosen on these videos.{narrated}",
        }
    wanted, trained = unique(wanted), unique(trained)
    runs = [*wanted, *trained]
    if args.plan:
        for run in runs:
            print(f"{'done' if run.id in results.runs else 'to do'}  {run.id}  {run.name}, seed {run.seed}")
        return 0

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    execute_real(data, wanted, results, out, args.checkpoint, device, say)
    train_real(data, trained, results, out, Path(args.work) if args.work else work_folder(), device, say)
    return 0


def run_tables(args: argparse.Namespace, tables: Sequence[str]) -> int:
    """Runs what is missing, then writes and prints the tables. 5 where some runs failed or are left."""
    from stepformer.reproduce.results import NAME, read_results, results_in

    out = Path(args.out)
    results = results_in(out)
    for path in args.merge:
        results.merge(read_results(path))
    code = 0
    if args.render:
        if not results.runs:
            read_results(out)  # raises, saying what is missing
    else:
        real = getattr(args, "features", None)
        code = (_execute_real if real else _execute)(args, tables, results, out)
        if args.plan:
            return 0
        if args.results_only:
            print(json.dumps({"results": str(out / NAME)}) if args.json else f"{out / NAME}")
            return code
    made = write_tables(results, tables, out)
    if args.json:
        print(json.dumps({name: table.to_dict() for name, table in made.items()}))
    else:
        print("\n\n".join(table.to_text() for table in made.values()))
    print(f"written: {', '.join(str(out / f'{name}.md') for name in made)} (.tex, .json)", file=sys.stderr)
    return code


def write_tables(results: Results, tables: Sequence[str], out: Path) -> dict[str, Table]:
    """Markdown, LaTeX and JSON of each table."""
    from stepformer.base.files import write_json, write_text
    from stepformer.reproduce.render import render

    made: dict[str, Table] = {}
    for name in tables:
        made.update(render(results, name))
    for name, table in made.items():
        write_text(out / f"{name}.md", table.to_markdown() + "\n")
        write_text(out / f"{name}.tex", table.to_latex() + "\n")
        write_json(out / f"{name}.json", table.to_dict())
    return made


def _execute(args: argparse.Namespace, tables: Sequence[str], results: Results, out: Path) -> int:
    from stepformer.errors import UsageError
    from stepformer.reproduce.runs import table_runs, unique
    from stepformer.reproduce.schedule import execute

    if not args.world:
        raise UsageError("--world FILE is needed (stepformer simulate --out FILE makes one), or --render")
    if args.jobs < 1:
        raise UsageError(f"--jobs must be at least 1, got {args.jobs}")
    setup, facts, machine = prepare(args, out)
    runs = []
    for table in tables:
        planned = table_runs(table, setup)
        results.plan(table, planned)
        results.facts[table] = {**facts, "training": facts["data_training"]} if table == "data" else facts
        runs += planned
    runs = [run for run in unique(runs) if run.kind in args.only]
    if args.plan:
        for run in runs:
            done = run.id in results.runs or (machine.work / run.id / "result.json").exists()
            print(f"{'done' if done else 'to do'}  {run.id}  {run.kind}  {run.name}, seed {run.seed}")
        return 0
    if args.again:
        for run in runs:
            results.runs.pop(run.id, None)
            (machine.work / run.id / "result.json").unlink(missing_ok=True)
    ended = execute(runs, results, out, machine, lambda text: print(text, file=sys.stderr, flush=True))
    for label, why in ended.failed.items():
        print(f"stepformer: {label} failed: {why}", file=sys.stderr)
    return 5 if ended.failed or ended.left else 0


def prepare(args: argparse.Namespace, out: Path) -> tuple[Any, dict[str, Any], Machine]:
    """The setup of the runs, facts for the captions, and where to work."""
    import torch

    from stepformer.base.files import sha256_of
    from stepformer.data.world import load_world
    from stepformer.reproduce.runs import Setup
    from stepformer.reproduce.schedule import Machine, work_folder
    from stepformer.reproduce.scoring import GRID, dataset_of, divided, report_splits

    world = divided(load_world(args.world))
    splits = report_splits(world)
    fingerprint = sha256_of(args.world)
    setup = Setup(fingerprint, world.dim, splits, tuple(args.seeds), args.steps, args.batch, set_fields(args.set))
    device = args.device or ("cuda" if torch.cuda.is_available() else "cpu")
    datasets = {split: dataset_of(world, split) for split in splits}
    counts = ", ".join(f"{len(world.split(s))} videos of {name}" for s, name in datasets.items())
    steps = f"{args.steps} steps" if args.steps else "the preset's number of steps"
    facts = {
        "world": fingerprint, "datasets": datasets, "data": counts, "grid": GRID,
        "training": f"Trained for {steps}, batch {args.batch or 128}, on a mixture of simulated encoders "
        f"({', '.join(setup.encoders)}); no model has seen a test text.",
        "data_training": f"Trained for {steps}, batch {args.batch or 128}, on what each row says; no model has seen "
        "a test text.",
    }  # fmt: skip
    work = Path(args.work) if args.work else work_folder()
    checkpoints = out / "checkpoints" if args.keep_checkpoints else None
    return setup, facts, Machine(Path(args.world), work, device, args.jobs, args.time_limit, checkpoints)
