"""Videos with features and a label for every frame: what densely annotated datasets (GTEA, Breakfast) give."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stepformer.errors import InputError

BACKGROUND = -1


@dataclass(frozen=True, slots=True, eq=False)
class LabelledVideo:
    """One video: features (N, D) float32 at ``rate_hz``, labels (N,) ids in ``names``, -1 background.

    ``task`` is the activity; ``space`` names the extractor where videos of one dataset have different ones.
    """

    video: str
    task: str
    features: npt.NDArray[np.float32]
    labels: npt.NDArray[np.int64]
    rate_hz: float
    names: tuple[str, ...]
    space: str = ""

    def __post_init__(self) -> None:
        if self.features.ndim != 2 or self.labels.shape != self.features.shape[:1]:
            raise InputError(
                f"video {self.video}: features {self.features.shape} and labels {self.labels.shape} do not fit"
            )
        if self.labels.size and not (self.labels.min() >= BACKGROUND and self.labels.max() < len(self.names)):
            raise InputError(f"video {self.video}: a label is outside the {len(self.names)} known names")
