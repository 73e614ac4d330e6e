"""Where steps begin and end: one dynamic programme over segments, by what slots say and by how alike frames are.

A video is cut into pieces. A piece is a *step*, shown by one slot, or *background*, shown by none; the slots of
successive steps rise (or not, when the order is given up). The cut that is chosen makes this largest:

    sum over steps of  (slot's gain in each of its frames)
  - sum over pieces of (squared distance of its frames to their own mean, in units of the video's variance)
  - price a piece

The first line is the paper's alignment of slots with frames, both droppable: with nothing else (no structure, price 0)
its optimum is Drop-DTW's. The second is kernel change-point detection, which needs no text. Together slots say what the
steps are and structure says where they begin and end.

Distances are divided by the video's own variance per frame, so the price has a plain meaning: *a piece must explain as
much of the video as ``price`` frames that have nothing in common with the rest*.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from stepformer.app.discover.threads import one_thread_if_small
from stepformer.errors import InputError

Floats = NDArray[np.floating[Any]]
Ints = NDArray[np.int64]

WIDTH = 64
"""Structure is kept in this many principal directions: enough for distances between pieces, and quick."""
LONGEST = 600
"""Frames a piece may have at most, or a quarter of the video where that is more: keeps long videos quick."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Frames ``[first, last)`` and the slot they show, -1 for background."""

    first: int
    last: int
    slot: int


def spread_out(structure: Floats, width: int = WIDTH) -> NDArray[np.float64]:
    """Structure vectors (N, S) as (N, <= width) with the same distances, nearly, and a mean variance of 1 a frame.

    A video whose frames are all the same (black, a still picture) gives zeros: it has no inner structure at all.
    """
    x = np.asarray(structure, np.float64)
    if x.ndim != 2 or not np.isfinite(x).all():
        raise InputError(f"structure must be a finite (N, S) matrix, got shape {x.shape}")
    x = x - x.mean(0)
    if x.shape[1] > width:
        x = _narrowed(x, min(width, len(x)))
    variance = float((x * x).sum(1).mean())
    # float32 unit vectors of identical pictures differ by rounding alone
    return np.zeros_like(x) if variance < 1e-9 else np.asarray(x / np.sqrt(variance))


def _narrowed(x: NDArray[np.float64], rank: int) -> NDArray[np.float64]:
    """Coordinates (N, rank) of x (N, S) in the range of a fixed random sketch, refined once: exact for N <= rank, close
    otherwise."""
    with one_thread_if_small(len(x)):
        wide = torch.from_numpy(x)
        sketch = torch.from_numpy(np.random.default_rng(0).standard_normal((x.shape[1], rank)))
        base = torch.linalg.qr(wide @ sketch).Q
        base = torch.linalg.qr(wide @ (wide.T @ base)).Q
        narrow = base @ torch.linalg.qr(wide.T @ base).R.T
    return np.asarray(narrow.numpy())


