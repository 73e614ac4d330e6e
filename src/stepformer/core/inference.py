"""From slots to steps: the paper's inference on similarity matrices, batched, on any device.

*Discovery* aligns slots with frames many-to-one, both droppable, at one similarity line (paper, "Step localization
inference"). *Localisation* first aligns the given step texts with the slots, every text taking one, and then the
slots that were taken with the frames (paper, "Zero-shot key-step localization").

Only torch and NumPy are needed here; evaluation, training and the product's `discover` all call these functions.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from stepformer.core.align import columns_of, drop_dtw_batch, order_agnostic_batch, percentile_drop
from stepformer.core.losses import cosines
from stepformer.core.model import Slots
from stepformer.errors import UsageError


@dataclass(frozen=True, slots=True)
class InferenceConfig:
    """How slots become steps: where the drop line is, and what is compared with the frames.

    The line is a fixed similarity (``line``), or else the one that divides the video's frames best into two kinds
    (``auto``, see :func:`otsu_line`), or else the one that a share of similarities reaches (the paper's percentile).
    keep: share of slot-frame similarities that reach the drop line when discovering; locate_keep: likewise when
    localising given texts. ordered: Drop-DTW; otherwise each frame goes to its most similar slot (paper's ablation).
    read: instead of the slot itself, this share of what the slot reads in the video (softmax over its similarities to
    the frames, temperature read_gamma) is compared with the frames. text: share of the text itself when localising.
    """

    keep: float = 0.1
    locate_keep: float = 0.1
    line: float | None = None
    auto: bool = False
    ordered: bool = True
    read: float = 0.0
    read_gamma: float = 0.03
    text: float = 0.0

    def __post_init__(self) -> None:
        for name in ("keep", "locate_keep"):
            if not 0 < getattr(self, name) <= 1:
                raise UsageError(f"InferenceConfig.{name} is a share in (0, 1], got {getattr(self, name)}")
        if not (0 <= self.read <= 1 and 0 <= self.text <= 1):
            raise UsageError("InferenceConfig.read and .text are shares in [0, 1]")


def slot_similarity(output: Slots, mask: Tensor, config: InferenceConfig) -> Tensor:
    """(B, K, N) similarity of slots and frames, with the slots' own reading of the video mixed in if asked for."""
    similarity = cosines(output.slots, output.frames)
    if config.read:
        attention = (similarity / config.read_gamma).masked_fill(~mask[:, None, :], -torch.inf).softmax(-1)
        read = attention.to(output.frames.dtype) @ output.frames
        similarity = (1 - config.read) * similarity + config.read * cosines(read, output.frames)
    return similarity


def otsu_line(values: Tensor, mask: Tensor) -> Tensor:
    """The value (B,) that divides each row's values (B, N) best into a low and a high kind.

    Otsu's criterion: of all divisions of the sorted values, the one with the largest variance between the two means.
    A video is steps and background; how much of each differs from video to video, so no fixed share serves them all.
    Rows with fewer than two values, or all equal, give a line just below them: everything is kept (a frame exactly on
    the line costs the same matched or dropped, and could go either way).
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
    smallest = finite[:, 0].to(values.dtype)
    below = torch.nextafter(smallest, torch.full_like(smallest, -torch.inf))
    if between.shape[1] == 0:
        return below
    best = between.argmax(1, keepdim=True)
    low_kind, high_kind = (finite.gather(1, at).squeeze(1) for at in (best, best + 1))
    # not midway: a last frame of the high kind and a first one of the low kind, side by side, would then cost exactly
    # the same kept or dropped, and rounding would choose
    line = low_kind + 0.45 * (high_kind - low_kind)
    # differences of rounding are no kinds: they change with the batch a video stands in
    spread = finite.gather(1, (number - 1).clamp(min=0)[:, None]).squeeze(1) - finite[:, 0]
    flat = spread <= 1e-5 if values.dtype != torch.float64 else between.amax(1) <= 1e-12
    return torch.where(flat, below, line.to(values.dtype))


def drop_cost(
    similarity: Tensor, mask: Tensor, keep: float, config: InferenceConfig, row_lengths: Tensor | None = None
) -> Tensor:
    """What dropping a frame costs in each video (B,): minus the line that the config asks for."""
    if config.line is not None:
        return similarity.new_full((len(similarity),), -config.line)
    if config.auto:
        rows = similarity
        if row_lengths is not None:
            inside = torch.arange(similarity.shape[1], device=similarity.device) < row_lengths[:, None]
            rows = similarity.masked_fill(~inside[..., None], -torch.inf)
        return -otsu_line(rows.amax(1), mask)
    drop: Tensor = percentile_drop(similarity, keep, lengths=mask.sum(1), row_lengths=row_lengths)
    return drop


def align_to_frames(
    similarity: Tensor,
    mask: Tensor,
    drop: Tensor,
    ordered: bool = True,
    drop_rows: bool = True,
    row_lengths: Tensor | None = None,
) -> Tensor:
    """Row of each frame (B, N), -1 where it is dropped: similarity (B, K, N) of slots or texts with frames.

    drop: (B,) cost of dropping a frame, from :func:`drop_cost`. Rows that may not be dropped (``drop_rows=False``)
    each take at least one frame.
    """
    lengths = mask.sum(1)
    if not ordered:
        matched = order_agnostic_batch(-similarity, drop[:, None], lengths, row_lengths=row_lengths, check=False)
        return columns_of(matched)
    # a list longer than the video cannot have a frame for each row: then rows may be dropped, at a high price
    rows = similarity.new_full(similarity.shape[:1], similarity.shape[1]) if row_lengths is None else row_lengths
    forced = torch.inf if not drop_rows else 0.0
    price = torch.where(rows > lengths, 4.0, forced) if not drop_rows else similarity.new_zeros(len(similarity))
    matched = drop_dtw_batch(-similarity, drop, price, lengths, row_lengths=row_lengths, check=False)
    return columns_of(matched)


def discover(output: Slots, mask: Tensor, config: InferenceConfig) -> Tensor:
    """Slot of each frame (B, N), -1 background."""
    similarity = slot_similarity(output, mask, config)
    return align_to_frames(similarity, mask, drop_cost(similarity, mask, config.keep, config), config.ordered)


def slots_of_texts(similarity: Tensor, text_lengths: Tensor, slot_lengths: Tensor | None = None) -> Tensor:
    """Which slot each text takes, in order: similarity (B, M, K) of texts and slots -> (B, M) slot, -1 none.

    One slot a text and one text a slot. Every text takes a slot; where there are more texts than slots, the texts
    that fit worst go without.
    """
    K = similarity.shape[2]
    slots = torch.full_like(text_lengths, K) if slot_lengths is None else slot_lengths
    price = torch.where(text_lengths > slots, 4.0, torch.inf).to(similarity.dtype)
    matched = drop_dtw_batch(
        -similarity, 0.0, price, slots, matching="one_to_one", row_lengths=text_lengths, check=False
    )
    return torch.where(matched.any(2), matched.to(torch.uint8).argmax(2), -1)


def locate(
    output: Slots, mask: Tensor, texts: Tensor, text_lengths: Tensor, config: InferenceConfig,
) -> Tensor:  # fmt: skip
    """Step of each frame (B, N), -1 background, for ordered step texts (B, M, D)."""
    taken = slots_of_texts(cosines(texts, output.slots), text_lengths)  # (B, M)
    rows = slot_similarity(output, mask, config)  # (B, K, N)
    kept = rows.gather(1, taken.clamp(min=0)[..., None].expand(-1, -1, rows.shape[2]))
    direct = cosines(texts, output.frames)
    mixed = (1 - config.text) * kept + config.text * direct
    similarity = torch.where((taken >= 0)[..., None], mixed, direct)  # a text without a slot speaks for itself
    drop = drop_cost(similarity, mask, config.locate_keep, config, text_lengths)
    return align_to_frames(similarity, mask, drop, config.ordered, drop_rows=False, row_lengths=text_lengths)


def locate_texts(frames: Tensor, mask: Tensor, texts: Tensor, text_lengths: Tensor, config: InferenceConfig) -> Tensor:
    """The same with the texts alone (the paper's "GT text features"): (B, N) step of each frame."""
    similarity = cosines(texts, frames)
    drop = drop_cost(similarity, mask, config.locate_keep, config, text_lengths)
    return align_to_frames(similarity, mask, drop, drop_rows=False, row_lengths=text_lengths)


def pooled_slots(video: Tensor, mask: Tensor, count: int = 32) -> Slots:
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


def random_slots(video: Tensor, mask: Tensor, count: int = 32, generator: torch.Generator | None = None) -> Slots:
    """A control that knows nothing of the video: Gaussian slots."""
    shape = (len(video), count, video.shape[-1])
    slots = torch.randn(shape, device=video.device, generator=generator)
    return Slots(torch.nn.functional.normalize(slots, dim=-1), video, None)
