"""Several videos of one task to one ordered list of common steps.

Examples:
    >>> procedure = sf.procedure.find(["pancakes.mp4", "crepes.mp4"])
    >>> [(step.videos, step.duration_s) for step in procedure.steps]        # three common steps, each in both videos
    [(2, 10.0), (2, 10.0), (2, 10.0)]
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

from stepformer.app.procedure.finding import MIN_SHARE, find_procedure, stretches_of
from stepformer.app.procedure.records import CommonStep, Procedure, VideoSteps

if TYPE_CHECKING:
    from stepformer.app.discover.stepformer import Finding, StepFormer
    from stepformer.encoders.reading import Features
    from stepformer.narration import Listening

__all__ = ["CommonStep", "Procedure", "find"]


def find(
    videos: Iterable[str | os.PathLike[str] | Features | Finding],
    model: StepFormer | None = None,
    *,
    steps: int | None = None,
    min_share: float = MIN_SHARE,
    detail: float | None = None,
    labels: Literal["auto", "none"] = "auto",
    listening: Listening | None = None,
    seed: int = 0,
) -> Procedure:
    """The common steps of videos of one task: files, features, or what :meth:`StepFormer.find` gave.

    Args:
        videos: Two or more.
        model: By default the one that ships.
        steps: How many common steps to find; by default the number that tells the steps of different videos apart best.
        min_share: A common step is in at least this share of the videos.
        detail: How finely videos are cut, 0 to 1.
        labels: "none" leaves names out.
        listening: Where narration is looked for.
        seed: Of the clustering.

    Raises:
        InputError: fewer than two videos, or nothing that two of them have in common.
    """
    from stepformer.app.discover.loading import load_model
    from stepformer.app.discover.options import DiscoverOptions
    from stepformer.app.discover.stepformer import Finding
    from stepformer.encoders.reading import Features
    from stepformer.narration import narration_of

    model = model or load_model()
    findings: list[Finding] = []
    for video in videos:
        if not isinstance(video, Finding):
            path = None if isinstance(video, Features) else video
            features = video if isinstance(video, Features) else model.read(video)
            heard = None if path is None else narration_of(path, listening)
            video = model.find(features, DiscoverOptions(detail=detail), narration=heard, labels=labels)  # noqa: PLW2901
        findings.append(video)
    text = labels != "none"
    return find_procedure(
        from_findings(findings),
        steps,
        min_share=min_share,
        seed=seed,
        encode=model.encoder.encode_text if text else None,
        bank=model.bank() if text else None,
        meta=model.provenance("procedure", {"steps": steps, "min_share": min_share, "detail": detail, "seed": seed}),
    )


def from_findings(findings: Iterable[Finding]) -> list[VideoSteps]:
    """What the model found in each video, as this package takes it."""
    return [
        VideoSteps(found.timeline, found.looks, stretches=stretches_of(found.features.vectors), said=found.said)
        for found in findings
    ]
