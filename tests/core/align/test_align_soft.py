"""soft_drop_dtw against the sum over all alignments, its gradient, its limit, and what stays out of it."""

from __future__ import annotations

import itertools
import math
import time

import numpy as np
import pytest
import torch
from align_brute import cost_of, is_valid
from hypothesis import given, settings
from hypothesis import strategies as st

import stepformer as sf
from stepformer.errors import NonFiniteError, UsageError

RULES = [("one_to_one", True), ("many_to_one", True), ("many_to_one", False)]


def all_alignments(K, N, one_to_one, contiguous):
    choices = itertools.product(range(-1, K), repeat=N)
    return [choice for choice in choices if is_valid(choice, K, one_to_one, contiguous)]


def brute(costs, column_drop, row_drop, matching, contiguous, temperature):
    """The soft cost and the match probabilities, by looking at every alignment."""
    K, N = costs.shape
    found = all_alignments(K, N, matching == "one_to_one", contiguous)
    values = np.array([cost_of(choice, costs, column_drop, row_drop) for choice in found])
    if not np.isfinite(values).any():
        return math.inf, np.zeros((K, N))
    low = values.min()
    weights = np.exp(-(values - low) / temperature)
    matched = np.zeros((K, N))
    for choice, weight in zip(found, weights / weights.sum(), strict=True):
        for j, row in enumerate(choice):
            if row >= 0:
                matched[row, j] += weight
    return low - temperature * math.log(weights.sum()), matched


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6), K=st.integers(0, 3), N=st.integers(0, 5), rule=st.sampled_from(RULES),
    rows=st.sampled_from(["kept", "droppable"]), temperature=st.sampled_from([0.05, 0.5, 3.0]), holes=st.booleans(),
)  # fmt: skip
def test_every_alignment_counts_once(seed, K, N, rule, rows, temperature, holes):
    rng = np.random.default_rng(seed)
    costs, column_drop = rng.normal(size=(K, N)), rng.normal(size=N)
    row_drop = rng.normal(size=K) if rows == "droppable" else np.full(K, np.inf)
    if holes:
        costs[rng.random((K, N)) < 0.3] = np.inf
        column_drop[rng.random(N) < 0.2] = np.inf
    want, probabilities = brute(costs, column_drop, row_drop, *rule, temperature)
    c = torch.tensor(costs)[None].requires_grad_()
    u = torch.tensor(column_drop)[None].requires_grad_()
    got = sf.align.soft_drop_dtw(
        c, u, torch.tensor(row_drop)[None] if rows == "droppable" else None, None, *rule, temperature=temperature
    )
    assert got.shape == (1,)
    assert float(got.detach()) == pytest.approx(want, abs=1e-9)
    if K and N:
        got.sum().backward()
        np.testing.assert_allclose(c.grad[0].numpy(), probabilities, atol=1e-9)
        if math.isfinite(want):  # a column is matched to one row, or dropped
            np.testing.assert_allclose((c.grad.sum(1) + u.grad)[0].numpy(), np.ones(N), atol=1e-9)


@pytest.mark.parametrize("matching, contiguous", RULES)
@pytest.mark.parametrize("two_sided", [True, False])
def test_gradients_are_right(matching, contiguous, two_sided):
    rng = torch.Generator().manual_seed(0)
    costs = torch.randn(3, 3, 5, generator=rng, dtype=torch.float64).requires_grad_()
    column_drop = torch.randn(3, 5, generator=rng, dtype=torch.float64).requires_grad_()
    row_drop = torch.randn(3, 3, generator=rng, dtype=torch.float64).requires_grad_()
    lengths, rows = torch.tensor([5, 4, 3]), torch.tensor([3, 2, 3])

    def soft(c, u, v):
        return sf.align.soft_drop_dtw(
            c, u, v if two_sided else None, lengths, matching, contiguous, temperature=0.7, row_lengths=rows
        )

    assert torch.autograd.gradcheck(soft, (costs, column_drop, row_drop))


@pytest.mark.parametrize("matching, contiguous", RULES)
@pytest.mark.parametrize("two_sided", [True, False])
def test_the_limit_is_the_hard_alignment(matching, contiguous, two_sided):
    rng = np.random.default_rng(1)
    costs = torch.tensor(rng.normal(size=(4, 8, 30))).requires_grad_()
    row_drop = 0.3 if two_sided else None
    with torch.no_grad():
        matrix, hard = sf.align.drop_dtw_batch(costs, 0.1, row_drop, None, matching, contiguous, return_cost=True)
    last = None
    for temperature in (1.0, 0.1, 0.01, 1e-3, 1e-5):
        soft = sf.align.soft_drop_dtw(costs, 0.1, row_drop, None, matching, contiguous, temperature=temperature)
        gap = (hard - soft).detach()
        assert bool((gap >= -1e-9).all()), "a soft minimum is never above the minimum"
        assert last is None or bool((gap <= last + 1e-9).all())
        last = gap
    assert float(last.max()) < 1e-4
    (matched,) = torch.autograd.grad(soft.sum(), costs)
    np.testing.assert_allclose(matched.numpy(), matrix.double().numpy(), atol=0.02)


