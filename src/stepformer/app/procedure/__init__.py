"""Several videos of one task to one ordered list of common steps.

>>> import stepformer as sf
>>> procedure = sf.procedure.find(["a.mp4", "b.mp4", "c.mp4"])      # doctest: +SKIP
>>> [step.name for step in procedure.steps]                         # doctest: +SKIP
['crack the eggs', 'whisk the eggs', 'pour into the pan']

`clustering` groups steps across videos, `finding` orders and names them, and judges whether the videos are of one task.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

from stepformer.app.procedure.clustering import StepClusters, choose_count, cluster_steps
from stepformer.app.procedure.finding import MIN_SHARE, find_procedure, stretches_of
from stepformer.app.procedure.records import CommonStep, Procedure, VideoSteps

if TYPE_CHECKING:
    from stepformer.app.discover.stepformer import Finding, StepFormer
    from stepformer.encoders.reading import Features
    from stepformer.narration import Listening

__all__ = [
    "CommonStep", "Procedure", "StepClusters", "VideoSteps",
    "choose_count", "cluster_steps", "find", "find_procedure", "from_findings",
]  # fmt: skip


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

    model: by default the one that ships. steps: how many common steps to find (default: the number that tells the steps
    of different videos apart best). min_share: the share of the videos that have a common step. detail: how finely
    videos are cut, 0 to 1. labels: "none" leaves names out. listening: where narration is looked for. seed: of the
    clustering.

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
