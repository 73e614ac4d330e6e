"""A tiny world and tiny trainings: every part of a table in a minute on a CPU, from no file; numbers say nothing."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from stepformer.data.worldbuilder import build_world
from stepformer.reproduce.plan import Setup

OVERRIDES: dict[str, Any] = {"model.feedforward": 64, "model.heads": 4, "data.simulator.max_frames": 96}


def word_vectors(texts: Sequence[str], width: int = 64) -> npt.NDArray[np.float32]:
    """(L, width) unit vectors, sums of one random vector per word, the same everywhere: in place of a text encoder."""
    out = np.zeros((len(texts), width), np.float32)
    for i, text in enumerate(texts):
        for word in text.lower().split() or [""]:
            seed = int.from_bytes(hashlib.sha256(word.encode()).digest()[:8], "little")
            out[i] += np.random.default_rng(seed).standard_normal(width).astype(np.float32)
    return np.asarray(out / np.maximum(np.linalg.norm(out, axis=1, keepdims=True), 1e-9), np.float32)


def smaller(setup: Setup, seeds_given: bool = False) -> Setup:
    """The setup with a few steps of training of small models, and one seed unless seeds are given."""
    return replace(
        setup,
        seeds=setup.seeds if seeds_given else (0,),
        steps=setup.steps or 6,
        batch=setup.batch or 8,
        overrides={**OVERRIDES, **setup.overrides},
        updates=20,
    )


def write_world(path: str | Path) -> None:
    """A world from the package's grammar alone."""
    build_world(word_vectors, grammar_procedures=40, encoder="words").save(path)
