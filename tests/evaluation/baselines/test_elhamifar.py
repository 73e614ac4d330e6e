import itertools

import numpy as np
import pytest
import torch

from stepformer.evaluation.baselines import FeatureVideo, Given, baseline
from stepformer.evaluation.baselines.elhamifar import (
    KeyStepNetwork,
    cut,
    pseudo_labels,
    ranking_loss,
    select_subset,
    similarity,
)


def test_subset_selection_picks_the_planted_representatives():
    rng = np.random.default_rng(0)
    planted = rng.normal(size=(3, 8)) * 4
    points = np.repeat(planted, 20, axis=0) + 0.2 * rng.normal(size=(60, 8))
    decoys = rng.normal(size=(9, 8)) * 4
    candidates = np.concatenate([decoys[:5], planted, decoys[5:]])
    assert sorted(select_subset(similarity(candidates, points), 3)) == [5, 6, 7]


def test_greedy_selection_is_close_to_the_best_subset():
    rng = np.random.default_rng(1)
    similar = -rng.random((7, 15))
    chosen = select_subset(similar, 3)
    value = similar[chosen].max(axis=0).sum()
    best = max(similar[list(s)].max(axis=0).sum() for s in itertools.combinations(range(7), 3))
    worst = similar.max(axis=0).sum() - 15  # the objective shifted so that the guarantee 1 - 1/e applies
    assert value - worst >= (1 - 1 / np.e) * (best - worst)
    assert len(select_subset(similar, 99)) <= 7
    assert select_subset(np.empty((0, 4)), 2).size == 0


def test_pseudo_labels_are_the_nearest_chosen_key_step_of_the_own_task():
    candidates = np.array([[0.0, 0.0], [1.0, 0.0], [9.0, 0.0], [9.0, 1.0]])
    a = FeatureVideo("a", "t", np.ones((2, 2)))
    b = FeatureVideo("b", "u", np.ones((2, 2)))
    pooled = [np.array([[0.1, 0.0], [0.9, 0.0]], np.float32), np.array([[9.0, 0.1], [9.0, 0.9]], np.float32)]
    chosen, labels = pseudo_labels([a, b], pooled, candidates, Given({"t": 2, "u": 1}, 2, "weak", 0, "cpu"))
    assert sorted(chosen["t"]) == [0, 1] and labels[0].tolist() == [0, 1]
    assert len(chosen["u"]) == 1 and set(labels[1].tolist()) == set(chosen["u"].tolist())


def test_ranking_loss_written_out():
    scores = torch.tensor([[2.0, 0.0, 1.5], [0.0, 1.0, 0.0]])
    labels = torch.tensor([0, 1])
    first = (1 + 0 + 0.5) / 3  # hinge against itself is 1
    second = (0 + 1 + 0) / 3
    weight = 2 / (1 + 1)
    assert ranking_loss(scores, labels).item() == pytest.approx((first + second) / 2 * weight)


def test_attention_of_the_network_sums_to_one_and_short_videos_work():
    method = baseline("elhamifar", key_steps=5, width=8)
    network = KeyStepNetwork(4, 2, method)
    for segments in (1, 2, 7):
        x = torch.randn(segments, 3, 4)
        scores, told = network(x)
        assert scores.shape == (segments, 5) and told.shape == (2,)
        assert torch.allclose(network.pool(torch.ones(segments, 3, 4)), torch.ones(segments, 4))


def test_cut_fills_the_last_segment_with_its_last_frame():
    v = FeatureVideo("v", "t", np.arange(5)[:, None], 2.0)
    assert cut(v, 1.0)[..., 0].tolist() == [[0, 1], [2, 3], [4, 4]]


def tasks(seed=0):
    """Two tasks of three steps; they share one."""
    rng = np.random.default_rng(seed)
    looks = rng.normal(size=(5, 16))
    videos, truth = [], []
    for i in range(12):
        own = [0, 1, 2] if i % 2 == 0 else [3, 1, 4]
        labels = np.repeat(own, rng.integers(9, 18, size=3))
        features = looks[labels] + 0.3 * rng.normal(size=(len(labels), 16))
        videos.append(FeatureVideo(f"v{i}", "t" if i % 2 == 0 else "u", features))
        truth.append(labels)
    return videos, truth


def test_it_learns_the_steps_of_two_tasks_and_tells_the_tasks_apart():
    videos, truth = tasks()
    method = baseline("elhamifar", key_steps=8, width=32, rounds=10)
    fitted = method.fit(videos, {"t": 3, "u": 3}, seed=0)
    found = fitted.segment(videos)
    for task in ("t", "u"):
        members = [i for i, v in enumerate(videos) if v.task == task]
        f, y = (np.concatenate([x[i] for i in members]) for x in (found, truth))
        best = sum(max(((f == a) & (y == b)).sum() for b in np.unique(y)) for a in np.unique(f))
        assert len(np.unique(f)) <= 3 and best / len(y) > 0.8
    with torch.no_grad():
        told = [int(fitted.network(torch.from_numpy(cut(v, 3.0)))[1].argmax()) for v in videos]
    assert told == [i % 2 for i in range(12)]
