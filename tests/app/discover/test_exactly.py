"""Exactly so many steps, against enumeration of every way to cut; and what a line and a price are made of."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepformer.app.discover.cutting import cut, evidence, noise_of, price_of
from stepformer.app.discover.exactly import solve_exactly
from stepformer.app.discover.knobs import Knobs
from stepformer.app.discover.segmental import Segmenter, slots_in_order, spread_out


def every_cut(n):
    for k in range(n):
        for cuts in itertools.combinations(range(1, n), k):
            yield list(itertools.pairwise((0, *cuts, n)))


def scatter(x):
    return float(((x - x.mean(0)) ** 2).sum())


@given(
    n=st.integers(1, 7), slots=st.integers(0, 3), count=st.integers(1, 9), seed=st.integers(0, 10_000),
    price=st.floats(0, 2),
)  # fmt: skip
def test_the_best_of_all_cuts_with_so_many_steps(n, slots, count, seed, price):
    rng = np.random.default_rng(seed)
    structure, gains = rng.standard_normal((n, 3)), rng.standard_normal((slots, n)) if slots else None
    x = spread_out(structure)
    found = solve_exactly(Segmenter(structure, gains), count, price)
    wanted = min(count, n)
    assert len(found) == wanted
    assert all(0 <= p.first < p.last <= n for p in found)
    assert all(a.last <= b.first for a, b in itertools.pairwise(found))

    def value(spans, steps):
        total = 0.0
        for (a, b), step in zip(spans, steps, strict=True):
            total -= scatter(x[a:b])
            total += (gains[:, a:b].sum(1).max() if gains is not None else 0.0) if step else -price
        return total

    kinds = (False, True) if slots else (True,)
    best = max(
        value(spans, steps)
        for spans in every_cut(n)
        for steps in itertools.product(kinds, repeat=len(spans))
        if sum(steps) == wanted
    )
    # the found steps, with the best background between them
    edges = sorted({0, n, *(e for p in found for e in (p.first, p.last))})
    starts = {p.first for p in found}
    gaps = [[(a, b)] if a in starts else None for a, b in itertools.pairwise(edges)]
    ours = 0.0
    for (a, b), step in zip(itertools.pairwise(edges), gaps, strict=True):
        if step:
            ours += value([(a, b)], [True])
        else:
            ours += max(value([(a + s, a + e) for s, e in spans], [False] * len(spans)) for spans in every_cut(b - a))
    assert ours == pytest.approx(best, abs=1e-5)


@given(pieces=st.integers(1, 5), slots=st.integers(1, 5), seed=st.integers(0, 10_000))
def test_slots_in_order_are_the_best(pieces, slots, seed):
    worth = np.random.default_rng(seed).standard_normal((pieces, slots))
    found = slots_in_order(worth)
    ways = (
        itertools.combinations(range(slots), pieces)
        if pieces <= slots
        else itertools.combinations_with_replacement(range(slots), pieces)
    )
    best = max(sum(worth[i, k] for i, k in enumerate(way)) for way in ways)
    assert sum(worth[i, k] for i, k in enumerate(found)) == pytest.approx(best)
    assert found == sorted(found)
    assert pieces > slots or len(set(found)) == pieces


def test_evidence_lies_between_mean_and_maximum():
    similarity = np.random.default_rng(0).uniform(-1, 1, (32, 50))
    found = evidence(similarity)
    assert (found >= similarity.mean(0)).all() and (found <= similarity.max(0)).all()


def test_noise_is_what_neighbours_do_not_share():
    rng = np.random.default_rng(0)
    assert noise_of(rng.standard_normal((400, 20)), 1.0) == pytest.approx(1.0, abs=0.1)
    slides = np.repeat(rng.standard_normal((10, 20)), 40, 0)
    assert noise_of(slides, 1.0) < 0.05
    mixed = slides + rng.standard_normal((400, 20))
    assert noise_of(mixed, 1.0) == pytest.approx(0.5, abs=0.1)
    # every frame four times, at four times the rate, is the same video
    assert noise_of(np.repeat(mixed, 4, 0), 4.0) == pytest.approx(noise_of(mixed, 1.0), rel=0.05)
    assert price_of(np.repeat(mixed, 4, 0), 4.0) == pytest.approx(4 * price_of(mixed, 1.0), rel=0.05)
    assert noise_of(mixed[:1], 1.0) == 1.0


def test_background_needs_more_than_a_slot_that_does_not_fit_throughout():
    """Two slots share one stretch of the task; neither fits all of it, and it is still no background."""
    rng = np.random.default_rng(3)
    structure = np.repeat(rng.standard_normal((3, 8)), 40, 0) + 0.1 * rng.standard_normal((120, 8))
    similarity = np.full((32, 120), 0.2)
    similarity[:, 80:] = 0.0  # background: no slot fits
    similarity[3, 0:40] = 0.9
    similarity[7, 40:60] = 0.9
    similarity[8, 60:80] = 0.9
    similarity += 0.01 * rng.standard_normal(similarity.shape)
    pieces = cut(similarity, structure, 1.0, Knobs()).pieces
    shown = np.zeros(120, bool)
    for piece in pieces:
        shown[piece.first : piece.last] = True
    assert shown[:78].all() and not shown[82:].any()


@pytest.mark.parametrize("steps", [1, 2, 5, 30, 40])
def test_told_a_number_there_are_so_many(steps):
    rng = np.random.default_rng(5)
    structure = np.repeat(rng.standard_normal((12, 8)), 10, 0) + 0.3 * rng.standard_normal((120, 8))
    similarity = rng.uniform(0, 1, (32, 120))
    for use in ("both", "structure"):
        given_similarity = similarity if use == "both" else None
        assert len(cut(given_similarity, structure, 1.0, Knobs(steps=steps, use=use)).pieces) == steps


@pytest.mark.parametrize("steps", [1, 2, 4])
def test_a_long_video_has_few_steps_if_told_so(steps):
    """Each then has more than a quarter of the video, which is otherwise the longest a piece may be."""
    rng = np.random.default_rng(6)
    structure = np.repeat(rng.standard_normal((steps, 8)), [1600, *[801] * (steps - 1)], 0)
    structure = structure + 0.3 * rng.standard_normal(structure.shape)
    pieces = cut(None, structure, 1.0, Knobs(steps=steps, use="structure")).pieces
    assert [(p.first, p.last) for p in pieces] == list(itertools.pairwise([0, *(1600 + 801 * i for i in range(steps))]))
