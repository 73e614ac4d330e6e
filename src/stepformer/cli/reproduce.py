"""``stepformer reproduce``: the paper's tables and figures, and our own."""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from stepformer.base.files import make_folder
from stepformer.base.many import cores, limit_threads
from stepformer.cli.log import answer, log
from stepformer.cli.options import FOLDER, Several, above_zero, add, positive, set_fields, words
from stepformer.errors import UsageError

if TYPE_CHECKING:
    from stepformer.reproduce.plan import Setup
    from stepformer.reproduce.sources import Source

HELP = """Trains, fits and scores what a table needs, and writes it as TABLE.md, TABLE.tex and TABLE.json into --out:

  table1     unsupervised step discovery: StepFormer, published methods, controls
  table2     zero-shot localisation of given steps
  table3     the losses, Drop-DTW, the presets, and the controls
  table4     the number of slots and of decoder layers
  data       what the default preset learns from other training data
  evidence   which parts matter: each change of the default preset against the paper's alone
  figures    timelines, attention, alignment and narration of one video
  all        every table, each run once

Videos are simulated (--world), or your own features with annotations (--dataset, --features). Each run is stored
under a hash of everything that determines its numbers, so a stopped command resumes and nothing is done twice."""

EXAMPLES = [
    "stepformer reproduce table3 --smoke",
    "stepformer reproduce all --world world.safetensors --out results --jobs 12 --device cuda --train-steps 1200",
    "stepformer reproduce table2 --dataset crosstask --features univl --texts t.npz --checkpoint runs/mine --out real",
    "stepformer reproduce table3 --out results --render",
]

KINDS = ("control", "published", "model")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    # clustering multiplies small matrices: threads of the matrix product wait for each other longer than they work
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    whats = ("table1", "table2", "table3", "table4", "data", "evidence", "figures", "all")
    parser.add_argument("what", choices=whats, metavar="WHAT", help=", ".join(whats))
    add(parser, "out", out={"metavar": FOLDER})
    parser.add_argument("--smoke", action="store_true", help="a tiny world and tiny trainings: does every part work?")
    videos = parser.add_argument_group("videos")
    add(videos, "world", "limit", "features", "dataset", "subset", "rate")
    videos.add_argument("--dev", metavar="NAME", help="subset to choose options on (default: nothing is chosen)")
    videos.add_argument("--texts", metavar="FILE", help=".npz of texts and vectors, or their encoder (default: none)")
    models = parser.add_argument_group("models")
    add(models, "checkpoint", "train_steps", "batch", "set")
    models.add_argument(
        "--store", action=Several, default=[], metavar="FOLDER",
        help="feature store to train on; repeatable (default: the simulation)",
    )  # fmt: skip
    runs = parser.add_argument_group("runs")
    add(runs, "seeds", "jobs", "device")
    runs.add_argument(
        "--only", action=Several, type=words, default=[], metavar="KINDS",
        help=f"only rows of these kinds: {', '.join(KINDS)}, or of published methods by name (default: all)",
    )  # fmt: skip
    runs.add_argument(
        "--updates", type=positive, default=5000, metavar="N", help="most updates of a published method (default: 5000)"
    )
    runs.add_argument(
        "--baseline", action=Several, type=words, default=[], metavar="NAMES",
        help="also run these baselines of plugins, in tables of discovery (default: none)",
    )  # fmt: skip
    runs.add_argument(
        "--stop-after", type=above_zero, metavar="SECONDS",
        help="stop then and show what is done (default: run all); the same command continues later",
    )  # fmt: skip
    add(runs, "dry_run")
    runs.add_argument("--render", action="store_true", help="only write the tables, from the results so far")
    figures = parser.add_argument_group("figures")
    add(figures, "split")
    figures.add_argument("--draw-task", type=int, default=0, metavar="N", help="number of the task within the split")
    figures.add_argument("--no-published", action="store_true", help="do not fit the published methods")


def run(args: argparse.Namespace) -> int:
    """Runs what is missing, then writes and prints. 5 where some jobs failed or are left."""
    if not args.smoke:
        return _run(args)
    limit_threads(1)  # everything is tiny there
    if args.sources["jobs"] == "default":
        args.jobs = min(2, cores())
    with tempfile.TemporaryDirectory(prefix="stepformer-smoke-") as folder:
        args.out = args.out or folder
        return _run(args)


