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

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from stepformer.core import segments
from stepformer.core.align import columns_of, drop_dtw_batch, order_agnostic_batch
from stepformer.core.evidence import (
    NUMBER_FEW,
    STEEPNESS,
    Similarity,
    evidence_of,
    gains_of,
    look_frames,
    noise_share,
    number_costs,
    on_grid,
    penalty_of,
    pieces,
    plain_kinds,
    ramp,
    row_noise,
    shown_above,
    slot_similarity,
    standardised,
    usual_number,
)
from stepformer.core.losses import cosines
from stepformer.core.model import ModelConfig, Slots
from stepformer.core.options import InferenceConfig
from stepformer.core.segments import Acts, Segment

TOO_MANY = 4.0
"""Cost of a text that gets no frame, in cosines: paid only where there are more texts than frames."""
_NEVER = -1e9  # what a row that is not there gains
_WITHOUT = 1e4  # what a text costs that gets no frame, beside gains of a few per frame
_TIE = 1e-3
_TIE_OF_PLACES = 1e-4  # per squared part: without evidence, texts take equal parts
_SHIFTS = 16
_SLOTS = ModelConfig().slots  # of a control
_GIVEN = 0.5  # share of the evidence for steps that counts where their number is given
_SPLIT = 2.0  # looks of noise that a further step must explain, however many are usual
_SPOKEN, _SPOKEN_S = 4.0, 1.5  # in penalties: what a step is worth in which an action is spoken of; how long it is
_BY_CHANCE = 0.5  # times the standard deviation of a sum over a usual step: what rows gain where a step is split


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
    acts: Tensor | None = None,
) -> Found:
    """The steps of a batch of videos.

    mask: (B, N) True where there is a frame; padding stands behind. structure: (B, N, S) what boundaries are placed by
    (``output.frames`` by default). rate_hz: frames per second. steps: the number in each video. evidence: (B, N)
    added to what every row gains in a frame: above 0 it speaks for a step here, below 0 against one; 1 is as much
    as a frame that has nothing in common with its segment costs. acts: (B, N) bool, the frames at which an action is
    spoken of that is worth a step of its own.
    """
    if steps is not None and not config.is_drop_dtw:  # a given number implies little background
        config = replace(config, step_weight=_GIVEN * config.step_weight)
    unread = cosines(output.slots, output.frames) if config.read_share else None
    similarity = slot_similarity(output, mask, config)
    structure = output.frames if structure is None else structure
    B, K, _ = similarity.shape
    rows = torch.ones(B, K, dtype=torch.bool, device=mask.device)
    shown = Similarity(similarity, rows, mask, rate_hz, unread)
    gains, threshold = gains_of(shown, config, config.keep)
    if evidence is not None:
        gains = gains + torch.where(mask, evidence, 0.0)[:, None]
    if config.is_drop_dtw:
        return _by_drop_dtw(gains, similarity, threshold, mask, config, steps)
    spread = _spread_out(structure, mask)
    penalty = penalty_of(spread, mask, rate_hz, config)
    spoken = None if acts is None else Acts(acts & mask, _SPOKEN * penalty, math.ceil(_SPOKEN_S * rate_hz))
    structure_spread, spread = spread, spread * math.sqrt(config.structure_weight)
    by_structure = config.step_weight == 0
    by_number = steps is None and config.number_weight > 0 and config.threshold == "automatic"
    falls_into = pieces(structure_spread, mask) if by_number else None
    if falls_into is not None:  # each of a few pieces is a step: two kinds of a few pieces mean nothing
        lowest = torch.where(mask, gains.amax(1), torch.inf).amin(1).clamp(max=0.0)
        gains = gains - torch.where(falls_into <= NUMBER_FEW, lowest, 0.0)[:, None, None]
    task = segments.programme(None if by_structure else gains, spread, mask)
    if steps is not None and not by_structure and steps > K:
        # more steps than slots: structure says where they are, slots say which
        cuts, _ = segments.solve(segments.programme(None, spread, mask), penalty, count=[steps] * B)
        found = [task.on_rows(cut, i, config.ordered) for i, cut in enumerate(cuts)]
    elif steps is not None:
        found, _ = segments.solve(task, penalty, ordered=config.ordered, count=[steps] * B, acts=spoken)
    elif falls_into is not None:
        noise = noise_share(structure_spread, mask, rate_hz)
        usual = usual_number(falls_into)
        number = number_costs(usual, mask, noise, config)
        # what is usual never splits what is all the same; noise counts by looks: a higher rate has no more of it
        look = noise.new_tensor(look_frames(mask, rate_hz))
        least = _SPLIT * look * noise * STEEPNESS ** (0.5 - config.detail)
        if not by_structure:  # of rows that fit alike, one is better in the first half and one in the second, by chance
            common, chance = row_noise(shown)
            per_step = torch.where(falls_into <= NUMBER_FEW, 0.0, mask.sum(1) / usual.clamp(min=1.0))
            least = least + _BY_CHANCE * config.row_weight * common * chance * (look * per_step).sqrt()
        found, _ = segments.solve(task, penalty, ordered=config.ordered, number=number, least=least, acts=spoken)
    else:
        found, _ = segments.solve(task, penalty, ordered=config.ordered, acts=spoken)
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
        shown, threshold = shown_above(Similarity(direct, there, mask, rate_hz), config, config.locate_keep)
        if output.slots.shape[1]:
            every = torch.ones(output.slots.shape[:2], dtype=torch.bool, device=mask.device)
            slot_rows = cosines(output.slots, output.frames)
            by_slots, threshold = shown_above(Similarity(slot_rows, every, mask, rate_hz), config, config.keep)
            shown = (by_slots + weight[:, None] * shown) / (1 + weight[:, None])
        else:
            shown = weight[:, None] * shown + 1e-3  # of equals a step goes before background
        worth = (config.text_weight * (1 + plain) * weight)[:, None, None] * (rows - config.text_margin)
        gains = on_grid(worth + ((config.locate_step_weight + plain)[:, None] * shown)[:, None])
    else:
        gains, threshold = gains_of(Similarity(rows, there, mask, rate_hz), config, config.locate_keep)
    if config.ordered and not config.is_drop_dtw:
        away = _out_of_place(lengths, mask, M)
        away = torch.where((lengths <= frames)[:, None, None], away, 0.0)  # else the best texts are chosen, not places
        gains = on_grid(gains - _TIE_OF_PLACES * away)
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
        weights[i] = ramp(above, config.separable_from, config.separable_to)
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
        direct, kept = (standardised(x, mask) + _TIE * plain for x in (direct, kept))
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
