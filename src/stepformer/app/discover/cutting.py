"""Similarities and structure of one video to its steps: how the knobs become a price and a drop line.

What is fixed here was chosen on the simulated dev split (``stepformer bench line`` measures it against the paper's and
the released code's lines); docs/discover.md has the tables:

- **what is a step** (:func:`evidence`): a soft maximum over the slots, at the temperature they are trained with. The
  best slot alone says little: a slot reads the frames it resembles, so even background has one that fits it; several
  slots that fit at once say that the frame belongs to the task.
- **the drop line** divides the video's frames best into two kinds (Otsu), unless the two kinds are so close that the
  video is all of one: then nothing is dropped. A share of all slot-frame pairs, the paper's percentile, is reached by
  long steps first, and drops the short ones.
- **which step it is** counts little (``fit``): the slots of a video resemble each other more than its steps do, and a
  piece that two of them share must not become background because neither fits all of it.
- **the price** of a piece is a share of the video times its noise, the part of its variance that neighbouring
  frames do not share: what a cut gains by chance grows with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from stepformer.app.discover.exactly import solve_exactly
from stepformer.app.discover.features import looks_hz
from stepformer.app.discover.knobs import Knobs
from stepformer.app.discover.segmental import Piece, Segmenter, solve_for_count, spread_out
from stepformer.core.inference import otsu_line

Floats = NDArray[np.floating[Any]]

LEAST_S = 0.5
"""A piece must explain at least this many seconds that have nothing in common with the rest."""
_STEEPNESS = 16.0  # detail 0 and 1 make a step 4 times dearer and cheaper than 0.5


@dataclass(frozen=True, slots=True)
class Weights:
    """What slots, structure and pieces weigh; structure weighs 1. ``stepformer bench line`` turns each.

    share: a piece must explain as much of the video's variance as this share of all its noise does. telling: steps and
    background whose best similarities differ by less than this, on average, are not told apart. temperature: of the
    soft maximum over slots; the default model is trained with this one. step: of the evidence that a frame shows a step
    at all, in spreads of it over the video. fit: of how much worse than the best slot the slot of a piece fits, in
    spreads of all similarities.
    """

    share: float = 1 / 8
    telling: float = 0.125
    temperature: float = 0.07
    step: float = 2.0
    fit: float = 0.1


WEIGHTS = Weights()


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


def evidence(similarity: Floats, temperature: float = WEIGHTS.temperature) -> NDArray[np.float64]:
    """(N,) how much each frame shows a step: the soft maximum of (K, N) over slots, between their mean and maximum."""
    scaled = np.asarray(similarity, np.float64) / temperature
    top = scaled.max(0)
    return np.asarray(temperature * (top + np.log(np.exp(scaled - top).mean(0))))


def line_of(
    similarity: Floats, rate_hz: float, knobs: Knobs, values: Floats | None = None, telling: float = WEIGHTS.telling
) -> float:
    """The drop line: a fixed one, the paper's percentile, or the one that divides the frames best (by ``values``)."""
    if knobs.similarity is not None:
        return float(knobs.similarity)
    if knobs.percentile is not None:
        return float(np.percentile(similarity, knobs.percentile))
    return dividing_line(similarity, rate_hz, values, telling)


def dividing_line(
    similarity: Floats, rate_hz: float, values: Floats | None = None, telling: float = WEIGHTS.telling
) -> float:
    """The line that divides frames best into two kinds by ``values`` (N,), or one just below all of them.

    values: by default the best similarity, of (K, N). Frames are told apart only if their best similarities are;
    and where a slot has less than a second to itself it fits whatever is there, and how well it fits tells nothing.
    """
    best = np.asarray(similarity, np.float64).max(0)  # (N,)
    chosen = best if values is None else np.asarray(values, np.float64)
    below_all = float(np.min(similarity if values is None else chosen)) - 1e-6
    if len(best) / rate_hz < len(similarity) or _kinds_apart(best) < telling:
        return below_all
    line = _otsu(chosen)
    return line if (chosen < line).any() else below_all


def _otsu(values: NDArray[np.float64]) -> float:
    row = torch.as_tensor(values)[None]  # (1, N)
    return float(otsu_line(row, torch.ones_like(row, dtype=torch.bool))[0])


def _kinds_apart(values: NDArray[np.float64]) -> float:
    """How far the means of the two kinds lie apart that values (N,) are best divided into."""
    line = _otsu(values)
    high, low = values[values >= line], values[values < line]
    return float(high.mean() - low.mean()) if len(low) and len(high) else 0.0


def noise_of(structure: Floats, rate_hz: float) -> float:
    """The share (0 to about 1) of a video's variance that neighbouring frames do not share.

    Neighbours are as far apart as the product looks at a video of this length, so that features of a higher rate, whose
    neighbours are nearly the same picture, do not make a video seem smoother than it is.
    """
    frames = len(structure)
    apart = max(1, round(rate_hz / looks_hz(frames / rate_hz, 1.0)))
    if frames <= apart:
        return 1.0
    x = spread_out(structure)
    return float(((x[apart:] - x[:-apart]) ** 2).sum(1).mean() / 2)


