"""What tables and validation call gives the very frames that ``discover`` and ``locate`` give, at any rate."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "app" / "discover"))

from small_world import load

import stepformer as sf
from stepformer.base.arrays import unit
from stepformer.core.inference import find_steps
from stepformer.data.records import Annotation, Dataset, Task, VideoRecord
from stepformer.data.store import StoredVideo, StoreInfo, StoreWriter
from stepformer.errors import InputError
from stepformer.evaluation.annotated import trial_of
from stepformer.evaluation.validation import discover_all, locate_all, model_slots, per_video
from stepformer.reproduce.sources import fingerprint


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


def test_of_a_store_tables_cut_by_its_structure_as_the_product_does(tmp_path):
    """More videos than a batch has, of different lengths, so that each must get its own structure."""
    model, rng = sf.load_model("default", device="cpu"), np.random.default_rng(0)
    videos = {}
    with StoreWriter(tmp_path / "store", StoreInfo("clip", "toy", dim=512, structure_dim=6)) as writer:
        for i in range(18):
            kinds = np.repeat(np.eye(6, dtype=np.float32), rng.integers(5, 20, 6), 0)
            features = rng.standard_normal((len(kinds), 512)).astype(np.float32)
            videos[f"v{i}"] = features, kinds
            writer.append(StoredVideo(f"v{i}", features, 1.0, float(len(kinds)), kinds))
    records = tuple(VideoRecord(name, "t", annotations=(Annotation(0, 1.0, 9.0, "stir"),)) for name in videos)
    _, trial = trial_of(Dataset("toy", {"t": Task("t", "Toy", ("stir",))}, records), tmp_path / "store", None, 1.0)
    outputs = [model_slots(model.checkpoint.model)(batch) for batch in trial.batches]
    found = [
        row
        for batch, labels in zip(trial.batches, discover_all(trial, outputs, model.inference), strict=True)
        for row in per_video(labels, batch.video_mask)
    ]
    bare = replace(trial, cutting=None)
    assert fingerprint(bare) != fingerprint(trial)  # no table takes one's rows for the other's
    plain = discover_all(bare, outputs, model.inference)
    assert not torch.equal(plain[0], discover_all(trial, outputs, model.inference)[0])
    for (features, kinds), labels in zip(videos.values(), found, strict=True):
        kept = unit(features.astype(np.float16), np.float32)
        timeline = model.discover_features(kept, structure=kinds)
        assert frames_of(timeline, [step.slot for step in timeline], len(kinds), 1.0) == labels.tolist()


def test_structure_with_nan_is_refused(tmp_path, monkeypatch):
    """The writer refuses it; a shard that somebody else wrote may hold it."""
    video = StoredVideo("v", np.eye(4, dtype=np.float32), 1.0, 4.0, np.eye(4, 3, dtype=np.float32))
    with StoreWriter(tmp_path / "store", StoreInfo("toy", "toy", dim=4, structure_dim=3)) as writer:
        writer.append(video)
    bad = replace(video, structure=np.full((4, 3), np.nan, np.float32))
    monkeypatch.setattr("stepformer.data.store.FeatureStore.read", lambda self, name: bad)
    record = VideoRecord("v", "t", annotations=(Annotation(0, 1.0, 3.0, "stir"),))
    with pytest.raises(InputError, match="features of v have NaN"):
        trial_of(Dataset("toy", {"t": Task("t", "Toy", ("stir",))}, (record,)), tmp_path / "store", None, 1.0)


def test_a_number_of_steps_leaves_little_background_whoever_asks():
    """Evidence counts for half where the number is given: in the engine, so for the product and for benches alike."""
    model, batch = sf.load_model("default", device="cpu"), load().batches[0]
    output = model_slots(model.checkpoint.model)(batch)
    found = find_steps(output, batch.video_mask, model.inference, steps=3)
    weak = replace(model.inference, step_weight=model.inference.step_weight / 2)
    other = find_steps(output, batch.video_mask, weak, steps=3)
    assert not torch.equal(found.assignment, other.assignment)
    for i, n in enumerate(batch.video_mask.sum(1).tolist()):
        timeline = model.discover_features(batch.video[i, :n].numpy(), steps=3)
        assert [(s.first, s.last) for s in found.segments[i]] == [(int(t.start_s), int(t.end_s)) for t in timeline]


def frames_of(timeline: sf.Timeline, rows: list[int], frames: int, rate_hz: float) -> list[int]:
    """The row of each frame, -1 where there is no step."""
    out = [-1] * frames
    for step, row in zip(timeline, rows, strict=True):
        first, last = round(step.start_s * rate_hz), round(step.end_s * rate_hz)
        out[first:last] = [row] * (last - first)
    return out
