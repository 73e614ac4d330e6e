"""Discover the steps of a video, or locate given ones in it.

>>> import stepformer as sf
>>> model = sf.load_model("default")
>>> timeline = model.discover("video.mp4")                                          # doctest: +SKIP
>>> timeline = model.locate("video.mp4", ["crack the eggs", "whisk", "pour in"])    # doctest: +SKIP
>>> import numpy as np
>>> vectors = np.repeat(np.eye(3, 512), 20, axis=0)       # features you have: here 60 s of three different things
>>> [(step.start_s, step.end_s) for step in model.discover_features(vectors, rate_hz=1.0)]
[(0.0, 20.0), (20.0, 40.0), (40.0, 60.0)]

Names are loaded when first used, so that `stepformer discover --help` needs no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepformer.base.lazy import lazy

if TYPE_CHECKING:
    from stepformer.app.discover.knobs import Knobs, check_texts
    from stepformer.app.discover.loading import checkpoint_file, load_model
    from stepformer.app.discover.stepformer import Finding, StepFormer
    from stepformer.encoders.reading import Features, read_video

__getattr__, __dir__ = lazy(__name__, {
    "knobs": "Knobs check_texts",
    "loading": "checkpoint_file load_model",
    "stepformer": "Features Finding StepFormer read_video",
})  # fmt: skip

__all__ = [
    "Features", "Finding", "Knobs", "StepFormer", "check_texts", "checkpoint_file", "load_model", "read_video",
]  # fmt: skip
