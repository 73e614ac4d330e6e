"""From slots to steps: the paper's inference on similarity matrices, batched, on any device.

*Discovery* aligns slots with frames many-to-one, both droppable, at one similarity line (paper, "Step localization
inference"). *Localisation* first aligns the given step texts with the slots, every text taking one, and then the
slots that were taken with the frames (paper, "Zero-shot key-step localization").

Only torch and NumPy are needed here; evaluation, training and the product's `discover` all call these functions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from stepformer.align import columns_of, drop_dtw_batch, order_agnostic_batch, percentile_drop
from stepformer.errors import UsageError
from stepformer.losses import cosines
from stepformer.model import Slots


@dataclass(frozen=True, slots=True)
class InferenceConfig:
    """How slots become steps. A fixed ``line`` wins over ``keep``.

    keep: share of slot-frame similarities that reach the drop line when discovering; locate_keep: likewise when
    localising given texts. ordered: Drop-DTW; otherwise each frame goes to its most similar slot (paper's ablation).
    read: instead of the slot itself, this share of what the slot reads in the video (softmax over its similarities to
    the frames, temperature read_gamma) is compared with the frames. text: share of the text itself when localising.
    """

    keep: float = 0.1
    locate_keep: float = 0.1
    line: float | None = None
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


def align_to_frames(
    similarity: Tensor,
    mask: Tensor,
    keep: float,
    line: float | None = None,
    ordered: bool = True,
    drop_rows: bool = True,
    row_lengths: Tensor | None = None,
) -> Tensor:
    """Row of each frame (B, N), -1 where it is dropped: similarity (B, K, N) of slots or texts with frames.

    The line is the similarity that ``keep`` of the video's pairs reach, or ``line`` where it is given. Rows that may
    not be dropped (``drop_rows=False``) each take at least one frame.
    """
    lengths = mask.sum(1)
    drop = (
        percentile_drop(similarity, keep, lengths=lengths, row_lengths=row_lengths)
        if line is None
        else similarity.new_full((len(similarity),), -line)
    )
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
    return align_to_frames(similarity, mask, config.keep, config.line, config.ordered)


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
    return align_to_frames(
        similarity, mask, config.locate_keep, config.line, config.ordered, drop_rows=False, row_lengths=text_lengths
    )


def locate_texts(
    frames: Tensor, mask: Tensor, texts: Tensor, text_lengths: Tensor, keep: float, line: float | None = None
) -> Tensor:
    """The same with the texts alone (the paper's "GT text features"): (B, N) step of each frame."""
    return align_to_frames(cosines(texts, frames), mask, keep, line, drop_rows=False, row_lengths=text_lengths)


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


Control = Literal["pooled32", "random"]
