"""Controls that learn nothing: what a trained model has to beat."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from stepformer.core.model import Slots
from stepformer.core.segments import programme, solve

IntArray = npt.NDArray[np.int64]


def equal_lengths(ids: IntArray) -> IntArray:
    """The same sequence of runs as in ``ids`` (N,), all of one length: the number of cuts stays, their times go."""
    starts = np.flatnonzero(np.diff(ids, prepend=ids[0] - 1))
    return np.asarray(ids[starts][np.arange(len(ids)) * len(starts) // len(ids)], np.int64)


def change_slots(video: Tensor, mask: Tensor, count: int = 32) -> Slots:
    """Slots are the means of ``count`` segments cut where the frames change: video (B, N, D), mask (B, N).

    What ``pooled32`` would be if it looked at the video: of all such cuts, the one of least squared distance of the
    frames to the means of their segments. A video with fewer frames repeats its last segment.
    """
    slots = video.new_zeros(len(video), count, video.shape[-1])
    for row, frames, n in zip(slots, video, mask.sum(1).tolist(), strict=True):
        task = programme(None, frames[None, :n].cpu(), torch.ones(1, n, dtype=torch.bool))
        ((cuts,), _) = solve(task, torch.zeros(1), count=[count])
        for i, cut in enumerate(cuts):
            row[i:] = frames[cut.first : cut.last].mean(0)
    return Slots(slots, video, None)
