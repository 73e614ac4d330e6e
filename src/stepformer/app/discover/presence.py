"""Which given texts are in a video at all."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from stepformer.base.arrays import unit
from stepformer.core.inference import pooled_slots

PRESENT = 0.5
"""A text is taken to be in the video if it fits it better than this share of the phrase bank does."""


def present_texts(
    texts: NDArray[Any], slots: NDArray[Any], vectors: NDArray[Any], bank: NDArray[Any], share: float = PRESENT
) -> NDArray[np.bool_]:
    """(M,) whether the best fit of each text (M, D) anywhere in the video, with its slots (K, D) and with the means of
    as many equal stretches of its vectors (N, D), is at least that of a ``share`` of the bank (P, D).

    Presence is a matter of the whole video's topic, so nothing is taken from its vectors; texts are compared less the
    bank's mean.
    """
    video = torch.as_tensor(unit(vectors))[None]
    stretches = pooled_slots(video, torch.ones(video.shape[:2], dtype=torch.bool), len(slots)).slots[0].numpy()
    seen = unit(slots), unit(stretches)
    mean = unit(bank).mean(0)

    def best(x: NDArray[Any]) -> NDArray[Any]:
        centred = unit(unit(x) - mean)
        return np.asarray(sum((centred @ rows.T).max(1) for rows in seen))

    return np.asarray(best(texts) >= np.quantile(best(bank), share))
