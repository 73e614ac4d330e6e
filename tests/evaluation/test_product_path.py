"""What tables and validation call gives the very frames that ``discover`` and ``locate`` give, at any rate."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "app" / "discover"))

from small_world import load

import stepformer as sf
from stepformer.evaluation.validation import discover_all, locate_all, model_slots, per_video


@pytest.mark.parametrize("rate_hz", [1.0, 4.0, 0.25])
def test_tables_score_what_the_product_finds(rate_hz):
    """At other rates a rate that is left out shows: in discovery at the higher one, in localisation at the lower."""
    model = sf.load_model("default", device="cpu")
    trial = replace(load(), rate_hz=rate_hz)
    batch, texts = trial.batches[0], trial.texts[0]
    outputs = [model_slots(model.checkpoint.model)(batch)]
    found = per_video(discover_all(trial, outputs, model.inference)[0], batch.video_mask)
    placed = locate_all(trial, outputs, model.inference)
    for i, (n, m) in enumerate(zip(batch.video_mask.sum(1).tolist(), (batch.steps >= 0).sum(1).tolist(), strict=True)):
        vectors, names = batch.video[i, :n].numpy(), [str(k) for k in range(m)]
        discovered = model.discover_features(vectors, rate_hz)
        located = model.locate_features(vectors, names, rate_hz, text_vectors=texts[i, :m].numpy())
        assert frames_of(discovered, [step.slot for step in discovered], n, rate_hz) == found[i].tolist()
        assert frames_of(located, [step.meta["given"] for step in located], n, rate_hz) == placed[i].tolist()


def frames_of(timeline: sf.Timeline, rows: list[int], frames: int, rate_hz: float) -> list[int]:
    """The row of each frame, -1 where there is no step."""
    out = [-1] * frames
    for step, row in zip(timeline, rows, strict=True):
        first, last = round(step.start_s * rate_hz), round(step.end_s * rate_hz)
        out[first:last] = [row] * (last - first)
    return out
