"""Discover the steps of a video, or locate given ones in it.

>>> model = stepformer.load_model("default")
>>> timeline = model.discover("video.mp4")
>>> timeline = model.locate("video.mp4", ["crack the eggs", "whisk", "pour into the pan"])
>>> timeline = model.discover_features(vectors, rate_hz=1.0)

`encoders.reading` reads a video, `core.inference` cuts it, `knobs` are what a user may turn, `presence` judges which
given steps are there at all, `loading` finds a model by name, and `stepformer` puts them together. Names are loaded
when first used, so that `stepformer discover --help` needs no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stepformer.app.discover.knobs import Knobs, check_texts
    from stepformer.app.discover.loading import checkpoint_file, load_model
    from stepformer.app.discover.stepformer import Finding, StepFormer

_HOMES = {
    "Features": "encoders.reading",
    "Finding": "app.discover.stepformer",
    "Knobs": "app.discover.knobs",
    "StepFormer": "app.discover.stepformer",
    "check_texts": "app.discover.knobs",
    "checkpoint_file": "app.discover.loading",
    "load_model": "app.discover.loading",
    "read_video": "encoders.reading",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"stepformer.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'stepformer.app.discover' has no attribute {name!r}")


__all__ = [
    "Features", "Finding", "Knobs", "StepFormer", "check_texts", "checkpoint_file", "load_model", "read_video",
]  # fmt: skip
