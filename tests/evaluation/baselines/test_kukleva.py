import numpy as np
import pytest
import torch

from stepformer.errors import InputError, UsageError
from stepformer.evaluation.baselines import FeatureVideo, baseline
from stepformer.evaluation.baselines.kukleva import decode, gaussian_log_likelihood, in_time_order, prepare


def action(seed, width=12, looks=None, noise=0.3):
    """A synthetic activity: four looks one after the other, each of a random length."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(5, 45, size=4)
    labels = np.repeat(np.arange(4), lengths)
    features = looks[labels] + noise * rng.normal(size=(len(labels), width))
    return FeatureVideo(f"v{seed}", "t", features), labels


@pytest.fixture(scope="module")
def synthetic():
    looks = np.random.default_rng(0).normal(size=(4, 12))
    made = [action(seed, looks=looks) for seed in range(1, 7)]
    videos = [v for v, _ in made]
    fitted = baseline("kukleva", min_updates=600, standardize=False).fit(videos, {"t": 4}, seed=0)
    return videos, [labels for _, labels in made], fitted


@torch.no_grad()
def predicted_time(fitted, video):
    model = fitted.model("t")
    return model.last(torch.sigmoid(model.embed(torch.from_numpy(video.features))))[:, 0].numpy()


def test_the_embedding_orders_an_action_by_time(synthetic):
    videos, truth, fitted = synthetic
    for video, labels in zip(videos, truth, strict=True):
        read = predicted_time(fitted, video)
        means = [read[labels == step].mean() for step in range(4)]
        assert means == sorted(means), "later looks must be read as later"
        assert np.corrcoef(read, video.relative_time)[0, 1] > 0.8


def test_clusters_come_out_numbered_in_time_and_found_in_every_video(synthetic):
    videos, truth, fitted = synthetic
    found = fitted.segment(videos)
    agree = np.mean(np.concatenate(found) == np.concatenate(truth))
    cuts = [np.arange(len(y)) * 4 // len(y) for y in truth]
    uniform = np.mean(np.concatenate(cuts) == np.concatenate(truth))
    assert agree > 0.95 > uniform + 0.15
    assert all((np.diff(f) >= 0).all() for f in found)  # the one order is kept


def test_time_is_read_from_looks_and_not_from_the_position_in_the_file(synthetic):
    videos, truth, fitted = synthetic
    rng = np.random.default_rng(9)
    order = rng.permutation(len(truth[0]))
    shuffled = FeatureVideo("x", "t", videos[0].features[order])
    assert np.allclose(predicted_time(fitted, shuffled), predicted_time(fitted, videos[0])[order], atol=1e-4)


def test_background_is_the_farthest_share_of_each_cluster_and_is_not_decoded(synthetic):
    videos, truth, _ = synthetic
    method = baseline("kukleva", min_updates=600, standardize=False, background=0.25)
    found = np.concatenate(method.fit(videos, {"t": 4}, seed=0).segment(videos))
    assert abs((found == -1).mean() - 0.25) < 0.02
    shown = found >= 0
    assert (found[shown] == np.concatenate(truth)[shown]).mean() > 0.95
    with pytest.raises(UsageError, match="background must be in"):
        baseline("kukleva", background=1.0)


def test_one_model_for_all_serves_a_task_it_was_not_told_about(synthetic):
    videos, truth, _ = synthetic
    renamed = [FeatureVideo(v.video, f"task{i % 2}", v.features) for i, v in enumerate(videos)]
    steps = {"task0": 4, "task1": 4}
    fitted = baseline("kukleva", min_updates=600).fit(renamed, steps, setting="unsupervised", seed=0)
    assert list(fitted.models) == [None]
    assert np.mean(np.concatenate(fitted.segment(renamed)) == np.concatenate(truth)) > 0.9
    weak = baseline("kukleva", epochs=1).fit(renamed[:1], steps)
    with pytest.raises(UsageError, match="'task1'"):
        weak.segment(renamed[1:2])
    with pytest.raises(InputError, match="width 3 do not fit"):
        weak.segment([FeatureVideo("v", "task0", np.ones((2, 3)))])


def test_standardising_leaves_padding_at_zero():
    features = np.random.default_rng(0).normal(5, 3, size=(20, 4))
    features[:3] = 0
    ready = prepare(FeatureVideo("v", "t", features), True)
    assert (ready[:3] == 0).all()
    assert np.allclose(ready[3:].mean(axis=0), 0, atol=1e-5) and np.allclose(ready[3:].std(axis=0), 1, atol=1e-4)


def test_decoding_is_the_best_of_all_ordered_cuts():
    rng = np.random.default_rng(2)
    costs = rng.normal(size=(7, 3))
    found = decode(costs, np.zeros(7, bool))
    every = [np.repeat([0, 1, 2], [a, b - a, 7 - b]) for a in range(1, 6) for b in range(a + 1, 7)]
    best = min(every, key=lambda labels: costs[np.arange(7), labels].sum())
    assert found.tolist() == best.tolist()
    assert decode(costs[:2], np.zeros(2, bool)).tolist() == sorted(decode(costs[:2], np.zeros(2, bool)))
    assert (decode(costs, np.ones(7, bool)) == -1).all()


def test_gaussians_agree_with_the_density_written_out():
    rng = np.random.default_rng(3)
    points = rng.normal(size=(30, 2))
    labels = np.arange(30) % 2
    found = gaussian_log_likelihood(points, labels, 2, 1e-4)
    members = points[labels == 1]
    covariance = np.cov(members.T, bias=True) + 1e-4 * np.eye(2)
    d = points - members.mean(axis=0)
    expected = -0.5 * np.einsum("ni,ij,nj->n", d, np.linalg.inv(covariance), d)
    expected -= 0.5 * np.log((2 * np.pi) ** 2 * np.linalg.det(covariance))
    assert np.allclose(found[:, 1], expected)


def test_clusters_are_renumbered_by_mean_time():
    assert in_time_order(np.array([2, 2, 0, 1, 1]), np.array([0.0, 0.1, 0.5, 0.8, 0.9]), 3).tolist() == [0, 0, 1, 2, 2]


def test_tasks_trained_side_by_side_learn_what_each_learns_alone():
    looks = np.random.default_rng(3).normal(size=(4, 12))
    short = [action(s, looks=looks)[0] for s in range(2)]
    turned = [action(s, looks=looks[::-1])[0] for s in range(3)]
    long = [FeatureVideo(v.video, "other", v.features.repeat(2, axis=0)) for v in turned]
    steps = {short[0].task: 4, "other": 4}
    method = baseline("kukleva", min_updates=150, epochs=1, batch=64)  # batches that do not divide either task
    both = method.fit([*short, *long], steps, seed=1)
    for videos in (short, long):
        alone = method.fit(videos, steps, seed=1)
        np.testing.assert_allclose(both.embed(videos[0]), alone.embed(videos[0]), rtol=0, atol=1e-4)
    assert not np.allclose(both.embed(short[0]), method.fit(long, steps, setting="unsupervised").embed(short[0]))
