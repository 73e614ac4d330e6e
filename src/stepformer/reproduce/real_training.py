"""What the tables train, trained on feature stores of real videos and scored on real features.

The same runs as on the simulation (:func:`stepformer.reproduce.runs.table_runs`), one after the other in this process.
Each works in a folder named by its id, so that a stopped call goes on where it was. Nothing is chosen: every model is
scored with the inference that its preset brings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from stepformer.app.training import make_trainer
from stepformer.core.checkpoint import load_checkpoint
from stepformer.evaluation.validation import model_slots
from stepformer.reproduce.real import SPLIT, Log, RealData, keep_scores, slot_scores
from stepformer.reproduce.results import Results
from stepformer.reproduce.runs import Run, Setup, config_of, table_runs
from stepformer.reproduce.worker import pooled


def training_runs(
    table: str,
    data: RealData,
    stores: Sequence[str],
    seeds: Sequence[int],
    steps: int | None = None,
    batch: int | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> list[Run]:
    """The trainings of one table, on the stores."""
    width = data.trial.batches[0].video.shape[2]
    changes = {**(overrides or {}), "data.store": [str(Path(store).resolve()) for store in stores]}
    setup = Setup(f"features {data.fingerprint}", width, (SPLIT,), tuple(seeds), steps, batch, changes)
    return [run for run in table_runs(table, setup) if run.kind == "train"]


def train_real(
    data: RealData, runs: Sequence[Run], results: Results, out: Path, work: Path, device: str, log: Log
) -> None:
    """Trains and scores what is missing, saving after each. Ctrl-C keeps the state of the run it stops."""
    results.save(out)
    for run in runs:
        if run.id in results.runs:
            continue
        folder, config = work / run.id / "train", config_of(run)
        trainer = make_trainer(config, folder, device, quiet=True)
        trainer.run(resume=(folder / "state.safetensors").exists())
        make, own = model_slots(load_checkpoint(folder / "last.safetensors", device).model), config.inference
        scores = slot_scores(data, make, own)
        views = {"grid": scores, "own": scores, "keep": scores}
        if run.spec["full"]:
            views["unordered"] = slot_scores(data, make, replace(own, ordered=False))
            views["pooled"] = views["pooled own"] = slot_scores(data, pooled, own)
        keep_scores(results, run, views)
        results.save(out)
        log(f"{run.name}, seed {run.seed}: trained on {', '.join(config.data.store)}")
