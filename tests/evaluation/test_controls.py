"""Controls that learn nothing, against brute force."""

import itertools

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stepformer.evaluation.validation import change_slots, equal_lengths


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 8), st.integers(1, 4), st.integers(0, 1000))
def test_slots_are_the_means_of_the_best_of_all_cuts(n, count, seed):
    frames = np.random.default_rng(seed).normal(size=(n, 3))

    def parts(cut):
        return [frames[a:b] for a, b in itertools.pairwise((0, *cut, n))]

    def scatter(cut):
        return sum(((part - part.mean(0)) ** 2).sum() for part in parts(cut))

    best = min(itertools.combinations(range(1, n), min(count, n) - 1), key=scatter)
    means = [part.mean(0) for part in parts(best)]
    expected = np.stack([*means, *[means[-1]] * (count - len(means))])
    made = change_slots(torch.from_numpy(frames)[None], torch.ones(1, n, dtype=torch.bool), count)
    np.testing.assert_allclose(made.slots[0].numpy(), expected, atol=1e-9)


def test_slots_are_the_means_of_the_segments_within_each_video():
    looks = torch.eye(4)[[0, 0, 0, 1, 1, 2, 2, 2, 2]]
    video = torch.stack([looks, looks])
    mask = torch.ones(2, 9, dtype=torch.bool)
    mask[1, 5:] = False
    made = change_slots(video, mask, 3)
    torch.testing.assert_close(made.slots[0], torch.eye(4)[[0, 1, 2]])
    assert {tuple(row) for row in made.slots[1].tolist()} <= {(1.0, 0, 0, 0), (0, 1.0, 0, 0)}  # nothing of the padding
    other = torch.arange(2.0).repeat_interleave(torch.tensor([5, 4])).expand(2, 9)[..., None]
    cut = change_slots(video, mask, 2, cutting=other)  # by other features of the frames, which are still what it gives
    torch.testing.assert_close(cut.slots[0], torch.tensor([[0.6, 0.4, 0, 0], [0, 0, 1.0, 0]]))
    short = change_slots(video[:, :2], mask[:, :2], 3)
    assert short.slots.shape == (2, 3, 4)  # more slots than frames: the last repeats


def test_equal_lengths_keep_the_sequence_and_forget_the_times():
    assert equal_lengths(np.array([-1, 4, 4, 4, 4, 4, 4, -1, 2])).tolist() == [-1, -1, -1, 4, 4, -1, -1, 2, 2]
    assert equal_lengths(np.array([3, 3])).tolist() == [3, 3]
