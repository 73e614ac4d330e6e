"""``stepformer bench simulated``: a checkpoint on simulated videos, beside the controls that could explain it away."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch

from stepformer.cli.options import add
from stepformer.core.inference import no_slots, pooled_slots, random_slots
from stepformer.core.model import Slots
from stepformer.core.options import InferenceConfig
from stepformer.data.simulator import Batch, Simulator
from stepformer.evaluation import validation as v

HELP = """Scores a checkpoint, with the inference options it carries, on a split of a simulated world: zero-shot
localisation and unsupervised discovery, beside a uniform split, ground-truth texts, random slots and pooled32 under the
same options. Each seed draws its own frames; mean and standard deviation over seeds."""

EXAMPLES = [
    "stepformer bench simulated --world world.safetensors",
    "stepformer bench simulated --world world.safetensors --model runs/mine/best.safetensors",
]

COLUMNS = ("zs_iou", "zs_precision", "zs_recall", "zs_mof", "un_f1", "un_precision", "un_recall", "un_mof")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    add(parser, "world", "model", "split", "seeds", "limit", world={"required": True})
    add(parser, "device", device="cpu")


def _control(make: Callable[..., Slots], batch: Batch, **options: Any) -> Slots:
    """An untrained control's slots of a batch."""
    return make(batch.video, batch.video_mask, **options)


def measure(args: argparse.Namespace) -> dict[str, dict[str, tuple[float, float]]]:
    """Method -> column -> (mean, standard deviation over seeds)."""
    from stepformer.app.discover.loading import checkpoint_file
    from stepformer.core.checkpoint import load_checkpoint
    from stepformer.data.world import load_world

    checkpoint = load_checkpoint(checkpoint_file(args.model), args.device)
    options = checkpoint.inference
    simulator = Simulator(load_world(args.world), device=args.device)
    rows: dict[str, list[dict[str, float]]] = {}
    for seed in args.seeds:
        trial = v.make_trial(simulator, args.split, args.limit, seed=200 + seed)
        generator = torch.Generator(args.device).manual_seed(seed)
        slots: dict[str, v.SlotMaker] = {
            "random slots": partial(_control, random_slots, generator=generator),
            "pooled32": partial(_control, pooled_slots),
            f"model {args.model}": v.model_slots(checkpoint.model),
        }
        rows.setdefault("uniform", []).append(uniform_scores(trial))
        rows.setdefault("ground-truth text", []).append(text_scores(trial, options))
        for name, make in slots.items():
            print(f"seed {seed}: {name}", file=sys.stderr)
            rows.setdefault(name, []).append(v.score_slots(trial, make, options, v.FULL))
    return {
        name: {
            c: (float(np.mean([s[c] for s in seeds])), float(np.std([s[c] for s in seeds], ddof=len(seeds) > 1)))
            for c in COLUMNS
            if c in seeds[0]
        }
        for name, seeds in rows.items()
    }


def uniform_scores(trial: v.Trial) -> dict[str, float]:
    """A split into equal parts: as many as the video has steps (zero-shot), or its task (unsupervised)."""
    counts = [int((kinds >= 0).sum()) for kinds in trial.kinds]
    steps = [v.task_steps(trial, np.flatnonzero(trial.tasks == task)) for task in trial.tasks]
    located, parts = (
        [np.arange(len(y)) * n // len(y) for y, n in zip(trial.labels(), numbers, strict=True)]
        for numbers in (counts, steps)
    )
    units = {"locate": v.locate_units(trial, located), "discover": v.discover_units(trial, (parts, None), v.QUICK)}
    return v.summary(units, trial.tasks)


def text_scores(trial: v.Trial, config: InferenceConfig) -> dict[str, float]:
    """Ground-truth texts aligned to the video."""
    located = v.locate_all(trial, [no_slots(batch.video) for batch in trial.batches], config)
    return v.summary({"locate": v.locate_units(trial, located)}, trial.tasks)


def run(args: argparse.Namespace) -> int:
    """Measures and prints the table."""
    table = measure(args)
    if args.json:
        how = {"split": args.split, "seeds": args.seeds}
        print(json.dumps({"simulated": True, **how, "rows": table}))
        return 0
    print(f"simulated, split {args.split}, seeds {args.seeds}")
    heads = ("zs IoU", "P", "R", "MoF", "un F1", "P", "R", "MoF")
    print(f"{'':<22}" + "".join(f"{h:>14}" for h in heads))
    for name, cells in table.items():
        shown = (f"{100 * cells[c][0]:.1f} ± {100 * cells[c][1]:.1f}" if c in cells else "" for c in COLUMNS)
        print(f"{name:<22}" + "".join(f"{cell:>14}" for cell in shown))
    return 0
