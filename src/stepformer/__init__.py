"""Finds the ordered steps of a how-to video, with start and end times and names, offline.

The names below are loaded when they are first used, so that ``import stepformer`` stays fast and a part of the
product that is not used needs none of its dependencies.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from stepformer.timeline import Step, Timeline
from stepformer.version import __version__

if TYPE_CHECKING:
    from stepformer import data, encoders, evaluation, narration
    from stepformer.app import procedure, search
    from stepformer.app.discover import StepFormer, load_model
    from stepformer.core import align
    from stepformer.evaluation import baselines
    from stepformer.show import export

_ROOMS = {
    "align": "core.align", "baselines": "evaluation.baselines", "data": "data", "encoders": "encoders",
    "evaluation": "evaluation", "export": "show.export", "narration": "narration", "procedure": "app.procedure",
    "search": "app.search",
}  # fmt: skip
_NAMES = {"load_model": "app.discover", "StepFormer": "app.discover"}


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        found: Any = importlib.import_module(f"stepformer.{_ROOMS[name]}")
    elif name in _NAMES:
        found = getattr(importlib.import_module(f"stepformer.{_NAMES[name]}"), name)
    else:
        raise AttributeError(f"module 'stepformer' has no attribute {name!r}")
    globals()[name] = found  # the next look finds it without coming here
    return found


def __dir__() -> list[str]:
    return sorted([*globals(), *_ROOMS, *_NAMES])


__all__ = [
    "Step", "StepFormer", "Timeline", "__version__", "align", "baselines", "data", "encoders", "evaluation",
    "export", "load_model", "narration", "procedure", "search",
]  # fmt: skip
