"""One run in one process: ``python -m stepformer.reproduce.worker JOB.json``.

The job file says which run, which world, which device, and where to work. The result is written beside it as
``result.json``; a training that was stopped goes on where it was. Needs torch, NumPy and safetensors alone.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from stepformer.app.training import make_trainer
from stepformer.base.files import write_json
from stepformer.core.checkpoint import load_checkpoint
from stepformer.core.inference import InferenceConfig, pooled_slots, random_slots
from stepformer.core.model import Slots
from stepformer.data.simulator import Batch, Simulator
from stepformer.data.world import World, load_world
from stepformer.errors import StepFormerError
from stepformer.evaluation.validation import (
    FULL,
    SlotMaker,
    Trial,
    frame_kmeans_scores,
    model_slots,
    uniform_scores,
    zero_shot,
)
from stepformer.reproduce import scoring
from stepformer.reproduce.runs import Run, config_of
from stepformer.reproduce.scoring import Chosen, Scores

FIXED = Chosen(InferenceConfig(), InferenceConfig(), "slots", {})
MAIN = ("test", scoring.MAIN_ENCODER)
# what a preset prescribes to cluster by when nothing but the drop line is chosen
PRESCRIBED = {"released": "frames"}


class Stage:
    """The trials of one run, each rendered once: splits and encoders on which a method is scored."""

    def __init__(self, world: World, seed: int, device: str) -> None:
        self.world, self.seed = scoring.divided(world), seed
        self.simulator = Simulator(self.world, seed=seed, device=device)
        self.device = self.simulator.device
        self.dev = scoring.trial(self.simulator, "choose", scoring.MAIN_ENCODER, seed)

    def places(self) -> list[tuple[str, str]]:
        """(split, encoder) of every score: all encoders on the test split, the main one elsewhere."""
        splits = scoring.report_splits(self.world)
        main = [(split, scoring.MAIN_ENCODER) for split in splits]
        return main + [("test", encoder) for encoder in scoring.OTHER_ENCODERS]

    def trial(self, split: str, encoder: str) -> Trial:
        """The videos of one place."""
        return scoring.trial(self.simulator, split, encoder, self.seed)


Nested = dict[str, dict[str, dict[str, Scores]]]  # view -> split -> encoder -> scores


def put(scores: Nested, view: str, split: str, encoder: str, values: Scores) -> None:
    """Stores scores, rounded to what a results file needs."""
    rounded = {name: round(float(value), 5) for name, value in values.items()}
    scores.setdefault(view, {}).setdefault(split, {}).setdefault(encoder, {}).update(rounded)


def score_method(
    stage: Stage, make: SlotMaker, views: dict[str, Chosen], others: dict[str, tuple[SlotMaker, Chosen]]
) -> Nested:
    """The views ``grid`` and ``own`` everywhere, all in the main place; ``others``: other slots under some options."""
    scores: Nested = {}
    for split, encoder in stage.places():
        trial = stage.trial(split, encoder)
        outputs = scoring.all_slots(trial, make)
        # the other encoders are transfer: the options chosen for the main one
        for view, chosen in views.items():
            if view in ("grid", "own") or (split, encoder) == MAIN:
                put(scores, view, split, encoder, scoring.scores_with(trial, outputs, chosen))
        if (split, encoder) != MAIN:
            continue
        for view, (other, chosen) in others.items():
            put(scores, view, split, encoder, scoring.scores_with(trial, scoring.all_slots(trial, other), chosen))
    return scores


def pooled(batch: Batch) -> Slots:
    """The untrained control ``pooled32``."""
    return pooled_slots(batch.video, batch.video_mask)


def slot_views(
    stage: Stage,
    make: SlotMaker,
    prescribed: str = "slots",
    unordered: bool = False,
    own: InferenceConfig | None = None,
) -> dict[str, Chosen]:
    """Options of every view, chosen on the choosing videos; ``own`` are those that a preset brings with it."""
    outputs = scoring.all_slots(stage.dev, make)
    views = {
        "grid": scoring.choose(stage.dev, outputs),
        "keep": scoring.choose(stage.dev, outputs, "keep", cluster_by=prescribed),
        "fixed": Chosen(FIXED.zero_shot, FIXED.unsupervised, prescribed, {}),
    }
    if own is not None:
        views["own"] = Chosen(own, own, prescribed, {})
        if unordered:
            free = replace(own, ordered=False)
            views["unordered"] = Chosen(free, free, prescribed, {})
    return views


def run_control(run: Run, stage: Stage) -> dict[str, Any]:
    """An untrained control."""
    name = run.spec["control"]
    if name in ("random", "pooled"):
        maker = pooled if name == "pooled" else random_maker(stage, run.seed)
        views = slot_views(stage, maker)
        return {"chosen": _plain(views), "scores": score_method(stage, maker, views, {})}
    scores: Nested = {}
    chosen: dict[str, Any] = {}
    line, window = InferenceConfig(), 1
    if name.startswith("text"):
        windows = (1,) if name == "text" else scoring.WINDOWS
        line, window, iou = scoring.choose_text(stage.dev, windows)
        options = Chosen(line, line, "", {"zs_iou": iou})
        chosen = {"grid": {**options.to_dict(), "window": window}}
    for split, encoder in stage.places():
        trial = stage.trial(split, encoder)
        if name == "uniform":
            put(scores, "grid", split, encoder, uniform_scores(trial))
        elif name == "kmeans":
            put(scores, "grid", split, encoder, frame_kmeans_scores(trial, FULL))
        else:
            for view, config in (("grid", line), ("fixed", InferenceConfig())):
                found = zero_shot(trial, scoring.text_located(trial, config, window))
                put(scores, view, split, encoder, {f"zs_{k}": v for k, v in found.items()})
    return {"chosen": chosen, "scores": scores}


def random_maker(stage: Stage, seed: int) -> SlotMaker:
    """Gaussian slots, drawn from the run's seed."""
    generator = torch.Generator(device=stage.device).manual_seed(seed)
    return lambda batch: random_slots(batch.video, batch.video_mask, generator=generator)