def test_padding_has_no_say_and_no_gradient():
    rng = torch.Generator().manual_seed(3)
    costs = torch.randn(3, 4, 6, generator=rng, dtype=torch.float64)
    lengths, rows = [6, 2, 0], [1, 4, 4]
    padded = costs.clone()
    for b, (n, k) in enumerate(zip(lengths, rows, strict=True)):
        padded[b, k:] = padded[b, :, n:] = torch.nan
    padded.requires_grad_()
    drop = torch.full((3, 6), 0.2, dtype=torch.float64)
    drop[1, 2:] = torch.nan
    got = sf.align.soft_drop_dtw(padded, drop, 0.1, lengths, row_lengths=rows)
    for b, (n, k) in enumerate(zip(lengths, rows, strict=True)):
        alone = sf.align.soft_drop_dtw(costs[b : b + 1, :k, :n], 0.2, 0.1)
        assert float(got[b].detach()) == pytest.approx(float(alone), abs=1e-12)
    got.sum().backward()
    assert bool(torch.isfinite(padded.grad).all())
    assert float(padded.grad[1, :, 2:].abs().sum() + padded.grad[0, 1:].abs().sum()) == 0.0


def test_what_cannot_be_aligned_costs_inf_and_has_no_gradient():
    costs = torch.zeros(2, 3, 2, dtype=torch.float64, requires_grad=True)  # three rows that must stay, two columns
    got = sf.align.soft_drop_dtw(costs, 0.0, None)
    assert got.tolist() == [math.inf, math.inf]
    got.sum().backward()
    assert float(costs.grad.abs().sum()) == 0.0


def test_extreme_costs_and_temperatures_stay_finite():
    costs = (1e4 * torch.randn(2, 16, 60, generator=torch.Generator().manual_seed(0))).requires_grad_()
    for temperature in (1e-4, 1e4):
        got = sf.align.soft_drop_dtw(costs, 10.0, 10.0, temperature=temperature)
        (grad,) = torch.autograd.grad(got.sum(), costs)
        assert bool(torch.isfinite(got).all()) and bool(torch.isfinite(grad).all())
        assert got.dtype == torch.float32


def test_wrong_input_gets_a_sentence():
    good = torch.zeros(1, 2, 3)
    with pytest.raises(UsageError, match="temperature"):
        sf.align.soft_drop_dtw(good, 0.0, temperature=0.0)
    with pytest.raises(UsageError, match="three axes"):
        sf.align.soft_drop_dtw(good[0], 0.0)
    with pytest.raises(UsageError, match="matching"):
        sf.align.soft_drop_dtw(good, 0.0, matching="many")
    with pytest.raises(NonFiniteError, match="NaN"):
        sf.align.soft_drop_dtw(good / 0.0, 0.0)
    with pytest.raises(NonFiniteError, match="-inf"):
        sf.align.soft_drop_dtw(good - math.inf, 0.0)


def test_a_training_batch_takes_a_moment():
    """No Python step per cell: 64 x 32 x 40 cells, forward and backward."""
    costs = torch.randn(64, 32, 40, requires_grad=True)
    sf.align.soft_drop_dtw(costs, 0.1, 0.0, matching="one_to_one").sum().backward()
    start = time.perf_counter()
    sf.align.soft_drop_dtw(costs, 0.1, 0.0, matching="one_to_one").sum().backward()
    assert time.perf_counter() - start < 5.0


def test_the_hard_batch_says_that_it_has_no_gradient(recwarn):
    costs = torch.randn(2, 3, 4, requires_grad=True)
    with pytest.warns(RuntimeWarning, match="soft_drop_dtw"):
        sf.align.drop_dtw_batch(costs, 0.0, 0.0)
    with pytest.warns(RuntimeWarning, match="soft_drop_dtw"):
        sf.align.drop_dtw_batch(costs.detach(), torch.zeros(2, 4, requires_grad=True), 0.0)
    recwarn.clear()
    sf.align.drop_dtw_batch(costs.detach(), 0.0, 0.0)
    with torch.no_grad():
        sf.align.drop_dtw_batch(costs, 0.0, 0.0)
    assert not recwarn.list


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_the_hard_batch_takes_arrays_and_gives_arrays(dtype):
    costs = np.random.default_rng(0).normal(size=(3, 4, 7)).astype(dtype)
    lengths = np.array([7, 5, 0])
    matrix, cost = sf.align.drop_dtw_batch(costs[:, :, ::-1], np.zeros((3, 7)), 0.5, lengths, return_cost=True)
    want = sf.align.drop_dtw_batch(torch.tensor(costs).flip(2), torch.zeros(3, 7), 0.5, torch.tensor(lengths))
    assert isinstance(matrix, np.ndarray) and isinstance(cost, np.ndarray)
    assert matrix.dtype == bool and np.array_equal(matrix, want.numpy())
    assert isinstance(sf.align.drop_dtw_batch(costs, 0.0), np.ndarray)