class Segmenter:
    """The programme for one video: ``structure`` (N, S) or None, ``gains`` (K, N) or None. Solve it at any price."""

    def __init__(
        self,
        structure: Floats | None,
        gains: Floats | None,
        ordered: bool = True,
        structure_weight: float = 1.0,
        longest: int | None = None,
    ) -> None:
        if structure is None and gains is None:
            raise InputError("there is nothing to cut a video by: neither structure nor slots")
        length = len(structure) if structure is not None else np.asarray(gains).shape[1]
        self.length, self.ordered = length, ordered
        self.longest = longest if longest is not None else max(LONGEST, length // 4)
        self._sums = None
        if structure is not None and structure_weight > 0:
            x = spread_out(structure) * np.sqrt(structure_weight)
            self._sums = np.concatenate([np.zeros((1, x.shape[1])), x.cumsum(0)])  # (N + 1, W)
            self._squares = np.concatenate([[0.0], (x * x).sum(1).cumsum()])  # (N + 1,)
        self._gains = None
        if gains is not None:
            g = np.asarray(gains, np.float64)
            if g.ndim != 2 or g.shape[1] != length or not np.isfinite(g).all():
                raise InputError(f"gains must be a finite (K, {length}) matrix, got shape {g.shape}")
            self._gains = np.concatenate([np.zeros((1, len(g))), g.T.cumsum(0)])  # (N + 1, K)
        self._scatter: list[NDArray[np.float32]] | None = None

    def scatters(self) -> list[NDArray[np.float32]]:
        """For each end e = 1..N: scatter of the pieces [s, e), s = max(0, e - longest)..e - 1. Made once."""
        if self._scatter is None:
            self._scatter = []
            for end in range(1, self.length + 1):
                start = max(0, end - self.longest)
                if self._sums is None:
                    self._scatter.append(np.zeros(end - start, np.float32))
                    continue
                total = self._sums[end] - self._sums[start:end]
                lengths = end - np.arange(start, end)
                inside = self._squares[end] - self._squares[start:end] - (total * total).sum(1) / lengths
                self._scatter.append(np.maximum(inside, 0.0).astype(np.float32))
        return self._scatter

    @property
    def has_slots(self) -> bool:
        """Whether pieces may be background; without slots every piece is a step."""
        return self._gains is not None

    def most_gained(self, start: int, end: int) -> NDArray[np.float64]:
        """(end - start,) what the best slot of each piece [s, end), s = start..end - 1, gains; zeros without slots."""
        if self._gains is None:
            return np.zeros(end - start)
        return np.asarray((self._gains[end] - self._gains[start:end]).max(1))

    def with_slots(self, pieces: list[Piece]) -> list[Piece]:
        """The pieces with the slots that fit them best: in order where this is kept; as they are without slots."""
        if self._gains is None or not pieces:
            return pieces
        gained = np.asarray([self._gains[p.last] - self._gains[p.first] for p in pieces])  # (M, K)
        slots = slots_in_order(gained) if self.ordered else gained.argmax(1).tolist()
        return [Piece(p.first, p.last, slot) for p, slot in zip(pieces, slots, strict=True)]

    def worth(self, piece: Piece) -> float:
        """What a piece adds to the sum that is made largest, but for its price."""
        worth = 0.0
        if self._sums is not None:
            total = self._sums[piece.last] - self._sums[piece.first]
            square = self._squares[piece.last] - self._squares[piece.first]
            worth -= float(square - (total * total).sum() / (piece.last - piece.first))
        if self._gains is not None and piece.slot >= 0:
            worth += float(self._gains[piece.last, piece.slot] - self._gains[piece.first, piece.slot])
        return worth

    def solve(self, price: float, every_slot: bool = False) -> list[Piece]:
        """The best pieces, in order. Without slots every piece is a step with slot -1. ``every_slot`` (ordered only):
        each slot takes a piece, as long as there are frames enough."""
        if self._gains is None:
            return self._solve_structure(price)
        every_slot = every_slot and self.ordered and self._gains.shape[1] <= self.length
        return self._solve_slots(price, every_slot)

    def _solve_structure(self, price: float) -> list[Piece]:
        best = np.zeros(self.length + 1)
        back = np.zeros(self.length + 1, np.int64)
        for end, scatter in enumerate(self.scatters(), 1):
            start = end - len(scatter)
            values = best[start:end] - scatter - price
            at = int(values.argmax())
            best[end], back[end] = values[at], start + at
        pieces: list[Piece] = []
        end = self.length
        while end > 0:
            pieces.append(Piece(int(back[end]), end, -1))
            end = int(back[end])
        return pieces[::-1]

    def _solve_slots(self, price: float, every_slot: bool) -> list[Piece]:
        assert self._gains is not None
        N, K = self.length, self._gains.shape[1]
        # best[e, j]: the first e frames are cut, slots up to j - 1 are used up (any order: j is always 0)
        states = K + 1 if self.ordered else 1
        best = np.full((N + 1, states), -np.inf)
        best[0, : 1 if every_slot else states] = 0.0
        from_start = np.zeros((N + 1, states), np.int64)
        from_slot = np.full((N + 1, states), -1, np.int64)  # slot of the piece that ends here
        from_state = np.zeros((N + 1, states), np.int64)
        for end, scatter in enumerate(self.scatters(), 1):
            start = end - len(scatter)
            base = best[start:end] - scatter[:, None] - price  # (s, states)
            gained = self._gains[end] - self._gains[start:end]  # (s, K)
            if self.ordered:
                step = base[:, :K] + gained  # slot k after slots < k: state k -> k + 1
                at = step.argmax(0)  # (K,)
                here = np.full(states, -np.inf)
                begin, slot, state = np.zeros(states, np.int64), np.full(states, -1), np.arange(states)
                here[1:], begin[1:] = step[at, np.arange(K)], start + at
                slot[1:], state[1:] = np.arange(K), np.arange(K)
            else:
                step = base + gained
                at_all = int(step.argmax())
                s, k = divmod(at_all, K)
                here, begin, slot, state = np.array([step[s, k]]), np.array([start + s]), np.array([k]), np.array([0])
            idle_at = base.argmax(0)
            idle = base[idle_at, np.arange(states)]
            better = idle > here
            here, begin = np.where(better, idle, here), np.where(better, start + idle_at, begin)
            slot, state = np.where(better, -1, slot), np.where(better, np.arange(states), state)
            # a state also holds what used fewer slots: the first of equals, so that slots are not skipped for nothing
            if not every_slot:
                top = np.maximum.accumulate(here)
                risen = np.concatenate([[True], here[1:] > top[:-1]])
                source = np.maximum.accumulate(np.where(risen, np.arange(states), 0))
                here, begin, slot, state = here[source], begin[source], slot[source], state[source]
            best[end], from_start[end], from_slot[end], from_state[end] = here, begin, slot, state
        pieces: list[Piece] = []
        end, j = N, states - 1
        while end > 0:
            pieces.append(Piece(int(from_start[end, j]), end, int(from_slot[end, j])))
            end, j = int(from_start[end, j]), int(from_state[end, j])
        return pieces[::-1]


def slots_in_order(worth: NDArray[np.float64]) -> list[int]:
    """The slot of each piece, of (M, K) what each slot is worth in each: rising; where there are more pieces than
    slots, not falling."""
    pieces, slots = worth.shape
    rising = pieces <= slots
    best = worth[0].copy()
    back = np.zeros((pieces, slots), np.int64)
    for i in range(1, pieces):
        top = np.maximum.accumulate(best)
        first = np.concatenate([[True], best[1:] > top[:-1]])
        source = np.maximum.accumulate(np.where(first, np.arange(slots), 0))
        if rising:
            top, source = np.concatenate([[-np.inf], top[:-1]]), np.concatenate([[0], source[:-1]])
        back[i] = source
        best = top + worth[i]
    taken = [int(best.argmax())]
    for i in range(pieces - 1, 0, -1):
        taken.append(int(back[i, taken[-1]]))
    return taken[::-1]


def count_steps(pieces: list[Piece]) -> int:
    """Pieces that are steps: those with a slot, or all where there are no slots."""
    with_slot = sum(piece.slot >= 0 for piece in pieces)
    return with_slot if with_slot else len(pieces)


def solve_for_count(segmenter: Segmenter, wanted: int, rounds: int = 14) -> list[Piece]:
    """Pieces with ``wanted`` steps, or as near to it as can be.

    The number of pieces falls as the price rises, so the price is found by halving. Some numbers are the optimum of no
    price; then neighbours of the next larger solution are joined, those first that lose least.
    """
    low, high = 0.0, 2.0 * segmenter.length + 1.0  # at the high price one piece is best
    above = segmenter.solve(low)
    below: list[Piece] | None = None
    if count_steps(above) <= wanted:
        return above
    for _ in range(rounds):
        middle = (low + high) / 2 if low else high / 4
        pieces = segmenter.solve(middle)
        found = count_steps(pieces)
        if found == wanted:
            return pieces
        if found > wanted:
            low, above = middle, pieces
        else:
            high, below = middle, pieces
    joined = _join_neighbours(segmenter, above, wanted)
    if below is not None and wanted - count_steps(below) < count_steps(joined) - wanted:
        return below
    return joined


def _join_neighbours(segmenter: Segmenter, pieces: list[Piece], wanted: int) -> list[Piece]:
    pieces = list(pieces)
    slots = any(piece.slot >= 0 for piece in pieces)
    while count_steps(pieces) > wanted:
        options = []
        for i, (a, b) in enumerate(itertools.pairwise(pieces)):
            if slots and (a.slot < 0 or b.slot < 0):
                continue  # what lies between two steps as background keeps them apart
            whole = max((Piece(a.first, b.last, slot) for slot in {a.slot, b.slot}), key=segmenter.worth)
            loss = segmenter.worth(a) + segmenter.worth(b) - segmenter.worth(whole)
            options.append((loss, i, whole))
        if not options:
            break
        _, at, whole = min(options, key=lambda option: option[:2])
        pieces[at : at + 2] = [whole]
    return pieces
