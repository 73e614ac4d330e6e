"""Published methods and untrained controls, one file each behind one interface: :mod:`stepformer.baselines.base`."""

from __future__ import annotations

from stepformer.baselines.base import (
    BASELINES,
    Baseline,
    FeatureVideo,
    Fitted,
    FittedSlots,
    Setting,
    baseline,
)

__all__ = ["BASELINES", "Baseline", "FeatureVideo", "Fitted", "FittedSlots", "Setting", "baseline"]
