"""The options of `discover` as one checked record."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from stepformer.base.files import utf8
from stepformer.errors import UsageError

if TYPE_CHECKING:
    from stepformer.core.options import InferenceConfig

Use = Literal["both", "slots", "structure"]
USES: tuple[Use, ...] = ("both", "slots", "structure")


@dataclass(frozen=True, slots=True)
class DiscoverOptions:
    """How finely a video is cut and by what: the options of :meth:`StepFormer.discover`, checked.

    Attributes:
        steps: How many steps.
        detail: From 0 (few, long steps) to 1 (many, short ones).
        percentile: The paper's threshold: this percentile of the slot-frame similarities.
        similarity: The released code's: the threshold itself.
        ordered: Slots come in order; False is the paper's ablation.
        use: "both" slots and structure, "slots" or "structure".
    """

    steps: int | None = None
    detail: float | None = None
    percentile: float | None = None
    similarity: float | None = None
    ordered: bool = True
    use: Use = "both"

    def __post_init__(self) -> None:
        given = [name for name in ("steps", "detail", "percentile", "similarity") if getattr(self, name) is not None]
        if len(given) > 1:
            raise UsageError(f"give only one of steps, detail, percentile and similarity; got {' and '.join(given)}")
        if self.steps is not None and (isinstance(self.steps, bool) or int(self.steps) != self.steps or self.steps < 1):
            raise UsageError(f"steps must be a whole number of at least 1; got {self.steps!r}")
        if self.detail is not None and not 0 <= self.detail <= 1:
            raise UsageError(f"detail must be from 0 (few, long steps) to 1 (many, short ones); got {self.detail!r}")
        if self.percentile is not None and not 0 <= self.percentile < 100:
            raise UsageError(f"percentile must be at least 0 and below 100; got {self.percentile!r}")
        if self.similarity is not None and not math.isfinite(self.similarity):
            raise UsageError(f"similarity must be a number; got {self.similarity!r}")
        if self.use not in USES:
            raise UsageError(f"use must be one of {', '.join(USES)}; got {self.use!r}")
        if self.use == "structure" and (self.percentile is not None or self.similarity is not None):
            raise UsageError("percentile and similarity are drop thresholds of slots; use='structure' has no slots")

    def inference(self, own: InferenceConfig) -> InferenceConfig:
        """The inference options of a checkpoint with what the user chose in their place."""
        from stepformer.core.options import DEFAULT_INFERENCE  # torch is loaded here, not by --help

        chosen = replace(own, ordered=own.ordered and self.ordered)
        if self.use == "slots":
            chosen = replace(chosen, structure_weight=0.0, penalty_share=0.0, evidence_temperature=0.0, read_share=0.0)
            chosen = replace(chosen, row_weight=chosen.step_weight)
        elif self.use == "structure":
            weight = chosen.structure_weight or DEFAULT_INFERENCE.structure_weight
            share = chosen.penalty_share or DEFAULT_INFERENCE.penalty_share
            chosen = replace(chosen, step_weight=0.0, structure_weight=weight, penalty_share=share)
        if self.detail is not None:
            chosen = replace(chosen, detail=self.detail)
        # a threshold that the user gives is one for the best slot's similarity
        if self.similarity is not None:
            fixed = {"threshold": "fixed", "similarity": float(self.similarity), "evidence_temperature": 0.0}
            chosen = replace(chosen, **fixed)  # type: ignore[arg-type]
        if self.percentile is not None:
            keep = 1.0 - self.percentile / 100.0
            chosen = replace(chosen, threshold="percentile", similarity=None, keep=keep, evidence_temperature=0.0)
        return chosen

    def to_dict(self) -> dict[str, Any]:
        """What was set, as plain values, for provenance."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def check_texts(texts: Sequence[str]) -> list[str]:
    """Step texts without blanks at their ends; an error where there is none, or one is empty."""
    if isinstance(texts, str):
        raise UsageError("give the steps as a list of texts, not as one text")
    out = [utf8(str(text)).strip() for text in texts]
    if not out:
        raise UsageError("there is no step to locate; give at least one text")
    if not all(out):
        raise UsageError(f"step {out.index('') + 1} has no text")
    return out
