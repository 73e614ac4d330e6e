"""Weights made from key names alone, so that a published layout can be filled without the published file.

The numbers in ``published_outputs.json`` are what a second transcription of the authors' public definitions gave for
these weights and inputs (the authors' code itself was not run); the tests compare the modules here with them.
"""

import json
import zlib
from pathlib import Path

import numpy as np
import torch

OUTPUTS = json.loads((Path(__file__).parent / "published_outputs.json").read_text())


def layout(name="s3d_howto100m"):
    """Key names and shapes of a published checkpoint."""
    published = json.loads((Path(__file__).parent / f"{name}.json").read_text())
    return {key: tuple(shape) for key, shape in published.items()}


def filled(layout):
    """A state dict for name -> shape; the values of each tensor depend on its name only."""
    return {
        name: torch.from_numpy(np.asarray(_values(name, tuple(shape)), np.float32)) for name, shape in layout.items()
    }


def _values(name, shape):
    noise = np.random.default_rng(zlib.crc32(name.encode())).standard_normal(shape, dtype=np.float32)
    if name.endswith("running_var"):
        return 1 + 0.1 * np.abs(noise)
    if "bn" in name or "LayerNorm" in name or "norm2d" in name:
        return (1 if name.endswith("weight") else 0) + 0.1 * noise
    if len(shape) < 2:
        return 0.1 * noise
    if "embd" in name or ("embedd" in name and not (name.startswith("visual") and "word" in name)):
        return 0.3 * noise
    return noise * (2.0 / np.sqrt(np.prod(shape[1:])))


def clips(shape):
    """A moving pattern (B, 3, T, H, W) in [0, 1]."""
    b, c, t, h, w = np.indices(shape, dtype=np.float64)
    phase = (0.2 + 0.3 * b) * t + (0.31 - 0.2 * b) * h + 0.17 * (b + 1) * w + 2.0 * c + 0.02 * h * w * (b == 0)
    return torch.from_numpy((0.5 + 0.5 * np.sin(phase)).astype(np.float32))
