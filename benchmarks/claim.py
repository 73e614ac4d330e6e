"""``stepformer bench claim``: under which conditions do slots trained on narration beat untrained controls?

The paper claims that they do, on features that are not available here. On simulated videos of real pictures they do not
(docs/evidence.md). Two things could be the reason: pictures say too little of the step's text, or too little of what is
said is about the steps. Both are made better here, one at a time, until the claim holds or does not:

- *closeness* c adds c times the step's own text vector, less the mean text, to every frame of the step;
- *clear narration* says 95% of the steps within a second, and hardly anything else (60% within eight seconds, and an
  irrelevant phrase every 24 s, otherwise).

Models are trained as those of the tables are, and every row's
options are chosen by the tables' rule on dev videos of the same closeness; a second score has the paper's inference, of
which only the threshold is chosen. A second table has what the models are above the controls, with the intervals of the
tables: other videos, other tasks, other trainings.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import tempfile
import time
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from stepformer.base.many import limit_threads
from stepformer.cli.options import Several, above_zero, add
from stepformer.core.config import TrainConfig, make_config
from stepformer.core.training import Trainer
from stepformer.data.simulator import Sight, Simulator
from stepformer.data.world import Videos, World, load_world
from stepformer.errors import UsageError
from stepformer.evaluation.validation import few, make_trial, summary
from stepformer.reproduce.methods import Method, Stage, answer, choose, units_of
from stepformer.reproduce.plan import CLEAR
from stepformer.reproduce.report import gap_of
from stepformer.reproduce.sources import half_sparse

HELP = __doc__ or ""
EXAMPLES = [
    "stepformer bench claim --world world.safetensors --device cuda --jobs 12 --json > claim.json",
    "stepformer bench claim --report claim.json",
]
CLOSENESS = (0.0, 0.1, 0.2, 0.4)
MODELS = ("paper", "default")
CONTROLS = {"GT text": "text", "pooled32": "pooled", "frame K-means": "kmeans"}
SPLITS = {"test": "CrossTask", "coin_test": "COIN"}
RULES = {"chosen": "grid", "paper's": "paper"}
_DEV = 60  # videos that options are chosen on
Units = dict[str, Any]


class Closer(Simulator):
    """A simulator whose frames hold ``closeness`` times what the step's own text says."""

    closeness = 0.0

    def _frames(
        self, videos: Videos, labels: Tensor, per_frame: Tensor, sight: Sight, g: torch.Generator, jitter: float,
        padded: bool,
    ) -> Tensor:  # fmt: skip
        frames = super()._frames(videos, labels, per_frame, sight, g, jitter, padded)
        ids = videos.steps.clamp(min=0).gather(1, labels.clamp(min=0))  # (B, N)
        said = (self.vectors[ids] - self.text_centre).masked_fill((labels < 0)[..., None], 0.0)
        return F.normalize(frames + self.closeness * said, dim=-1)


@lru_cache(maxsize=1)
def _world(path: str) -> World:
    world = load_world(path)
    return replace(world, extra={**world.extra, "choose": half_sparse(few(world.dev, _DEV))})


def _simulator(world: str, config: TrainConfig, closeness: float, device: str) -> Closer:
    made = Closer(_world(world), config.data.simulator, config.seed, device)
    made.closeness = closeness
    return made


def _config(preset: str, seed: int, clear: bool, steps: int, batch: int) -> TrainConfig:
    simulator = CLEAR if clear else {}
    return make_config(
        {
            "preset": preset, "seed": seed, "steps": steps, "batch": batch, "loggers": (),
            "data": {"simulator": simulator}, "validation": {"every": 0},
        }
    )  # fmt: skip


