"""Several videos of one task to one ordered list of common steps.

>>> from stepformer.app.procedure import find_procedure, from_findings
>>> model = stepformer.load_model("default")
>>> findings = [model.find(model.read(path)) for path in paths]
>>> procedure = find_procedure(from_findings(findings), bank=model.bank())
>>> [step.name for step in procedure.steps]

`clustering` groups steps across videos, `counting` chooses how many groups, `ordering` and `naming` order and name
them, `finding` puts it together; :mod:`stepformer.show.flow` draws it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from stepformer.app.procedure.clustering import ClusterOptions, StepClusters, cluster_steps
from stepformer.app.procedure.counting import choose_count
from stepformer.app.procedure.finding import find_procedure
from stepformer.app.procedure.records import CommonStep, Procedure, VideoSteps
from stepformer.base.arrays import unit

if TYPE_CHECKING:
    from stepformer.app.discover import Finding

__all__ = [
    "ClusterOptions", "CommonStep", "Procedure", "StepClusters", "VideoSteps",
    "choose_count", "cluster_steps", "find_procedure", "from_findings",
]  # fmt: skip


def from_findings(findings: Iterable[Finding]) -> list[VideoSteps]:
    """What the model found in each video, as this package takes it: a step is its slot and its frames, half each."""
    out = []
    for found in findings:
        both = unit(found.step_vectors) + unit(found.segment_vectors) if len(found.timeline) else found.step_vectors
        out.append(VideoSteps(found.timeline, both))
    return out
