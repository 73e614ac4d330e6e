"""Order statistics of common steps: who comes before whom, what follows what, and the order that disagrees least."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stepformer.app.procedure.records import FloatArray, IntArray

_EXACT = 10  # steps: the search for the best order takes as many as 2^10 sets of them


def precedence(paths: Sequence[IntArray], count: int) -> tuple[IntArray, IntArray]:
    """``first[i, j]``: videos in which i first happens before j first does; ``both[i, j]``: videos with both.

    paths: per video the common step of each of its steps in temporal order, -1 = none of them.
    """
    first = np.zeros((count, count), np.int64)
    both = np.zeros((count, count), np.int64)
    for path in paths:
        seen = list(dict.fromkeys(int(step) for step in path if step >= 0))
        for at, i in enumerate(seen):
            for j in seen[at + 1 :]:
                first[i, j] += 1
                both[i, j] += 1
                both[j, i] += 1
        for i in seen:
            both[i, i] += 1
    return first, both


def transitions(paths: Sequence[IntArray], count: int) -> IntArray:
    """(C + 1, C + 1) how often a step is next after another: row 0 is the start, the last column the end."""
    follows = np.zeros((count + 1, count + 1), np.int64)
    for path in paths:
        steps = [int(step) for step in path if step >= 0]
        merged = [step for at, step in enumerate(steps) if at == 0 or steps[at - 1] != step]
        for a, b in zip([-1, *merged], [*merged, count], strict=True):
            follows[a + 1, b] += 1
    return follows


def best_order(first: IntArray, places: FloatArray) -> IntArray:
    """The order of steps that the fewest pairs of the videos contradict, found from the order of mean places.

    Exact for up to ``_EXACT`` steps. Of more, steps are taken out and put in elsewhere as long as that agrees with more
    pairs; from mean places this search ends at a very good order. Ties keep the order of places.
    """
    order = [int(i) for i in np.argsort(places, kind="stable")]
    if len(order) <= _EXACT:
        return _exact_order(first, order)
    gain = first - first.T  # gain[i, j] > 0: i before j agrees with more videos
    for _ in range(len(order) ** 2):
        best, move = 0, None
        for at, step in enumerate(order):
            rest = order[:at] + order[at + 1 :]
            # worth of standing at each place among the rest, relative to standing first
            worth = np.concatenate(([0], np.cumsum([2 * gain[other, step] for other in rest])))
            change = worth - worth[at]
            to = int(change.argmax())
            if change[to] > best:
                best, move = int(change[to]), (at, to)
        if move is None:
            break
        step = order.pop(move[0])
        order.insert(move[1], step)
    return np.array(order, np.int64)


def _exact_order(first: IntArray, order: list[int]) -> IntArray:
    """The best order by dynamic programming over which steps have come already."""
    count = len(order)
    agreed = first[np.ix_(order, order)]
    best, last = np.full(1 << count, -1), np.zeros(1 << count, np.int64)
    best[0] = 0
    for done in range(1, 1 << count):
        for step in reversed(range(count)):  # of equals the later place comes last
            if done >> step & 1:
                before = done ^ (1 << step)
                there = [other for other in range(count) if before >> other & 1]
                value = best[before] + agreed[there, step].sum()
                if value > best[done]:
                    best[done], last[done] = value, step
    found: list[int] = []
    done = (1 << count) - 1
    while done:
        found.append(order[last[done]])
        done ^= 1 << int(last[done])
    return np.array(found[::-1], np.int64)


def consistency(first: IntArray) -> float:
    """Share of pairs (i, j) of all videos that stand in the order of their numbers; 1 where there are no pairs."""
    right, all_pairs = float(np.triu(first, 1).sum()), float(first.sum())
    return right / all_pairs if all_pairs else 1.0
