"""Videos whose features come from several networks brought into one space, without labels.

Where each network has seen videos of the same tasks, what the spaces have in common is that a task is done in much
the same order. So, as in canonical time warping (Zhou and De la Torre 2009) for any number of spaces at once:

1. Every video is cut into the same number of *stages*, at first equal parts. The mean features of the stages of all
   tasks are the rows of one matrix a space; equal rows of two spaces show the same moment of the same task.
2. Generalised canonical correlation (the principal directions of each space first, then the directions on which all
   spaces agree most; MAXVAR) gives each space a linear map to a shared one. Directions count as much as they agree.
3. In the shared space every video is aligned in time, by dynamic time warping, with the mean of the *other* spaces'
   videos of its task; this moves the borders of its stages. 2 and 3 are done a few times.

It uses the task of each video, so what is fitted on the result knows that much.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from stepformer.core.align import drop_dtw
from stepformer.errors import InputError

Matrix = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
_RATE_HZ = 5.0  # frames are thinned to about this for warping
_RIDGE = 0.01


@dataclass(frozen=True, slots=True, eq=False)
class Labelled:
    """One video: features (N, D), labels (N,) with -1 background; ``space``: the network its features come from."""

    video: str
    task: str
    features: npt.NDArray[np.float32]
    labels: npt.NDArray[np.int64]
    rate_hz: float
    space: str = ""


def align_spaces(
    videos: Sequence[Labelled],
    *,
    stages: int = 20,
    principal: int = 20,
    shared: int = 10,
    rounds: int = 5,
    window_s: float = 1.0,
) -> list[npt.NDArray[np.float32]]:
    """Features (N, shared) of each video in one common space; those of a single space come back as they are.

    stages: parts of a video that are compared. principal: directions of each space that are looked at.
    window_s: features are averaged over this many seconds first, and standardised within the video.

    Raises:
        InputError: no task has videos of all spaces.
    """
    spaces = sorted({video.space for video in videos})
    if len(spaces) < 2:
        return [video.features for video in videos]
    common = sorted(set.intersection(*({v.task for v in videos if v.space == s} for s in spaces)))
    if not common:
        raise InputError(f"no task has videos of all {len(spaces)} spaces, so nothing tells how they correspond")
    prepared = [_prepared(video, window_s) for video in videos]
    thin = [x[:: max(1, round(v.rate_hz / _RATE_HZ))] for x, v in zip(prepared, videos, strict=True)]
    cuts = [np.arange(len(x)) * stages // len(x) for x in thin]  # the stage of each frame
    maps: dict[str, Matrix] = {}
    for number in range(max(1, rounds)):
        rows = [
            np.concatenate([_of(videos, thin, cuts, space, task, stages) for task in common]) for space in spaces
        ]  # (tasks · stages, D) a space
        found, agreement = canonical_maps(rows, principal, shared)
        maps = {space: one * agreement for space, one in zip(spaces, found, strict=True)}
        if number < rounds - 1:
            mapped = [x @ maps[v.space] for x, v in zip(thin, videos, strict=True)]
            cuts = _warped(videos, mapped, cuts, spaces, common, stages)
    return [(x @ maps[video.space]).astype(np.float32) for video, x in zip(videos, prepared, strict=True)]


def canonical_maps(views: Sequence[Matrix], principal: int, shared: int) -> tuple[list[Matrix], Matrix]:
    """Linear maps (D, shared) of each view, and (shared,) how far the views agree on each direction, at most 1.

    views: (n, D) each, equal rows belong together. Each is whitened in its first ``principal`` directions; the shared
    coordinates are the top eigenvectors of the sum of the projections on the views (MAXVAR).
    """
    n = len(views[0])
    whites, backs = [], []
    for view in views:
        _, scale, axes = np.linalg.svd(view - view.mean(axis=0), full_matrices=False)
        kept = min(principal, int((scale > 1e-9 * scale[0]).sum()))
        back = axes[:kept].T / scale[:kept] * np.sqrt(n)  # (D, r)
        whites.append((view - view.mean(axis=0)) @ back)
        backs.append(back)
    # white has unit covariance, so that the ridge only shrinks
    total = sum(white @ white.T for white in whites) / (n * (1 + _RIDGE))  # (n, n)
    values, vectors = np.linalg.eigh(total)
    count = min(shared, *(back.shape[1] for back in backs))
    top = vectors[:, ::-1][:, :count]
    maps = [back @ (white.T @ top) / ((1 + _RIDGE) * np.sqrt(n)) for white, back in zip(whites, backs, strict=True)]
    return maps, np.clip(values[::-1][:count] / len(views), 0.0, 1.0)


def _prepared(video: Labelled, window_s: float) -> Matrix:
    """(N, D) averaged over a window and standardised within the video."""
    x = video.features.astype(np.float64)
    half = round(window_s * video.rate_hz) // 2
    sums = np.concatenate([np.zeros((1, x.shape[1])), np.cumsum(x, axis=0)])
    at = np.arange(len(x))
    first, last = np.maximum(at - half, 0), np.minimum(at + half + 1, len(x))
    x = (sums[last] - sums[first]) / (last - first)[:, None]
    deviation = x.std(axis=0)
    out: Matrix = (x - x.mean(axis=0)) / np.where(deviation > 1e-8, deviation, 1.0)
    return out


def _means(x: Matrix, cut: IntArray, stages: int) -> Matrix:
    """(stages, D) the mean of each stage's frames; zeros (the video's mean) where it has none."""
    member = (cut == np.arange(stages)[:, None]).astype(np.float64)  # (T, n)
    out: Matrix = member @ x / np.maximum(member.sum(axis=1), 1)[:, None]
    return out


def _of(
    videos: Sequence[Labelled], xs: Sequence[Matrix], cuts: Sequence[Any], space: str, task: str, stages: int
) -> Matrix:
    """(stages, D) of a task in a space: the mean over its videos."""
    own = [i for i, v in enumerate(videos) if v.space == space and v.task == task]
    out: Matrix = np.mean([_means(xs[i], cuts[i], stages) for i in own], axis=0)
    return out


def _warped(
    videos: Sequence[Labelled],
    mapped: Sequence[Matrix],
    cuts: Sequence[Any],
    spaces: Sequence[str],
    common: Sequence[str],
    stages: int,
) -> list[Any]:
    """The stage of each frame after aligning every video with the mean of the other spaces."""
    seen = {(s, t): _of(videos, mapped, cuts, s, t, stages) for s in spaces for t in common}
    out = list(cuts)
    for i, video in enumerate(videos):
        if video.task not in common:
            continue
        other = np.mean([seen[s, video.task] for s in spaces if s != video.space], axis=0)  # (T, d)
        x = mapped[i]
        costs = (other**2).sum(1)[:, None] - 2 * other @ x.T + (x**2).sum(1)  # (T, n)
        out[i] = drop_dtw(costs, None, None if len(x) >= stages else 0.0).assignment
    return out