def _run(args: argparse.Namespace) -> int:
    from stepformer.reproduce.methods import PUBLISHED
    from stepformer.reproduce.plan import TABLES
    from stepformer.reproduce.report import write_tables

    if not args.out:
        raise UsageError("give a folder for the tables with --out FOLDER")
    known = [*KINDS, *PUBLISHED]
    if unknown := {*args.only} - {*known}:
        raise UsageError(f"--only takes {', '.join(known)}, not {', '.join(sorted(unknown))}")
    out = Path(args.out)
    if args.what == "figures":
        return _figures(args, out)
    tables = tuple(TABLES) if args.what == "all" else (args.what,)
    code = 0
    if not args.render:
        code = _execute(args, tables, out)
        if args.dry_run:
            return 0
    made = write_tables(tables, out)
    result = {name: table.to_dict() for name, table in made.items()}
    answer(args, result, "\n\n".join(table.to_text() for table in made.values()))
    if not args.smoke:
        log.info("written: %s (.tex, .json)", ", ".join(str(out / f"{name}.md") for name in made))
    return code


def _source(args: argparse.Namespace, out: Path) -> Callable[[], Source]:
    """What opens the videos, here and in other processes."""
    from stepformer.core.devices import torch_device
    from stepformer.reproduce.sources import Features, Simulated, write_tiny_world

    if args.smoke:
        world = out / "world.safetensors"
        if not world.exists():
            write_tiny_world(world)
        return partial(Simulated, str(world))
    if args.features and not args.dataset:
        raise UsageError("--features needs --dataset PATH: the annotations of the videos")
    if args.dataset:
        stores = tuple(args.store)
        files = (args.dataset, args.features, args.rate, args.texts, stores, args.subset, args.dev)
        return partial(Features, *files, str(torch_device(args.device)))
    if not args.world:
        raise UsageError("give the videos: --world FILE (stepformer simulate makes one), or --dataset with features")
    return partial(Simulated, args.world, args.limit)


def _setup(args: argparse.Namespace, source: Source, tables: Sequence[str]) -> Setup:
    from stepformer.core.devices import torch_device
    from stepformer.reproduce.plan import Setup, read_checkpoint, smaller

    if "table2" in tables and not source.has_texts:
        raise UsageError("Table 2 localises step texts: give their vectors with --texts FILE.npz")
    if args.store and args.checkpoint:
        raise UsageError(
            "--store trains the models of the table and --checkpoint provides one: give only one of the two"
        )
    if source.real and not args.store and set(tables) & {"table4", "data"}:
        raise UsageError("this table trains models: give the feature stores to train on with --store")
    # tables of another machine's results can be written without its device
    device = (args.device or str(torch_device())).partition(":")[0]
    checkpoint = read_checkpoint(args.checkpoint) if args.checkpoint else None
    setup = Setup(
        source, tuple(args.seeds), args.train_steps, args.batch, set_fields(args.set), tuple(args.store), checkpoint,
        device, args.updates, tuple(args.baseline),
    )  # fmt: skip
    return smaller(setup, args.sources["seeds"] != "default") if args.smoke else setup


def _execute(args: argparse.Namespace, tables: Sequence[str], out: Path) -> int:
    from stepformer.core.devices import torch_device
    from stepformer.reproduce.execute import Job, RunStore, execute, make_jobs
    from stepformer.reproduce.plan import plan_tables
    from stepformer.reproduce.report import write_plan

    make_folder(out)
    opened = _source(args, out)
    setup = _setup(args, opened(), tables)
    store = RunStore(out / "runs")
    entries, wanted = plan_tables(tables, setup, args.only)
    missing = store.unscored(wanted)
    if args.dry_run:
        left = {run.id for run in missing}
        rows = [{"run": run.id, "label": run.label, "seed": run.seed, "done": run.id not in left} for run in wanted]
        lines = [f"{'done' if r['done'] else 'to do'}  {r['run']}  {r['label']}, seed {r['seed']}" for r in rows]
        answer(args, rows, "\n".join(lines))
        return 0
    if any(run.device == setup.device for run in missing):
        torch_device(args.device)
    write_plan(entries, out)
    if len(missing) < len(wanted):
        log.info("%d of %d runs are done already", len(wanted) - len(missing), len(wanted))
    jobs = make_jobs(missing, Job("", opened, (), store.folder, out / "work"))
    ended = execute(jobs, args.jobs, args.stop_after, log.info)
    for label, why in ended.failed.items():
        log.error("%s failed: %s", label, why)
    return 5 if ended.failed or ended.left else 0


def _figures(args: argparse.Namespace, out: Path) -> int:
    from stepformer.reproduce.figures import draw_figures, make_scene

    if not args.checkpoint:
        raise UsageError("figures need weights: --checkpoint FILE or the folder of a training")
    source = _source(args, out)()
    scene = make_scene(source, args.checkpoint, args.split, args.draw_task, source.device)
    paths = draw_figures(scene, out, not args.no_published)
    shown = {"task": scene.words.task, "video": scene.video, "simulated": scene.simulated}
    answer(args, {**shown, "files": [str(path) for path in paths]}, "\n".join(map(str, paths)))
    return 0
