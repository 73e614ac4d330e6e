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
    from stepformer.encoders.pictures import PictureStatistics

PRESENT = 0.5
"""A text is taken to be in the video if it fits it better than this share of the phrase bank does."""
PRESENT_SEEN = 0.4
"""The same where the space's pictures are known; ``stepformer bench names`` has both error rates."""


def present_texts(
    texts: NDArray[Any], slots: NDArray[Any], vectors: NDArray[Any], bank: PhraseBank
) -> NDArray[np.bool_]:
    """(M,) whether the best fit of each text (M, D) anywhere in the video is at least that of a share of the bank.

    The fit is with the means of as many equal stretches of the video's vectors (N, D) as there are slots (K, D): in
    standard deviations where the space's pictures are known, so that texts that are near to everything gain nothing;
    else in cosine, less the bank's mean, and with the slots as well.
    """
    video = torch.as_tensor(unit(vectors))[None]
    stretches = pooled_slots(video, torch.ones(video.shape[:2], dtype=torch.bool), len(slots)).slots[0].numpy()
    if bank.pictures is not None:
        return above_bank(texts, stretches, bank.pictures, bank) >= PRESENT_SEEN
    seen = unit(slots), unit(stretches)
    mean = unit(bank.raw).mean(0)

    def best(x: NDArray[Any]) -> NDArray[Any]:
        centred = unit(unit(x) - mean)
        return np.asarray(sum((centred @ rows.T).max(1) for rows in seen))

    return np.asarray(best(texts) >= np.quantile(best(bank.raw), PRESENT))


def above_bank(
    texts: NDArray[Any], stretches: NDArray[Any], pictures: PictureStatistics, bank: PhraseBank
) -> NDArray[np.float64]:
    """(M,) the share of the bank that fits its best stretch (K, D) worse than each text (M, D) does."""
    others = np.sort(bank.standard(stretches).max(0))
    ours = pictures.standard(stretches, pictures.scaled(texts)).max(0)
    return np.asarray(np.searchsorted(others, ours) / len(others))
