"""Every protocol on cases worked by hand, degenerate ones first."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepformer.data import Annotation
from stepformer.errors import InputError, UsageError
from stepformer.evaluation import (
    LengthError,
    Table1Options,
    TaskInput,
    moments,
    score_crosstask_recall,
    score_macro,
    score_per_video,
    score_segmental,
    score_table1,
    score_table2,
    score_task,
)
from stepformer.evaluation.kmeans import keep_nearest
from stepformer.evaluation.neighbours import edit_distance, hits, score_macro_task, segment_counts
from stepformer.evaluation.protocols import matched
from stepformer.evaluation.table1 import cluster_segments, score_table1_task

# --- Table 1 ---------------------------------------------------------------------------------------------------------


def test_table1_by_hand():
    # two videos, slots on a line; K = 2 must put {0.0, 0.1, 0.2} and {9.0, 9.1, 9.4} together. Each cluster of three
    # keeps floor(1.8) = 1 member, the one nearest to its mean: 0.1 and 9.1, both in the first video.
    segments = [[0, 0, 1, 1, 2, 2], [0, 0, 1, 2, -1, -1]]
    vectors = [np.array([[0.0], [0.1], [9.1]]), np.array([[0.2], [9.0], [9.4]])]
    clustered = cluster_segments(segments, vectors, 2)
    a, b = clustered[0][2], clustered[0][4]
    assert a != b
    assert clustered[0].tolist() == [-1, -1, a, a, b, b]
    assert clustered[1].tolist() == [-1] * 6
    labels = [[0, 0, 0, 0, 1, -1], [0, 0, 1, 1, -1, -1]]
    score = score_table1_task(TaskInput(segments, labels, 2, vectors), Table1Options(seeds=(0,)))[0]
    # predicted 4 frames, of which 2 (step 0) + 1 (step 1) are right; labelled 9; background agrees on 2
    assert (score.correct, score.predicted, score.labelled) == (3, 4, 9)
    assert score.mof == pytest.approx((3 + 2) / 12)


@pytest.mark.parametrize(("n", "kept"), [(1, 1), (2, 1), (3, 1), (4, 2), (5, 3), (10, 6)])
def test_sixty_percent_kept_and_never_none(n, kept):
    labels = keep_nearest(np.zeros(n, np.int64), np.arange(n)[::-1].astype(float))
    assert (labels == 0).sum() == kept
    assert labels[-1] == 0  # the nearest stays


def test_equal_distances_still_lose_their_share():
    assert (keep_nearest(np.zeros(10, np.int64), np.zeros(10)) == 0).sum() == 6


def test_all_slots_dropped_is_background_not_a_crash():
    task = TaskInput([[-1, -1], [-1, -1]], [[0, 1], [-1, 0]], 2, [np.zeros((4, 3)), np.zeros((0, 3))])
    scores = score_table1_task(task)
    assert all((s.precision, s.recall, s.f1, s.mof) == (0, 0, 0, 0.25) for s in scores)


def test_one_video_of_two_has_all_slots_dropped():
    task = TaskInput([[-1, -1], [0, 0]], [[0, 0], [0, 0]], 1, [np.zeros((2, 3)), np.ones((2, 3))])
    assert score_table1_task(task)[0].recall == pytest.approx(0.5)


def test_fewer_segments_than_steps_and_no_steps():
    task = TaskInput([[0, 0, 1]], [[4, 4, 2]], 5, [np.eye(2)])
    assert score_table1_task(task)[0].f1 == 1
    empty = TaskInput([[0, 0, 1]], [[-1, -1, -1]], 0, [np.eye(2)])
    assert score_table1_task(empty)[0].mof == 1  # no clusters at all: everything is background


def test_slots_without_frames_do_not_attract_clusters():
    vectors = [np.array([[0.0], [100.0], [5.0]])]  # slot 1 owns no frame
    ids = cluster_segments([[0, 2]], vectors, 2)[0]
    assert sorted(ids.tolist()) == [0, 1]


def test_clusters_without_vectors_are_scored_as_they_are():
    task = TaskInput([[3, 3, 7]], [[0, 0, 1]], 2)
    result = score_table1({"t": task})
    assert result.mean["f1"] == 1
    assert result.spread["f1"] == 0


def test_rows_added_up_equal_frames_scored():
    # the shortcut (segment table, rows added a seed) against clustering frames and scoring them
    rng = np.random.default_rng(0)
    segments = [np.sort(rng.integers(-1, 12, 90)) for _ in range(6)]
    vectors = [rng.normal(size=(12, 5)) for _ in range(6)]
    labels = [np.sort(rng.integers(-1, 5, 90)) for _ in range(6)]
    options = Table1Options(seeds=(0, 1, 2), distance="cosine", unit_norm=True)
    scores = score_table1_task(TaskInput(segments, labels, 5, vectors), options)
    for seed, score in zip(options.seeds, scores, strict=True):
        frames = cluster_segments(segments, vectors, 5, seed, options)
        assert score == score_task(frames, labels)


def test_many_segments_keep_the_historical_mof():
    n = 1500  # more than a dense table of ids would take
    task = TaskInput([np.arange(n)], [np.arange(n) % 3], 3, [np.random.default_rng(0).normal(size=(n, 2))])
    assert 0 < score_table1_task(task)[0].mof_historical < 1


def test_mean_over_tasks_then_seeds():
    good = TaskInput([[0]], [[0]], 1)
    bad = TaskInput([[-1]], [[0]], 1)
    result = score_table1({"good": good, "bad": bad}, Table1Options(seeds=(0, 1)))
    assert result.mean["f1"] == 0.5
    assert result.per_task["good"]["f1"] == 1
    assert result.spread == dict.fromkeys(result.spread, 0.0)


def test_table1_says_which_task_is_wrong():
    with pytest.raises(LengthError, match="task soup"):
        score_table1({"soup": TaskInput([[0, 0]], [[0]], 1)})
    with pytest.raises(InputError, match="segment 3"):
        score_table1({"soup": TaskInput([[3]], [[0]], 1, [np.eye(2)])})
    with pytest.raises(InputError, match="no task"):
        score_table1({})
    with pytest.raises(UsageError):
        Table1Options(keep=0)


# --- Table 2 ---------------------------------------------------------------------------------------------------------


def test_table2_averages_over_videos():
    result = score_table2([[0, 0, 1, -1], [-1, -1]], [[0, 0, 1, 1], [0, 0]])
    assert result["iou"] == pytest.approx((3 / 4 + 0) / 2)
    assert result["precision"] == pytest.approx((1 + 0) / 2)
    assert result["recall"] == pytest.approx((3 / 4 + 0) / 2)
    assert result["mof"] == pytest.approx((3 / 4 + 0) / 2)


def test_table2_more_steps_than_were_ever_predicted():
    # 40 one-frame steps, 32 slots: 8 positions stay unpredicted
    labels = np.arange(40)
    prediction = np.where(labels < 32, labels, -1)
    result = score_table2([prediction], [labels])
    assert result == pytest.approx({"iou": 0.8, "precision": 1, "recall": 0.8, "mof": 0.8})


def test_a_repeat_is_another_position():
    # "stir" twice: finding only the first gets half
    assert score_table2([[0, -1, -1]], [[0, -1, 1]])["recall"] == 0.5


def test_oracle_names_are_an_upper_bound_and_never_merge():
    (renamed,) = matched([np.array([5, 5, 3, 9, -1])], [np.array([0, 0, 1, -1, -1])], 2)
    assert renamed[:3].tolist() == [0, 0, 1]
    assert renamed[3] not in (0, 1, -1)
    assert renamed[4] == -1


def test_table2_errors():
    with pytest.raises(LengthError, match="video 0"):
        score_table2([[0]], [[0, 0]])
    with pytest.raises(InputError, match="no video"):
        score_table2([], [])


# --- per video -------------------------------------------------------------------------------------------------------


def test_per_video_matches_each_video_alone():
    score = score_per_video([[0, 0, 0], [0, 0]], [[0, 0, 0], [1, 1]])
    assert score["f1"] == score["iou"] == score["mof"] == 1  # Table 1 gives 0.6 here


def test_per_video_iou_is_a_mean_over_steps():
    # step 0 matched: 2 / 3; step 1 unmatched: 0
    score = score_per_video([[0, 0, 0, -1]], [[0, 0, 1, -1]])
    assert score["iou"] == pytest.approx((2 / 3) / 2)


def test_per_video_degenerate():
    assert score_per_video([[-1]], [[-1]])["mof"] == 1
    assert score_per_video([[-1, 0]], [[0, -1]])["f1"] == 0
    with pytest.raises(InputError):
        score_per_video([], [])


# --- macro -----------------------------------------------------------------------------------------------------------


def test_macro_counts_every_step_the_same():
    # step 0 has 8 frames, all found; step 1 has 2, none found
    prediction, labels = [[0] * 8 + [-1] * 2], [[0] * 8 + [1] * 2]
    score = score_macro_task(prediction, labels)
    assert (score["precision"], score["recall"], score["iou"]) == (0.5, 0.5, 0.5)
    assert score_task(prediction, labels).recall == pytest.approx(0.8)


def test_macro_degenerate():
    zero = {"f1": 0, "precision": 0, "recall": 0, "iou": 0}
    assert score_macro_task([[-1, -1]], [[0, 1]]) == zero
    assert score_macro_task([[0, 1]], [[-1, -1]]) == zero
    assert score_macro({"a": ([[0]], [[0]]), "b": ([[-1]], [[0]])})["f1"] == 0.5
    with pytest.raises(InputError):
        score_macro({})


# --- CrossTask recall ------------------------------------------------------------------------------------------------


def test_moments_are_the_middle_of_the_longest_run():
    assert moments([0, -1, 0, 0, 0, 2, -1], rate_hz=2.0) == {0: 1.75, 2: 2.75}
    assert moments([], 1.0) == moments([-1], 1.0) == {}


def test_crosstask_recall_by_hand():
    truth = [Annotation(0, 1.4, 2.2, "a"), Annotation(0, 8, 9, "a"), Annotation(1, 4, 5, "b"), Annotation(2, 6, 6, "c")]
    assert hits({0: 1.0, 1: 5.0, 2: 6.0}, truth) == (1, 3)  # 1.0 lies in the second of 1.4; 5.0 is past the end of b
    assert hits({0: 2.99, 1: 4.5}, truth) == (2, 3)
    assert hits({0: 3.0, 7: 1.0}, truth) == (0, 3)
    assert hits({}, []) == (0, 0)
    tasks = {"x": ([{0: 1.0, 1: 4.0}, {}], [truth, truth[:1]]), "y": ([{}], [[]])}
    assert score_crosstask_recall(tasks)["recall"] == pytest.approx((2 / 4 + 0) / 2)
    with pytest.raises(LengthError):
        score_crosstask_recall({"x": ([], [truth])})


# --- segmental -------------------------------------------------------------------------------------------------------


def test_segmental_by_hand():
    labels = np.array([0] * 10 + [1] * 10)
    prediction = np.array([0] * 5 + [1] * 15)
    # step 0: 5/10, step 1: 10/15
    assert segment_counts(prediction, labels, 0.5) == (2, 0, 0)
    assert segment_counts(prediction, labels, 0.6) == (1, 1, 1)
    result = score_segmental([prediction], [labels])
    assert result == {"f1@10": 1, "f1@25": 1, "f1@50": 1, "edit": 1}


def test_over_segmentation_costs_f1_and_edit_but_not_frames():
    labels = np.zeros(20, int)
    prediction = np.zeros(20, int)
    prediction[10] = 1
    counts = segment_counts(prediction, labels, 0.1)
    assert counts == (1, 2, 0)  # 0 1 0: the first 0 takes the labelled one
    assert score_segmental([prediction], [labels])["edit"] == pytest.approx(1 / 3)


def test_background_is_no_segment():
    assert segment_counts(np.array([-1, -1, 0]), np.array([-1, 0, 0]), 0.5) == (1, 0, 0)


def test_segmental_degenerate():
    zero = {"f1@10": 0, "f1@25": 0, "f1@50": 0, "edit": 0}
    for p, y in [([-1], [-1]), ([0], [-1]), ([-1], [0]), ([], [])]:
        assert score_segmental([p], [y]) == zero
    with pytest.raises(LengthError):
        score_segmental([[0]], [[0, 0]])


def slow_edit(a, b):
    table = np.zeros((len(a) + 1, len(b) + 1), int)
    table[:, 0], table[0] = range(len(a) + 1), range(len(b) + 1)
    for i in range(len(a)):
        for j in range(len(b)):
            table[i + 1, j + 1] = min(table[i, j + 1] + 1, table[i + 1, j] + 1, table[i, j] + (a[i] != b[j]))
    return int(table[-1, -1])


def slow_counts(p, y, threshold):
    def segments(x):
        out, start = [], 0
        for i in range(1, len(x) + 1):
            if i == len(x) or x[i] != x[start]:
                if x[start] >= 0:
                    out.append((x[start], start, i))
                start = i
        return out

    ps, ys = segments(p), segments(y)
    taken, tp, fp = set(), 0, 0
    for k, s, e in ps:
        ious = [
            len(set(range(s, e)) & set(range(a, b))) / len(set(range(s, e)) | set(range(a, b))) if k == j else 0.0
            for j, a, b in ys
        ]
        at = int(np.argmax(ious)) if ious else -1
        if ious and ious[at] >= threshold and at not in taken:
            taken.add(at)
            tp += 1
        else:
            fp += 1
    return tp, fp, len(ys) - len(taken)


ids = st.lists(st.integers(-1, 3), min_size=1, max_size=25)


@settings(deadline=None, max_examples=200)
@given(
    st.lists(st.tuples(st.integers(-1, 2), st.integers(-1, 2)), min_size=1, max_size=25),
    st.sampled_from([0.1, 0.25, 0.5]),
)
def test_segment_counts_against_loops(frames, threshold):
    p, y = (np.array(column) for column in zip(*frames, strict=True))
    assert segment_counts(p, y, threshold) == slow_counts(p.tolist(), y.tolist(), threshold)


@settings(deadline=None, max_examples=200)
@given(ids, ids)
def test_edit_distance_against_the_textbook(a, b):
    assert edit_distance(a, b) == slow_edit(a, b)
