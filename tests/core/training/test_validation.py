"""Validation: truth scores 1, controls score less, and what is drawn does not depend on who is measured."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from training_runs import small

from benchmarks.simulated import text_scores, uniform_scores
from stepformer.core.inference import pooled_slots, random_slots
from stepformer.core.model import Slots, StepDecoder
from stepformer.core.options import InferenceConfig
from stepformer.data.simulator import Sight, Simulator
from stepformer.evaluation.validation import (
    QUICK,
    discover_units,
    few,
    locate_units,
    make_trial,
    model_slots,
    score_slots,
    segment_vectors,
    smoothed,
    summary,
)

CLEAR = Sight(look=0.0, clutter=0.0, fast=0.0, stray=0.0, related=0.0)


@pytest.fixture(scope="module")
def simulator(tiny_world):
    return Simulator(tiny_world)


@pytest.fixture(scope="module")
def clear(tiny_world):
    """Videos without clutter, of pictures that are the vectors of the step texts themselves."""
    count = len(tiny_world.texts)
    fillers = torch.zeros(count, dtype=torch.bool)
    fillers[tiny_world.fillers] = True
    itself = torch.arange(count)[:, None].expand_as(tiny_world.shows)
    world = replace(
        tiny_world, pictures=tiny_world.vectors, shows=itself, picture_owner=tiny_world.text_owner, background=fillers
    )
    return make_trial(Simulator(world), "test", sight=CLEAR)


def text_slots(trial):
    """Slots that are the texts of the video's own steps: the best a decoder can do."""
    texts = iter(trial.texts)

    def make(batch):
        there = (batch.steps >= 0)[..., None]
        return Slots(torch.where(there, next(texts), 0.0), batch.video, None)

    return make


@pytest.mark.parametrize(("limit", "tasks"), [(3, 1), (20, 5), (60, 6), (99, 6)])
def test_few_videos_are_several_of_each_task(tiny_world, limit, tasks):
    """Steps are matched across the videos of a task: one video of each would say nothing of that."""
    of = torch.arange(120) % 6  # tasks need not stand together
    videos = tiny_world.train.pick(torch.arange(120) % len(tiny_world.train))
    picked = few(replace(videos, tasks=of, sources=torch.arange(120)), limit)
    assert len(picked) == limit and len(set(picked.sources.tolist())) == limit
    counts = picked.tasks.unique(return_counts=True)[1]
    assert len(counts) == tasks and counts.max() - counts.min() <= 1 and counts.min() >= min(4, limit)


def test_few_takes_more_of_other_tasks_where_one_has_few(tiny_world):
    of = torch.tensor([0, 0, 1, 1, 1, 1, 1, 1, 1, 1])
    picked = few(replace(tiny_world.train.pick(torch.arange(10) % len(tiny_world.train)), tasks=of), 9)
    assert picked.tasks.tolist() == [0] * 2 + [1] * 7
    alone = few(replace(tiny_world.train.pick(torch.arange(10) % len(tiny_world.train)), tasks=torch.arange(10)), 5)
    assert alone.tasks.tolist() == [0, 2, 4, 6, 9]


def test_the_truth_scores_one(clear):
    assert (locate_units(clear, clear.labels()) == 1.0).all()
    # clusters that are the true step numbers lose only the 40% of each that the protocol drops
    found = summary({"discover": discover_units(clear, (clear.task_labels(), None), QUICK)}, clear.tasks)
    assert found["un_precision"] == pytest.approx(1.0)


def test_slots_that_are_the_texts_find_the_steps_where_the_encoder_is_clear(clear):
    config = InferenceConfig(threshold="fixed", similarity=0.5)
    best = score_slots(clear, text_slots(clear), config)
    assert best["zs_iou"] > 0.8 and best["zs_mof"] > 0.8
    assert text_scores(clear, config)["zs_iou"] == pytest.approx(best["zs_iou"], abs=0.1)
    steps = np.mean([(kinds >= 0).sum() for kinds in clear.kinds])
    assert best["un_slots"] == pytest.approx(steps, rel=0.15)
    g = torch.Generator().manual_seed(0)
    pooled = score_slots(clear, lambda b: pooled_slots(b.video, b.video_mask), config)
    noise = score_slots(clear, lambda b: random_slots(b.video, b.video_mask, generator=g), config)
    assert best["zs_iou"] > pooled["zs_iou"] > noise["zs_iou"]
    assert best["zs_iou"] > uniform_scores(clear)["zs_iou"]
    assert best["un_f1"] > noise["un_f1"]


def test_every_run_is_measured_on_the_same_videos(tiny_world):
    a, b = (make_trial(Simulator(tiny_world, seed=seed), "dev", seed=1) for seed in (0, 1))
    assert all(torch.equal(x.video, y.video) for x, y in zip(a.batches, b.batches, strict=True))
    model = StepDecoder(small().model)
    assert score_slots(a, model_slots(model), InferenceConfig()) == score_slots(
        b, model_slots(model), InferenceConfig()
    )


def test_a_part_of_a_split_is_spread_over_it(simulator, tiny_world):
    trial = make_trial(simulator, "test", limit=5)
    assert len(trial.labels()) == len(trial.tasks) == 5
    assert trial.tasks[0] == tiny_world.test.tasks[0] and trial.tasks[-1] == tiny_world.test.tasks[-1]
    whole = make_trial(simulator, "test", limit=500)
    assert len(whole.tasks) == len(tiny_world.test)
    for labels, kinds, own in zip(trial.labels(), trial.kinds, trial.task_labels(), strict=True):
        assert all(own[i] == (kinds[y] if y >= 0 else -1) for i, y in enumerate(labels))


@pytest.mark.parametrize("window", [1, 3, 7])
def test_smoothing_is_the_mean_of_the_frames_that_are_there(window):
    video = torch.randn(2, 9, 4, generator=torch.Generator().manual_seed(0))
    mask = torch.arange(9) < torch.tensor([[9], [5]])
    out = smoothed(video, mask, window)
    for b, n in ((0, 9), (1, 5)):
        for i in range(n):
            around = range(max(0, i - window // 2), min(n, i + window // 2 + 1))
            assert torch.allclose(out[b, i], video[b, list(around)].mean(0), atol=1e-6)


def test_segments_are_clustered_by_their_slot_or_by_their_mean_frame():
    video = torch.arange(10.0).reshape(1, 5, 2)
    output = Slots(torch.ones(1, 3, 2), video, None)
    found = torch.tensor([[0, 0, -1, 2, 2]])
    assert segment_vectors(output, found, "slots")[0].tolist() == [[1.0, 1.0]] * 3
    assert segment_vectors(output, found, "frames")[0].tolist() == [[1.0, 2.0], [0.0, 0.0], [7.0, 8.0]]
