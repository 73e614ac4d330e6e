"""Which given texts are in a video at all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from stepformer.base.arrays import unit
from stepformer.core.inference import pooled_slots

if TYPE_CHECKING:
    from stepformer.app.naming import PhraseBank
    from stepformer.encoders.clip import PictureStatistics

PRESENT = 0.5
"""A text is taken to be in the video if it fits it better than this share of the phrase bank does."""
PRESENT_SEEN = 1.15
"""Where the space's pictures are known: a text is absent if it fits no look at the video so many standard deviations
better than pictures at large; ``stepformer bench names`` has the error rates."""


def present_texts(
    texts: NDArray[Any], slots: NDArray[Any], vectors: NDArray[Any], bank: PhraseBank
) -> NDArray[np.bool_]:
    """(M,) whether the best fit of each text (M, D) anywhere in the video is good enough to be no chance.

    Where the space's pictures are known the fit is with single vectors of the video (N, D), in standard deviations, so
    that texts that are near to everything gain nothing. Else it is a cosine, less the bank's mean, with slots (K, D)
    and the means of as many equal stretches, and at least that of a share of the bank.
    """
    if bank.pictures is not None:
        return best_fit(texts, vectors, bank.pictures) >= PRESENT_SEEN
    video = torch.as_tensor(unit(vectors))[None]
    stretches = pooled_slots(video, torch.ones(video.shape[:2], dtype=torch.bool), len(slots)).slots[0].numpy()
    seen = unit(slots), unit(stretches)
    mean = unit(bank.raw).mean(0)

    def best(x: NDArray[Any]) -> NDArray[Any]:
        centred = unit(unit(x) - mean)
        return np.asarray(sum((centred @ rows.T).max(1) for rows in seen))

    return np.asarray(best(texts) >= np.quantile(best(bank.raw), PRESENT))


def best_fit(texts: NDArray[Any], vectors: NDArray[Any], pictures: PictureStatistics) -> NDArray[np.float32]:
    """(M,) how well each text (M, D) fits the picture (N, D) that it fits best, in standard deviations."""
    return np.asarray(pictures.standard(vectors, pictures.scaled(texts)).max(0))
