"""Discover the steps of a video, or locate given ones in it.

>>> model = stepformer.load_model("default")
>>> timeline = model.discover("video.mp4")
>>> timeline = model.locate("video.mp4", ["crack the eggs", "whisk", "pour into the pan"])
>>> timeline = model.discover_features(vectors, rate_hz=1.0)

`features` reads a video, `segmental` cuts it, `cutting` turns knobs into prices and lines, `locating` finds given
steps, `loading` finds a model by name, and `stepformer` puts them together.
"""

from __future__ import annotations

from stepformer.discover.features import Features, read_video
from stepformer.discover.knobs import Knobs
from stepformer.discover.loading import checkpoint_file, load_model
from stepformer.discover.stepformer import Finding, StepFormer

__all__ = ["Features", "Finding", "Knobs", "StepFormer", "checkpoint_file", "load_model", "read_video"]
