"""Similarities and structure of one video to its steps: how the knobs become a price and a drop line.

What is fixed here was set by argument and checked on the simulated dev split (``stepformer bench real --world FILE``);
docs/discover.md says what else was looked at:

- the drop line divides the video's frames best into two kinds by the similarity of their best slot (Otsu), unless the
  two kinds are so close that the video is all of one: then nothing is dropped. A share of all slot-frame pairs, the
  paper's percentile, is reached by long steps first, and drops the short ones.
- ``SHARE``: a step must explain as much as one slot's share of the video, a thirty-second, and at least
  ``LEAST_S`` seconds or one frame: people mark hardly any step shorter than a second.
  Marked videos of 20 seconds and of five minutes have about as many steps (see docs/discover.md), so the share is the
  same for all lengths.
- slots and structure weigh the same: both are scaled to a spread of 1 in the video at hand.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from stepformer.discover.knobs import Knobs
from stepformer.discover.segmental import Piece, Segmenter, solve_for_count
from stepformer.inference import otsu_line

Floats = NDArray[np.floating[Any]]

SHARE = 1 / 32
LEAST_S = 0.5
TELLING = 0.1
"""Steps and background whose best similarities differ by less than this, on average, are not told apart."""
_STEEPNESS = 16.0  # detail 0 and 1 make a step 4 times dearer and cheaper than 0.5


@dataclass(frozen=True, slots=True)
class Cut:
    """The pieces of one video, the drop line that was used, and the price a piece in frames."""

    pieces: tuple[Piece, ...]  # steps only, in order
    line: float | None
    price: float


def unit(x: Floats) -> NDArray[np.float64]:
    """Rows of unit length; a row of zeros stays so."""
    x = np.asarray(x, np.float64)
    return np.asarray(x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1e-12))


def line_of(similarity: Floats, rate_hz: float, knobs: Knobs) -> float:
    """The drop line: a fixed one, the paper's percentile, or the one that divides the frames best."""
    if knobs.similarity is not None:
        return float(knobs.similarity)
    if knobs.percentile is not None:
        return float(np.percentile(similarity, knobs.percentile))
    return dividing_line(similarity, rate_hz, len(similarity))


def dividing_line(similarity: Floats, rate_hz: float, slots: int) -> float:
    """The line that divides frames by their best similarity, of (K, N), into two kinds, or one just below all of them.

    Where a slot has less than a second to itself it fits whatever is there, and how well it fits tells nothing.
    """
    best = np.asarray(similarity, np.float64).max(0)  # (N,)
    below_all = float(np.min(similarity)) - 1e-6
    if len(best) / rate_hz < slots:
        return below_all
    values = torch.as_tensor(best)[None]  # (1, N)
    line = float(otsu_line(values, torch.ones_like(values, dtype=torch.bool))[0])
    high, low = best[best >= line], best[best < line]
    if not len(low) or not len(high) or high.mean() - low.mean() < TELLING:
        return below_all
    return line


def price_of(frames: int, rate_hz: float, knobs: Knobs) -> float:
    """What a piece costs, in frames."""
    detail = 0.5 if knobs.detail is None else knobs.detail
    price: float = max(1.0, LEAST_S * rate_hz, SHARE * frames) * _STEEPNESS ** (0.5 - detail)
    return price


def gains_of(similarity: Floats, line: float) -> NDArray[np.float64]:
    """Similarity above the line, in units of its spread over the video: (K, N)."""
    spread = float(np.std(similarity))
    if spread > 1e-6:
        return (np.asarray(similarity, np.float64) - line) / spread
    # slots that cannot tell any frame from another: rounding must not decide, and a step goes before background
    return np.full(similarity.shape, 1e-3)


def cut(similarity: Floats | None, structure: Floats | None, rate_hz: float, knobs: Knobs) -> Cut:
    """Steps of one video: similarity (K, N) of slots with frames, structure (N, S); either may be None.

    ``steps`` and ``detail`` say how finely the part of the video that shows steps is cut, not how large that part is:
    what is background by default stays so, or many steps would be had by throwing most of each away.
    """
    frames = similarity.shape[1] if similarity is not None else len(structure)  # type: ignore[arg-type]
    line = None if similarity is None else line_of(similarity, rate_hz, knobs)
    gains = None if similarity is None or line is None else gains_of(similarity, line)
    # slots alone are Drop-DTW: a match costs nothing beside its similarity
    usual = 0.0 if structure is None else price_of(frames, rate_hz, replace(knobs, detail=None))
    segmenter = Segmenter(structure, gains, ordered=knobs.ordered)
    if knobs.steps is None and knobs.detail is None:
        return Cut(tuple(joined(segmenter.solve(usual), gains is not None)), line, usual)
    if gains is not None:
        shown = np.zeros(frames, bool)
        for piece in joined(segmenter.solve(usual), slots=True):
            shown[piece.first : piece.last] = True
        sure = 4.0 * float(np.abs(gains).max(initial=1.0))
        gains = gains + np.where(shown | ~shown.any(), sure, 0.0)
        segmenter = Segmenter(structure, gains, ordered=knobs.ordered)
    price = price_of(frames, rate_hz, knobs)
    if knobs.steps is None:
        return Cut(tuple(joined(segmenter.solve(price), gains is not None)), line, price)
    if gains is not None and knobs.ordered and knobs.steps > len(gains) and structure is not None:
        return Cut(tuple(_more_than_slots(structure, gains, knobs.steps)), line, price)
    return Cut(tuple(joined(solve_for_count(segmenter, knobs.steps), gains is not None)), line, price)


def _more_than_slots(structure: Floats, gains: Floats, steps: int) -> list[Piece]:
    """Pieces by structure alone, each shown by the slot that fits it best: several may show the same."""
    pieces = solve_for_count(Segmenter(structure, None), steps)
    return [Piece(p.first, p.last, int(gains[:, p.first : p.last].mean(1).argmax())) for p in pieces]


def joined(pieces: list[Piece], slots: bool) -> list[Piece]:
    """The steps among the pieces; neighbours that show the same slot are one."""
    out: list[Piece] = []
    for piece in pieces:
        if slots and piece.slot < 0:
            continue
        before = out[-1] if out else None
        if slots and before is not None and before.slot == piece.slot and before.last == piece.first:
            out[-1] = Piece(before.first, piece.last, piece.slot)
        else:
            out.append(piece)
    return out
