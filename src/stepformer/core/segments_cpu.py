"""The compiled kernel of :mod:`stepformer.core.segments`, one video at a time. Import only where numba is."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stepformer.core.align.cpu import jit

STEP, IDLE, SKIP = 0, 1, 2  # how a state was reached: by a step, by background, by passing a row over


def _fill(gains, sums, squares, skip, penalty, longest, pooled, loop, idle, best, begin, how):  # type: ignore[no-untyped-def]
    """Fills the tables of one video; see ``segments.solve``. Values (N + 1, S + 1), pointers alike."""
    frames, rows = gains.shape[0] - 1, gains.shape[1]
    width, stages = sums.shape[1], skip.shape[0]
    shift = 0 if loop else 1
    taken = 1 if loop else stages  # states that a step can lead to
    best[:] = -np.inf
    best[0, 0] = 0.0
    for j in range(stages):
        best[0, j + 1] = best[0, j] - skip[j]
        how[0, j + 1] = SKIP
    idle_best, idle_begin = np.empty(stages + 1), np.empty(stages + 1, np.int32)
    step_best, step_begin = np.empty(taken), np.empty(taken, np.int32)
    for end in range(1, frames + 1):
        idle_best[:], step_best[:] = -np.inf, -np.inf
        idle_begin[:], step_begin[:] = 0, 0
        for start in range(max(0, end - longest), end):
            cost = penalty
            if width:
                total = 0.0
                for w in range(width):
                    inside = sums[end, w] - sums[start, w]
                    total += inside * inside
                cost += max(squares[end] - squares[start] - total / (end - start), 0.0)
            if idle:
                for j in range(stages + 1):
                    value = best[start, j] - cost
                    better = value > idle_best[j]
                    idle_best[j] = value if better else idle_best[j]
                    idle_begin[j] = start if better else idle_begin[j]
            if pooled:
                top = 0.0 if rows == 0 else -np.inf
                for r in range(rows):
                    top = max(top, gains[end, r] - gains[start, r])
                for j in range(taken):
                    value = best[start, j] - cost + top
                    better = value > step_best[j]
                    step_best[j] = value if better else step_best[j]
                    step_begin[j] = start if better else step_begin[j]
            else:
                for j in range(taken):
                    value = best[start, j] - cost + (gains[end, j] - gains[start, j])
                    better = value > step_best[j]
                    step_best[j] = value if better else step_best[j]
                    step_begin[j] = start if better else step_begin[j]
        for j in range(taken):
            best[end, j + shift], begin[end, j + shift], how[end, j + shift] = step_best[j], step_begin[j], STEP
        if idle:
            for j in range(stages + 1):
                if idle_best[j] > best[end, j]:  # of equals a step goes before background
                    best[end, j], begin[end, j], how[end, j] = idle_best[j], idle_begin[j], IDLE
        for j in range(stages):
            if best[end, j] - skip[j] > best[end, j + 1]:
                best[end, j + 1], how[end, j + 1] = best[end, j] - skip[j], SKIP


# sums over the structure's width may be made in any order: that makes them several times as fast
_compiled = jit(_fill, fastmath={"reassoc", "contract"})


def fill(
    gains: NDArray[np.float64],  # (N + 1, R) prefix sums
    sums: NDArray[np.float64],  # (N + 1, W) prefix sums; W = 0 without structure
    squares: NDArray[np.float64],  # (N + 1,)
    skip: NDArray[np.float64],  # (S,)
    penalty: float,
    longest: int,
    pooled: bool,
    loop: bool,
    idle: bool,
) -> tuple[NDArray[np.float64], NDArray[np.int32], NDArray[np.int8]]:
    """The largest sums of all frames (S + 1,), by state, and where each state (N + 1, S + 1) came from: first frame of
    its segment, and how."""
    shape = len(gains), len(skip) + 1
    best, begin, how = np.empty(shape), np.zeros(shape, np.int32), np.zeros(shape, np.int8)
    _compiled(gains, sums, squares, skip, penalty, longest, pooled, loop, idle, best, begin, how)
    return best[-1], begin, how


__all__ = ["IDLE", "SKIP", "STEP", "fill"]
