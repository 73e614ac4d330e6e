"""Hand-worked cases, degenerate ones first, then random ones against slow and obvious code."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

import stepformer as sf
from stepformer.errors import InputError
from stepformer.evaluation import LengthError, score_task, score_video


def prfm(score):
    return pytest.approx((score.precision, score.recall, score.f1, score.mof))


def test_nothing_at_all():
    assert prfm(score_task([], [])) == (0, 0, 0, 0)
    assert prfm(score_task([[]], [[]])) == (0, 0, 0, 0)
    empty = score_video([], [])
    assert (empty.iou, empty.precision, empty.recall, empty.mof) == (0, 0, 0, 0)


def test_nothing_predicted():
    score = score_task([[-1, -1, -1, -1]], [[0, 0, 1, -1]])
    assert prfm(score) == (0, 0, 0, 0.25)
    video = score_video([-1, -1, -1, -1], [0, 0, 1, -1])
    assert (video.iou, video.precision, video.recall, video.mof) == (0, 0, 0, 0.25)


def test_nothing_labelled():
    assert prfm(score_task([[0, 0, 1, -1]], [[-1] * 4])) == (0, 0, 0, 0.25)
    video = score_video([0, 0, 1, -1], [-1] * 4)
    assert (video.iou, video.precision, video.recall, video.mof) == (0, 0, 0, 0.25)


def test_nothing_predicted_where_nothing_is_labelled():
    assert prfm(score_task([[-1, -1]], [[-1, -1]])) == (0, 0, 0, 1)


@pytest.mark.parametrize(
    ("p", "y", "expected"), [(5, 3, (1, 1, 1, 1)), (-1, 0, (0, 0, 0, 0)), (0, -1, (0, 0, 0, 0)), (-1, -1, (0, 0, 0, 1))]
)
def test_one_frame(p, y, expected):
    assert prfm(score_task([[p]], [[y]])) == expected


def test_more_clusters_than_steps():
    # clusters 0 and 1 split step 0 three to one; cluster 2 lies on background and is unmatched too
    score = score_task([[0, 0, 0, 1, 2, -1]], [[0, 0, 0, 0, -1, -1]])
    assert prfm(score) == (3 / 5, 3 / 4, 2 * 0.6 * 0.75 / 1.35, 4 / 6)  # background predicted as 2 is wrong
    assert score.matches == ((0, 0),)


def test_fewer_clusters_than_steps():
    score = score_task([[0, 0, 0, 0, -1, -1]], [[0, 0, 0, 1, 2, -1]])
    assert prfm(score) == (3 / 4, 3 / 5, 2 * 0.6 * 0.75 / 1.35, 4 / 6)


def test_missing_ids_do_not_matter_except_to_the_historical_mof():
    # a perfect prediction with ids {1, 2} against {0, 1}
    score = score_task([[1, 2, 2]], [[0, 1, 1]])
    assert prfm(score) == (1, 1, 1, 1)
    assert score.mof_historical == pytest.approx(1 / 3)
    assert set(score.matches) == {(1, 0), (2, 1)}


def test_one_matching_for_the_whole_task_not_one_a_video():
    # video by video both would be perfect; over both videos cluster 0 can have one step only
    predictions, labels = [[0, 0, 0], [0, 0]], [[0, 0, 0], [1, 1]]
    assert prfm(score_task(predictions, labels)) == (3 / 5, 3 / 5, 3 / 5, 3 / 5)


def test_the_matching_maximises_the_total_overlap():
    # greedy would take cluster 0 with step 0 (3 frames) and be left with 0; 2 + 2 is more
    predictions = [[0] * 5 + [1] * 2]
    labels = [[0] * 3 + [1] * 2 + [0] * 2]
    assert score_task(predictions, labels).correct == 4


def test_video_score_by_hand():
    # step 0: 2 of 3 labelled frames found; step 1: predicted 3 frames, 1 right; step 2 never predicted
    score = score_video([0, 0, 1, 1, 1, -1, -1, -1], [0, 0, 0, 1, -1, 2, 2, -1])
    assert (score.correct, score.predicted, score.labelled) == (3, 5, 6)
    assert score.precision == pytest.approx(3 / 5)
    assert score.recall == pytest.approx(3 / 6)
    # unions: step 0: 3, step 1: 3, step 2: 2; intersections 2 + 1 + 0
    assert score.iou == pytest.approx(3 / 8)
    assert score.mof == pytest.approx(4 / 8)


def test_large_ids_cost_nothing_and_score_the_same():
    small = score_task([[0, 0, 1, -1]], [[1, 1, 0, 0]])
    large = score_task([[7, 7, 2_000_000_000, -1]], [[10**12, 10**12, 5, 5]])
    assert prfm(small) == (large.precision, large.recall, large.f1, large.mof)
    assert (7, 10**12) in large.matches
    assert np.isnan(large.mof_historical)


@pytest.mark.parametrize(
    ("predictions", "labels"),
    [([[0, 1]], [[0]]), ([[0]], [[0], [1]]), ([], [[0]])],
)
def test_unequal_lengths_are_an_error_that_says_where(predictions, labels):
    with pytest.raises(LengthError, match="predicted"):
        score_task(predictions, labels)
    with pytest.raises(ValueError):
        score_video([0, 1], [0])


@pytest.mark.parametrize("bad", [[-2, 0], [0.5, 1], [np.nan, 0], [np.inf, 0], ["a", "b"], [[0, 1]]])
def test_ids_that_are_no_ids(bad):
    with pytest.raises(InputError):
        score_task([bad], [[0, 0]])


def test_accepts_arrays_of_any_int_type_and_whole_floats():
    labels = [np.array([0, 1], np.int8)]
    for dtype in (np.int16, np.uint8, np.int64, np.float32):
        assert score_task([np.array([1, 0], dtype)], labels).f1 == 1
    assert score_task(np.array([1, 0]), np.array([0, 1])).f1 == 1


def test_contract_names():
    assert sf.evaluation.score_task([[0]], [[0]]).mof == 1
    assert sf.evaluation.score_video([0], [0]).iou == 1


def slow_task_score(predictions, labels):
    """The definition, by brute force over all injections of clusters into steps."""
    p, y = np.concatenate(predictions), np.concatenate(labels)
    clusters, steps = sorted(set(p[p >= 0])), sorted(set(y[y >= 0]))
    if len(clusters) <= len(steps):
        maps = [dict(zip(clusters, chosen, strict=True)) for chosen in itertools.permutations(steps, len(clusters))]
    else:
        maps = [dict(zip(chosen, steps, strict=True)) for chosen in itertools.permutations(clusters, len(steps))]
    best = max(maps, key=lambda m: sum(m.get(a, -9) == b for a, b in zip(p, y, strict=True) if a >= 0))
    mapped = np.array([-1 if a < 0 else best.get(a, -9) for a in p])
    correct = int(((mapped == y) & (y >= 0)).sum())
    precision = correct / (p >= 0).sum() if (p >= 0).any() else 0.0
    recall = correct / (y >= 0).sum() if (y >= 0).any() else 0.0
    f1 = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
    return precision, recall, f1, float((mapped == y).mean())


videos = st.lists(
    st.lists(st.tuples(st.integers(-1, 4), st.integers(-1, 4)), min_size=1, max_size=12), min_size=1, max_size=4
)


@settings(deadline=None, max_examples=200)
@given(videos)
def test_task_score_against_brute_force(videos):
    predictions = [np.array([a for a, _ in video]) for video in videos]
    labels = [np.array([b for _, b in video]) for video in videos]
    assert prfm(score_task(predictions, labels)) == slow_task_score(predictions, labels)


def historical(predictions, labels):
    """The public computation as described: positions in the two index lists of the matching."""
    p, y = np.concatenate(predictions), np.concatenate(labels)
    overlap = np.array([[np.sum((p == i) & (y == j)) for j in range(y.max() + 1)] for i in range(p.max() + 1)])
    overlap = overlap.reshape(p.max() + 1, y.max() + 1)
    rows, columns = linear_sum_assignment(-overlap)
    size = max(overlap.shape) + 1
    by_row, by_column = np.full(size, -1), np.full(size, -1)
    by_row[: len(rows)], by_column[: len(columns)] = rows, columns
    return float(np.mean(by_column[p] == by_row[y]))


@settings(deadline=None, max_examples=200)
@given(videos)
def test_historical_mof_is_what_public_code_prints(videos):
    predictions = [np.array([a for a, _ in video]) for video in videos]
    labels = [np.array([b for _, b in video]) for video in videos]
    assert score_task(predictions, labels).mof_historical == pytest.approx(historical(predictions, labels))


@settings(deadline=None, max_examples=200)
@given(st.lists(st.tuples(st.integers(-1, 3), st.integers(-1, 3)), min_size=1, max_size=20))
def test_video_score_against_steps_one_by_one(frames):
    p, y = (np.array(column) for column in zip(*frames, strict=True))
    steps = sorted(set(p[p >= 0]) | set(y[y >= 0]))
    intersection = sum(int(((p == k) & (y == k)).sum()) for k in steps)
    union = sum(int(((p == k) | (y == k)).sum()) for k in steps)
    score = score_video(p, y)
    assert score.iou == pytest.approx(intersection / union if union else 0)
    assert score.mof == pytest.approx((p == y).mean())
    assert score.recall == pytest.approx((p == y)[y >= 0].mean() if (y >= 0).any() else 0)
    assert score.precision == pytest.approx((p == y)[p >= 0].mean() if (p >= 0).any() else 0)
