"""How pictures at large lie in a joint space: enough to say whether a text is nearer to one than to any.

Some texts are near to every picture. A text's cosine with a picture is therefore read beside its mean and spread over
pictures at large, which follow from the pictures' mean and covariance: no picture's own vector is kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepformer.base.arrays import unit


@dataclass(frozen=True, slots=True, eq=False)
class PictureStatistics:
    """Of unit vectors of pictures: ``mean`` (D,), and the covariance as ``factors`` (R, D) and ``rest`` (D,):
    factors' factors plus the diagonal of the rest."""

    mean: NDArray[np.float32]
    factors: NDArray[np.float32]
    rest: NDArray[np.float32]

    @classmethod
    def of(cls, pictures: NDArray[Any], rank: int = 48) -> PictureStatistics:
        """The statistics of pictures (N, D)."""
        x = np.asarray(unit(pictures), np.float64)
        covariance = np.cov(x, rowvar=False, bias=True)
        values, vectors = np.linalg.eigh(covariance)
        factors = (vectors[:, -rank:] * np.sqrt(np.maximum(values[-rank:], 0.0))).T
        rest = np.maximum(np.diag(covariance) - (factors**2).sum(0), 0.0)
        return cls(*(np.asarray(part, np.float32) for part in (x.mean(0), factors, rest)))

    def scaled(self, texts: NDArray[Any]) -> NDArray[np.float32]:
        """Texts (P, D) of unit length, divided by the spread of their cosines over pictures."""
        t = np.asarray(unit(texts), np.float32)
        spread = np.sqrt(((t @ self.factors.T) ** 2).sum(1) + (t**2) @ self.rest)
        return np.asarray(t / np.maximum(spread, 1e-6)[:, None], np.float32)

    def standard(self, vectors: NDArray[Any], scaled: NDArray[np.float32]) -> NDArray[np.float32]:
        """(M, P) cosines of pictures (M, D) with texts, in standard deviations above the text's mean; ``scaled``
        (P, D) is what :meth:`scaled` made of the texts."""
        return np.asarray((unit(vectors) - self.mean).astype(np.float32) @ scaled.T)


@lru_cache(maxsize=1)
def clip_pictures() -> PictureStatistics:
    """Of CLIP ViT-B/16, over photographs of everyday life (Flickr8k, COCO); made by ``stepformer bench names``."""
    from safetensors.numpy import load_file

    state = load_file(Path(str(resources.files("stepformer.encoders"))) / "clip_pictures.safetensors")
    mean, factors, rest = (state[name].astype(np.float32) for name in ("mean", "factors", "rest"))
    return PictureStatistics(mean, factors, rest / 1e3)
