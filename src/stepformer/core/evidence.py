"""What rows and structure say of a video's frames: the quantities that :mod:`stepformer.core.inference` weighs.

Rows are slots or texts. How similar they are to frames becomes evidence that a frame shows a step, a threshold between
steps and background, and what each frame gains for each row. Structure becomes the noise of neighbouring frames, the
penalty per segment and the usual number of steps.
"""

from __future__ import annotations

import heapq
import math
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stepformer.core.align import percentile_drop
from stepformer.core.align.torch_batch import sum_dtype
from stepformer.core.losses import cosines
from stepformer.core.model import Slots
from stepformer.core.options import InferenceConfig

STEEPNESS = 16.0  # detail 0 and 1 make a segment cost 4 times and a quarter of what it does at 0.5
_GRID = 2.0**20  # gains are multiples of 1 / _GRID: sums are exact, and ties do not depend on the batch
_ALIKE = 2.0**14  # steps in which rows differ: slots that are alike but for rounding are equal
_BELOW = 8e-7  # a threshold so far below all frames keeps them all
_EVEN, _FEW = 3.5, 36.0  # distance of two kinds in spreads within them: of evenly spread values; by chance, times looks
_FLAT = 1e-6  # spread of similarities below which rows cannot tell any frame from another
_ENOUGH = 64
_OFTENEST = 2
# the number of steps is log-normal about AT * pieces ** POWER, or FEW: chosen on simulated dev videos, the real dev
# clips and half of GTEA; `stepformer bench steps --fit` prints what the timelines of simulated training videos say
_NUMBER_AT, _NUMBER_POWER, _NUMBER_SPREAD, NUMBER_FEW = 0.30, 0.85, 0.25, 4.0
_LEFT = 0.09
_NUMBER_RANGE = 3.0
_MOST_STEPS = 96


# -- what rows say ------------------------------------------------------------------------------------------------


class Similarity(NamedTuple):
    """How similar rows (slots or texts) are to frames, and which of both are there."""

    values: Tensor  # (B, R, N)
    rows: Tensor  # (B, R) bool
    mask: Tensor  # (B, N) bool
    rate_hz: float = 1.0
    # the values without what rows read: reading makes some videos look as if they were of two kinds, and not reading
    # others; there is background only where both say so
    unread: Tensor | None = None  # (B, R, N)

    @property
    def both(self) -> Tensor:
        """(B, R, N) where there are a row and a frame."""
        return self.rows[..., None] & self.mask[:, None]

    def summable(self) -> Similarity:
        """The same in the type that sums are made in."""
        return self._replace(values=self.values.to(sum_dtype(self.values.device)))


def slot_similarity(output: Slots, mask: Tensor, config: InferenceConfig) -> Tensor:
    """(B, K, N) similarity of slots and frames, with the slots' own reading of the video mixed in if asked for."""
    similarity = cosines(output.slots, output.frames)
    if config.read_share:
        attention = (similarity / config.read_temperature).masked_fill(~mask[:, None, :], -torch.inf).softmax(-1)
        read = attention.to(output.frames.dtype) @ output.frames
        similarity = (1 - config.read_share) * similarity + config.read_share * cosines(read, output.frames)
    return similarity


def evidence_of(similarity: Tensor, rows: Tensor, temperature: float) -> Tensor:
    """(B, N) how much each frame shows a step: the soft maximum of (B, R, N) over ``rows`` (B, R) that are there,
    between their mean and maximum; the maximum at temperature 0.

    The best slot alone says little: a slot reads the frames it resembles, so even background has one that fits it;
    several slots that fit at once say that the frame belongs to the task.
    """
    values = similarity.masked_fill(~rows[..., None], -torch.inf)
    if not temperature:
        return values.amax(1)
    number = rows.sum(1, keepdim=True).clamp(min=1)
    return temperature * ((values / temperature).logsumexp(1) - number.to(values.dtype).log())


