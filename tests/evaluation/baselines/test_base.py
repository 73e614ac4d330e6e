import numpy as np
import pytest

from stepformer.errors import InputError, NonFiniteError, UsageError
from stepformer.evaluation.baselines import BASELINES, FeatureVideo, Given, baseline
from stepformer.evaluation.kmeans import keep_nearest


def video(n=6, width=3, task="t", seed=0, **more):
    rng = np.random.default_rng(seed)
    return FeatureVideo(f"v{seed}", task, rng.normal(size=(n, width)), **more)


def narrated(n=40, width=6, task="t", seed=0):
    rng = np.random.default_rng(seed)
    phrases = rng.normal(size=(12, width))
    starts = np.sort(rng.uniform(0, n, size=12))
    times = np.stack([starts, starts + 1], axis=1)
    return FeatureVideo(f"v{seed}", task, rng.normal(size=(n, width)), phrase_vectors=phrases, phrase_times_s=times)


@pytest.mark.parametrize("name", BASELINES)
def test_every_baseline_keeps_the_one_interface_in_all_its_settings(name):
    fast = {"kukleva": {"epochs": 1}, "shen": {"epochs": 1}, "elhamifar": {"rounds": 1, "key_steps": 6, "width": 8}}
    method = baseline(name, **fast.get(name, {}))
    assert method.name == name
    videos = [narrated(40, seed=1), narrated(31, seed=2), narrated(25, task="u", seed=3)]
    for setting in method.settings:
        fitted = method.fit(videos, {"t": 4, "u": 3}, setting=setting, seed=5)
        found = fitted.segment(videos)
        assert [len(x) for x in found] == [40, 31, 25]
        assert all(np.issubdtype(x.dtype, np.integer) and x.min() >= -1 for x in found)
        again = method.fit(videos, {"t": 4, "u": 3}, setting=setting, seed=5).segment(videos)
        assert all((a == b).all() for a, b in zip(found, again, strict=True))  # same seed, same result
        if name == "shen":
            slots = fitted.slots(videos[0])
            assert slots.shape[1] == 6 and np.isfinite(slots).all()


def test_a_setting_that_a_method_has_not_is_named():
    with pytest.raises(UsageError, match=r"elhamifar has no setting 'unsupervised'; it has: weak"):
        baseline("elhamifar").fit([video()], {"t": 2}, setting="unsupervised")


def test_unknown_names_missing_tasks_and_no_videos_are_errors():
    with pytest.raises(UsageError, match="there are: elhamifar"):
        baseline("nobody")
    with pytest.raises(UsageError, match="no videos"):
        baseline("kukleva").fit([], {})
    with pytest.raises(UsageError, match="'t' was not given"):
        baseline("kukleva", epochs=1).fit([video()], {}).segment([video()])
    with pytest.raises(InputError, match="one width"):
        baseline("kukleva").fit([video(width=3), video(width=4)], {"t": 2})


def test_videos_are_checked_where_they_are_made():
    with pytest.raises(NonFiniteError, match=r"features\[1, 0\]"):
        FeatureVideo("v", "t", np.array([[0.0], [np.nan]]))
    with pytest.raises(InputError, match="no features"):
        FeatureVideo("v", "t", np.empty((0, 3)))
    with pytest.raises(InputError, match="one row per phrase"):
        video(phrase_vectors=np.ones((2, 3)), phrase_times_s=np.ones((3, 2)))


def test_unsupervised_training_sees_one_group_and_weak_one_per_task():
    videos = [video(task="a"), video(task="b", seed=1), video(task="a", seed=2)]
    weak, alike = (Given({}, 3, setting, 0, "cpu").groups(videos) for setting in ("weak", "unsupervised"))
    assert {task: len(own) for task, own in weak.items()} == {"a": 2, "b": 1}
    assert {task: len(own) for task, own in alike.items()} == {None: 3}


def test_keep_nearest_keeps_the_share_of_each_cluster_and_never_empties_one():
    labels = np.array([0, 0, 0, 0, 0, 1])
    distances = np.array([5.0, 1.0, 4.0, 2.0, 3.0, 9.0])
    assert keep_nearest(labels, distances, 0.6).tolist() == [-1, 0, -1, 0, 0, 1]
    assert keep_nearest(labels, distances, 0.01).tolist() == [-1, 0, -1, -1, -1, 1]
    assert keep_nearest(labels, distances, 1.0).tolist() == labels.tolist()
