"""The numbers that the paper prints (``paper.toml``), in shares, keyed as our scores are."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from importlib.resources import files

ZERO_SHOT = ("zs_iou", "zs_precision", "zs_recall", "zs_mof")
UNSUPERVISED = ("un_f1", "un_precision", "un_recall", "un_mof")
DATASETS = ("crosstask", "procel", "coin")

Numbers = Mapping[str, float]
_PRINTED = tomllib.loads((files(__package__) / "paper.toml").read_text("utf-8"))


def _shares(names: Sequence[str], percent: Sequence[float]) -> dict[str, float]:
    return {name: value / 100 for name, value in zip(names, percent, strict=True)}


def _by_dataset(table: str, names: Sequence[str]) -> dict[str, dict[str, Numbers]]:
    """Method -> dataset -> numbers."""
    return {
        method: {dataset: _shares(names, percent) for dataset, percent in zip(DATASETS, rows, strict=True)}
        for method, rows in _PRINTED[table].items()
    }


def _on_crosstask(table: str) -> dict[str, Numbers]:
    """Row -> numbers on CrossTask."""
    return {row: _shares(UNSUPERVISED, un) | _shares(ZERO_SHOT, zs) for row, (un, zs) in _PRINTED[table].items()}


TABLE1, TABLE2 = _by_dataset("table1", UNSUPERVISED), _by_dataset("table2", ZERO_SHOT)
TABLE3, TABLE4 = _on_crosstask("table3"), _on_crosstask("table4")  # the paper's own model: 32 slots, 6 layers
