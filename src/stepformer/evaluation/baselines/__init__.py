"""Published methods and untrained controls, one file each behind one interface: `base.py`."""

from __future__ import annotations

from stepformer.evaluation.baselines.base import (
    BASELINES,
    Baseline,
    FeatureVideo,
    Setting,
    baseline,
)

__all__ = ["BASELINES", "Baseline", "FeatureVideo", "Setting", "baseline"]
