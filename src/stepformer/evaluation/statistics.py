"""Is the difference of two methods on the same videos more than chance? Paired bootstrap, vectorised.

Methods are scored on the same videos, so what is resampled is the videos (or whole tasks), once for all methods, and
the difference of two methods is taken within each draw. An interval is the middle 95% of the draws. Two kinds of draw:

*videos*: videos with replacement. Task-level scores (F1) resample the videos inside each task and keep the matching
of clusters and steps as it was found on all of them.
*tasks*: tasks with replacement, each with all its videos. Wider: it asks whether other tasks would say the same.
*seeds*: tasks and, independently of them, seeds. It asks whether other trainings on other frames would say so too.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

DRAWS = 10_000
_CHUNK = 1_000  # draws at a time, so that memory stays bounded


def weights(units: int, draws: int = DRAWS, seed: int = 0, drawn: int = 0) -> Iterator[FloatArray]:
    """How often each of ``units`` is drawn, (<= 1000, units) at a time, the same for the same seed; ``drawn`` in all,
    or as many as there are."""
    rng = np.random.default_rng(seed)
    even = np.full(units, 1 / units)
    for first in range(0, draws, _CHUNK):
        yield rng.multinomial(drawn or units, even, size=min(_CHUNK, draws - first)).astype(np.float64)


def ratio(part: npt.ArrayLike, whole: npt.ArrayLike) -> FloatArray:
    """part / whole, where 0 / 0 is 0."""
    part, whole = np.asarray(part, np.float64), np.asarray(whole, np.float64)
    out: FloatArray = np.divide(part, whole, out=np.zeros(np.broadcast(part, whole).shape), where=whole > 0)
    return out


def discovery_scores(counts: npt.ArrayLike) -> dict[str, FloatArray]:
    """F1, precision, recall and MoF of counts (..., 5) that are summed over a task's videos: frames rightly called a
    step, called a step, that are one, whose label agrees (background included), and all."""
    correct, predicted, labelled, agreeing, frames = np.moveaxis(np.asarray(counts, np.float64), -1, 0)
    precision, recall = ratio(correct, predicted), ratio(correct, labelled)
    return {
        "f1": ratio(2 * precision * recall, precision + recall),
        "precision": precision,
        "recall": recall,
        "mof": ratio(agreeing, frames),
    }


def by_task(tasks: npt.ArrayLike) -> list[IntArray]:
    """Positions of each task's videos, tasks in ascending order: tasks (V,) -> a list of (n,)."""
    values = np.asarray(tasks)
    return [np.flatnonzero(values == task) for task in np.unique(values)]


def mean_draws(values: FloatArray, tasks: npt.ArrayLike, over: str, draws: int = DRAWS, seed: int = 0) -> FloatArray:
    """The mean over videos of each method in every draw: values (R, V), tasks (V,) -> (draws, R)."""
    if over == "videos":
        return np.concatenate([w @ values.T / values.shape[1] for w in weights(values.shape[1], draws, seed)])
    groups = by_task(tasks)
    sums = np.stack([values[:, g].sum(1) for g in groups], 1)  # (R, T)
    sizes = np.array([len(g) for g in groups], np.float64)
    return np.concatenate([(w @ sums.T) / (w @ sizes)[:, None] for w in weights(len(groups), draws, seed)])


def f1_draws(counts: FloatArray, tasks: npt.ArrayLike, over: str, draws: int = DRAWS, seed: int = 0) -> FloatArray:
    """The mean over tasks of F1 of each method in every draw: counts (R, S, V, 5), tasks (V,) -> (draws, R).

    S are repetitions (seeds, K-means starts), over which F1 is averaged.
    """
    groups = by_task(tasks)
    if over == "tasks":
        per_task = [discovery_scores(counts[:, :, g].sum(2))["f1"].mean(1) for g in groups]  # (R,) each
        return mean_draws(np.stack(per_task, 1), np.arange(len(groups)), "videos", draws, seed)
    total = np.zeros((draws, len(counts)))
    for number, group in enumerate(groups):
        # F1 needs three of the five counts
        part = np.moveaxis(counts[:, :, group, :3], 2, 0)  # (n, R, S, 3)
        flat = part.reshape(len(group), -1)
        found = []
        for w in weights(len(group), draws, seed + number):
            correct, predicted, labelled = np.moveaxis((w @ flat).reshape(len(w), *part.shape[1:]), -1, 0)
            found.append(ratio(2 * correct, predicted + labelled).mean(2))  # F1 in one division
        total += np.concatenate(found)
    return total / len(groups)


def seed_draws(values: FloatArray, sizes: FloatArray, few_tasks: bool, draws: int = DRAWS, seed: int = 0) -> FloatArray:
    """The mean of each method in every draw of tasks and seeds: values (R, S, T), sums over the ``sizes`` (T,) members
    of each task -> (draws, R). Tasks that are too few to draw from stay as they are.

    Of S seeds S - 1 are drawn: the mean of S drawn ones would vary less than that of S new ones.
    """
    _, S, T = values.shape
    found = []
    for drawn, v in zip(weights(T, draws, seed), weights(S, draws, seed + 1, S - 1), strict=True):
        w = np.ones_like(drawn) if few_tasks else drawn
        found.append(np.einsum("dt,ds,rst->dr", w, v / (S - 1), values, optimize=True) / (w @ sizes)[:, None])
    return np.concatenate(found)


def interval(draws: FloatArray, level: float = 0.95) -> tuple[float, float]:
    """The middle ``level`` of the draws of a difference."""
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
