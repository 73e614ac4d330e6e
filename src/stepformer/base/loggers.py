"""Where the numbers of a run go besides ``metrics.jsonl``: TensorBoard, Weights & Biases, CSV, or what a plugin adds.

A logger is made from the run folder and the config; ``write`` takes one row of numbers, ``close`` ends it.
"""

from __future__ import annotations

import csv
import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from stepformer.base.files import replacing, write_text
from stepformer.base.plugins import Registry
from stepformer.errors import MissingError, missing_extra


class Logger(Protocol):
    """What the training loop needs of one."""

    def write(self, step: int, row: Mapping[str, float]) -> None:
        """The numbers of a step, by name; validation's begin with ``val_``."""

    def close(self) -> None:
        """The run has ended, or stopped."""


class _TensorBoard:
    """``tensorboard/`` in the run folder."""

    def __init__(self, out: Path, config: Mapping[str, Any]) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise missing_extra("tensorboard", "tensorboard", "logging to TensorBoard") from None
        self._writer: Any = SummaryWriter(str(out / "tensorboard"))

    def write(self, step: int, row: Mapping[str, float]) -> None:
        for name, value in row.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        self._writer.close()


class _Wandb:
    """A Weights & Biases run, named after the run folder; its own environment variables say which project, and whether
    it needs the network (``WANDB_MODE=offline``). A resumed training goes on with its run: ``wandb.id`` keeps which.
    """

    def __init__(self, out: Path, config: Mapping[str, Any]) -> None:
        try:
            import wandb
        except ImportError:
            raise missing_extra("wandb", "wandb", "logging to Weights & Biases") from None
        kept = out / "wandb.id"
        if not kept.is_file():
            write_text(kept, uuid.uuid4().hex)
        known = kept.read_text("ascii")
        self._run: Any = wandb.init(dir=str(out), id=known, name=out.name, config=dict(config), resume="allow")

    def write(self, step: int, row: Mapping[str, float]) -> None:
        self._run.log(dict(row), step=step)

    def close(self) -> None:
        self._run.finish()


class _Csv:
    """``metrics.csv`` in the run folder, from ``metrics.jsonl`` at the end: a column per number, a row per step."""

    def __init__(self, out: Path, config: Mapping[str, Any]) -> None:
        self._out = out

    def write(self, step: int, row: Mapping[str, float]) -> None:
        """Nothing yet: columns are known at the end."""

    def close(self) -> None:
        """Writes the table; of a resumed run, all of it."""
        rows: dict[int, dict[str, Any]] = {}
        for line in (self._out / "metrics.jsonl").read_text("utf-8").splitlines():
            row = json.loads(line)
            rows.setdefault(int(row["step"]), {}).update(row)
        names = list(dict.fromkeys(name for row in rows.values() for name in row))
        with (
            replacing(self._out / "metrics.csv") as temporary,
            temporary.open("w", newline="", encoding="utf-8") as file,
        ):
            table = csv.DictWriter(file, names)
            table.writeheader()
            table.writerows(rows.values())


LOGGERS: Registry[Callable[[Path, Mapping[str, Any]], Logger]] = Registry(
    "logger", "loggers", {"tensorboard": _TensorBoard, "wandb": _Wandb, "csv": _Csv}
)


def open_loggers(
    names: Sequence[str], out: Path, config: Mapping[str, Any], say: Callable[[str], None]
) -> list[Logger]:
    """The loggers of a run; one whose package is not installed is said once, and the run goes on without it."""
    opened: list[Logger] = []
    for name in names:
        try:
            opened.append(LOGGERS[name](out, config))
        except MissingError as error:
            say(f"{error}; this run continues without it")
    return opened
