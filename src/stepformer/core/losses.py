"""The four losses of the paper, each a pure function of tensors, and the criterion that sums them.

:data:`LOSSES` names them, and ``soft_dtw``, which is in no preset. A loss of your own is a function of
:class:`LossInput` registered there, with its weight under ``[loss] weights``.

Every function takes a padded batch with masks, loops over nothing, and computes in float32 (float64 for float64
input) whatever the autocast type, so that bf16 training sums exponentials safely.

Notation: slots s (B, K, D); phrases p (B, L, D); f(x, z) = exp(cos(x, z) / gamma).

Where the printed formulas cannot be meant literally:

- ``L_seq`` prints 1/N in front of a sum over the L phrases; N is the video's length and occurs nowhere in the sum,
  so 1/L is used. A slot or phrase that Drop-DTW dropped has no positive j*, so its term is zero; the sum is
  still divided by K (or L). ``average="matched"`` divides by the number of matched ones (the released code).
- ``L_glob`` and ``L_smooth`` print -log of a *mean* of ratios. That is what ``form="log_mean"`` computes: one
  easy slot can carry the whole batch, because the log of a mean is dominated by its largest term. MIL-NCE as published,
  and the released code, take the mean of -log: ``form="mean_log"``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from stepformer.base.plugins import Registry
from stepformer.core.align import drop_dtw_batch, percentile_drop, soft_drop_dtw
from stepformer.core.devices import Beside, has_triton
from stepformer.core.log_sums import log_sums, pair_losses
from stepformer.core.model import Slots, check_ranges
from stepformer.errors import UsageError

Form = Literal["log_mean", "mean_log"]


def unit(x: Tensor) -> Tensor:
    """Vectors (..., D) at length 1, at least float32."""
    return F.normalize(x if x.dtype == torch.float64 else x.float(), dim=-1)


def products(x: Tensor, z: Tensor) -> Tensor:
    """x_i · z_j of unit vectors: (..., I, D), (..., J, D) -> (..., I, J), never in half precision."""
    with torch.autocast(x.device.type, enabled=False):
        return x @ z.mT


def cosines(x: Tensor, z: Tensor) -> Tensor:
    """cos(x_i, z_j): (..., I, D), (..., J, D) -> (..., I, J), at least float32."""
    return products(unit(x), unit(z))


def _kernels(x: Tensor) -> bool:
    """Whether the Triton kernels of `core.loss_kernels` apply."""
    return x.is_cuda and x.dtype != torch.float64 and has_triton()


def _unit_once(x: Tensor) -> Tensor:
    """:func:`unit`, on a GPU in one pass there and one back."""
    if _kernels(x):
        from stepformer.core import loss_kernels

        return loss_kernels.unit(x)
    return unit(x)


Drawn = tuple[Tensor, Tensor, Tensor]
"""For smoothness: frames (B, I), valid (B, I), window (B,)."""


@dataclass(frozen=True, slots=True)
class Ahead:
    """What the losses need of a batch beside the model's output: :meth:`Criterion.ahead` makes it in the meantime."""

    phrases: Tensor  # (B, L, D) at length 1
    half_phrases: Tensor  # the same in the type that the product of all slots with all phrases is made in
    lengths: Tensor  # (B,) phrases
    drawn: Drawn | None


class Compared:
    """What the losses share, each made once: unit vectors and cosines of slots (B, K, D) and phrases (B, L, D)."""

    def __init__(self, slots: Tensor, phrases: Tensor, ahead: Ahead | None = None) -> None:
        self._slots, self._phrases, self.ahead = slots, phrases, ahead

    @cached_property
    def slots(self) -> Tensor:
        """(B, K, D)"""
        return _unit_once(self._slots)

    @cached_property
    def phrases(self) -> Tensor:
        """(B, L, D)"""
        return self.ahead.phrases if self.ahead is not None else _unit_once(self._phrases)

    @cached_property
    def cosines(self) -> Tensor:
        """(B, K, L)"""
        return products(self.slots, self.phrases)


