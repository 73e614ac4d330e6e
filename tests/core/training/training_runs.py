"""Small runs that several training tests share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file

from stepformer.core.config import TrainConfig, make_config, merged
from stepformer.data.store import StoredPhrase, StoredVideo, StoreInfo, StoreWriter

SMALL: dict[str, Any] = {
    "steps": 6,
    "batch": 4,
    "log_every": 1,
    "save_every": 100,
    "model": {
        "feature_dim": 64, "dim": 32, "layers": 1, "heads": 2, "feedforward": 32, "slots": 6,
        "dropout": 0.2,
    },
    "optim": {"ema": 0.9, "warmup": 0.34},
    "loss": {"smooth_frames": 12},
    "data": {"simulator": {"sources": {"grammar": 1.0}, "max_frames": 30, "max_steps": 5}},
    "validation": {"every": 3, "videos": 4},
}  # fmt: skip


def small(preset: str = "default", **overrides: Any) -> TrainConfig:
    """A run of a few seconds; overrides with ``__`` for the dot."""
    return make_config(merged({**SMALL, "preset": preset}, {k.replace("__", "."): v for k, v in overrides.items()}))


def rows(out: Path) -> list[dict[str, Any]]:
    """metrics.jsonl, which must be whole lines of JSON."""
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text("utf-8").splitlines()]


def same_files(a: Path, b: Path, name: str) -> bool:
    """Whether two safetensors files hold the same tensors, bit for bit."""
    x, y = load_file(a / name), load_file(b / name)
    return x.keys() == y.keys() and all(torch.equal(x[key], y[key]) for key in x)


def make_store(path: Path, count: int = 12, width: int = 64, phrases: int = 5, seed: int = 0) -> Path:
    """A feature store of random videos, each frame near the phrase said over it."""
    rng = np.random.default_rng(seed)
    with StoreWriter(path, StoreInfo("toy", "toy-1", dim=width)) as writer:
        for i in range(count):
            text = rng.standard_normal((phrases, width)).astype(np.float32)
            n = int(rng.integers(20, 50))
            at = np.arange(n) * max(1, phrases) // n
            frames = rng.standard_normal((n, width)).astype(np.float32) + (text[at] if phrases else 0)
            said = [StoredPhrase(f"phrase {j}", j, j + 1.0, chatter=j == 0) for j in range(phrases)]
            writer.append(StoredVideo(f"video {i}", frames, 1.0, float(n), None, tuple(said), text))
    return path
