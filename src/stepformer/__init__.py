"""Finds the ordered steps of a how-to video, with start and end times, from the video alone.

The names below are loaded when they are first used, so that ``import stepformer`` stays fast and a part of the
product that is not used needs none of its dependencies.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from stepformer.timeline import Step, Timeline
from stepformer.version import __version__

if TYPE_CHECKING:
    from stepformer import align, baselines, corpus, encoders, evaluation, export, narration

_ROOMS = ("align", "baselines", "corpus", "encoders", "evaluation", "export", "narration")
_LAZY = {"load_model": "stepformer.discover", "StepFormer": "stepformer.discover"}


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return importlib.import_module(f"stepformer.{name}")
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'stepformer' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_ROOMS, *_LAZY])


__all__ = [
    "Step", "Timeline", "__version__",
    "align", "baselines", "corpus", "encoders", "evaluation", "export", "narration",
]  # fmt: skip
