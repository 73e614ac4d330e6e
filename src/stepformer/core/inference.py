"""From slots to steps: the one engine behind the product, validation, the paper's tables, baselines and benches.

*Discovery* (:func:`find_steps`) cuts a video into steps, each shown by a slot, and background. *Localisation*
(:func:`find_texts`) does the same with given step texts, each of which takes a segment. Both maximise the sum that
:mod:`stepformer.core.segments` states: what rows gain in their frames, less the scatter inside segments, less a penalty
per segment. :class:`InferenceConfig` holds every option, and a checkpoint carries its own; the constants below are the
same for all.

The paper's inference is the case without structure and penalty (:data:`PAPER_INFERENCE`): slots and frames aligned by
Drop-DTW, many frames to one slot, both droppable at one similarity threshold; texts first take slots, one each, and
then the slots' frames.

Everything is batched, on any device; only torch and NumPy are needed (numba makes the CPU faster).
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stepformer.core import segments
from stepformer.core.align import columns_of, drop_dtw_batch, order_agnostic_batch, percentile_drop
from stepformer.core.align.torch_batch import sum_dtype
from stepformer.core.losses import cosines
from stepformer.core.model import ModelConfig, Slots, check_ranges
from stepformer.core.segments import Segment
from stepformer.errors import InputError, UsageError

Threshold = Literal["percentile", "automatic", "fixed"]

TOO_MANY = 4.0
"""Cost of a text that gets no frame, in cosines: paid only where there are more texts than frames."""
_STEEPNESS = 16.0  # detail 0 and 1 make a segment cost 4 times and a quarter of what it does at 0.5
_NEVER = -1e9  # what a row that is not there gains
_WITHOUT = 1e4  # what a text costs that gets no frame, beside gains of a few per frame
_TIE = 1e-3
_TIE_OF_PLACES = 1e-4  # per squared part: with nothing to go by, texts take equal parts
_GRID = 2.0**20  # gains are multiples of 1 / _GRID: sums are exact, and ties do not depend on the batch
_ALIKE = 2.0**14  # steps in which rows differ: slots that are alike but for rounding are equal
_SHIFTS = 16
_BELOW = 8e-7  # a threshold so far below all frames keeps them all
_EVEN, _FEW = 3.5, 36.0  # distance of two kinds in spreads within them: of evenly spread values; by chance, times looks
_FLAT = 1e-6  # spread of similarities below which rows cannot tell any frame from another
_ENOUGH = 64
_OFTENEST = 2
# the number of steps is log-normal about AT * pieces ** POWER, or FEW: chosen on simulated dev videos, the real dev
# clips and half of GTEA; `stepformer bench steps --fit` prints what the timelines of simulated training videos say
_NUMBER_AT, _NUMBER_POWER, _NUMBER_SPREAD, _NUMBER_FEW = 0.30, 0.85, 0.25, 4.0
_LEFT = 0.09
_SPLIT = 2.0  # looks of noise that a further step must explain, however many are usual
_BY_CHANCE = 0.5  # times the standard deviation of a sum over a usual step: what rows gain where a step is split
_NUMBER_RANGE = 3.0
_MOST_STEPS = 96
# options that older checkpoints carry
_GONE = frozenset({"time_weight", "raw_texts", "text_contrast_from", "text_contrast_to"})


@dataclass(frozen=True, slots=True)
class InferenceConfig:
    """How rows (slots or texts) become steps. The defaults are the paper's inference, :data:`PAPER_INFERENCE`.

    **The threshold** that separates steps from background is a similarity: ``fixed``, or the one that a share of all
    row-frame similarities reaches (``percentile``, the paper's), or the one that divides the video's frames best into
    two kinds (``automatic``, Otsu's criterion). A video may be of one kind, all steps: the automatic threshold falls
    from Otsu's to below all frames as the contrast of the two kinds (how far their best similarities lie apart, in
    standard deviations of all similarities; of slots, with or without what they read, the lower) falls from
    ``contrast_to`` to ``contrast_from``; and it is below all frames where a slot has less than a second to itself.

    **What a frame gains** for row r, with s its similarity, E the evidence that the frame shows any step at all, and σ
    standard deviations over the video:

        discovery      step_weight (E - threshold) / σ(E) + row_weight (1 - ν) (s_r - max s) / σ(s)
        localisation   the same of the texts' rows; or, with text_weight > 0,
                       locate_step_weight (E - threshold) / σ(E) + text_weight separability (z_r - text_margin)

    where ν is the share of the rows' variation over the video that neighbouring frames do not have in common: which row
    fits best must not be decided by noise. z is s standardised over the video. In localisation E is the mean of the
    slots' and the texts' evidence. A text must weigh by
    how well it separates *this* video's moments: its separability is the share of the texts' variation that lies
    between the segments that structure alone makes (two per text and one), beyond chance, from 0 at ``separable_from``
    to 1 at ``separable_to`` (both 0: always 1). With nothing to go by but cuts, texts take them in order.

    Whoever types a step expects it in the video, and expects little else there: background stands only where it
    explains ``background_share`` of the video, or ``background_s`` seconds of a long one. All this is for texts that
    fit poorly. As far as frames plainly fall into two kinds, those that some text fits and those that none does
    (:func:`plain_kinds`), texts separate, background may be short, and both kinds of evidence count for more.

    **How many steps**: as many as make the sum largest, less ``number_weight`` penalties times half the square of how
    many standard deviations the logarithm of their number lies from what is usual for a video of so many pieces
    (:func:`usual_number`).

    E is the soft maximum of s over the rows at ``evidence_temperature`` (0: the maximum). With temperature 0 and both
    weights 1 a frame gains (s_r - threshold), up to the scale: Drop-DTW.
    """

    threshold: Threshold = "percentile"
    similarity: float | None = None  # the fixed threshold
    keep: float = 0.1  # percentile: share of slot-frame similarities that reach the threshold, discovery
    locate_keep: float = 0.1  # likewise, text-frame similarities in localisation
    contrast_from: float = 0.0  # automatic: standard deviations of all similarities
    contrast_to: float = 0.0
    ordered: bool = True  # rows rise; False: each frame goes to its best row (the paper's ablation), steps may repeat
    read_share: float = 0.0  # discovery: share of what a slot reads in the video (softmax over similarities) in its row
    read_temperature: float = 0.03
    text_share: float = 0.0  # localisation: share of the text itself beside the slot that it took
    evidence_temperature: float = 0.0  # of the soft maximum over rows; 0: the maximum
    step_weight: float = 1.0  # of the evidence that a frame shows a step; 0: rows are not used at all
    row_weight: float = 1.0  # of how much worse than the best row the chosen one fits
    text_weight: float = 0.0  # localisation: of the standardised similarity; 0: as discovery
    locate_step_weight: float = 1.0  # of the evidence beside it
    text_margin: float = 0.25  # standard deviations above the average frame that show a text
    separable_from: float = 0.0  # share of the texts' variation that lies between segments, beyond chance
    separable_to: float = 0.0
    structure_weight: float = 0.0  # of the scatter inside segments, per frame of the video's variance
    penalty_share: float = 0.0  # penalty per segment, as a share of the video's noise; 0: no penalty
    locate_penalty: float = 0.25  # localisation's penalty as a share of discovery's: it is known which steps there are
    background_share: float = 0.0  # localisation in order: share of the video that background must explain to stand
    background_s: float = 12.0  # ... and of a long video no more than so many seconds
    number_weight: float = 0.0  # of the prior on how many steps there are, in penalties; 0: the penalty alone decides
    min_step_s: float = 0.5  # a segment must explain this many seconds that have nothing in common with the rest
    detail: float = 0.5  # 0: few, long steps; 1: many, short ones

    def __post_init__(self) -> None:
        any_number = ("step_weight", "row_weight", "text_weight", "locate_step_weight", "structure_weight",
                      "penalty_share", "locate_penalty", "background_s", "number_weight", "min_step_s",
                      "evidence_temperature")  # fmt: skip
        shares = ("read_share", "text_share", "background_share", "detail")
        ranges = dict.fromkeys(any_number, "[0, inf)") | dict.fromkeys(shares, "[0, 1]")
        check_ranges(self, "inference.", keep="(0, 1]", locate_keep="(0, 1]", **ranges)
        for name in ("contrast", "separable"):
            if not 0 <= getattr(self, f"{name}_from") <= getattr(self, f"{name}_to"):
                raise UsageError(f"inference.{name}_from is at least 0 and at most {name}_to")
        if (self.threshold == "fixed") != (self.similarity is not None):
            raise UsageError("inference.similarity is the threshold of threshold='fixed', and of no other")
        if self.step_weight == 0 and self.structure_weight == 0:
            raise UsageError("there is nothing to cut a video by: step_weight and structure_weight are both 0")

    @property
    def is_drop_dtw(self) -> bool:
        """Whether neither structure nor a penalty takes part."""
        return self.structure_weight == 0 and self.penalty_share == 0

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as a checkpoint stores them; :meth:`from_dict` reads them back."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> InferenceConfig:
        """From stored values; those of options that are gone are passed over."""
        try:
            return cls(**{name: value for name, value in dict(values).items() if name not in _GONE})
        except TypeError as error:
            raise InputError(f"the inference options cannot be read: {error}") from None


PAPER_INFERENCE = InferenceConfig()
_SLOTS = ModelConfig().slots  # of a control
DEFAULT_INFERENCE = InferenceConfig(
    threshold="automatic", contrast_from=0.6, contrast_to=1.4, read_share=0.25, text_share=1.0,
    evidence_temperature=0.07, step_weight=2.0, row_weight=2.0, text_weight=2.0, locate_step_weight=0.25,
    separable_from=0.05, separable_to=0.5, structure_weight=1.0, penalty_share=1 / 8, background_share=0.1,
    number_weight=4.0,
)  # fmt: skip
"""What the preset ``default`` uses everywhere; chosen on the simulated dev split. What slots read, how much rows count
and the options of localisation were chosen on real dev clips and half of GTEA too: simulated videos have no motion that
their texts cannot tell apart, and much background."""


@dataclass(frozen=True, slots=True, eq=False)
class Spread:
    """Structure of a batch as :func:`segments.spread_out` gives it, (B, N, W), for callers that ask many times."""

    values: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """What was found in a batch of videos.

    assignment: (B, N) row of each frame, -1 background (steps without rows are numbered). segments: the steps of each
    video, in order; a step may share its row with its neighbour where more steps were asked for than there are rows.
    similarity: (B, R, N) of rows and frames. threshold: (B,). penalty: (B,) per segment, in frames. slots: (B, M) the
    slot each text took, -1 none (localisation).
    """

    assignment: Tensor
    segments: tuple[tuple[Segment, ...], ...]
    similarity: Tensor
    threshold: Tensor
    penalty: Tensor
    slots: Tensor | None = None


# -- what rows say ------------------------------------------------------------------------------------------------


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


def _divided(values: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Of the two kinds that values (B, N) are best divided into: the share of the high one (B,), and how far their
    means lie apart (B,)."""
    high = mask & (values >= otsu_threshold(values, mask)[:, None])
    low = mask & ~high
    means = [torch.where(kind, values, 0.0).sum(1) / kind.sum(1).clamp(min=1) for kind in (high, low)]
    apart = torch.where(high.any(1) & low.any(1), means[0] - means[1], 0.0)
    return high.sum(1) / mask.sum(1).clamp(min=1), apart


def plain_kinds(values: Tensor, mask: Tensor, rate_hz: float) -> Tensor:
    """(B,) how plainly values (B, N) are of two kinds, 0 to 1: how far the kinds lie apart for how wide they are.

    The fewer looks at the video, the further: so far apart are 5% of the divisions that texts of other videos make.
    """
    share, apart = _divided(values, mask)
    within = (_spread(values, mask).square() - share * (1 - share) * apart.square()).clamp(min=0.0).sqrt()
    looks = mask.sum(1).clamp(min=1) / values.new_tensor(look_frames(mask, rate_hz))
    plain = (apart / within.clamp(min=_FLAT) - _EVEN - _FEW / looks).clamp(0.0, 1.0)
    return plain.nan_to_num()  # of no rows there is no maximum


def threshold_of(
    similarity: Tensor,
    rows: Tensor,
    mask: Tensor,
    config: InferenceConfig,
    keep: float,
    evidence: Tensor | None = None,
    rate_hz: float = 1.0,
    unread: Tensor | None = None,
) -> Tensor:
    """The threshold (B,) that the config asks for: similarity (B, R, N) of ``rows`` (B, R), evidence (B, N).

    unread: the similarity without what rows read. Reading makes some videos look as if they were of two kinds, and not
    reading others; there is background only where both say so.
    """
    if config.similarity is not None:
        return similarity.new_full((len(similarity),), config.similarity)
    if config.threshold == "percentile":
        drop: Tensor = percentile_drop(similarity, keep, lengths=mask.sum(1), row_lengths=rows.sum(1))
        return -drop
    evidence = evidence_of(similarity, rows, 0.0) if evidence is None else evidence
    below = torch.where(mask, evidence, torch.inf).amin(1) - _BELOW
    threshold = otsu_threshold(evidence, mask)
    kinds = two_kinds(similarity, rows, mask, rate_hz, config)
    if unread is not None:
        kinds = torch.minimum(kinds, two_kinds(unread, rows, mask, rate_hz, config))
    return below + kinds * (threshold - below)


def two_kinds(similarity: Tensor, rows: Tensor, mask: Tensor, rate_hz: float, config: InferenceConfig) -> Tensor:
    """(B,) how far rows tell two kinds of frames apart at all, 0 to 1 as their contrast rises between the config's two.

    Where a row has less than a second to itself it fits whatever is there, and how well it fits says nothing.
    """
    if not config.contrast_to:
        return similarity.new_ones(len(similarity))
    spread = _spread(similarity, rows[..., None] & mask[:, None]).clamp(min=_FLAT)
    apart = _divided(evidence_of(similarity, rows, 0.0), mask)[1]
    sure = _ramp(apart / spread, config.contrast_from, config.contrast_to)
    return torch.where(mask.sum(1) / rate_hz >= rows.sum(1), sure, 0.0)


def _ramp(values: Tensor, low: float, high: float) -> Tensor:
    """0 up to ``low``, 1 from ``high``, a straight line between."""
    return ((values - low) / max(high - low, 1e-9)).clamp(0.0, 1.0)


def _spread(values: Tensor, mask: Tensor) -> Tensor:
    """Standard deviation of values (B, ...) where mask, broadcast against them, is True: (B,)."""
    there = mask.expand_as(values).flatten(1)
    v = torch.where(there, values.flatten(1), 0.0)
    number = there.sum(1).clamp(min=1)
    mean = v.sum(1) / number
    return (torch.where(there, v - mean[:, None], 0.0).square().sum(1) / number).sqrt()


def _standardised(rows: Tensor, mask: Tensor) -> Tensor:
    """Each row of (B, R, N) less its mean over the video, in units of its own spread; 0 outside the mask (B, N)."""
    there = mask[:, None]
    number = mask.sum(1).clamp(min=1)[:, None, None]
    centred = torch.where(there, rows - torch.where(there, rows, 0.0).sum(2, keepdim=True) / number, 0.0)
    return centred / (centred.square().sum(2, keepdim=True) / number).sqrt().clamp(min=_FLAT)  # rounding is no spread


def _gains(
    similarity: Tensor, rows: Tensor, mask: Tensor, config: InferenceConfig, keep: float, rate_hz: float,
    unread: Tensor | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """(B, R, N) what each row gains in each frame, and the threshold (B,), by the formula of discovery."""
    similarity = similarity.to(sum_dtype(similarity.device))
    both = rows[..., None] & mask[:, None]
    spread = _spread(similarity, both)
    scale = spread.clamp(min=_FLAT)[:, None, None]
    if config.evidence_temperature == 0 and config.row_weight == config.step_weight:
        threshold = threshold_of(similarity, rows, mask, config, keep, None, rate_hz, unread)
        gains = config.step_weight * (similarity - threshold[:, None, None]) / scale
    else:
        shown, threshold = _shown(similarity, rows, mask, config, keep, rate_hz, unread)
        misfit = (similarity - evidence_of(similarity, rows, 0.0)[:, None]) / scale
        weight = config.row_weight * _row_noise(similarity, rows, mask, rate_hz)[0][:, None, None]
        gains = _on_grid(config.step_weight * shown[:, None]) + _on_grid(weight * misfit, _ALIKE)
    # slots that cannot tell any frame from another: rounding must not decide, and a step goes before background
    flat = (spread <= _FLAT)[:, None, None]
    return _on_grid(torch.where(flat, 1e-3, gains).masked_fill(~both, 0.0)), threshold


def _row_noise(similarity: Tensor, rows: Tensor, mask: Tensor, rate_hz: float) -> tuple[Tensor, Tensor]:
    """(B,) 1 - ν, the share of the rows' variation over a video that neighbouring frames have in common, and (B,) the
    standard deviation of the rest, of one row, in those of all similarities (B, R, N)."""
    similarity = similarity.to(sum_dtype(similarity.device))
    both = rows[..., None] & mask[:, None]
    seen, frames = torch.where(both, similarity, 0.0), mask.sum(1).clamp(min=1)
    varied = torch.where(both, seen - seen.sum(2, keepdim=True) / frames[:, None, None], 0.0)
    varied = varied.square().sum((1, 2)) / frames
    near = noise_share(seen.mT, mask, rate_hz)
    common = (1 - near / varied.clamp(min=_FLAT**2)).clamp(min=0.0)
    return common, (near / rows.sum(1).clamp(min=1)).sqrt() / _spread(similarity, both).clamp(min=_FLAT)


def _on_grid(gains: Tensor, grid: float = _GRID) -> Tensor:
    return (gains.to(sum_dtype(gains.device)) * grid).round() / grid


def _shown(
    similarity: Tensor, rows: Tensor, mask: Tensor, config: InferenceConfig, keep: float, rate_hz: float,
    unread: Tensor | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """(B, N) how far above the threshold the evidence for a step is, in spreads of it, and the threshold (B,)."""
    similarity = similarity.to(sum_dtype(similarity.device))
    evidence = evidence_of(similarity, rows, config.evidence_temperature)
    threshold = threshold_of(similarity, rows, mask, config, keep, evidence, rate_hz, unread)
    return (evidence - threshold[:, None]) / _spread(evidence, mask).clamp(min=_FLAT)[:, None], threshold


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
    return usual.clamp(min=least) * float(_STEEPNESS ** (0.5 - config.detail))


def pieces(spread: Tensor, mask: Tensor) -> Tensor:
    """(B,) how many pieces a video falls into: so few segments that no more than a share ``_LEFT`` of its variance lies
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
    """(B,) how many steps a video of so many :func:`pieces` usually has: in a video of few each is one."""
    return torch.minimum(pieces, (_NUMBER_AT * pieces**_NUMBER_POWER).clamp(min=_NUMBER_FEW))


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


# -- the two tasks ------------------------------------------------------------------------------------------------


def find_steps(
    output: Slots,
    mask: Tensor,
    config: InferenceConfig,
    *,
    structure: Tensor | Spread | None = None,
    rate_hz: float = 1.0,
    steps: int | None = None,
    evidence: Tensor | None = None,
    similarity: Tensor | None = None,
) -> Found:
    """The steps of a batch of videos.

    mask: (B, N) True where there is a frame; padding stands behind. structure: (B, N, S) what boundaries are placed by
    (``output.frames`` by default). rate_hz: frames per second. steps: exactly so many in each video. evidence: (B, N)
    added to what every row gains in a frame: above 0 it speaks for a step here, below 0 against one; 1 is as much
    as a frame that has nothing in common with its segment costs. similarity: (B, K, N) instead of the slots' own.
    """
    unread = cosines(output.slots, output.frames) if similarity is None and config.read_share else None
    similarity = slot_similarity(output, mask, config) if similarity is None else similarity
    structure = output.frames if structure is None else structure
    B, K, _ = similarity.shape
    rows = torch.ones(B, K, dtype=torch.bool, device=mask.device)
    gains, threshold = _gains(similarity, rows, mask, config, config.keep, rate_hz, unread)
    if evidence is not None:
        gains = gains + torch.where(mask, evidence, 0.0)[:, None]
    if config.is_drop_dtw:
        return _by_drop_dtw(gains, similarity, threshold, mask, config, steps)
    spread = _spread_out(structure, mask)
    penalty = penalty_of(spread, mask, rate_hz, config)
    structure_spread, spread = spread, spread * math.sqrt(config.structure_weight)
    by_structure = config.step_weight == 0
    by_number = steps is None and config.number_weight > 0 and config.threshold == "automatic"
    falls_into = pieces(structure_spread, mask) if by_number else None
    if falls_into is not None:  # each of a few pieces is a step: two kinds of so few mean nothing
        lowest = torch.where(mask, gains.amax(1), torch.inf).amin(1).clamp(max=0.0)
        gains = gains - torch.where(falls_into <= _NUMBER_FEW, lowest, 0.0)[:, None, None]
    task = segments.programme(None if by_structure else gains, spread, mask)
    if steps is not None and not by_structure and steps > K:
        # whoever wants more steps than the model knows wants every change: structure says where, slots say which
        cuts, _ = segments.solve(segments.programme(None, spread, mask), penalty, count=[steps] * B)
        found = [task.on_rows(cut, i, config.ordered) for i, cut in enumerate(cuts)]
    elif steps is not None:
        found, _ = segments.solve(task, penalty, ordered=config.ordered, count=[steps] * B)
    elif falls_into is not None:
        noise = noise_share(structure_spread, mask, rate_hz)
        usual = usual_number(falls_into)
        number = number_costs(usual, mask, noise, config)
        # what is usual never splits what is all the same; noise counts by looks: a higher rate has no more of it
        look = noise.new_tensor(look_frames(mask, rate_hz))
        least = _SPLIT * look * noise * _STEEPNESS ** (0.5 - config.detail)
        if not by_structure:  # of rows that fit alike, one is better in the first half and one in the second, by chance
            common, chance = _row_noise(similarity, rows, mask, rate_hz)
            per_step = torch.where(falls_into <= _NUMBER_FEW, 0.0, mask.sum(1) / usual.clamp(min=1.0))
            least = least + _BY_CHANCE * config.row_weight * common * chance * (look * per_step).sqrt()
        found, _ = segments.solve(task, penalty, ordered=config.ordered, number=number, least=least)
    else:
        found, _ = segments.solve(task, penalty, ordered=config.ordered)
        if config.threshold == "automatic" and not all(found):
            # a video that changes has a step, however high the penalty
            one, _ = segments.solve(task, penalty, ordered=config.ordered, count=[1] * B)
            found = [steps_here or one[i] for i, steps_here in enumerate(found)]
    return _found(found, similarity, threshold, penalty, mask)


def _by_drop_dtw(
    gains: Tensor, similarity: Tensor, threshold: Tensor, mask: Tensor, config: InferenceConfig, steps: int | None
) -> Found:
    """The paper's inference: a match costs nothing beside its similarity.

    ``steps`` and ``detail`` say how finely the part of the video that shows steps is cut, not how large that part is:
    what is background by default stays so, or many steps would be had by throwing most of each away.
    """
    lengths = mask.sum(1)
    none = threshold.new_zeros(len(threshold))
    assignment = _aligned(gains, 0.0, lengths, None, config.ordered)
    if steps is None and config.detail >= 0.5:
        return _found(runs_of(assignment, mask), similarity, threshold, none, mask)
    shown = assignment >= 0
    sure = 4.0 * gains.abs().amax((1, 2)).clamp(min=1.0)
    shown = shown | (mask & ~shown.any(1, keepdim=True))
    task = segments.programme(gains + torch.where(shown, sure[:, None], 0.0)[:, None], None, mask)
    count = None if steps is None else [steps] * len(gains)
    # the share of the video that a step must gain in: none by default and above
    penalty = none if count else lengths / 4 * max(0.0, 0.5 - config.detail)
    found, _ = segments.solve(task, penalty, ordered=config.ordered, count=count)
    return _found(found, similarity, threshold, penalty, mask)


def _aligned(gains: Tensor, skip: Tensor | float, lengths: Tensor, rows: Tensor | None, ordered: bool) -> Tensor:
    """(B, N) the row of each column, -1 none, by what rows gain (B, R, N); a row passed over costs ``skip``."""
    if ordered:
        return columns_of(drop_dtw_batch(-gains, 0.0, skip, lengths, row_lengths=rows, check=False))
    return columns_of(order_agnostic_batch(-gains, 0.0, lengths, row_lengths=rows, check=False))


def slots_of_texts(similarity: Tensor, text_lengths: Tensor) -> Tensor:
    """Which slot each text takes, in order: similarity (B, M, K) of texts and slots -> (B, M) slot, -1 none.

    One slot per text and one text per slot. Every text takes a slot; where there are more texts than slots, the texts
    that fit worst go without.
    """
    K = similarity.shape[2]
    if K == 0:
        return torch.full(similarity.shape[:2], -1, device=similarity.device)
    slots = torch.full_like(text_lengths, K)
    drop_cost = torch.where(text_lengths > slots, TOO_MANY, torch.inf).to(similarity.dtype)
    matched = drop_dtw_batch(
        -similarity, 0.0, drop_cost, slots, matching="one_to_one", row_lengths=text_lengths, check=False
    )
    return torch.where(matched.any(2), matched.to(torch.uint8).argmax(2), -1)


def find_texts(
    output: Slots,
    mask: Tensor,
    texts: Tensor,
    text_lengths: Tensor,
    config: InferenceConfig,
    *,
    structure: Tensor | Spread | None = None,
    rate_hz: float = 1.0,
    present: Tensor | None = None,
    text_evidence: Tensor | None = None,
) -> Found:
    """Where ordered step texts (B, M, D) happen; every one takes a segment.

    text_lengths: (B,) how many texts a video has. present: (B, M) False for a text that is known to be absent.
    structure, rate_hz: as in :func:`find_steps`; text_evidence: (B, M, N) what its evidence is, for single texts.
    Where there are more texts than frames, those that fit worst go without. Texts that may come in any order
    (``config.ordered=False``) may also repeat, and need not all be there.
    """
    M, frames = texts.shape[1], mask.sum(1)
    there = torch.arange(M, device=mask.device) < text_lengths[:, None]
    there = there if present is None else there & present
    order = (~there).to(torch.uint8).argsort(dim=1, stable=True)  # texts that are there first, in their order
    texts = texts.gather(1, order[..., None].expand_as(texts))
    lengths = there.sum(1)
    there = torch.arange(M, device=mask.device) < lengths[:, None]
    rows, taken = _text_rows(output, mask, texts, lengths, config)
    spread, plain = mask[..., None], rows.new_zeros(len(rows))
    if config.text_weight or not config.is_drop_dtw:
        spread = _spread_out(output.frames if structure is None else structure, mask)
    if config.text_weight:
        # background is where neither slots nor texts fit; where slots do not tell two kinds of frames apart, texts do
        direct = cosines(texts, output.frames)
        plain = plain_kinds(evidence_of(direct, there, 0.0), mask, rate_hz)
        weight = torch.maximum(separability(rows, lengths, spread, mask, config), plain)
        shown, threshold = _shown(direct, there, mask, config, config.locate_keep, rate_hz)
        if output.slots.shape[1]:
            every = torch.ones(output.slots.shape[:2], dtype=torch.bool, device=mask.device)
            slot_rows = cosines(output.slots, output.frames)
            by_slots, threshold = _shown(slot_rows, every, mask, config, config.keep, rate_hz)
            shown = (by_slots + weight[:, None] * shown) / (1 + weight[:, None])
        else:
            shown = weight[:, None] * shown + 1e-3  # of equals a step goes before background
        worth = (config.text_weight * (1 + plain) * weight)[:, None, None] * (rows - config.text_margin)
        gains = _on_grid(worth + ((config.locate_step_weight + plain)[:, None] * shown)[:, None])
    else:
        gains, threshold = _gains(rows, there, mask, config, config.locate_keep, rate_hz)
    if config.ordered and not config.is_drop_dtw:
        away = _out_of_place(lengths, mask, M)
        away = torch.where((lengths <= frames)[:, None, None], away, 0.0)  # else the best texts are chosen, not places
        gains = _on_grid(gains - _TIE_OF_PLACES * away)
    if text_evidence is not None:
        gains = gains + text_evidence.gather(1, order[..., None].expand_as(text_evidence))
    gains = gains.masked_fill(~there[..., None], _NEVER)
    # a list longer than the video cannot have a frame for each text: then texts may go without
    skip = torch.where(there, torch.where(lengths > frames, _WITHOUT, torch.inf)[:, None], 0.0).to(gains.dtype)
    penalty = gains.new_zeros(len(gains))
    if config.is_drop_dtw:
        found = runs_of(_aligned(gains, skip, frames, lengths, config.ordered), mask)
    else:
        penalty = config.locate_penalty * penalty_of(spread, mask, rate_hz, config)
        if config.ordered:  # every text has one segment, so a penalty decides on stretches of background alone
            least = (config.background_share * frames).clamp(max=config.background_s * rate_hz) * (1 - plain)
            penalty = torch.maximum(penalty, least.to(penalty.dtype))
        task = segments.programme(gains, spread * math.sqrt(config.structure_weight), mask)
        found, _ = segments.solve(task, penalty, ordered=config.ordered, skip=skip)
    names = order.tolist()  # back to the places that the texts came in
    found = [[replace(s, row=names[i][s.row]) for s in steps] for i, steps in enumerate(found)]
    back = order.argsort(1)
    rows, taken = rows.gather(1, back[..., None].expand_as(rows)), taken.gather(1, back)
    return _found(found, rows, threshold, penalty, mask, taken)


def _out_of_place(lengths: Tensor, mask: Tensor, texts: int) -> Tensor:
    """(B, M, N) squared distance of each frame from the middle of the part that each of ``lengths`` (B,) texts would
    have if all were equally long, in such parts."""
    frames = torch.arange(mask.shape[1], device=mask.device) + 0.5
    at = frames * (lengths / mask.sum(1).clamp(min=1))[:, None]  # (B, N) in parts
    return (at[:, None] - torch.arange(texts, device=mask.device)[:, None] - 0.5).square()


def _spread_out(structure: Tensor | Spread, mask: Tensor) -> Tensor:
    return structure.values if isinstance(structure, Spread) else segments.spread_out(structure, mask)


def separability(rows: Tensor, lengths: Tensor, structure: Tensor, mask: Tensor, config: InferenceConfig) -> Tensor:
    """(B,) how well texts separate a video's moments, 0 to 1: standardised rows (B, M, N), of which ``lengths`` (B,)
    are there, and structure (B, N, W) from :func:`segments.spread_out`.

    Texts that all say the same, or that the encoder cannot tell apart here, vary within the video's own segments as
    much as between them. Videos too short to be cut so finely are not judged.
    """
    weights = rows.new_ones(len(rows))
    if not config.separable_to or config.is_drop_dtw:
        return weights
    frames = mask.sum(1).tolist()
    count = [min(2 * m + 1, n // 2) for m, n in zip(lengths.tolist(), frames, strict=True)]
    task = segments.programme(None, structure, mask)
    cuts, _ = segments.solve(task, structure.new_zeros(len(rows)), count=[max(c, 1) for c in count])
    for i, (n, m) in enumerate(zip(frames, lengths.tolist(), strict=True)):
        if count[i] < 2 or m == 0:
            continue
        row = rows[i, :m, :n]
        starts = torch.tensor([s.first for s in cuts[i]] + [n], device=rows.device)
        # chance is what the same rows, as smooth as they are, give when they are shifted in time
        shifts = [0, *(max(1, n * k // (_SHIFTS + 1)) for k in range(1, _SHIFTS + 1))]
        moved = torch.stack([row.roll(shift, 1) for shift in shifts])  # (shifts, M, N)
        sums = torch.nn.functional.pad(moved.cumsum(2), (1, 0))[..., starts].diff(dim=2)  # (shifts, M, segments)
        between = (sums.square() / starts.diff()).sum((1, 2)) / row.square().sum().clamp(min=1e-9)
        chance = between[1:].mean() + between[1:].std()  # a spread above, for short videos reach much by chance
        above = (between[0] - chance) / (1 - chance).clamp(min=1e-6)
        weights[i] = _ramp(above, config.separable_from, config.separable_to)
    return weights


def _text_rows(
    output: Slots, mask: Tensor, texts: Tensor, lengths: Tensor, config: InferenceConfig
) -> tuple[Tensor, Tensor]:
    """(B, M, N) what each text is compared with the frames by, (B, M) the slot it took.

    The slot's row and the text's own, mixed by ``text_share``; a text without a slot speaks for itself. With
    text_weight each row is in units of its own spread over the video: a step that fills much of the video is much of
    its mean.
    """
    similarity = cosines(texts, output.slots)
    in_order = config.ordered or not similarity.shape[2]
    taken = slots_of_texts(similarity, lengths) if in_order else similarity.argmax(2)
    kept = direct = plain = cosines(texts, output.frames)
    if similarity.shape[2]:
        slot_rows = cosines(output.slots, output.frames)
        kept = slot_rows.gather(1, taken.clamp(min=0)[..., None].expand(-1, -1, slot_rows.shape[2]))
    if config.text_weight:
        # the plain similarity decides where a video has too few frames to tell texts apart
        direct, kept = (_standardised(x, mask) + _TIE * plain for x in (direct, kept))
    mixed = (1 - config.text_share) * kept + config.text_share * direct
    return torch.where((taken >= 0)[..., None], mixed, direct), taken


# -- results ------------------------------------------------------------------------------------------------------


def runs_of(assignment: Tensor, mask: Tensor) -> list[list[Segment]]:
    """The runs of equal rows in each video's (N,), background left out."""
    found: list[list[Segment]] = []
    for row, frames in zip(assignment.cpu().numpy(), mask.sum(1).tolist(), strict=True):
        edges = [0, *(np.flatnonzero(np.diff(row[:frames])) + 1).tolist(), frames] if frames else []
        found.append([Segment(a, b, int(row[a])) for a, b in itertools.pairwise(edges) if row[a] >= 0])
    return found


def _found(
    steps: Sequence[Sequence[Segment]],
    similarity: Tensor,
    threshold: Tensor,
    penalty: Tensor,
    mask: Tensor,
    slots: Tensor | None = None,
) -> Found:
    assignment = np.full(mask.shape, -1, np.int64)
    for i, video in enumerate(steps):
        for number, step in enumerate(video):
            assignment[i, step.first : step.last] = number if step.row < 0 else step.row
    placed = torch.from_numpy(assignment).to(mask.device)
    return Found(placed, tuple(map(tuple, steps)), similarity, threshold, penalty, slots)


# -- controls -----------------------------------------------------------------------------------------------------


def no_slots(video: Tensor) -> Slots:
    """The video (B, N, D) without any slot, for texts alone (the paper's "GT text features")."""
    return Slots(video[:, :0], video, None)


def pooled_slots(video: Tensor, mask: Tensor, count: int = _SLOTS) -> Slots:
    """The untrained control: slots are the means of ``count`` equal chunks of the video."""
    lengths = mask.sum(1, keepdim=True)
    place = torch.arange(video.shape[1], device=video.device) * count // lengths.clamp(min=1)  # (B, N)
    chunk = torch.where(mask, place.clamp(max=count - 1), count)
    one_hot = torch.nn.functional.one_hot(chunk, count + 1)[..., :count].to(video.dtype)  # (B, N, K)
    weight = one_hot / one_hot.sum(1, keepdim=True).clamp(min=1.0)
    slots = weight.mT @ video
    # a video shorter than `count` frames leaves chunks empty: they repeat the nearest frame
    nearest = ((torch.arange(count, device=video.device) + 0.5) / count * lengths).long()
    nearest = torch.minimum(nearest, lengths - 1)
    empty = one_hot.sum(1) == 0
    fallback = video.gather(1, nearest[..., None].expand(-1, -1, video.shape[-1]))
    return Slots(torch.where(empty[..., None], fallback, slots), video, weight.mT)


def random_slots(video: Tensor, mask: Tensor, count: int = _SLOTS, generator: torch.Generator | None = None) -> Slots:
    """A control that knows nothing of the video: Gaussian slots."""
    shape = (len(video), count, video.shape[-1])
    slots = torch.randn(shape, device=video.device, generator=generator)
    return Slots(torch.nn.functional.normalize(slots, dim=-1), video, None)
