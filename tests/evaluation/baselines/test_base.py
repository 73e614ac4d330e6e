import numpy as np
import pytest

from stepformer.errors import InputError, NonFiniteError, UsageError
from stepformer.evaluation.baselines import BASELINES, FeatureVideo, Fitted, FittedSlots, baseline
from stepformer.evaluation.baselines.base import training_groups
from stepformer.evaluation.kmeans import keep_nearest


def video(n=6, width=3, task="t", seed=0, **more):
    rng = np.random.default_rng(seed)
    return FeatureVideo(f"v{seed}", task, rng.normal(size=(n, width)), **more)


def narrated(n=40, width=6, task="t", seed=0):
    rng = np.random.default_rng(seed)
    phrases = rng.normal(size=(12, width))
    starts = np.sort(rng.uniform(0, n, size=12))
    times = np.stack([starts, starts + 1], axis=1)
    steps = rng.normal(size=(4, width))
    return FeatureVideo(
        f"v{seed}", task, rng.normal(size=(n, width)), phrase_vectors=phrases, phrase_times_s=times, step_vectors=steps
    )


@pytest.mark.parametrize("name", BASELINES)
def test_every_baseline_keeps_the_one_interface_in_all_its_settings(name):
    fast = {"kukleva": {"epochs": 1}, "shen": {"epochs": 1}, "elhamifar": {"rounds": 1, "key_steps": 6, "width": 8}}
    method = baseline(name, **fast.get(name, {}))
    assert method.name == name
    videos = [narrated(40, seed=1), narrated(31, seed=2), narrated(25, task="u", seed=3)]
    for setting in method.settings:
        fitted = method.fit(videos, {"t": 4, "u": 3}, setting=setting, seed=5)
        assert isinstance(fitted, Fitted | FittedSlots)
        if isinstance(fitted, Fitted):
            found = fitted.segment(videos)
            assert [len(x) for x in found] == [40, 31, 25]
            assert all(np.issubdtype(x.dtype, np.integer) and x.min() >= -1 for x in found)
            again = method.fit(videos, {"t": 4, "u": 3}, setting=setting, seed=5).segment(videos)
            assert all((a == b).all() for a, b in zip(found, again, strict=True))  # same seed, same result
        if isinstance(fitted, FittedSlots):
            slots = fitted.slots(videos[0])
            assert slots.shape[1] == 6 and np.isfinite(slots).all()


def test_a_setting_that_a_method_has_not_is_named():
    with pytest.raises(UsageError, match=r"elhamifar has no setting 'unsupervised'; it has: weak"):
        baseline("elhamifar").fit([video()], {"t": 2}, setting="unsupervised")


def test_unknown_names_missing_tasks_and_no_videos_are_errors():
    with pytest.raises(UsageError, match="there are: elhamifar"):
        baseline("nobody")
    with pytest.raises(UsageError, match="no videos"):
        baseline("uniform").fit([], {})
    with pytest.raises(UsageError, match="'t' was not given"):
        baseline("uniform").fit([video()], {}).segment([video()])
    with pytest.raises(InputError, match="one width"):
        baseline("kmeans").fit([video(width=3), video(width=4)], {"t": 2})


def test_videos_are_checked_where_they_are_made():
    with pytest.raises(NonFiniteError, match=r"features\[1, 0\]"):
        FeatureVideo("v", "t", np.array([[0.0], [np.nan]]))
    with pytest.raises(InputError, match="no features"):
        FeatureVideo("v", "t", np.empty((0, 3)))
    with pytest.raises(InputError, match="one row a phrase"):
        video(phrase_vectors=np.ones((2, 3)), phrase_times_s=np.ones((3, 2)))


def test_unsupervised_training_sees_one_group_and_weak_one_a_task():
    videos = [video(task="a"), video(task="b", seed=1), video(task="a", seed=2)]
    assert [(g, len(v)) for g, v in training_groups(videos, "weak")] == [("a", 2), ("b", 1)]
    assert [(g, len(v)) for g, v in training_groups(videos, "unsupervised")] == [(None, 3)]


def test_keep_nearest_keeps_the_share_of_each_cluster_and_never_empties_one():
    labels = np.array([0, 0, 0, 0, 0, 1])
    distances = np.array([5.0, 1.0, 4.0, 2.0, 3.0, 9.0])
    assert keep_nearest(labels, distances, 0.6).tolist() == [-1, 0, -1, 0, 0, 1]
    assert keep_nearest(labels, distances, 0.01).tolist() == [-1, 0, -1, -1, -1, 1]
    assert keep_nearest(labels, distances, 1.0).tolist() == labels.tolist()


def test_uniform_cuts_equal_parts():
    found = baseline("uniform").fit([video(7)], {"t": 3}).segment([video(7)])[0]
    assert found.tolist() == [0, 0, 0, 1, 1, 2, 2]


def test_kmeans_names_the_same_look_the_same_in_all_videos_of_a_task():
    looks = np.eye(3)
    a = FeatureVideo("a", "t", looks[[0, 0, 1, 1, 2]])
    b = FeatureVideo("b", "t", looks[[2, 1, 1, 0]])
    x, y = baseline("kmeans", keep=1.0).fit([a], {"t": 3}).segment([a, b])
    assert len({x[0], x[2], x[4]}) == 3
    assert y.tolist() == [x[4], x[2], x[2], x[0]]


def test_pooled_slots_are_chunk_means_and_random_slots_are_repeatable():
    v = video(64, 4)
    slots = baseline("pooled").fit([v], {}).slots(v)
    assert np.allclose(slots, v.features.reshape(32, 2, 4).mean(axis=1), atol=1e-6)
    short = video(5, 4)
    assert baseline("pooled").fit([short], {}).slots(short).shape == (32, 4)
    fitted = baseline("random").fit([v], {}, seed=1)
    assert (fitted.slots(v) == fitted.slots(v)).all()
    other = baseline("random").fit([v], {}, seed=2)
    assert not np.allclose(fitted.slots(v), other.slots(v))


def test_text_finds_planted_steps_in_order_and_leaves_the_rest_out():
    rng = np.random.default_rng(3)
    steps = rng.normal(size=(3, 32))
    truth = np.array([-1, 0, 0, -1, -1, 1, 1, 1, -1, 2, 2, -1, -1, -1, -1, -1])
    features = np.where((truth >= 0)[:, None], steps[truth], rng.normal(size=(16, 32))) + 0.1 * rng.normal(
        size=(16, 32)
    )
    v = FeatureVideo("v", "t", features, step_vectors=steps, step_ids=np.array([7, 4, 9]))
    fitted = baseline("text", keep=9 / 48).fit([v], {})
    assert fitted.locate(v).tolist() == truth.tolist()
    assert fitted.segment([v])[0].tolist() == [{-1: -1, 0: 7, 1: 4, 2: 9}[int(s)] for s in truth]


def test_text_with_more_steps_than_frames_uses_every_frame_once():
    rng = np.random.default_rng(4)
    v = FeatureVideo("v", "t", rng.normal(size=(3, 8)), step_vectors=rng.normal(size=(6, 8)))
    found = baseline("text").fit([v], {}).locate(v)
    taken = found[found >= 0]
    assert len(found) == 3 and (np.diff(taken) > 0).all() and len(taken) >= 1