def measure(world: str, what: str, closeness: float, clear: bool, seed: int, args: dict[str, Any]) -> dict[str, Units]:
    """One row with one seed by ``split, inference``: ``locate`` (V, 4), ``discover`` (S, V, 5), ``tasks`` (V,)."""
    torch.set_num_threads(1)
    device = str(args["device"])
    config = _config(what if what in MODELS else "paper", seed, clear, args["steps"], args["batch"])
    model = None
    if what in MODELS:
        with tempfile.TemporaryDirectory() as folder:
            trainer = Trainer(config, folder, _simulator(world, config, closeness, device), device, quiet=True)
            trainer.run()
            model = trainer.mean.cpu()
    simulator = _simulator(world, config, closeness, "cpu")  # where tables draw and score their videos too

    def stage(split: str, limit: int | None = None) -> Stage:
        return Stage(make_trial(simulator, split, limit, seed=seed + 1), True, seed, model=model)

    dev = stage("choose")
    tested = {split: stage(split, args["videos"]) for split in SPLITS}
    out: dict[str, Units] = {}
    for name, rule in RULES.items():
        method = Method(CONTROLS.get(what, "slots"), rule=rule)
        chosen = choose(answer(method, dev), dev.trial)
        for split, on in tested.items():
            out[f"{split}, {name}"] = {**units_of(answer(method, on), chosen, on.trial), "tasks": on.trial.tasks}
    return out


def _row(world: str, options: dict[str, Any], job: dict[str, Any]) -> dict[str, Any]:
    return {**job, "units": measure(world, job["row"], job["closeness"], job["clear"], job["seed"], options)}


def scores(units: Units) -> dict[str, float | None]:
    """IoU and F1 in percent; None where the row does not do the task."""
    found = {name: round(100 * value, 2) for name, value in summary(units, units["tasks"]).items()}
    return {"iou": found.get("zs_iou"), "f1": found.get("un_f1")}