def price_of(structure: Floats, rate_hz: float, detail: float | None = None, share: float = WEIGHTS.share) -> float:
    """What a piece costs, in frames that have nothing in common with the rest of the video."""
    usual = max(1.0, LEAST_S * rate_hz, share * len(structure) * noise_of(structure, rate_hz))
    return float(usual * _STEEPNESS ** (0.5 - (0.5 if detail is None else detail)))


def gains_of(similarity: Floats, line: float) -> NDArray[np.float64]:
    """Similarity above the line, in units of its spread over the video: (K, N). The paper's, for slots alone."""
    spread = float(np.std(similarity))
    if spread > 1e-6:
        return (np.asarray(similarity, np.float64) - line) / spread
    # slots that cannot tell any frame from another: rounding must not decide, and a step goes before background
    return np.full(similarity.shape, 1e-3)


def joint_gains(
    similarity: Floats, rate_hz: float, knobs: Knobs, weights: Weights = WEIGHTS
) -> tuple[NDArray[np.float64], float]:
    """(K, N) what each slot gains in each frame beside structure, and the drop line.

    A frame gains by the evidence that it shows a step at all, and loses by how much worse than the best slot fits.
    A line that the user gives is one for the best slot's similarity.
    """
    given = knobs.similarity is not None or knobs.percentile is not None
    shows = np.asarray(similarity, np.float64).max(0) if given else evidence(similarity, weights.temperature)
    line = line_of(similarity, rate_hz, knobs, None if given else shows, weights.telling)
    spread, spread_all = float(shows.std()), float(np.std(similarity))
    if spread_all <= 1e-6:
        return np.full(similarity.shape, 1e-3), line
    is_step = weights.step * (shows - line) / max(spread, 1e-6)
    misfit = (similarity - np.max(similarity, axis=0)) / spread_all
    return is_step + weights.fit * misfit, line


def cut(
    similarity: Floats | None, structure: Floats | None, rate_hz: float, knobs: Knobs, weights: Weights = WEIGHTS
) -> Cut:
    """Steps of one video: similarity (K, N) of slots with frames, structure (N, S); either may be None."""
    if structure is None:
        if similarity is None:
            raise ValueError("cut needs similarity or structure")
        return _by_slots(similarity, rate_hz, knobs)
    line, gains = None, None
    if similarity is not None:
        gains, line = joint_gains(similarity, rate_hz, knobs, weights)
    # without background so many steps fill the video, so four or fewer may have to be longer than pieces usually may
    fill = gains is None and knobs.steps is not None and knobs.steps <= 4
    segmenter = Segmenter(structure, gains, ordered=knobs.ordered, longest=len(structure) if fill else None)
    price = price_of(structure, rate_hz, knobs.detail, weights.share)
    if knobs.steps is not None:
        if gains is not None and knobs.steps > len(gains):
            # whoever wants more steps than the model knows wants every change: structure says where, slots say which
            pieces = solve_exactly(Segmenter(structure, None), knobs.steps, price)
            return Cut(tuple(segmenter.with_slots(pieces)), line, price)
        return Cut(tuple(solve_exactly(segmenter, knobs.steps, price)), line, price)
    pieces = joined(segmenter.solve(price), gains is not None)
    if not pieces and knobs.similarity is None and knobs.percentile is None:
        pieces = solve_exactly(segmenter, 1, price)  # a video that changes has a step, however dear steps are
    return Cut(tuple(pieces), line, price)


def _by_slots(similarity: Floats, rate_hz: float, knobs: Knobs) -> Cut:
    """The paper's inference, Drop-DTW: a match costs nothing beside its similarity.

    ``steps`` and ``detail`` say how finely the part of the video that shows steps is cut, not how large that part is:
    what is background by default stays so, or many steps would be had by throwing most of each away.
    """
    frames = similarity.shape[1]
    line = line_of(similarity, rate_hz, knobs)
    gains = gains_of(similarity, line)
    segmenter = Segmenter(None, gains, ordered=knobs.ordered)
    usual = joined(segmenter.solve(0.0), slots=True)
    if knobs.steps is None and knobs.detail is None:
        return Cut(tuple(usual), line, 0.0)
    shown = np.zeros(frames, bool)
    for piece in usual:
        shown[piece.first : piece.last] = True
    sure = 4.0 * float(np.abs(gains).max(initial=1.0))
    segmenter = Segmenter(None, gains + np.where(shown | ~shown.any(), sure, 0.0), ordered=knobs.ordered)
    if knobs.steps is None:
        # the share of the video that a step must gain in: none by default and above
        price = frames / 4 * max(0.0, 0.5 - (knobs.detail or 0.0))
        return Cut(tuple(joined(segmenter.solve(price), slots=True)), line, price)
    return Cut(tuple(joined(solve_for_count(segmenter, knobs.steps), slots=True)), line, 0.0)


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
