"""The learned part is held: the shipped model scores in a band on a small world, and leaves it when it is broken.

After the shipped checkpoint, the simulator or the engine has changed on purpose: run ``small_world.py`` (it says how),
and put the bands around what it prints.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from small_world import load

import stepformer as sf
from stepformer.core.inference import InferenceConfig, find_steps, find_texts
from stepformer.core.model import Slots
from stepformer.evaluation.validation import Trial, score_slots

BANDS = {"iou": (0.49, 0.62), "f1": (0.70, 0.77), "slots": (0.20, 0.29), "shown": (0.98, 1.0)}


@pytest.fixture(scope="module")
def trial() -> Trial:
    return load()


@pytest.fixture(scope="module")
def model() -> sf.StepFormer:
    return sf.load_model("default", device="cpu")


def slots_of(model, batch) -> Slots:
    with torch.inference_mode():
        return model.checkpoint.model(batch.video, batch.video_mask)


def scores(trial: Trial, change=None, config: InferenceConfig | None = None) -> dict[str, float]:
    """IoU of localisation, the same through slots alone, frame F1 (step or background) of discovery, and how alike the
    mean frame of a step and its nearest slot are (cosine); ``change`` breaks the model's output."""
    model = sf.load_model("default", device="cpu")

    def make(batch):
        output = slots_of(model, batch)
        return output if change is None else change(output, batch)

    config = config or model.inference
    located = score_slots(trial, make, config)
    batch = trial.batches[0]
    shown = find_steps(make(batch), batch.video_mask, config, structure=batch.video).assignment >= 0
    true, there = batch.labels >= 0, batch.video_mask
    f1 = 2.0 * (shown & true & there).sum(1) / ((shown & there).sum(1) + (true & there).sum(1)).clamp(min=1)
    through = score_slots(trial, make, replace(config, text_share=0.0))
    output = make(batch)
    steps = torch.nn.functional.one_hot(batch.labels.clamp(min=0), batch.steps.shape[1]) * true[..., None]  # (B, N, S)
    means = steps.mT.to(output.frames.dtype) @ output.frames  # (B, S, D)
    nearest = torch.cosine_similarity(means[:, :, None], output.slots[:, None], dim=-1).amax(2)[means.norm(dim=-1) > 0]
    return {
        "iou": round(located["zs_iou"], 3),
        "f1": round(float(f1.mean()), 3),
        "slots": round(through["zs_iou"], 3),
        "shown": round(float(nearest.mean()), 3),
    }


def inside(found: dict[str, float]) -> bool:
    return all(low <= found[name] <= high for name, (low, high) in BANDS.items())


def test_the_shipped_model_scores_in_its_band(trial):
    assert inside(scores(trial)), scores(trial)


def test_random_slots_leave_the_band(trial):
    def random(output, batch):
        noise = torch.randn(output.slots.shape, generator=torch.Generator().manual_seed(0))
        return output._replace(slots=noise)

    assert not inside(scores(trial, random)), scores(trial, random)


def test_shuffled_frames_leave_the_band(trial):
    batch = trial.batches[0]
    order = [torch.randperm(int(n), generator=torch.Generator().manual_seed(1)) for n in batch.video_mask.sum(1)]
    video = batch.video.clone()
    for row, o in zip(video, order, strict=True):
        row[: len(o)] = row[o]
    shuffled = replace(trial, batches=[batch._replace(video=video)])
    assert not inside(scores(shuffled)), scores(shuffled)


def test_without_the_checkpoints_options_the_band_is_left(trial):
    assert not inside(scores(trial, config=InferenceConfig())), scores(trial, config=InferenceConfig())


def test_product_and_tables_give_the_same_assignments(trial, model):
    batch, texts = trial.batches[0], trial.texts[0]
    output, lengths = slots_of(model, batch), (batch.steps >= 0).sum(1)
    found = find_steps(output, batch.video_mask, model.inference, structure=batch.video)
    placed = find_texts(output, batch.video_mask, texts, lengths, model.inference, structure=batch.video)
    for i, (n, m) in enumerate(zip(batch.video_mask.sum(1).tolist(), lengths.tolist(), strict=True)):
        vectors = batch.video[i, :n].numpy()
        timeline = model.discover_features(vectors)
        located = model.locate_features(vectors, [str(k) for k in range(m)], text_vectors=texts[i, :m].numpy())
        for steps, want in ((timeline, found), (located, placed)):
            rows = [step.slot if want is found else step.meta["given"] for step in steps]
            got = np.full(n, -1)
            for step, row in zip(steps, rows, strict=True):
                got[round(step.start_s) : round(step.end_s)] = row
            assert got.tolist() == want.assignment[i, :n].tolist()
