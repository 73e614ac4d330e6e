"""Finds the ordered steps of a how-to video, with start and end times and names, offline.

The names below are loaded when they are first used, so that ``import stepformer`` stays fast and a part of the
product that is not used needs none of its dependencies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepformer import errors
from stepformer.base.lazy import lazy
from stepformer.timeline import Step, Timeline
from stepformer.version import __version__

if TYPE_CHECKING:
    from stepformer import data, encoders, evaluation, media, narration
    from stepformer.app import procedure, search, training
    from stepformer.app.discover.loading import load_model
    from stepformer.app.discover.options import DiscoverOptions
    from stepformer.app.discover.stepformer import Finding, StepFormer
    from stepformer.core import align
    from stepformer.evaluation import baselines
    from stepformer.show import export

__getattr__, __dir__ = lazy(__name__, {
    "core.align": ".", "data": ".", "encoders": ".", "evaluation": ".", "evaluation.baselines": ".", "narration": ".",
    "media": ".", "show.export": ".", "app.procedure": ".", "app.search": ".", "app.training": ".",
    "app.discover.loading": "load_model", "app.discover.options": "DiscoverOptions",
    "app.discover.stepformer": "Finding StepFormer",
})  # fmt: skip

__all__ = [
    "DiscoverOptions", "Finding", "Step", "StepFormer", "Timeline", "__version__", "align", "baselines", "data",
    "encoders", "errors", "evaluation", "export", "load_model", "media", "narration", "procedure", "search", "training",
]  # fmt: skip
