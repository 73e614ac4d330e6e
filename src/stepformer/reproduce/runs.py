"""One run = one training or one fit, scored; known by the hash of everything that decides its numbers.

A run's *spec* is plain data: for a training the whole resolved config, for a control or a baseline its name and
options. Its id is the SHA-256 of the spec, the seed, the world's hash and the simulated encoders, so that nothing is
trained twice: Table 3's full model is Table 1's StepFormer and Table 4's 32 slots.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from stepformer.core.config import TrainConfig, make_config, merged
from stepformer.data.simulator import ENCODERS
from stepformer.errors import UsageError

SCORING = 2
"""Raised when runs are scored differently than before, so that old results are not mixed in."""
TRAIN_ENCODERS = ("concepts", "plain", "joint")
CONTROLS = ("uniform", "kmeans", "random", "pooled", "text", "text smoothed")
BASELINES = (
    ("kukleva", "weak"), ("elhamifar", "weak"), ("shen", "weak"), ("kukleva", "unsupervised"), ("shen", "unsupervised"),
)  # fmt: skip
PRESETS = ("paper", "released", "default")
LOSSES = ("seq", "glob", "div", "smooth")
SLOTS = (24, 48)
LAYERS = (2, 4, 6, 8)
TABLES = ("table1", "table2", "table3", "table4", "data")
ALL_TEXTS = (
    ("grammar", 0.2), ("youcook2", 0.3), ("wikihow", 0.22), ("coin", 0.24), ("crosstask-related", 0.04),
    ("howto100m-phrases", 1e-4),
)  # fmt: skip
"""Sources with their shares when the non-commercial ones are used too (phrases only ever serve as narration)."""


@dataclass(frozen=True, slots=True)
class Run:
    """kind: ``train``, ``control`` or ``baseline``; name: how tables call it."""

    kind: str
    name: str
    seed: int
    spec: Mapping[str, Any]
    world: str  # SHA-256 of the world file

    @property
    def id(self) -> str:
        """16 hex digits of the hash of everything that decides the numbers."""
        what = {"kind": self.kind, "seed": self.seed, "spec": self.spec, "world": self.world, "scoring": SCORING,
                "encoders": {name: asdict(encoder) for name, encoder in ENCODERS.items()}}  # fmt: skip
        return hashlib.sha256(json.dumps(what, sort_keys=True, default=str).encode()).hexdigest()[:16]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, which :meth:`from_dict` reads back."""
        return {"kind": self.kind, "name": self.name, "seed": self.seed, "spec": self.spec, "world": self.world}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Run:
        """The inverse of :meth:`to_dict`."""
        return cls(**{key: values[key] for key in ("kind", "name", "seed", "spec", "world")})


@dataclass(frozen=True, slots=True)
class Setup:
    """What all runs of one call share."""

    world: str  # SHA-256
    dim: int  # width of the world's text space
    splits: tuple[str, ...]  # that are reported
    seeds: tuple[int, ...] = (0, 1, 2)
    steps: int | None = None  # of training; None: the preset's
    batch: int | None = None
    overrides: Mapping[str, Any] | None = None  # dotted config fields for every training, from --set
    encoders: tuple[str, ...] = TRAIN_ENCODERS  # simulated encoders mixed in training

    def __post_init__(self) -> None:
        if not self.seeds or len(set(self.seeds)) != len(self.seeds):
            raise UsageError(f"seeds must be given and differ, got {self.seeds}")


def _config(setup: Setup, preset: str, seed: int, model: Mapping[str, Any] | None = None) -> TrainConfig:
    values: dict[str, Any] = {
        "preset": preset,
        "seed": seed,
        "model": {"feature_dim": setup.dim, "dim": setup.dim},
        "data": {"simulator": {"encoders": list(setup.encoders)}},
        # the last weights are scored; nothing is selected along the way
        "validation": {"every": 0},
    }
    if setup.steps:
        values["steps"] = setup.steps
    if setup.batch:
        values["batch"] = setup.batch
    changes = {f"model.{name}": value for name, value in (model or {}).items()}
    return make_config(merged(merged(values, setup.overrides or {}), changes))


def train_run(
    setup: Setup,
    preset: str,
    seed: int,
    without: Sequence[str] = (),
    name: str | None = None,
    data: Mapping[str, Any] | None = None,
    **model: Any,
) -> Run:
    """A training: a preset, with losses switched off by name or fields of the simulator or of the model changed."""
    base = _config(setup, preset, seed)
    changed = {f"data.simulator.{field}": value for field, value in (data or {}).items()}
    config = _config(replace(setup, overrides={**(setup.overrides or {}), **changed}), preset, seed, model)
    if without:
        from stepformer.core.training import with_loss_off

        config = with_loss_off(config, *without)
    # the full default model is also scored without Drop-DTW and beside pooled32 under its options
    spec = {"config": json.loads(json.dumps(config.to_dict())), "full": preset == "default" and config == base}
    default = preset + "".join(f" without {loss}" for loss in without)
    return Run("train", name or default, seed, spec, setup.world)


def config_of(run: Run) -> TrainConfig:
    """The training config of a run."""
    return make_config(run.spec["config"])


def control_run(setup: Setup, name: str, seed: int) -> Run:
    """An untrained control, on every split."""
    return Run("control", name, seed, {"control": name}, setup.world)


def baseline_run(setup: Setup, method: str, setting: str, seed: int) -> Run:
    """A published method, fitted on and scored on each split; its options are chosen once for all of them."""
    spec = {"method": method, "setting": setting, "splits": list(setup.splits)}
    return Run("baseline", f"{method} {setting}", seed, spec, setup.world)


def table_runs(table: str, setup: Setup) -> list[Run]:
    """The runs of one table, controls first. Two names may stand for one run: "default" has some number of layers."""
    if table not in TABLES:
        raise UsageError(f"no table {table!r}; there are {', '.join(TABLES)}")
    runs: list[Run] = []
    for seed in setup.seeds:
        if table == "table4":
            runs += [train_run(setup, "default", seed)]
            runs += [train_run(setup, "default", seed, name=f"default {n} slots", slots=n) for n in SLOTS]
            runs += [train_run(setup, "default", seed, name=f"default {n} layers", layers=n) for n in LAYERS]
            continue
        if table == "data":
            runs += [control_run(setup, "pooled", seed), train_run(setup, "default", seed)]
            runs += [
                train_run(setup, "default", seed, name=f"default {encoder} only", data={"encoders": [encoder]})
                for encoder in TRAIN_ENCODERS
            ]
            runs += [train_run(setup, "default", seed, name="default all texts", data={"sources": list(ALL_TEXTS)})]
            continue
        runs += [control_run(setup, name, seed) for name in CONTROLS]
        runs += [train_run(setup, preset, seed) for preset in PRESETS]
        if table == "table3":
            runs += [train_run(setup, "default", seed, (loss,)) for loss in LOSSES]
        else:
            methods = BASELINES if table == "table1" else [b for b in BASELINES if b[0] == "shen"]
            runs += [baseline_run(setup, method, setting, seed) for method, setting in methods]
    return runs


def unique(runs: Iterable[Run]) -> list[Run]:
    """Each run once, in order of first appearance."""
    return list({run.id: run for run in reversed(list(runs))}.values())[::-1]
