"""Choosing options, splits that do not overlap, and the published methods through the same door."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from stepformer.core.inference import InferenceConfig
from stepformer.core.model import Slots
from stepformer.data.simulator import Simulator
from stepformer.data.world import load_world
from stepformer.reproduce import methods, scoring
from stepformer.reproduce.runs import Setup, baseline_run, control_run
from stepformer.reproduce.worker import Stage, pooled, run_control


@pytest.fixture(scope="module")
def stage(tiny_world):
    """Few frames: the world's videos at 40 s at most."""
    torch.set_num_threads(1)
    return Stage(tiny_world, 0, "cpu")


def test_options_are_chosen_on_tasks_that_are_never_reported(tiny_world):
    world = scoring.divided(tiny_world)
    chosen = set(world.split("choose").tasks.tolist())
    for split in scoring.report_splits(world):
        assert not chosen & set(world.split(split).tasks.tolist())
    assert chosen | set(world.split("unseen").tasks.tolist()) == set(tiny_world.dev.tasks.tolist())
    assert scoring.report_splits(world) == ("test", "unseen")
    assert scoring.dataset_of(world, "test") == "grammar"


def test_extra_splits_survive_saving(tiny_world, tmp_path):
    world = replace(tiny_world, extra={"procel": tiny_world.dev.pick(torch.arange(3))})
    world.save(tmp_path / "w.safetensors")
    again = load_world(tmp_path / "w.safetensors")
    assert again.splits == ("train", "dev", "test", "procel")
    assert torch.equal(again.split("procel").steps, tiny_world.dev.steps[:3])
    tiny_world.save(tmp_path / "old.safetensors")
    assert load_world(tmp_path / "old.safetensors").splits == ("train", "dev", "test")


def test_half_sparse_adds_background_to_every_second_video(tiny_world):
    timed = Simulator(tiny_world)._with_times(tiny_world.dev, torch.Generator().manual_seed(0))
    sparse = scoring.half_sparse(timed)
    there = timed.steps >= 0
    lengths = torch.where(there, timed.ends - timed.starts, 0.0).sum(1)
    torch.testing.assert_close(sparse.durations[::2], timed.durations[::2])
    torch.testing.assert_close(sparse.durations[1::2], (timed.durations + 2 * lengths)[1::2])
    after = torch.where(there, sparse.ends - sparse.starts, 0.0).sum(1)
    torch.testing.assert_close(after, lengths)  # steps keep their lengths
    assert (torch.where(there, sparse.ends, 0.0).amax(1) <= sparse.durations + 1e-3).all()
    assert ((sparse.starts[:, 1:] >= sparse.starts[:, :-1]) | ~there[:, 1:]).all()


def perfect(trial):
    """Slots that are the step texts, and frames that are the text of their step or nothing like any."""
    out = []
    for batch, texts in zip(trial.batches, trial.texts, strict=True):
        there = (batch.steps >= 0)[..., None]
        slots = torch.where(there, texts, -texts.mean(1, keepdim=True))
        on = batch.labels >= 0
        own = texts.gather(1, batch.labels.clamp(min=0)[..., None].expand(-1, -1, texts.shape[-1]))
        frames = torch.where(on[..., None], own, torch.nn.functional.normalize(torch.randn_like(own), dim=-1))
        out.append(Slots(slots, frames, None))
    return out


def test_the_grid_finds_what_suits_perfect_slots(stage):
    trial = stage.dev
    outputs = perfect(trial)
    chosen = scoring.choose(trial, outputs)
    worst = scoring.locate_scores(trial, outputs, InferenceConfig(locate_keep=0.05))["zs_iou"]
    assert chosen.dev["zs_iou"] > 0.8 > worst
    # the chosen options score what the choice says they do, and no other line of the grid is better
    assert scoring.locate_scores(trial, outputs, chosen.zero_shot)["zs_iou"] == pytest.approx(chosen.dev["zs_iou"])
    for line in scoring.lines("grid"):
        assert scoring.locate_scores(trial, outputs, line)["zs_iou"] <= chosen.dev["zs_iou"] + 1e-9
    keep = scoring.choose(trial, outputs, "keep")
    assert keep.zero_shot.threshold == "percentile" and keep.cluster_by == "slots"
    assert keep.zero_shot.read_share == keep.zero_shot.text_share == 0
    assert keep.dev["zs_iou"] <= chosen.dev["zs_iou"]


def test_every_seed_draws_its_own_frames_and_all_methods_see_the_same(tiny_world):
    world = scoring.divided(tiny_world)
    a, b, c = (scoring.trial(Simulator(world, seed=s), "unseen", "plain", t) for s, t in ((0, 0), (5, 0), (0, 1)))
    torch.testing.assert_close(a.batches[0].video, b.batches[0].video)  # the training seed does not matter
    assert a.batches[0].video.shape != c.batches[0].video.shape or not torch.allclose(
        a.batches[0].video, c.batches[0].video
    )


def test_controls_are_scored_everywhere(stage):
    setup = Setup(world="w", dim=64, splits=("test", "unseen"))
    result = run_control(control_run(setup, "uniform", 0), stage)
    assert set(result["scores"]["grid"]) == {"test", "unseen"}
    assert set(result["scores"]["grid"]["test"]) == {"concepts", "plain", "joint"}
    text = run_control(control_run(setup, "text smoothed", 0), stage)
    assert text["chosen"]["grid"]["window"] in scoring.WINDOWS
    assert "un_f1" not in text["scores"]["grid"]["test"]["concepts"]


def test_feature_videos_are_the_trial(stage):
    videos, steps = methods.feature_videos(stage.dev)
    assert len(videos) == len(stage.dev.tasks)
    assert sum(len(v.features) for v in videos) == sum(len(y) for y in stage.dev.labels())
    for video in videos:
        assert video.phrase_times_s is not None and (np.diff(video.phrase_times_s[:, 0]) >= 0).all()
        assert len(video.step_vectors) <= max(steps.values()) + 20


@pytest.mark.parametrize("method", ["shen", "elhamifar", "kukleva"])
def test_published_methods_are_fitted_and_scored(stage, method, monkeypatch):
    monkeypatch.setattr(methods, "MIN_UPDATES", 1)
    quick = {"shen": {"epochs": 1}, "elhamifar": {"rounds": 1}, "kukleva": {"epochs": 1}}[method]
    real = methods.baseline
    monkeypatch.setattr(methods, "baseline", lambda name, **options: real(name, **{**options, **quick}))
    setup = Setup(world="w", dim=64, splits=("unseen", "test"))
    result = methods.run_baseline(baseline_run(setup, method, "weak", 0), stage, "cpu")
    assert set(result["scores"]["grid"]) == {"unseen", "test"}
    scores = result["scores"]["grid"]["unseen"]["concepts"]
    assert 0 < scores["un_f1"] < 1
    assert ("zs_iou" in scores) == (method == "shen")
    if method == "kukleva":
        assert result["chosen"]["grid"]["background"] in methods.BACKGROUNDS


def test_pooled_slots_are_the_control(stage):
    slots = pooled(stage.dev.batches[0])
    assert slots.slots.shape[1] == 32