def match(similarity: Tensor, mask: Tensor, keep: float = 0.8, best_per_slot: int | None = None) -> Tensor:
    """Drop-DTW one-to-one between slots and phrases: similarity (B, K, L) -> bool (B, K, L), no gradient.

    mask: (B, L) True where there is a phrase; phrases stand in front, padding behind. Both sides may be dropped at one
    threshold (the similarity which ``keep`` of the video's pairs reach; see `core.align.batch`), so a pair is
    matched only when it reaches the threshold and the order allows it.
    """
    lengths = mask.sum(1)
    if similarity.dtype == torch.float32 and _kernels(similarity):
        from stepformer.core.align import triton_kernel

        if triton_kernel.fits(*similarity.shape[1:]):
            return triton_kernel.match(similarity, lengths, keep, best_per_slot)
    drop = percentile_drop(similarity, keep, top_per_row=best_per_slot, lengths=lengths)
    matched: Tensor = drop_dtw_batch(-similarity, drop, 0.0, lengths=lengths, matching="one_to_one", check=False)
    return matched


def seq_loss(
    similarity: Tensor, mask: Tensor, matched: Tensor, gamma: float, average: Literal["all", "matched"]
) -> Tensor:
    r"""Local step contrastive loss, the paper's eq. (1) and (2).

    .. math::
        \ell(s_i, p) = -\log \frac{f(s_i, p_{j^*})}{\sum_j f(s_i, p_j)}, \qquad
        L_{seq} = \frac1K \sum_i \ell(s_i, p) + \frac1L \sum_j \ell(p_j, s)

    similarity (B, K, L) of slots and phrases; mask (B, L); matched (B, K, L) one-to-one correspondence, from
    :func:`match`. All other phrases (slots) of the same video are negatives. Mean over the batch.
    """
    logits = similarity / gamma  # (B, K, L)
    low = torch.finfo(logits.dtype).min
    visible = logits.masked_fill(~mask[:, None, :], low)
    positive = torch.where(matched, logits, torch.zeros_like(logits))
    hit_slot, hit_phrase = matched.any(2), matched.any(1)  # (B, K), (B, L)
    slot_terms = torch.where(hit_slot, visible.logsumexp(2) - positive.sum(2), 0.0)
    phrase_terms = torch.where(hit_phrase, logits.logsumexp(1) - positive.sum(1), 0.0)
    if average == "all":
        per_video = slot_terms.mean(1) + phrase_terms.sum(1) / mask.sum(1).clamp(min=1)
    else:
        per_video = slot_terms.sum(1) / hit_slot.sum(1).clamp(min=1)
        per_video = per_video + phrase_terms.sum(1) / hit_phrase.sum(1).clamp(min=1)
    return per_video.mean()


def nce(log_ratio: Tensor, valid: Tensor, form: Form) -> Tensor:
    """-log mean(ratio) or mean(-log ratio) over the valid entries of the last axis; 0 where there is none."""
    number = valid.sum(-1).clamp(min=1)
    if form == "mean_log":
        return -torch.where(valid, log_ratio, 0.0).sum(-1) / number
    total = log_ratio.masked_fill(~valid, torch.finfo(log_ratio.dtype).min).logsumexp(-1)
    return torch.where(valid.any(-1), number.to(total.dtype).log() - total, 0.0)


def _alone(x: Tensor) -> Tensor:
    return x


def glob_loss(
    pair: Compared,
    mask: Tensor,
    gamma: float,
    form: Form,
    both_ways: bool,
    videos: Callable[[Tensor], Tensor] = _alone,
    sums: Callable[[Tensor], Tensor] = _alone,
) -> Tensor:
    r"""Global video-step contrastive loss, the paper's eq. (3): MIL-NCE over the batch.

    .. math::
        L_{glob} = -\log \frac1M \sum_{i=1}^{M}
            \frac{\sum_{j \in P_i} f(s_i, p_j)}{\sum_{j \in P_i} f(s_i, p_j) + \sum_{j \in N_i} f(s_i, p_j)}

    M = K B slots of the batch; P_i the phrases of the slot's own video, N_i those of all other videos. A video
    without phrases has no positives and is left out of M. ``both_ways`` adds the same loss with phrases asking
    for slots (released code). mask (B, L). Where processes have a part of the batch each, ``videos`` makes rows of all
    processes of the own rows, and ``sums`` log-sums over the slots of all.
    """
    phrases, said = videos(pair.phrases), videos(mask)  # of all videos
    all_slots = pair.slots.flatten(0, 1)
    over_phrases, over_slots = log_sums(all_slots, phrases.flatten(0, 1), said.flatten(), gamma, both_ways)
    logits = pair.cosines / gamma  # the video's own pairs
    own = logits.masked_fill(~mask[:, None, :], torch.finfo(logits.dtype).min).logsumexp(2)  # (B, K)
    log_ratio = videos(own - over_phrases.view_as(own))
    loss = nce(log_ratio.flatten(), said.any(1)[:, None].expand_as(log_ratio).flatten(), form)
    if both_ways:
        back = videos(logits.logsumexp(1)) - sums(over_slots).view_as(said)  # (B, L)
        loss = loss + nce(torch.where(said, back, 0.0).flatten(), said.flatten(), form)
    return loss