def run_training(run: Run, world: World, stage_of: Any, folder: Path, device: str, keep: Path | None) -> dict[str, Any]:
    """Trains (or goes on training) and scores the last weights."""
    config = config_of(run)
    out = folder / "train"
    started = time.time()
    trainer = make_trainer(config, out, device, world=world, quiet=True)
    resume = (out / "state.safetensors").exists()
    trainer.run(resume=resume)
    seconds = time.time() - started
    model = load_checkpoint(out / "last.safetensors", device).model
    make = model_slots(model)
    stage: Stage = stage_of()
    full = bool(run.spec["full"])
    views = slot_views(stage, make, PRESCRIBED.get(config.preset, "slots"), unordered=full, own=config.inference)
    others: dict[str, tuple[SlotMaker, Chosen]] = {}
    if full:
        others = {"pooled": (pooled, views["grid"]), "pooled own": (pooled, views["own"])}
    result = {
        "chosen": _plain(views),
        "scores": score_method(stage, make, views, others),
        "training": {"seconds": round(seconds, 1), "steps": trainer.step, "resumed": resume, **_last_losses(out)},
    }
    if keep is not None:
        keep.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(out / "last.safetensors", keep)
    return result


def main(argv: list[str]) -> int:
    """Works on one job file."""
    path = Path(argv[0])
    job = json.loads(path.read_text("utf-8"))
    run = Run.from_dict(job["run"])
    device = job["device"]
    torch.set_num_threads(int(job["threads"]))
    started = time.time()
    world = load_world(job["world_file"])
    keep = Path(job["checkpoint"]) if job.get("checkpoint") else None

    def stage() -> Stage:
        return Stage(world, run.seed, device)

    try:
        if run.kind == "train":
            result = run_training(run, world, stage, path.parent, device, keep)
        elif run.kind == "control":
            result = run_control(run, stage())
        else:
            from stepformer.reproduce.methods import run_baseline

            result = run_baseline(run, stage(), device)
    except StepFormerError as error:
        print(f"{run.name}, seed {run.seed}: {error}", file=sys.stderr)
        return error.exit_code
    result = {
        "id": run.id, **run.to_dict(), **result, "seconds": round(time.time() - started, 1), "code": job["code"],
        "device": torch.cuda.get_device_name() if device.startswith("cuda") else "cpu", "torch": torch.__version__,
    }  # fmt: skip
    write_json(path.parent / "result.json", result)
    shutil.rmtree(path.parent / "train", ignore_errors=True)  # weights and optimiser state have served
    return 0


def _plain(views: dict[str, Chosen]) -> dict[str, Any]:
    return {view: chosen.to_dict() for view, chosen in views.items()}


def _last_losses(out: Path) -> dict[str, float]:
    """The last logged losses of a training."""
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text("utf-8").splitlines() if line.strip()]
    last: dict[str, float] = next((row for row in reversed(rows) if "loss" in row), {})
    return {name: value for name, value in last.items() if name not in ("step", "lr")}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
