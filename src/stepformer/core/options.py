"""How rows become steps: every option of the one engine (:mod:`stepformer.core.inference`), and its two presets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from stepformer.core.model import check_ranges
from stepformer.errors import InputError, UsageError

Threshold = Literal["percentile", "automatic", "fixed"]


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
    to 1 at ``separable_to`` (both 0: always 1). With no evidence but cuts, texts take them in order.

    Steps that a user types are expected to fill most of the video: background stands only where it
    explains ``background_share`` of the video, or ``background_s`` seconds of a long one. All this is for texts that
    fit poorly. As far as frames plainly fall into two kinds, those that some text fits and those that none does
    (:func:`plain_kinds`), texts separate, background may be short, and both kinds of evidence count for more.

    **How many steps**: as many as make the sum largest, less ``number_weight`` penalties times half the square of how
    many standard deviations the logarithm of their number lies from what is usual for a video of as many pieces
    (:func:`usual_number`).

    E is the soft maximum of s over the rows at ``evidence_temperature`` (0: the maximum). With temperature 0 and both
    weights 1, the gain of a frame is (s_r - threshold), up to the scale: Drop-DTW.
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
    background_s: float = 12.0  # ... and no more than this many seconds of a long video
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
                raise UsageError(f"inference.{name}_from must be at least 0 and at most {name}_to")
        if (self.threshold == "fixed") != (self.similarity is not None):
            raise UsageError("inference.similarity must be given with threshold='fixed', and only then")
        if self.step_weight == 0 and self.structure_weight == 0:
            raise UsageError("there is nothing to cut a video by: step_weight and structure_weight are both 0")

    @property
    def is_drop_dtw(self) -> bool:
        """Whether neither structure nor a penalty takes part."""
        return self.structure_weight == 0 and self.penalty_share == 0

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> InferenceConfig:
        """From stored values."""
        try:
            return cls(**values)
        except TypeError as error:
            raise InputError(f"the inference options cannot be read: {error}") from None


PAPER_INFERENCE = InferenceConfig()
DEFAULT_INFERENCE = InferenceConfig(
    threshold="automatic", contrast_from=0.6, contrast_to=1.4, read_share=0.25, text_share=1.0,
    evidence_temperature=0.07, step_weight=2.0, row_weight=2.0, text_weight=2.0, locate_step_weight=0.25,
    separable_from=0.05, separable_to=0.5, structure_weight=1.0, penalty_share=1 / 8, background_share=0.1,
    number_weight=4.0,
)  # fmt: skip
"""What the preset ``default`` uses everywhere; chosen on the simulated dev split. What slots read, how much rows count
and the options of localisation were chosen on real dev clips and half of GTEA too: simulated videos have no motion that
their texts cannot tell apart, and much background."""
