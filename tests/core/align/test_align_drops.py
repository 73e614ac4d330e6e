"""Drop lines: what share of similarities they keep, and what they do in an alignment."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import stepformer as sf
from stepformer.errors import NonFiniteError, UsageError

SIMILARITIES = hnp.arrays(np.float64, st.tuples(st.integers(1, 5), st.integers(1, 8)), elements=st.floats(-1, 1))


def kth_largest(values, keep, top_per_row):
    """The definition, without any of the tricks."""
    rows = [sorted(row, reverse=True)[: top_per_row or len(row)] for row in values]
    flat = sorted((x for row in rows for x in row), reverse=True)
    return flat[max(1, int(keep * len(flat) + 1e-9)) - 1]


@settings(deadline=None)
@given(SIMILARITIES, st.sampled_from([0.05, 0.1, 0.29, 0.5, 0.8, 1.0]), st.sampled_from([None, 1, 3, 12]))
def test_the_line_is_an_order_statistic(similarity, keep, top):
    drop = sf.align.percentile_drop(similarity, keep, top_per_row=top)
    assert isinstance(drop, float)
    assert drop == -kth_largest(similarity.tolist(), keep, top)
    tensor = sf.align.percentile_drop(torch.tensor(similarity), keep, top_per_row=top)
    assert tensor.shape == ()
    assert tensor.item() == drop


def test_keep_is_the_share_at_or_above_the_line():
    similarity = np.arange(100.0).reshape(4, 25) / 100
    for keep in (0.01, 0.1, 0.29, 0.57, 0.8, 1.0):
        assert (similarity >= -sf.align.percentile_drop(similarity, keep)).mean() == pytest.approx(keep)


def test_top_per_row_looks_at_each_rows_best_only():
    similarity = [[0.9, 0.1, 0.0, -1.0], [0.5, 0.4, 0.3, 0.2]]
    assert sf.align.percentile_drop(similarity, 1.0, top_per_row=2) == -0.1
    assert sf.align.percentile_drop(similarity, 0.75, top_per_row=2) == -0.4
    assert sf.align.percentile_drop(similarity, 0.5) == -0.3


@pytest.mark.parametrize("top", [None, 1, 4, 50])
def test_a_batch_has_the_line_of_each_item(top):
    rng = np.random.default_rng(0)
    similarity = rng.normal(size=(6, 7, 9)).astype(np.float32)
    lengths, row_lengths = np.array([9, 3, 0, 9, 1, 5]), np.array([7, 7, 7, 0, 1, 2])
    padded = similarity.copy()
    for b in range(6):
        padded[b, row_lengths[b] :] = padded[b, :, lengths[b] :] = 99.0
    drops = sf.align.percentile_drop(
        torch.tensor(padded), 0.6, top_per_row=top, lengths=torch.tensor(lengths), row_lengths=row_lengths
    )
    assert drops.dtype == torch.float32
    for b in range(6):
        alone = sf.align.percentile_drop(similarity[b, : row_lengths[b], : lengths[b]], 0.6, top_per_row=top)
        assert drops[b].item() == alone
    assert drops[2:4].tolist() == [0.0, 0.0]  # nothing there, nothing to drop against


@pytest.mark.parametrize("shape", [(0, 3, 4), (2, 0, 4), (2, 3, 0)])
def test_nothing_to_draw_a_line_through(shape):
    assert sf.align.percentile_drop(torch.zeros(shape)).tolist() == [0.0] * shape[0]
    assert sf.align.percentile_drop(np.zeros(shape[1:])) == (0.0 if 0 in shape[1:] else -0.0)


@pytest.mark.parametrize("matching", ["one_to_one", "many_to_one"])
def test_one_line_on_both_sides_is_costs_shifted_by_it_and_free_drops(matching):
    """What the module says of ``row_drop=0``, and that every matched pair then reaches the line."""
    rng = np.random.default_rng(4)
    for _ in range(20):
        similarity = rng.uniform(-1, 1, size=(8, 30))
        drop = sf.align.percentile_drop(similarity, 0.3)
        found = sf.align.drop_dtw(-similarity, drop, 0.0, matching, contiguous=False)
        shifted = sf.align.drop_dtw(-drop - similarity, 0.0, 0.0, matching, contiguous=False)
        assert found.assignment.tolist() == shifted.assignment.tolist()
        assert found.cost == pytest.approx(shifted.cost + 30 * drop)
        columns = np.flatnonzero(found.assignment >= 0)
        assert (similarity[found.assignment[columns], columns] >= -drop).all()


def test_what_makes_no_sense_is_refused():
    for keep in (0.0, -0.1, 1.01, float("nan")):
        with pytest.raises(UsageError, match="keep"):
            sf.align.percentile_drop(np.zeros((2, 2)), keep)
    with pytest.raises(UsageError, match="top_per_row"):
        sf.align.percentile_drop(np.zeros((2, 2)), top_per_row=0)
    with pytest.raises(UsageError, match="tensor"):
        sf.align.percentile_drop(np.zeros((2, 2)), lengths=[2])
    with pytest.raises(UsageError, match="three"):
        sf.align.percentile_drop(torch.zeros(2), 0.5)
    with pytest.raises(UsageError, match="batch"):
        sf.align.percentile_drop(torch.zeros(2, 2), 0.5, lengths=[2])
    with pytest.raises(NonFiniteError, match=r"similarity\[0, 1\]"):
        sf.align.percentile_drop([[0.0, float("nan")]])
    for lengths, says in (([9, 9], "between 0 and 4"), ([-1, 2], "between"), ([2, 2, 2], "each of the 2")):
        with pytest.raises(UsageError, match=says):
            sf.align.percentile_drop(torch.zeros(2, 3, 4), lengths=lengths)


def test_whole_numbers_have_a_line_too():
    similarity = torch.arange(24).reshape(2, 3, 4)
    found = sf.align.percentile_drop(similarity, 0.5, lengths=[4, 2])
    assert found.tolist() == [-6.0, -17.0]  # the 6th of 0..11; the 3rd of 12, 13, 16, 17, 20, 21
