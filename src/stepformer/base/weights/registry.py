"""The weights this product knows by name, as ``registry.toml`` lists them."""

from __future__ import annotations

import tomllib
from importlib.resources import files
from typing import Any

from stepformer.base.weights.records import Container, File, Piece, Weights


def _weights(entry: dict[str, Any]) -> Weights:
    return Weights(**{
        **entry,
        "containers": tuple(Container(**container) for container in entry.get("containers", ())),
        "files": tuple(
            File(**{**file, "pieces": tuple(Piece(*piece) for piece in file["pieces"])}) for file in entry["files"]
        ),
        "expect": tuple((path, sha256) for path, sha256 in entry.get("expect", ())),
    })  # fmt: skip


def parse(text: str) -> tuple[Weights, ...]:
    """The weights that a list in the form of ``registry.toml`` names."""
    return tuple(_weights(entry) for entry in tomllib.loads(text)["weights"])


REGISTRY: tuple[Weights, ...] = parse((files(__package__) / "registry.toml").read_text("utf-8"))
