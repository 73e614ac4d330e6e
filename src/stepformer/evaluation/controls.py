"""Controls that learn nothing: what a trained model has to beat."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from stepformer.core.model import Slots

IntArray = npt.NDArray[np.int64]


def equal_lengths(ids: IntArray) -> IntArray:
    """The same sequence of runs as in ``ids`` (N,), all of one length: the number of cuts stays, their times go."""
    starts = np.flatnonzero(np.diff(ids, prepend=ids[0] - 1))
    return np.asarray(ids[starts][np.arange(len(ids)) * len(starts) // len(ids)], np.int64)


def change_points(frames: npt.NDArray[np.floating], count: int) -> IntArray:
    """Segment number (N,) of each frame: the cut into ``count`` segments of least squared distance to their means.

    frames (N, D). Exact, by dynamic programming over ends: O(count N²). Fewer segments where there are fewer frames.
    """
    n = len(frames)
    count = min(count, n)
    sums = np.concatenate([np.zeros((1, frames.shape[1])), np.cumsum(frames, 0, dtype=np.float64)])
    norms = np.concatenate([[0.0], np.cumsum(np.square(frames, dtype=np.float64).sum(1))])
    gram = sums @ sums.T
    square = np.diag(gram)
    lengths = np.arange(n + 1)[None, :] - np.arange(n + 1)[:, None]  # (start, end)
    between = (square[None, :] + square[:, None] - 2 * gram) / np.maximum(lengths, 1)
    cost = np.where(lengths > 0, norms[None, :] - norms[:, None] - between, np.inf)
    best = cost[0]  # of the first e frames as one segment
    back = np.zeros((count, n + 1), np.int64)
    for k in range(1, count):
        total = best[:, None] + cost
        back[k] = total.argmin(0)
        best = total.min(0)
    out = np.empty(n, np.int64)
    end = n
    for k in range(count - 1, -1, -1):
        start = int(back[k, end])
        out[start:end] = k
        end = start
    return out


def change_slots(video: Tensor, mask: Tensor, count: int = 32) -> Slots:
    """Slots are the means of ``count`` segments cut where the frames change: video (B, N, D), mask (B, N).

    What ``pooled32`` would be if it looked at the video. A video with fewer frames repeats its last segment.
    """
    slots = video.new_zeros(len(video), count, video.shape[-1])
    for row, frames, n in zip(slots, video, mask.sum(1).tolist(), strict=True):
        part = torch.from_numpy(change_points(frames[:n].float().cpu().numpy(), count)).to(video.device)
        have = int(part[-1]) + 1
        sums = video.new_zeros(have, video.shape[-1]).index_add(0, part, frames[:n])
        row[:have] = sums / torch.bincount(part)[:, None]
        row[have:] = row[have - 1]
    return Slots(slots, video, None)