def otsu_threshold(values: Tensor, mask: Tensor) -> Tensor:
    """The value (B,) that divides each row's values (B, N) best into a low and a high kind.

    Otsu's criterion: of all divisions of the sorted values, the one with the largest variance between the two means.
    A video is steps and background; how much of each differs from video to video, so no fixed share serves them all.
    Rows with fewer than two values, or all equal, give a threshold just below them: everything is kept (a frame exactly
    on the threshold costs the same matched or dropped, and could go either way).
    """
    number = mask.sum(1)  # (B,)
    ordered = values.double().masked_fill(~mask, torch.inf).sort(1).values
    finite = torch.where(ordered < torch.inf, ordered, 0.0)
    total = finite.sum(1, keepdim=True)
    low = finite.cumsum(1)[:, :-1]  # sums of the i + 1 smallest
    count = torch.arange(1, values.shape[1], device=values.device)
    rest = number[:, None] - count
    between = count * rest * (low / count - (total - low) / rest.clamp(min=1)).square()
    between = torch.where(rest > 0, between, -1.0)
    below = finite[:, 0].to(values.dtype) - _BELOW
    if between.shape[1] == 0:
        return below
    best = between.argmax(1, keepdim=True)
    low_kind, high_kind = (finite.gather(1, at).squeeze(1) for at in (best, best + 1))
    # not midway: a last frame of the high kind and a first one of the low kind, side by side, would then cost exactly
    # the same kept or dropped, and rounding would choose
    threshold = low_kind + 0.45 * (high_kind - low_kind)
    # differences of rounding are no kinds: they change with the batch a video stands in
    spread = finite.gather(1, (number - 1).clamp(min=0)[:, None]).squeeze(1) - finite[:, 0]
    flat = spread <= 1e-5 if values.dtype != torch.float64 else between.amax(1) <= 1e-12
    return torch.where(flat, below, threshold.to(values.dtype))