def div_loss(x: Tensor) -> Tensor:
    r"""Diversity regulariser: mean pairwise cosine of a video's slots.

    .. math:: L_{div} = \frac{1}{K (K - 1)} \sum_i \sum_{j \ne i} \cos(s_i, s_j)

    x (B, K, D) at length 1: the sum over pairs is the squared length of their sum, less that of each with itself.
    """
    B, K, _ = x.shape
    if K < 2:
        return x.sum() * 0.0
    return (x.sum(1).square().sum() - x.square().sum()) / (B * K * (K - 1))


def sample_frames(mask: Tensor, count: int, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
    """``count`` frames of each video, drawn without replacement, in any order: (index (B, count), valid (B, count))."""
    noise = torch.rand(mask.shape, device=mask.device, generator=generator).masked_fill(~mask, 2.0)
    count = min(count, mask.shape[1])
    chosen = noise.topk(count, 1, largest=False, sorted=False).indices
    return chosen, mask.gather(1, chosen)


def _picked(frames: Tensor, index: Tensor) -> Tensor:
    """frames (B, N, D), index (B, I) -> (B, I, D): whole rows, which gather() would look up number by number."""
    B, N, _ = frames.shape
    rows = index + torch.arange(0, B * N, N, device=index.device)[:, None]
    return frames.flatten(0, 1).index_select(0, rows.flatten()).view(*index.shape, -1)


def smooth_loss(
    similarity: Tensor, index: Tensor, valid: Tensor, window: Tensor | float, gamma: float, form: Form, with_self: bool
) -> Tensor:
    r"""Attention smoothness regulariser (appendix): MIL-NCE on the attention vectors of randomly drawn frames.

    .. math::
        a = softmax_K(\cos(v, s) / \gamma), \qquad
        L_{smooth} = -\log \frac1L \sum_{i \in I}
            \frac{\sum_{j \in P_i} f(a_i, a_j)}{\sum_{l \in I} f(a_i, a_l)}

    similarity (B, I, K) of the drawn frames v with the slots s; index (B, I) which frames, valid (B, I) which of them
    exist; window: the size M of the positive neighbourhood in frames, a number or (B,). P_i holds the drawn frames
    within M of i. As printed it holds i itself; ``with_self=False`` leaves i out of both sums (a frame without
    neighbour has no term).
    """
    attention = (similarity / gamma).softmax(-1)
    logits = cosines(attention, attention) / gamma  # (B, I, I)
    span = torch.as_tensor(window, device=index.device, dtype=logits.dtype).reshape(-1, 1, 1)
    near = (index[:, :, None] - index[:, None, :]).abs() <= span
    pair = valid[:, :, None] & valid[:, None, :]
    if not with_self:
        pair = pair & ~torch.eye(index.shape[1], dtype=torch.bool, device=index.device)
    low = torch.finfo(logits.dtype).min
    positive = pair & near
    has_positive = positive.any(2) & valid
    top = logits.masked_fill(~positive, low).logsumexp(2)
    bottom = logits.masked_fill(~pair, low).logsumexp(2)
    return nce(torch.where(has_positive, top - bottom, 0.0), has_positive, form).mean()


def released_smooth_loss(
    frames: Tensor, slots: Tensor, mask: Tensor, generator: torch.Generator | None = None
) -> Tensor:
    """Smoothness as the released code has it.

    Up to 32 anchors per video, each with 3 random positives within N / 32 frames; all other anchors are negatives; the
    similarity of attention vectors is minus their squared distance; mean of -log; temperature 0.05.
    """
    index, valid = sample_frames(mask, 32, generator)
    lengths = mask.sum(1)
    span = (lengths / 32.0).clamp(min=1.0)
    shape = (*index.shape, 3)
    offset = (torch.rand(shape, device=mask.device, generator=generator) * 2 - 1) * span[:, None, None]
    near = (index[..., None] + offset.round().long()).clamp(min=0)
    near = torch.minimum(near, (lengths - 1).clamp(min=0)[:, None, None])
    drawn = torch.cat((index, near.flatten(1)), 1)  # (B, 4 I): attention of all other frames is not needed
    attention = (cosines(_picked(frames, drawn), slots) / 0.03).softmax(-1)
    anchor, positive = attention[:, : index.shape[1]], attention[:, index.shape[1] :]  # (B, I, K), (B, 3 I, K)
    positive = positive.reshape(*shape, -1)
    low = torch.finfo(attention.dtype).min
    to_positive = -(anchor[:, :, None] - positive).square().sum(-1) / 0.05  # (B, I, 3)
    to_anchor = -torch.cdist(anchor, anchor).square() / 0.05
    distant = (index[:, :, None] - index[:, None, :]).abs() > span[:, None, None]
    to_anchor = to_anchor.masked_fill(~(distant & valid[:, None, :]), low)
    top = to_positive.logsumexp(2)
    bottom = torch.cat((to_positive, to_anchor), 2).logsumexp(2)
    terms = torch.where(valid, bottom - top, 0.0)
    return (terms.sum(1) / valid.sum(1).clamp(min=1)).mean()


@dataclass(frozen=True, slots=True)
class LossConfig:
    """Which form of each loss, and how much of it. A weight of 0 switches a loss off.

    ``options`` holds what else a loss takes, by its name: ``{"soft_dtw": {"temperature": 0.5}}``.
    """

    weights: Mapping[str, float] = field(default_factory=lambda: {"seq": 1.0, "glob": 1.0, "div": 0.3, "smooth": 0.02})
    gamma: float = 0.07  # temperature of seq and glob; the paper does not print it
    smooth_gamma: float = 0.03
    keep: float = 0.8  # share of similarities above the drop threshold
    best_per_slot: int | None = None  # count only each slot's n best similarities for the threshold
    seq_average: Literal["all", "matched"] = "all"
    glob_form: Form = "log_mean"
    glob_both_ways: bool = False
    div_on: Literal["slots", "attention"] = "slots"
    smooth: Literal["paper", "released"] = "paper"
    smooth_form: Form = "log_mean"
    smooth_with_self: bool = True
    smooth_frames: int = 64  # frames drawn per video
    smooth_window: float = 1 / 32  # M as a share of the video's length, at least one frame
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in (*self.weights, *self.options):
            _ = LOSSES[name]  # raises where there is none
        check_ranges(self, "loss.", keep="(0, 1]", gamma="(0, inf)", smooth_gamma="(0, inf)")
        if not all(0 <= weight < math.inf for weight in self.weights.values()):
            raise UsageError(f"loss weights must be numbers of at least 0, got {dict(self.weights)}")

    def without(self, *names: str) -> LossConfig:
        """The same with these losses switched off."""
        return replace(self, weights={**self.weights, **dict.fromkeys(names, 0.0)})


@dataclass(frozen=True, slots=True)
class LossInput:
    """What a loss function is given; it returns a scalar tensor.

    ``output.attention`` is there for losses other than the paper's, and for ``div_on = "attention"``. ``log`` takes
    numbers to write down beside the losses.
    """

    output: Slots  # slots (B, K, D), frames (B, N, D), attention (B, K, N)
    phrases: Tensor  # (B, L, D)
    phrase_mask: Tensor  # (B, L) True where there is a phrase
    video_mask: Tensor  # (B, N) True where there is a frame
    config: LossConfig
    options: Mapping[str, Any]  # of this loss: [loss.options.NAME]
    log: dict[str, Tensor]
    pair: Compared  # unit vectors and cosines of slots and phrases, which all losses share
    phrase_times: Tensor | None = None  # (B, L) when each is said, in frames


Loss = Callable[[LossInput], Tensor]


def _seq(x: LossInput) -> Tensor:
    c = x.config
    matched = match(x.pair.cosines.detach(), x.phrase_mask, c.keep, c.best_per_slot)
    x.log["matched"] = matched.sum((1, 2)).float().mean()
    return seq_loss(x.pair.cosines, x.phrase_mask, matched, c.gamma, c.seq_average)


def _glob(x: LossInput) -> Tensor:
    c = x.config
    return glob_loss(x.pair, x.phrase_mask, c.gamma, c.glob_form, c.glob_both_ways)


def _div(x: LossInput) -> Tensor:
    if x.config.div_on == "slots":
        return div_loss(x.pair.slots)
    if x.output.attention is None:
        raise UsageError("diversity on attention needs the decoder's attention; call it with attention=True")
    return 2.0 * div_loss(unit(x.output.attention))  # as the released code: of the attention maps (B, K, N) over time


def _smooth(x: LossInput) -> Tensor:
    c = x.config
    if c.smooth == "released":
        return released_smooth_loss(x.output.frames, x.output.slots, x.video_mask)
    ahead = x.pair.ahead
    drawn = ahead.drawn if ahead is not None else None
    index, valid, window = drawn if drawn is not None else _draw(x.video_mask, c)
    picked = _unit_once(_picked(x.output.frames, index))
    # this way round the gradient of the slots comes out in their layout
    similarity = products(x.pair.slots, picked).mT  # (B, I, K)
    if _kernels(similarity) and max(similarity.shape[1:]) <= 128:
        from stepformer.core import loss_kernels

        log_mean = c.smooth_form == "log_mean"
        return loss_kernels.smooth(
            similarity, index, valid, window, c.smooth_gamma, log_mean, c.smooth_with_self
        ).mean()
    return smooth_loss(similarity, index, valid, window, c.smooth_gamma, c.smooth_form, c.smooth_with_self)


def _draw(mask: Tensor, c: LossConfig) -> Drawn:
    return *sample_frames(mask, c.smooth_frames), (mask.sum(1) * c.smooth_window).clamp(min=1.0)


def soft_dtw_loss(x: LossInput, temperature: float = 1.0) -> Tensor:
    """Soft Drop-DTW between slots and phrases, one-to-one, both sides droppable: the mean soft cost per phrase.

    The cost of a pair is minus the mean log probability of finding one from the other among the video's own phrases
    and slots (softmax of cosine / gamma, both ways), so that moving everything together costs. The drop cost is the
    pair cost that ``keep`` of the video's pairs stay below, as in :func:`match`. ``temperature`` 1 weighs alignments
    by these probabilities.
    """
    logits = cosines(x.output.slots, x.phrases) / x.config.gamma  # (B, K, L)
    visible = logits.masked_fill(~x.phrase_mask[:, None, :], torch.finfo(logits.dtype).min)
    costs = -0.5 * (visible.log_softmax(2) + logits.log_softmax(1))
    lengths = x.phrase_mask.sum(1)
    drop = percentile_drop(-costs.detach(), x.config.keep, top_per_row=x.config.best_per_slot, lengths=lengths)
    soft = soft_drop_dtw(costs, drop, 0.0, lengths, "one_to_one", temperature=temperature, check=False)
    return (soft / lengths.clamp(min=1)).mean()


PAPER_LOSSES = ("seq", "glob", "div", "smooth")
LOSSES: Registry[Loss] = Registry("loss", "losses", {
    "seq": _seq, "glob": _glob, "div": _div, "smooth": _smooth, "soft_dtw": lambda x: soft_dtw_loss(x, **x.options),
})  # fmt: skip

BUILT_IN = frozenset(PAPER_LOSSES) | {"soft_dtw"}
"""Losses that never wait for the device, so that a step with them can be recorded (`core.graph`)."""

LOSS_PRESETS = {
    "paper": LossConfig(),
    "released": LossConfig(
        {"seq": 1.0, "glob": 0.5, "div": 0.3, "smooth": 0.02}, gamma=0.03, best_per_slot=12, seq_average="matched",
        glob_form="mean_log", glob_both_ways=True, div_on="attention", smooth="released",
    ),
    "default": LossConfig(),
}  # fmt: skip


class Criterion:
    """The weighted sum of the losses: ``total, parts = criterion(output, phrases, phrase_mask, video_mask)``.

    ``parts`` holds each loss unweighted, by name, and ``matched`` the mean number of matched pairs per video. A loss
    whose weight is 0 is not computed.
    """

    def __init__(self, config: LossConfig | None = None) -> None:
        self.config = config or LossConfig()

    def loss(self, name: str, given: LossInput) -> Tensor:
        """One loss of a batch."""
        return LOSSES[name](given)

    @property
    def needs_attention(self) -> bool:
        """Whether the decoder must return its attention maps."""
        on_attention = self.config.div_on == "attention" and self.config.weights.get("div", 0.0) > 0
        return on_attention or any(weight and name not in PAPER_LOSSES for name, weight in self.config.weights.items())

    def draw(self, video_mask: Tensor) -> Drawn | None:
        """The frames for smoothness, where that can be made together with the losses of pairs."""
        c = self.config
        return _draw(video_mask, c) if self._wants(video_mask, "smooth") and c.smooth == "paper" else None

    def _wants(self, x: Tensor, *names: str) -> bool:
        return _kernels(x) and all(self.config.weights.get(name) for name in (*names, "seq", "glob"))

    def ahead(
        self, slots: int, phrases: Tensor, phrase_mask: Tensor, drawn: Drawn | None, kind: torch.dtype
    ) -> Ahead | None:
        """What needs no output of the model; None where the losses of pairs are not made together, by kernels.

        slots: K; drawn: from :meth:`draw`; kind: the type in which the product of all slots with all phrases may be
        made.
        """
        if not self._wants(phrases):
            return None
        from stepformer.core.align import triton_kernel

        if not triton_kernel.fits(slots, phrases.shape[1]):
            return None
        from stepformer.core import loss_kernels

        unit_phrases, half_phrases, _ = loss_kernels.unit_parts(phrases, kind)
        return Ahead(unit_phrases, half_phrases, phrase_mask.sum(1), drawn)

    def __call__(
        self,
        output: Slots,
        phrases: Tensor,
        phrase_mask: Tensor,
        video_mask: Tensor,
        phrase_times: Tensor | None = None,
        ahead: Ahead | None = None,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Total loss and its parts for one batch: phrases (B, L, D), phrase_mask (B, L), video_mask (B, N),
        phrase_times (B, L) in frames."""
        c, slots, pair = self.config, output.slots, Compared(output.slots, phrases, ahead)
        parts: dict[str, Tensor] = {}
        names = apart = [name for name, weight in c.weights.items() if weight]
        given = LossInput(output, phrases, phrase_mask, video_mask, c, {}, parts, pair, phrase_times)

        def each_of(some: list[str]) -> dict[str, Tensor]:
            return {name: self.loss(name, replace(given, options=c.options.get(name, {}))) for name in some}

        if ahead is None:
            made = each_of(names)
            total = slots.new_zeros((), dtype=torch.promote_types(slots.dtype, torch.float32))
        else:
            # one large product fills the GPU while the other losses, small and many, wait for each other
            drawn: tuple[Tensor, ...] | None = ahead.drawn if c.smooth_frames <= 128 else None
            fit = {"seq": True, "glob": True, "div": c.div_on == "slots", "smooth": drawn is not None}
            apart = [name for name in names if not fit.get(name)]
            beside = Beside(slots.device, 1)
            with beside:
                made = each_of(apart)
                if drawn is not None:
                    drawn = _unit_once(_picked(output.frames, drawn[0])), *drawn
            weights = [float(c.weights.get(name, 0.0)) if fit[name] else 0.0 for name in PAPER_LOSSES]
            vectors = slots, ahead.phrases, ahead.half_phrases
            total, values = pair_losses(*vectors, phrase_mask, ahead.lengths, c, weights, drawn)
            *together, parts["matched"] = values.unbind()
            made = {**dict(zip(PAPER_LOSSES, together, strict=True)), **made}
            beside.join()
        for name in apart:
            total = total + float(c.weights[name]) * made[name]
        return total, {**parts, **{name: made[name] for name in names}}
