"""Published checkpoints from a user's disk: found by name, read without running code, as tensors."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from stepformer.base.guard import plain_file, reading
from stepformer.base.safe_pickle import load_restricted
from stepformer.errors import InputError, MissingError


def find_checkpoint(folder: Path, names: Sequence[str], encoder: str, source: str) -> Path:
    """The first of ``names`` that lies in ``folder``; the error says where to get it and how to give it."""
    for name in names:
        if (folder / name).is_file():
            return folder / name
    raise MissingError(
        f"encoder {encoder!r} needs {names[0]}, which is not in {folder}; get it from {source} and give its folder: "
        f"--encoder {encoder}:FOLDER"
    )


def read_checkpoint(path: Path) -> dict[str, Tensor]:
    """The tensors of a ``.safetensors`` file, or of a pickled torch checkpoint through the restricted reader."""
    if path.suffix == ".safetensors":
        with reading(path, "safetensors file"):
            loaded: dict[str, Tensor] = load_file(plain_file(path))
            return loaded
    state = load_restricted(path)
    if isinstance(state, Mapping) and set(state) == {"state_dict"}:
        state = state["state_dict"]
    if not isinstance(state, Mapping) or not all(isinstance(value, Tensor) for value in state.values()):
        raise InputError(f"{path} is not a checkpoint: a dictionary of tensors was expected")
    return {str(key): value.detach().contiguous().clone() for key, value in state.items()}


def load_published(model: nn.Module, state: Mapping[str, Tensor], where: str, unused: tuple[str, ...] = ()) -> None:
    """Loads a checkpoint by its own key names; every key and shape of ``model`` must be there, and no other.

    Old checkpoints call LayerNorm's parameters gamma and beta. Left alone are counters and positions, which are no
    weights, and keys that begin with ``unused``.
    """
    no_weights = ("num_batches_tracked", "position_ids")
    given: dict[str, Tensor] = {}
    for key, value in state.items():
        name = key.removeprefix("module.").replace("Norm.gamma", "Norm.weight").replace("Norm.beta", "Norm.bias")
        if not name.endswith(no_weights) and not name.startswith(unused):
            given[name] = value
    try:
        missing, unknown = model.load_state_dict(given, strict=False)
    except RuntimeError as error:  # torch's word for a tensor of another shape
        raise InputError(f"{where} is not the published checkpoint: {str(error).splitlines()[-1].strip()}") from None
    parts = []
    if missing:
        parts.append(f"lacks {len(missing)} tensors, for instance {missing[0]}")
    if unknown:
        parts.append(f"has {len(unknown)} that do not belong, for instance {unknown[0]}")
    if parts:
        raise InputError(f"{where} is not the published checkpoint: it {' and '.join(parts)}")


def fingerprint_of(name: str, version: str, state: Mapping[str, Tensor], *settings: object) -> str:
    """``name-version-hash`` over every tensor and setting that the vectors depend on, whatever file they came from."""
    digest = hashlib.sha256(repr(settings).encode())
    for key in sorted(state):
        value = state[key]
        digest.update(f"{key} {tuple(value.shape)} {value.dtype}".encode())
        digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return f"{name}-{version}-{digest.hexdigest()[:16]}"
