"""The paired bootstrap against the same draws written out in loops."""

import numpy as np
import pytest

from stepformer.evaluation.metrics import score_task
from stepformer.evaluation.statistics import (
    discovery_scores,
    f1_draws,
    interval,
    mean_draws,
    weights,
)

TASKS = np.array([3, 3, 1, 1, 1, 2])


def test_weights_draw_as_many_as_there_are_with_replacement_and_repeat_with_their_seed():
    drawn = np.concatenate(list(weights(6, 2_500)))
    assert drawn.shape == (2_500, 6) and (drawn.sum(1) == 6).all()
    assert drawn.mean(0) == pytest.approx(1, abs=0.1) and drawn.max() > 2
    assert (drawn == np.concatenate(list(weights(6, 2_500)))).all()
    assert not (drawn == np.concatenate(list(weights(6, 2_500, seed=1)))).all()


def test_means_over_videos_and_over_tasks_are_what_loops_give():
    values = np.random.default_rng(0).random((2, 6))
    found = mean_draws(values, TASKS, "videos", draws=40)
    w = np.concatenate(list(weights(6, 40)))
    for d, r in np.ndindex(40, 2):
        assert found[d, r] == pytest.approx(sum(w[d, v] * values[r, v] for v in range(6)) / 6)
    found = mean_draws(values, TASKS, "tasks", draws=40)
    w = np.concatenate(list(weights(3, 40)))
    for d, r in np.ndindex(40, 2):
        drawn = [values[r, v] for t, task in enumerate((1, 2, 3)) for v in np.flatnonzero(task == TASKS)
                 for _ in range(int(w[d, t]))]  # fmt: skip
        assert found[d, r] == pytest.approx(np.mean(drawn))


def test_f1_over_videos_keeps_every_task_and_over_tasks_every_video():
    counts = np.random.default_rng(1).integers(1, 30, (2, 3, 6, 5)).astype(float)
    found = f1_draws(counts, TASKS, "videos", draws=20)
    for d, r in np.ndindex(20, 2):
        per_task = []
        for number, task in enumerate((1, 2, 3)):
            own = np.flatnonzero(task == TASKS)
            w = np.concatenate(list(weights(len(own), 20, seed=number)))[d]
            sums = [(counts[r, s, own, :3] * w[:, None]).sum(0) for s in range(3)]
            per_task.append(np.mean([2 * c / (p + y) for c, p, y in sums]))
        assert found[d, r] == pytest.approx(np.mean(per_task))
    found = f1_draws(counts, TASKS, "tasks", draws=20)
    w = np.concatenate(list(weights(3, 20)))
    for d in range(20):
        f1 = [discovery_scores(counts[0][:, t == TASKS].sum(1))["f1"].mean() for t in (1, 2, 3)]
        assert found[d, 0] == pytest.approx(np.dot(w[d], f1) / 3)


def test_counts_give_the_scores_of_the_metric():
    rng = np.random.default_rng(2)
    prediction, labels = rng.integers(-1, 3, 60), rng.integers(-1, 3, 60)
    score = score_task([prediction], [labels])
    agreeing = round(score.mof * 60)
    found = discovery_scores([score.correct, score.predicted, score.labelled, agreeing, 60])
    for name in ("f1", "precision", "recall", "mof"):
        assert found[name] == pytest.approx(getattr(score, name))
    assert discovery_scores(np.zeros(5))["f1"] == 0  # 0 / 0


def test_a_real_difference_is_found_and_chance_is_not():
    rng = np.random.default_rng(3)
    base = rng.random(200)
    rows = np.stack([base + 0.05 + 0.05 * rng.standard_normal(200), base, base + 0.05 * rng.standard_normal(200)])
    drawn = mean_draws(rows, np.arange(200) // 10, "videos")
    assert drawn.shape == (10_000, 3)
    better = interval(drawn[:, 0] - drawn[:, 1])
    assert better[0] > 0.03 and better[1] < 0.07
    low, high = interval(drawn[:, 2] - drawn[:, 1])
    assert low < 0 < high
    # pairing is what makes the interval narrow: the videos differ far more among themselves
    unpaired = interval(drawn[:, 0] - np.roll(drawn[:, 1], 1))
    assert unpaired[1] - unpaired[0] > 4 * (better[1] - better[0])
