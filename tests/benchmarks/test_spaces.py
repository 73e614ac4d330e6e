import numpy as np
import pytest

from benchmarks.spaces import Labelled, align_spaces, canonical_maps
from stepformer.errors import InputError

LOOKS = 6


def video(name, task, features, space=""):
    return Labelled(name, task, np.asarray(features, np.float32), np.zeros(len(features), np.int64), 1.0, space)


def recorded(rng, tasks=4, spaces=3, width=24, turned=True):
    """Videos of tasks (sequences of looks that come back, of random lengths), a space of its own for each person."""
    looks = rng.normal(size=(LOOKS, width))
    scripts = [rng.integers(LOOKS, size=9) for _ in range(tasks)]
    videos, labels = [], []
    for space in range(spaces):
        turn = np.linalg.qr(rng.normal(size=(width, width)))[0] if turned else np.eye(width)
        for task, script in enumerate(scripts):
            own = np.repeat(script, rng.integers(6, 18, size=len(script)))
            features = (looks[own] + 0.3 * rng.normal(size=(len(own), width))) @ turn
            videos.append(video(f"{space}-{task}", f"t{task}", features, space=f"s{space}"))
            labels.append(own)
    return videos, labels


def agreement(features, labels, spaces=3):
    """Mean correlation, over looks and pairs of spaces, of what a look is in each space."""
    means = []
    per = len(features) // spaces
    for s in range(spaces):
        x = np.concatenate(features[s * per : (s + 1) * per])
        y = np.concatenate(labels[s * per : (s + 1) * per])
        means.append({c: x[y == c].mean(0) - x.mean(0) for c in np.unique(y)})
    values = [
        np.corrcoef(means[a][c], means[b][c])[0, 1]
        for a in range(spaces) for b in range(a) for c in means[a] if c in means[b]
    ]  # fmt: skip
    return float(np.mean(values))


def test_spaces_turned_against_each_other_are_brought_together_without_labels():
    videos, labels = recorded(np.random.default_rng(0))
    options = {"stages": 20, "principal": 6, "shared": 5, "window_s": 1.0}
    assert abs(agreement([v.features for v in videos], labels)) < 0.3
    once = align_spaces(videos, rounds=1, **options)
    warped = align_spaces(videos, rounds=6, **options)
    assert agreement(warped, labels) > 0.9
    assert agreement(warped, labels) > agreement(once, labels), "warping in time must help where lengths differ"
    assert warped[0].shape == (len(videos[0].features), 5)


def test_one_space_is_left_alone():
    videos = [video("v", "t", np.eye(5)), video("w", "t", np.eye(5))]
    assert all(found is v.features for found, v in zip(align_spaces(videos), videos, strict=True))


def test_spaces_that_share_no_task_cannot_be_aligned():
    videos = [video("v", "a", np.eye(5), space="x"), video("w", "b", np.eye(5), space="y")]
    with pytest.raises(InputError, match="no task has videos of all 2 spaces"):
        align_spaces(videos)


def test_a_video_shorter_than_the_stages_and_a_task_of_one_space_come_through():
    videos, _ = recorded(np.random.default_rng(1))
    videos[0] = video("short", videos[0].task, videos[0].features[:7], space=videos[0].space)
    videos.append(video("alone", "only here", videos[1].features, space=videos[1].space))
    found = align_spaces(videos, principal=6, shared=5)
    assert [len(x) for x in found] == [len(v.features) for v in videos]
    assert all(np.isfinite(x).all() for x in found)


def test_views_that_are_turned_copies_agree_wholly():
    rng = np.random.default_rng(2)
    x = rng.normal(size=(80, 6))
    views = [x @ np.linalg.qr(rng.normal(size=(6, 6)))[0] for _ in range(3)]
    maps, agree = canonical_maps(views, 6, 4)
    np.testing.assert_allclose(agree, 1 / 1.01, atol=1e-6)  # the ridge
    first, second = ((view - view.mean(0)) @ one for view, one in zip(views[:2], maps[:2], strict=True))
    np.testing.assert_allclose(first, second, atol=1e-8)
