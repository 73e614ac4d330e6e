"""The measures of encoder quality, against hand-worked cases and brute force."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import quality
from stepformer.errors import InputError


def test_own_step_accuracy_counts_equal_texts_as_one():
    scores = np.array([[0.9, 0.1, 0.2], [0.1, 0.2, 0.9], [0.9, 0.1, 0.0], [0.0, 1.0, 0.0]])
    labels = np.array([0, 0, 1, -1])
    assert quality.own_step_accuracy(scores, labels, np.array([7, 8, 7])) == (2, 3)
    assert quality.own_step_accuracy(scores, labels, np.array([7, 8, 9])) == (1, 3)


def test_recall_counts_what_is_strictly_above():
    scores = np.array([[0.9, 0.8, 0.7, 0.6], [0.1, 0.2, 0.3, 0.4]])
    labels, columns = np.array([0, 1]), np.array([2, 0])
    assert quality.recall_at(3, scores, labels, columns) == (1, 2)
    assert quality.recall_at(2, scores, labels, columns) == (0, 2)
    assert quality.recall_at(4, scores, labels, columns) == (2, 2)


def test_recall_leaves_unmarked_vectors_out():
    assert quality.recall_at(1, np.eye(2), np.array([-1, 1]), np.array([0, 1])) == (1, 1)


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 7), st.integers(1, 4), st.integers(0, 10_000))
def test_ordered_assignment_is_the_best_of_all(n, k, seed):
    if n < k:
        n, k = k, n
    scores = np.random.default_rng(seed).normal(size=(n, k))
    found = quality.ordered_assignment(scores)
    assert found[0] == 0 and found[-1] == k - 1 and set(np.diff(found)) <= {0, 1}
    best = max(
        sum(scores[i, s] for i, s in enumerate(path))
        for path in itertools.combinations_with_replacement(range(k), n)
        if set(path) == set(range(k))
    )
    assert scores[np.arange(n), found].sum() == pytest.approx(best)


def test_ordered_assignment_needs_a_vector_a_step():
    with pytest.raises(InputError, match="2 vectors"):
        quality.ordered_assignment(np.zeros((2, 3)))


def test_ordered_mof_on_a_clean_case_and_uniform():
    labels = np.array([-1, 0, 0, 0, 1, 2, -1])
    scores = np.where(labels[:, None] == np.arange(3), 1.0, 0.0)
    assert quality.ordered_mof(scores, labels) == (5, 5)
    assert quality.uniform_mof(labels) == (4, 5)  # 0 0 1 1 2 against 0 0 0 1 2


def test_ordered_mof_skips_steps_too_short_to_show():
    labels = np.array([0, 0, 2, 2])  # step 1 fell between two seconds
    assert quality.ordered_mof(np.where(labels[:, None] == np.arange(3), 1.0, 0.0), labels) == (4, 4)


def test_auc_is_one_for_clusters_and_half_for_nothing():
    x = np.array([[1, 0], [1, 0.1], [0, 1], [0.1, 1]], float)
    assert quality.within_between_auc(x, np.array([0, 0, 1, 1]))[0] == 1.0
    assert quality.within_between_auc(np.ones((4, 2)), np.array([0, 0, 1, 1]))[0] == 0.5
    assert quality.within_between_auc(x, np.array([0, 0, 0, 0])) == (0.5, 0)


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 8), st.integers(1, 4), st.integers(0, 10_000))
def test_boundaries_are_the_best_of_all(n, pieces, seed):
    pieces = min(n, pieces)
    x = np.random.default_rng(seed).normal(size=(n, 3))

    def cost(cuts):
        edges = [0, *cuts, n]
        return sum(((x[a:b] - x[a:b].mean(0)) ** 2).sum() for a, b in itertools.pairwise(edges))

    found = quality.boundaries(x, pieces)
    assert len(found) == pieces - 1
    best = min(cost(cuts) for cuts in itertools.combinations(range(1, n), pieces - 1))
    assert cost(found) == pytest.approx(best, abs=1e-9)


def test_boundaries_find_a_plain_change():
    x = np.repeat(np.eye(3), [4, 2, 5], axis=0)
    assert quality.boundaries(x, 3).tolist() == [4, 6]
    with pytest.raises(InputError):
        quality.boundaries(x, 12)


def test_boundary_f1_matches_one_to_one():
    assert quality.boundary_f1([5.0], [5.5]) == 1.0
    assert quality.boundary_f1([5.0, 5.2], [5.5]) == pytest.approx(2 / 3)
    assert quality.boundary_f1([3.0], [5.5]) == 0.0
    assert quality.boundary_f1([1.0], [2.0]) == 1.0  # at the tolerance exactly
    assert quality.boundary_f1([], []) == 1.0 and quality.boundary_f1([], [1.0]) == 0.0


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(0, 20), max_size=5), st.lists(st.integers(0, 20), max_size=5))
def test_boundary_matching_is_the_largest(found, true):
    found, true = [f / 2 for f in found], [t / 2 for t in true]
    best = 0
    for size in range(min(len(found), len(true)) + 1):
        for some in itertools.combinations(sorted(found), size):
            for others in itertools.combinations(sorted(true), size):
                if all(abs(a - b) <= 1.0 for a, b in zip(some, others, strict=True)):
                    best = size
    expected = 1.0 if not found and not true else 2 * best / (len(found) + len(true))
    assert quality.boundary_f1(found, true) == pytest.approx(expected)


def test_edges_nearer_than_the_rate_shows_are_one():
    assert quality.true_boundaries([0.3, 0.55, 2.0, 3.3, 6.1, 6.6], 0.0, 8.0, 1.0) == [0.55, 2.0, 3.3, 6.1]


def test_the_bench_reads_its_labels_and_measures(tmp_path):
    from benchmarks import encoders as bench

    (tmp_path / "a.mp4").write_bytes(b"")
    (tmp_path / "l.csv").write_text("clip,start_s,end_s,label\na.mp4,2,4,second\na.mp4,0,2,first\n")
    clip = bench.read_labels(tmp_path / "l.csv", tmp_path)[0]
    assert [label for *_, label in clip.steps] == ["first", "second"]
    assert bench._labels_at(clip, 5, 1.0, 0.0).tolist() == [0, 0, 1, 1, -1]
    assert bench._labels_at(clip, 4, 1.0, 0.75).tolist() == [0, 1, 1, -1]
    (tmp_path / "bad.csv").write_text("clip,start_s,end_s,label\na.mp4,x,4,second\n")
    with pytest.raises(InputError, match="line 2"):
        bench.read_labels(tmp_path / "bad.csv", tmp_path)
    (tmp_path / "gone.csv").write_text("clip,start_s,end_s,label\nb.mp4,0,4,second\n")
    with pytest.raises(InputError, match=r"b\.mp4"):
        bench.read_labels(tmp_path / "gone.csv", tmp_path)
