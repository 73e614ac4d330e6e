"""Exactly so many steps: the segmental programme with their number fixed, solved exactly.

Searching for a price gives only the numbers that are the optimum of some price, and joins or drops what it likes on the
way. Here the number of steps is a state of the programme itself: of all ways to cut the video into ``count`` steps,
with background between them wherever that is worth its price, the one with the largest sum is found. Which slot a piece
shows is free at first, so that more steps than slots work; then slots are given to the pieces in order.
"""

from __future__ import annotations

import numpy as np

from stepformer.app.discover.segmental import Piece, Segmenter


def solve_exactly(segmenter: Segmenter, count: int, price: float) -> list[Piece]:
    """``count`` steps (as many as there are frames, if those are fewer) in order; background costs ``price`` a piece.

    Steps only: what lies between them is background. Without slots every piece is a step, and there is none.
    """
    length = segmenter.length
    count = max(1, min(count, length))
    best = np.full((count + 1, length + 1), -np.inf)  # best[c, e]: the first e frames hold c steps
    best[0, 0] = 0.0
    begin = np.zeros((count + 1, length + 1), np.int64)
    is_step = np.zeros((count + 1, length + 1), bool)
    for end, scatter in enumerate(segmenter.scatters(), 1):
        start = end - len(scatter)
        step = segmenter.most_gained(start, end) - scatter  # (s,)
        steps = best[:-1, start:end] + step
        at = steps.argmax(1)
        here = np.concatenate([[-np.inf], steps[np.arange(count), at]])
        from_start = np.concatenate([[0], start + at])
        if segmenter.has_slots:
            idle = best[:, start:end] - scatter - price
            idle_at = idle.argmax(1)
            idle_best = idle[np.arange(count + 1), idle_at]
            is_step[:, end] = here >= idle_best
            from_start = np.where(is_step[:, end], from_start, start + idle_at)
            here = np.maximum(here, idle_best)
        else:
            is_step[:, end] = True
        best[:, end], begin[:, end] = here, from_start
    pieces: list[Piece] = []
    end, left = length, count
    while end > 0:
        first = int(begin[left, end])
        if is_step[left, end]:
            pieces.append(Piece(first, end, -1))
            left -= 1
        end = first
    pieces.reverse()
    return segmenter.with_slots(pieces)