def gaps(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each model less each control of the same closeness: the difference in percent and its interval."""
    columns = [f"{split}, {name}" for split, name in product(SPLITS, RULES)]
    out = []
    for closeness, clear, what in sorted({(r["closeness"], r["clear"], r["row"]) for r in rows if r["row"] in MODELS}):
        model = {
            r["seed"]: r["units"] for r in rows if (r["closeness"], r["clear"], r["row"]) == (closeness, clear, what)
        }
        for control, column in product(CONTROLS, columns):
            other = {r["seed"]: r["units"] for r in rows if (r["closeness"], r["row"]) == (closeness, control)}
            both_have = sorted(model.keys() & other.keys())
            ours, theirs = ([side[seed] for seed in both_have] for side in (model, other))
            for metric, task in (("iou", "locate"), ("f1", "discover")):
                both = [[u[column][task] for u in side if task in u[column]] for side in (ours, theirs)]
                if not all(both):
                    continue
                gap, (ends,) = gap_of(
                    np.array(both, float), ours[0][column]["tasks"], {"iou": "zs", "f1": "un"}[metric]
                )
                out.append({
                    "closeness": closeness, "clear": clear, "row": what, "control": control, "column": column,
                    "metric": metric, "gap": round(100 * gap, 2), "interval": [100 * end for end in ends],
                })  # fmt: skip
    return out


def gap_table(found: list[dict[str, Any]]) -> str:
    """One row per condition, model and control."""
    columns = [f"{split}, {name}" for split, name in product(SPLITS, RULES)]
    heads = [f"{SPLITS[split]}, {name}" for split, name in product(SPLITS, RULES)]
    lines = [f"| closeness | narration | difference | {' | '.join(heads)} |", "|---" * (3 + len(heads)) + "|"]
    cells: dict[tuple[Any, ...], dict[str, str]] = {}
    for g in found:
        metric = {"iou": "IoU", "f1": "F1"}[g["metric"]]
        key = (g["closeness"], g["clear"], f"{g['row']} − {g['control']}, {metric}")
        cells.setdefault(key, {})[g["column"]] = "{:+.1f} [{:+.1f}, {:+.1f}]".format(g["gap"], *g["interval"])
    for (closeness, clear, name), row in cells.items():
        said = "clear" if clear else "usual"
        lines.append(f"| {closeness:g} | {said} | {name} | {' | '.join(row[c] for c in columns)} |")
    return "\n".join(lines)


def table(rows: list[dict[str, Any]]) -> str:
    """One row per condition and method, from the JSON: IoU / F1 on both datasets with both inferences, over seeds."""
    columns = [f"{split}, {name}" for split, name in product(SPLITS, RULES)]
    heads = [f"{SPLITS[split]}, {name}" for split, name in product(SPLITS, RULES)]
    lines = [f"| closeness | narration | row | {' | '.join(heads)} |", "|---" * (3 + len(heads)) + "|"]
    for closeness, clear, what in sorted(
        {(r["closeness"], r["clear"], r["row"]) for r in rows},
        key=lambda k: (k[0], k[1], (*CONTROLS, *MODELS).index(k[2])),
    ):
        same = [r["scores"] for r in rows if (r["closeness"], r["clear"], r["row"]) == (closeness, clear, what)]
        said = "" if what in CONTROLS else "clear" if clear else "usual"
        cells = [" / ".join(_mean([s[c][k] for s in same]) for k in ("iou", "f1")) for c in columns]
        lines.append(f"| {closeness:g} | {said} | {what} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _mean(found: list[float | None]) -> str:
    values = [value for value in found if value is not None]
    if not values:
        return "–"
    return f"{np.mean(values):.1f} ± {np.std(values, ddof=1):.1f}" if len(values) > 1 else f"{values[0]:.1f}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    add(parser, "world", "jobs", "device")
    add(parser, "seeds", "train_steps", "batch", "limit", seeds=[11, 12, 13, 14], train_steps=1500, batch=64, limit=100)
    parser.add_argument(
        "--closeness", action=Several, type=float, nargs="+", default=list(CLOSENESS), metavar="C",
        help="shares of the text",
    )  # fmt: skip
    parser.add_argument(
        "--stop-after", type=above_zero, metavar="SECONDS", help="stop then and show what is done (default: run all)"
    )
    parser.add_argument(
        "--report", type=Path, metavar="JSON", help="show the JSON of an earlier run (default: measure)"
    )


def run(args: argparse.Namespace) -> int:
    """Prints the tables, or JSON with every seed's scores."""
    from stepformer.base.guard import reading
    from stepformer.core.devices import torch_device
    from stepformer.reproduce.execute import stamp

    if args.report is not None:
        with reading(args.report, "JSON of bench claim"):
            show(json.loads(args.report.read_text("utf-8")))
        return 0
    if not args.world:
        raise UsageError("give the videos with --world FILE; stepformer bench world makes one")
    device = str(torch_device(args.device))
    options = {"steps": args.train_steps, "batch": args.batch, "videos": args.limit, "device": device}
    jobs = [
        {"row": what, "closeness": c, "clear": clear, "seed": seed}
        for seed, c, clear, what in product(args.seeds, args.closeness, (False, True), (*MODELS, *CONTROLS))
        if what in MODELS or not clear  # controls hear nothing
    ]
    rows: list[dict[str, Any]] = []
    limit_threads(1)  # or each process has as many as the machine: an eighth of the rows in the same time
    start = time.monotonic()
    with multiprocessing.get_context("spawn").Pool(args.jobs) as pool:
        made = pool.imap_unordered(partial(_row, str(args.world), options), jobs)
        with suppress(StopIteration, multiprocessing.TimeoutError):
            while args.stop_after is None or time.monotonic() - start < args.stop_after:
                rows.append(made.next(args.stop_after and start + args.stop_after - time.monotonic()))
    plain = [
        {k: v for k, v in row.items() if k != "units"} | {"scores": {c: scores(u) for c, u in row["units"].items()}}
        for row in rows
    ]
    how = {**options, "seconds": round(time.monotonic() - start)}
    found = {**how, "written": stamp(device), "rows": plain, "gaps": gaps(rows)}
    if args.json:
        print(json.dumps(found))
    else:
        show(found)
    return 0


def show(found: dict[str, Any]) -> None:
    """Both tables, how they were made, and where."""
    print(table(found["rows"]), gap_table(found["gaps"]), sep="\n\n")
    made, seeds = found["written"], ", ".join(map(str, sorted({row["seed"] for row in found["rows"]})))
    print(
        f"\nMean ± standard deviation over seeds {seeds}; {found['steps']:,} steps, batch {found['batch']}, "
        f"{found['videos']} videos per dataset, {found['seconds']} s.\n"
        f"Commit: {made['commit']}. Machine: {made['machine']}. Run at {made['date']}."
    )
