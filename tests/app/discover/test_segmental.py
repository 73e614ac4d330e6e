"""The segmental programme against enumeration of every way to cut, and what it promises."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepformer.app.discover.segmental import Segmenter, count_steps, solve_for_count, spread_out
from stepformer.core.align import drop_dtw
from stepformer.errors import InputError


def scatter(x):
    return float(((x - x.mean(0)) ** 2).sum())


def worth(pieces, x, gains, price):
    total = 0.0
    for first, last, slot in pieces:
        total -= price + (scatter(x[first:last]) if x is not None else 0.0)
        total += gains[slot, first:last].sum() if slot >= 0 else 0.0
    return total


def every_cut(n):
    for k in range(n):
        for cuts in itertools.combinations(range(1, n), k):
            edges = (0, *cuts, n)
            yield list(itertools.pairwise(edges))


def every_solution(n, slots, ordered, every_slot):
    for spans in every_cut(n):
        for chosen in itertools.product(range(-1, slots), repeat=len(spans)):
            used = [s for s in chosen if s >= 0]
            if ordered and any(b <= a for a, b in itertools.pairwise(used)):
                continue
            if every_slot and len(used) != slots:
                continue
            yield [(a, b, s) for (a, b), s in zip(spans, chosen, strict=True)]


@given(
    n=st.integers(1, 6), slots=st.integers(1, 3), seed=st.integers(0, 10_000), ordered=st.booleans(),
    every_slot=st.booleans(), price=st.floats(0, 2), use_structure=st.booleans(),
)  # fmt: skip
def test_the_best_of_all_cuts(n, slots, seed, ordered, every_slot, price, use_structure):
    rng = np.random.default_rng(seed)
    gains = rng.standard_normal((slots, n))
    structure = rng.standard_normal((n, 3)) if use_structure else None
    every_slot = every_slot and ordered and slots <= n
    x = spread_out(structure) if structure is not None else None
    found = Segmenter(structure, gains, ordered).solve(price, every_slot)
    pieces = [(p.first, p.last, p.slot) for p in found]
    assert [p[0] for p in pieces[1:]] == [p[1] for p in pieces[:-1]] and (pieces[0][0], pieces[-1][1]) == (0, n)
    best = max(worth(s, x, gains, price) for s in every_solution(n, slots, ordered, every_slot))
    assert worth(pieces, x, gains, price) == pytest.approx(best, abs=1e-9)


@given(n=st.integers(1, 12), slots=st.integers(1, 5), seed=st.integers(0, 10_000))
def test_without_structure_and_price_it_is_drop_dtw(n, slots, seed):
    gains = np.random.default_rng(seed).standard_normal((slots, n))
    found = Segmenter(None, gains).solve(0.0)
    ours = sum(gains[p.slot, p.first : p.last].sum() for p in found if p.slot >= 0)
    # the same contiguous many-to-one problem: match costs -gain, all drops free
    assert ours == pytest.approx(-drop_dtw(-gains, 0.0, 0.0).cost, abs=1e-9)


@given(n=st.integers(1, 9), seed=st.integers(0, 10_000), price=st.floats(0, 3))
def test_structure_alone(n, seed, price):
    structure = np.random.default_rng(seed).standard_normal((n, 4))
    x = spread_out(structure)
    found = Segmenter(structure, None).solve(price)
    best = max(-sum(price + scatter(x[a:b]) for a, b in spans) for spans in every_cut(n))
    assert -sum(price + scatter(x[p.first : p.last]) for p in found) == pytest.approx(best, abs=1e-9)


@pytest.mark.parametrize("wanted", [1, 2, 3, 5, 8, 20])
def test_a_number_of_pieces(wanted):
    rng = np.random.default_rng(1)
    x = np.repeat(rng.standard_normal((8, 16)), 6, 0) + 0.3 * rng.standard_normal((48, 16))
    found = solve_for_count(Segmenter(x, None), wanted)
    assert count_steps(found) == wanted
    assert [p.first for p in found[1:]] == [p.last for p in found[:-1]]
    if wanted <= 8:
        assert all(p.first % 6 == 0 for p in found)


def test_more_pieces_as_they_get_cheaper():
    x = np.random.default_rng(2).standard_normal((60, 8)).cumsum(0)
    segmenter = Segmenter(x, None)
    counts = [len(segmenter.solve(price)) for price in (0.01, 0.1, 0.5, 1, 4, 100)]
    assert counts == sorted(counts, reverse=True) and counts[-1] == 1 and counts[0] > 10


def test_structure_keeps_distances():
    x = np.random.default_rng(0).standard_normal((40, 500))
    y = spread_out(x)
    assert y.shape[1] <= 64
    centred = x - x.mean(0)
    scale = np.sqrt((centred**2).sum(1).mean())
    assert np.linalg.norm(y[3] - y[7]) == pytest.approx(np.linalg.norm(x[3] - x[7]) / scale, rel=1e-6)


def test_a_picture_that_never_changes_has_no_structure():
    assert not spread_out(np.ones((30, 5))).any()


def test_pieces_longer_than_the_longest_still_cover_the_video():
    found = Segmenter(np.zeros((50, 2)), None, longest=7).solve(1.0)
    assert (found[0].first, found[-1].last) == (0, 50)
    assert all(p.last - p.first <= 7 for p in found)


def test_nothing_to_cut_by():
    with pytest.raises(InputError, match="nothing to cut"):
        Segmenter(None, None)
    with pytest.raises(InputError, match="finite"):
        Segmenter(None, np.full((2, 3), np.nan))
