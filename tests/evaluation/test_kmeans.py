import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepformer.errors import InputError, NonFiniteError
from stepformer.evaluation import kmeans as kmeans_module
from stepformer.evaluation.kmeans import kmeans


def blobs(k, each, width, seed=0, noise=0.05):
    rng = np.random.default_rng(seed)
    centers = rng.normal(size=(k, width)) * 5
    truth = np.repeat(np.arange(k), each)
    return centers[truth] + noise * rng.normal(size=(k * each, width)), truth, centers


def test_finds_separate_blobs_again():
    points, truth, centers = blobs(8, 30, 6)
    found = kmeans(points, 8, seed=3)
    for k in range(8):
        assert len(set(found.labels[truth == k])) == 1
    assert len(set(found.labels)) == 8
    order = found.labels[::30]
    assert found.centers[order] == pytest.approx(centers, abs=0.1)


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 40), st.integers(1, 8), st.integers(1, 5), st.integers(0, 10_000))
def test_what_it_returns_is_a_fixed_point_of_the_definition(n, k, width, seed):
    points = np.random.default_rng(seed).normal(size=(n, width))
    found = kmeans(points, k, seed=seed, restarts=3, max_iterations=1000, tol=0)
    assert len(found.centers) == min(n, k)
    distances = ((points[:, None] - found.centers[None]) ** 2).sum(-1)
    assert distances[np.arange(n), found.labels] == pytest.approx(distances.min(1), abs=1e-9)
    assert found.inertia == pytest.approx(distances.min(1).sum(), abs=1e-9)
    for cluster in set(found.labels):
        assert found.centers[cluster] == pytest.approx(points[found.labels == cluster].mean(0), abs=1e-9)


def test_close_to_the_best_possible_on_a_line():
    # all splits of sorted points on a line into 3 runs: the optimum is one of them
    points = np.sort(np.random.default_rng(1).normal(size=24))[:, None]
    best = min(
        sum(float(((part - part.mean()) ** 2).sum()) for part in (points[:i], points[i:j], points[j:]))
        for i in range(1, 23)
        for j in range(i + 1, 24)
    )
    assert kmeans(points, 3, restarts=20).inertia == pytest.approx(best)


def test_the_seed_decides_everything():
    points = np.random.default_rng(0).normal(size=(200, 5))
    same = [kmeans(points, 7, seed=4, restarts=1).labels for _ in range(2)]
    assert (same[0] == same[1]).all()
    assert any((kmeans(points, 7, seed=s, restarts=1).labels != same[0]).any() for s in range(5, 10))


def test_fewer_points_than_clusters_and_points_that_coincide():
    assert kmeans([[0.0], [5.0]], 4).labels.tolist() == [0, 1]
    assert kmeans(np.empty((0, 3)), 4).labels.tolist() == []
    found = kmeans(np.ones((10, 2)), 3)
    assert found.inertia == 0
    assert np.isfinite(found.centers).all()
    three = kmeans(np.repeat([[0.0], [1.0], [9.0]], 5, axis=0), 3, restarts=4)
    assert len(set(three.labels)) == 3


def test_an_empty_cluster_takes_the_farthest_point():
    points = np.array([[0.0], [0.1], [10.0]])
    labels, distances = np.array([[0, 0, 0]]), np.array([[0.0, 0.01, 100.0]])
    centers = kmeans_module._means(points, labels, distances, 2)
    assert centers[0, 1, 0] == 10.0


def test_chunks_change_nothing(monkeypatch):
    points, _, _ = blobs(5, 40, 4, noise=2.0)
    whole = kmeans(points, 5, seed=1)
    monkeypatch.setattr(kmeans_module, "_CHUNK_ENTRIES", 173)
    assert (kmeans(points, 5, seed=1).labels == whole.labels).all()


def test_float32_stays_float32():
    points, _, _ = blobs(3, 10, 4)
    assert kmeans(points.astype(np.float32), 3).centers.dtype == np.float32


@pytest.mark.parametrize(
    ("points", "k", "error"),
    [(np.zeros(4), 2, InputError), (np.zeros((4, 2)), 0, InputError), ([[np.nan], [1.0]], 1, NonFiniteError)],
)
def test_refuses(points, k, error):
    with pytest.raises(error):
        kmeans(points, k)