def divided(values: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Of the two kinds that values (B, N) are best divided into: the share of the high one (B,), and how far their
    means lie apart (B,)."""
    high = mask & (values >= otsu_threshold(values, mask)[:, None])
    low = mask & ~high
    means = [torch.where(kind, values, 0.0).sum(1) / kind.sum(1).clamp(min=1) for kind in (high, low)]
    apart = torch.where(high.any(1) & low.any(1), means[0] - means[1], 0.0)
    return high.sum(1) / mask.sum(1).clamp(min=1), apart


def plain_kinds(values: Tensor, mask: Tensor, rate_hz: float) -> Tensor:
    """(B,) how plainly values (B, N) are of two kinds, 0 to 1: how far the kinds lie apart for how wide they are.

    Few looks at the video need a larger distance: 5% of the divisions that texts of other videos make reach it.
    """
    share, apart = divided(values, mask)
    within = (_spread(values, mask).square() - share * (1 - share) * apart.square()).clamp(min=0.0).sqrt()
    looks = mask.sum(1).clamp(min=1) / values.new_tensor(look_frames(mask, rate_hz))
    plain = (apart / within.clamp(min=_FLAT) - _EVEN - _FEW / looks).clamp(0.0, 1.0)
    return plain.nan_to_num()  # of no rows there is no maximum


def threshold_of(x: Similarity, config: InferenceConfig, keep: float, evidence: Tensor | None = None) -> Tensor:
    """The threshold (B,) that the config asks for; evidence (B, N)."""
    if config.similarity is not None:
        return x.values.new_full((len(x.values),), config.similarity)
    if config.threshold == "percentile":
        return -percentile_drop(x.values, keep, lengths=x.mask.sum(1), row_lengths=x.rows.sum(1))
    evidence = evidence_of(x.values, x.rows, 0.0) if evidence is None else evidence
    below = torch.where(x.mask, evidence, torch.inf).amin(1) - _BELOW
    threshold = otsu_threshold(evidence, x.mask)
    kinds = two_kinds(x, config)
    if x.unread is not None:
        kinds = torch.minimum(kinds, two_kinds(x._replace(values=x.unread), config))
    return below + kinds * (threshold - below)


def two_kinds(x: Similarity, config: InferenceConfig) -> Tensor:
    """(B,) how far rows tell two kinds of frames apart at all, 0 to 1 as their contrast rises between the config's two.

    Where a row has less than a second to itself it fits whatever is there, and how well it fits says nothing.
    """
    if not config.contrast_to:
        return x.values.new_ones(len(x.values))
    spread = _spread(x.values, x.both).clamp(min=_FLAT)
    apart = divided(evidence_of(x.values, x.rows, 0.0), x.mask)[1]
    sure = ramp(apart / spread, config.contrast_from, config.contrast_to)
    return torch.where(x.mask.sum(1) / x.rate_hz >= x.rows.sum(1), sure, 0.0)


def ramp(values: Tensor, low: float, high: float) -> Tensor:
    """0 up to ``low``, 1 from ``high``, a straight line between."""
    return ((values - low) / max(high - low, 1e-9)).clamp(0.0, 1.0)


def _spread(values: Tensor, mask: Tensor) -> Tensor:
    """Standard deviation of values (B, ...) where mask, broadcast against them, is True: (B,)."""
    there = mask.expand_as(values).flatten(1)
    v = torch.where(there, values.flatten(1), 0.0)
    number = there.sum(1).clamp(min=1)
    mean = v.sum(1) / number
    return (torch.where(there, v - mean[:, None], 0.0).square().sum(1) / number).sqrt()


def standardised(rows: Tensor, mask: Tensor) -> Tensor:
    """Each row of (B, R, N) less its mean over the video, in units of its own spread; 0 outside the mask (B, N)."""
    there = mask[:, None]
    number = mask.sum(1).clamp(min=1)[:, None, None]
    centred = torch.where(there, rows - torch.where(there, rows, 0.0).sum(2, keepdim=True) / number, 0.0)
    return centred / (centred.square().sum(2, keepdim=True) / number).sqrt().clamp(min=_FLAT)  # rounding is no spread


def gains_of(x: Similarity, config: InferenceConfig, keep: float) -> tuple[Tensor, Tensor]:
    """(B, R, N) what each row gains in each frame, and the threshold (B,), by the formula of discovery."""
    x = x.summable()
    spread = _spread(x.values, x.both)
    scale = spread.clamp(min=_FLAT)[:, None, None]
    if config.evidence_temperature == 0 and config.row_weight == config.step_weight:
        threshold = threshold_of(x, config, keep)
        gains = config.step_weight * (x.values - threshold[:, None, None]) / scale
    else:
        shown, threshold = shown_above(x, config, keep)
        misfit = (x.values - evidence_of(x.values, x.rows, 0.0)[:, None]) / scale
        weight = config.row_weight * row_noise(x)[0][:, None, None]
        gains = on_grid(config.step_weight * shown[:, None]) + on_grid(weight * misfit, _ALIKE)
    # slots that cannot tell any frame from another: rounding must not decide, and a step goes before background
    flat = (spread <= _FLAT)[:, None, None]
    return on_grid(torch.where(flat, 1e-3, gains).masked_fill(~x.both, 0.0)), threshold


def row_noise(x: Similarity) -> tuple[Tensor, Tensor]:
    """(B,) 1 - ν, the share of the rows' variation over a video that neighbouring frames have in common, and (B,) the
    standard deviation of the rest, of one row, in those of all similarities."""
    x = x.summable()
    seen, frames = torch.where(x.both, x.values, 0.0), x.mask.sum(1).clamp(min=1)
    varied = torch.where(x.both, seen - seen.sum(2, keepdim=True) / frames[:, None, None], 0.0)
    varied = varied.square().sum((1, 2)) / frames
    near = noise_share(seen.mT, x.mask, x.rate_hz)
    common = (1 - near / varied.clamp(min=_FLAT**2)).clamp(min=0.0)
    return common, (near / x.rows.sum(1).clamp(min=1)).sqrt() / _spread(x.values, x.both).clamp(min=_FLAT)


def on_grid(gains: Tensor, grid: float = _GRID) -> Tensor:
    """Gains rounded to multiples of 1 / ``grid``."""
    return (gains.to(sum_dtype(gains.device)) * grid).round() / grid


def shown_above(x: Similarity, config: InferenceConfig, keep: float) -> tuple[Tensor, Tensor]:
    """(B, N) how far above the threshold the evidence for a step is, in spreads of it, and the threshold (B,)."""
    x = x.summable()
    evidence = evidence_of(x.values, x.rows, config.evidence_temperature)
    threshold = threshold_of(x, config, keep, evidence)
    return (evidence - threshold[:, None]) / _spread(evidence, x.mask).clamp(min=_FLAT)[:, None], threshold


# -- what structure costs -----------------------------------------------------------------------------------------


def looks_hz(duration_s: float, rate_hz: float) -> float:
    """How many vectors per second to make of a video: the encoder's rate, or twice that for a video too
    short for 64 vectors (two per slot)."""
    return rate_hz * min(_OFTENEST, max(1, math.ceil(_ENOUGH / max(duration_s * rate_hz, 1e-3))))


def look_frames(mask: Tensor, rate_hz: float) -> list[int]:
    """How many frames of each video the product would see in one look: those that noise has in common, at least 1."""
    return [max(1, round(rate_hz / looks_hz(frames / rate_hz, 1.0))) for frames in mask.sum(1).tolist()]


def noise_share(structure: Tensor, mask: Tensor, rate_hz: float) -> Tensor:
    """(B,) share, 0 to about 1, of a video's variance that neighbouring frames do not share: structure (B, N, W) from
    :func:`segments.spread_out`.

    Neighbours are as far apart as the product looks at a video of this length, so that features of a higher rate, whose
    neighbours are nearly the same picture, do not make a video seem smoother than it is.
    """
    out = []
    for x, frames, apart in zip(structure, mask.sum(1).tolist(), look_frames(mask, rate_hz), strict=True):
        near = (x[apart:frames] - x[: max(frames - apart, 0)]).square().sum(1)
        out.append(near.mean() / 2 if frames > apart else near.new_ones(()))
    return torch.stack(out) if out else structure.new_ones(0)


def penalty_of(structure: Tensor, mask: Tensor, rate_hz: float, config: InferenceConfig) -> Tensor:
    """(B,) what a segment costs, in frames that have nothing in common with the rest of the video: a share of the
    video's noise, since what a cut gains by chance grows with it."""
    lengths = mask.sum(1).to(structure.dtype)
    usual = config.penalty_share * lengths * noise_share(structure, mask, rate_hz)
    least = max(1.0, config.min_step_s * rate_hz)
    return usual.clamp(min=least) * float(STEEPNESS ** (0.5 - config.detail))


def pieces(spread: Tensor, mask: Tensor) -> Tensor:
    """(B,) how many pieces a video falls into: the fewest segments with no more than a share ``_LEFT`` of its variance
    inside them, of structure (B, N, W) from :func:`segments.spread_out`. A few pictures that have nothing in common are
    as many, however long each is shown."""
    found = [
        1.0 + float((_scatter_left(x[:frames]) > _LEFT).sum())
        for x, frames in zip(spread.double().cpu().numpy(), mask.sum(1).tolist(), strict=True)
    ]
    return torch.tensor(found, dtype=spread.dtype, device=spread.device)


def _scatter_left(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """(N,) the share of the variance of x (N, W) that lies inside 1 to N segments, made by joining, again and again,
    the two neighbours whose joining adds least: nearly the best, and quick in videos of hours."""
    sums, sizes = list(x), [1] * len(x)
    after, before = list(range(1, len(x) + 1)), list(range(-1, len(x) - 1))

    def joining(i: int, j: int) -> tuple[float, int, int, int, int]:
        apart = sums[i] / sizes[i] - sums[j] / sizes[j]
        return sizes[i] * sizes[j] / (sizes[i] + sizes[j]) * float(apart @ apart), i, j, sizes[i], sizes[j]

    waiting = [joining(i, i + 1) for i in range(len(x) - 1)]
    heapq.heapify(waiting)
    added = [0.0]
    while waiting:
        cost, i, j, *size = heapq.heappop(waiting)
        if size != [sizes[i], sizes[j]]:  # one of the two has been joined to another since
            continue
        added.append(cost)
        sums[i], sizes[i], sizes[j], after[i] = sums[i] + sums[j], sizes[i] + sizes[j], 0, after[j]
        if after[i] < len(x):
            before[after[i]] = i
            heapq.heappush(waiting, joining(i, after[i]))
        if before[i] >= 0:
            heapq.heappush(waiting, joining(before[i], i))
    left: NDArray[np.float64] = np.cumsum(added)[::-1] / max(float(np.square(x).sum()), 1e-12)
    return left


def usual_number(pieces: Tensor) -> Tensor:
    """(B,) how many steps a video of these :func:`pieces` usually has: in a video of few each is one."""
    return torch.minimum(pieces, (_NUMBER_AT * pieces**_NUMBER_POWER).clamp(min=NUMBER_FEW))


def number_costs(usual: Tensor, mask: Tensor, noise: Tensor, config: InferenceConfig) -> list[NDArray[np.float64]]:
    """What 1 to C steps cost beside their penalties, per video; C is beyond what could be best, and at most the frames.
    usual: (B,) from :func:`usual_number`; noise: (B,) from :func:`noise_share`.

    ``detail`` moves what is usual to a third and to three times as many. Where there is much noise what is usual
    counts for more: the cuts are not plain."""
    centres = usual.log() + math.log(_NUMBER_RANGE) * (2 * config.detail - 1)
    weight = config.number_weight * config.penalty_share * mask.sum(1).to(noise.dtype) * noise
    out = []
    for centre, w, frames in zip(centres.tolist(), weight.tolist(), mask.sum(1).tolist(), strict=True):
        most = min(max(frames, 1), _MOST_STEPS, max(8, math.ceil(4 * math.exp(centre))))
        away = (np.log(np.arange(1, most + 1)) - centre) / _NUMBER_SPREAD
        out.append(w * away**2 / 2)
    return out
