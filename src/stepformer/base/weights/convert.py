"""Upstream formats to safetensors, once, when weights are pulled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from stepformer.base.safe_pickle import load_restricted
from stepformer.errors import InputError


def _leaves(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping):
            out.update(_leaves(value, f"{prefix}{key}/"))
        else:
            out[prefix + key] = value
    return out


def i3d_from_flax(source: Path, target: Path) -> None:
    """Flax's I3D variables (a pickle of nested dicts of arrays) to the layout of encoders/i3d.py.

    Flax convolves with kernels (T, H, W, in, out) and keeps batch statistics with leading axes of one; torch wants
    (out, in, T, H, W) and one axis. The batch norms have no scale and epsilon 1e-3.
    """
    from safetensors.numpy import save_file

    tree = load_restricted(source)
    if not isinstance(tree, Mapping) or not {"params", "batch_stats"} <= set(tree):
        raise InputError(f"{source} does not hold I3D variables: no params and batch_stats")
    out: dict[str, Any] = {}
    for name, value in _leaves(tree["params"]).items():
        module, kind, leaf = name.rsplit("/", 2)
        array = np.asarray(value, np.float32)
        key = module.replace("/", ".")
        if leaf == "kernel":
            out[f"{key}.conv.weight"] = np.ascontiguousarray(array.transpose(4, 3, 0, 1, 2))
        else:  # the logits layer has a bias of the convolution, all others one of the batch norm
            out[f"{key}.{'conv' if kind.startswith('Conv') else 'norm'}.bias"] = array.reshape(-1)
    for name, value in _leaves(tree["batch_stats"]).items():
        module, _, leaf = name.rsplit("/", 2)
        array = np.asarray(value, np.float32).reshape(-1)
        out[f"{module.replace('/', '.')}.norm.running_{leaf}"] = np.ascontiguousarray(array)
    save_file(out, target)


def from_torch(source: Path, target: Path) -> None:
    """A torch state dict to safetensors, key for key."""
    import torch
    from safetensors.torch import save_file

    state = load_restricted(source)
    if not isinstance(state, Mapping) or not all(isinstance(v, torch.Tensor) for v in state.values()):
        raise InputError(f"{source} is not a state dict of tensors")
    save_file({key: value.contiguous().clone() for key, value in state.items()}, target)


CONVERSIONS: dict[str, Callable[[Path, Path], None]] = {"i3d": i3d_from_flax, "torch": from_torch}
