"""The programme over segments against enumeration of every way to cut, on every backend, and what it promises."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from stepformer.core.align import drop_dtw
from stepformer.core.segments import Acts, longest_segment, programme, rows_in_order, solve, spread_out

BACKENDS = ("numba", "torch")


def scatter(x):
    return float(((x - x.mean(0)) ** 2).sum())


def every_cut(n):
    for k in range(n):
        for cuts in itertools.combinations(range(1, n), k):
            yield list(itertools.pairwise((0, *cuts, n)))


def every_solution(n, rows, ordered, skip):
    """Segments (first, last, row) and what the rows that were passed over cost."""
    for spans in every_cut(n):
        for chosen in itertools.product(range(-1, rows), repeat=len(spans)):
            used = [r for r in chosen if r >= 0]
            if ordered and any(b <= a for a, b in itertools.pairwise(used)):
                continue
            cost = sum(skip[r] for r in range(rows) if r not in used) if ordered else 0.0
            if cost < np.inf:
                yield [(a, b, r) for (a, b), r in zip(spans, chosen, strict=True)], cost


def worth(pieces, x, gains, penalty):
    total = 0.0
    for first, last, row in pieces:
        total -= penalty + (scatter(x[first:last]) if x is not None else 0.0)
        total += gains[row, first:last].sum() if row >= 0 else 0.0
    return total


def with_background(steps, x, gains, penalty, n):
    """What found steps are worth with the best background between them."""
    total = sum(worth([(s.first, s.last, s.row)], x, gains, penalty) for s in steps)
    edges = [0, *(e for s in steps for e in (s.first, s.last)), n]
    for a, b in itertools.pairwise(edges):
        if b > a and not any(s.first == a and s.last == b for s in steps):
            part = x[a:b] if x is not None else None
            total += max(worth([(p, q, -1) for p, q in cut], part, gains, penalty) for cut in every_cut(b - a))
    return total


def batch(structure, gains):
    """One video (with a longer one behind it, so that padding is there) as the programme takes it."""
    n = gains.shape[1] if gains is not None else len(structure)
    mask = torch.arange(n + 2) < torch.tensor([[n], [n + 2]])

    def padded(a):
        return None if a is None else torch.from_numpy(np.stack([np.pad(a, ((0, 0), (0, 2)), constant_values=7.0)] * 2))

    x = None if structure is None else spread_out(padded(structure.T).mT, mask)
    return programme(padded(gains), x, mask), None if x is None else x[0, :n].numpy()


@given(
    n=st.integers(1, 6), rows=st.integers(1, 3), seed=st.integers(0, 10_000), ordered=st.booleans(),
    must=st.lists(st.sampled_from([0.0, 0.7, np.inf]), min_size=3, max_size=3), penalty=st.floats(0, 2),
    use_structure=st.booleans(), backend=st.sampled_from(BACKENDS),
)  # fmt: skip
def test_the_best_of_all_cuts(n, rows, seed, ordered, must, penalty, use_structure, backend):
    rng = np.random.default_rng(seed)
    gains = rng.standard_normal((rows, n))
    skip = np.array(must[:rows])
    task, x = batch(rng.standard_normal((n, 3)) if use_structure else None, gains)
    found, values = solve(
        task,
        torch.full((2,), penalty, dtype=torch.float64),
        ordered=ordered,
        skip=torch.from_numpy(np.stack([skip] * 2)),
        backend=backend,
    )
    ways = [worth(s, x, gains, penalty) - cost for s, cost in every_solution(n, rows, ordered, skip)]
    if not ways:  # more rows that must have a segment than frames
        assert values[0] == -np.inf and found[0] == []
        return
    assert values[0] == pytest.approx(max(ways), abs=1e-9)
    steps = found[0]
    assert all(0 <= s.first < s.last <= n for s in steps) and all(
        a.last <= b.first for a, b in itertools.pairwise(steps)
    )
    if ordered:
        assert all(a.row < b.row for a, b in itertools.pairwise(steps))
        passed = sum(skip[r] for r in range(rows) if r not in {s.row for s in steps})
        assert with_background(steps, x, gains, penalty, n) - passed == pytest.approx(max(ways), abs=1e-9)


@given(n=st.integers(1, 12), rows=st.integers(1, 5), seed=st.integers(0, 10_000), backend=st.sampled_from(BACKENDS))
def test_without_structure_and_penalty_it_is_drop_dtw(n, rows, seed, backend):
    rng = np.random.default_rng(seed)
    gains = rng.standard_normal((rows, n))
    skip = rng.choice([0.0, 0.5, np.inf], rows) if rows <= n else np.zeros(rows)
    task, _ = batch(None, gains)
    _, values = solve(task, torch.zeros(2), skip=torch.from_numpy(np.stack([skip] * 2)), backend=backend)
    # the same contiguous many-to-one problem: match costs -gain, dropping a frame is free
    assert values[0] == pytest.approx(-drop_dtw(-gains, 0.0, skip).cost, abs=1e-9)


@given(n=st.integers(1, 9), seed=st.integers(0, 10_000), penalty=st.floats(0, 3), backend=st.sampled_from(BACKENDS))
def test_structure_alone(n, seed, penalty, backend):
    task, x = batch(np.random.default_rng(seed).standard_normal((n, 4)), None)
    found, values = solve(task, torch.full((2,), penalty, dtype=torch.float64), backend=backend)
    best = max(-sum(penalty + scatter(x[a:b]) for a, b in spans) for spans in every_cut(n))
    assert values[0] == pytest.approx(best, abs=1e-9)
    assert -sum(penalty + scatter(x[s.first : s.last]) for s in found[0]) == pytest.approx(best, abs=1e-9)
    assert found[0][0].first == 0 and found[0][-1].last == n


@given(
    n=st.integers(1, 7), rows=st.integers(0, 3), count=st.integers(1, 9), seed=st.integers(0, 10_000),
    penalty=st.floats(0, 2), said=st.sets(st.integers(0, 6)), shortest=st.integers(0, 3),
    backend=st.sampled_from(BACKENDS),
)  # fmt: skip
def test_the_best_of_all_cuts_with_so_many_steps(n, rows, count, seed, penalty, said, shortest, backend):
    rng = np.random.default_rng(seed)
    gains = rng.standard_normal((rows, n)) if rows else None
    task, x = batch(rng.standard_normal((n, 3)), gains)
    acts = Acts(torch.tensor([[i in said and i < n for i in range(n + 2)]] * 2), torch.tensor([1.5, 1.5]), shortest)
    found, values = solve(
        task, torch.full((2,), penalty, dtype=torch.float64), count=[count, count], acts=acts, backend=backend
    )
    wanted = min(count, n)
    assert len(found[0]) == wanted and len(found[1]) == min(count, n + 2)

    def value(spans, steps):
        total = -penalty * len(spans) - sum(scatter(x[a:b]) for a, b in spans)
        own = [span for span, step in zip(spans, steps, strict=True) if step]
        total += sum(1.5 for a, b in own if b - a >= shortest and said & {*range(a, b)})
        return total + sum(gains[:, a:b].sum(1).max() for a, b in own if rows)

    kinds = (False, True) if rows else (True,)
    best = max(
        value(spans, steps)
        for spans in every_cut(n)
        for steps in itertools.product(kinds, repeat=len(spans))
        if sum(steps) == wanted
    )
    assert values[0] == pytest.approx(best, abs=1e-9)
    used = [s.row for s in found[0]]
    assert used == sorted(used) and (rows == 0 or wanted > rows or len(set(used)) == wanted)


@given(pieces=st.integers(1, 5), rows=st.integers(1, 5), seed=st.integers(0, 10_000))
def test_rows_in_order_are_the_best(pieces, rows, seed):
    values = np.random.default_rng(seed).standard_normal((pieces, rows))
    found = rows_in_order(values)
    choose = itertools.combinations if pieces <= rows else itertools.combinations_with_replacement
    best = max(sum(values[i, k] for i, k in enumerate(way)) for way in choose(range(rows), pieces))
    assert sum(values[i, k] for i, k in enumerate(found)) == pytest.approx(best)
    assert found == sorted(found)
    assert pieces > rows or len(set(found)) == pieces


@pytest.mark.parametrize("ordered", [True, False])
def test_both_backends_give_the_same_steps_on_a_batch(ordered):
    g = torch.Generator().manual_seed(0)
    mask = torch.arange(90) < torch.tensor([[90], [41], [1]])
    structure = torch.randn(3, 90, 100, generator=g).cumsum(1)
    gains = torch.randn(3, 8, 90, generator=g)
    x = spread_out(structure, mask)
    for count in (None, [5, 5, 5]):
        task = programme(gains, x, mask)
        found = [solve(task, torch.full((3,), 0.8), ordered=ordered, count=count, backend=b) for b in BACKENDS]
        assert found[0][0] == found[1][0] and found[0][1] == pytest.approx(found[1][1], abs=1e-9)
        for i in range(3):  # and each video alone gives what it gives in the batch
            n = int(mask[i].sum())
            alone = programme(gains[i : i + 1, :, :n], x[i : i + 1, :n], mask[i : i + 1, :n])
            own = solve(alone, torch.tensor([0.8]), ordered=ordered, count=count and [5])
            assert own[0][0] == found[0][0][i]


def test_more_segments_as_they_get_cheaper():
    x = torch.from_numpy(np.random.default_rng(2).standard_normal((1, 60, 8)).cumsum(1))
    mask = torch.ones(1, 60, dtype=torch.bool)
    task = programme(None, spread_out(x, mask), mask)
    counts = [len(solve(task, torch.tensor([p]))[0][0]) for p in (0.01, 0.1, 0.5, 1.0, 4.0, 100.0)]
    assert counts == sorted(counts, reverse=True) and counts[-1] == 1 and counts[0] > 10


def test_structure_keeps_distances():
    x = np.random.default_rng(0).standard_normal((40, 500))
    y = spread_out(torch.from_numpy(x)[None], torch.ones(1, 40, dtype=torch.bool))[0].numpy()
    assert y.shape[1] <= 64
    centred = x - x.mean(0)
    scale = np.sqrt((centred**2).sum(1).mean())
    assert np.linalg.norm(y[3] - y[7]) == pytest.approx(np.linalg.norm(x[3] - x[7]) / scale, rel=1e-6)


def test_a_picture_that_never_changes_has_no_structure():
    assert not spread_out(torch.ones(1, 30, 5), torch.ones(1, 30, dtype=torch.bool)).any()


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_segment_has_at_most_so_many_frames(backend):
    mask = torch.ones(1, 1300, dtype=torch.bool)
    found, _ = solve(programme(None, torch.zeros(1, 1300, 1), mask), torch.ones(1), backend=backend)
    steps = found[0]
    assert (steps[0].first, steps[-1].last) == (0, 1300) and len(steps) == 3
    assert all(s.last - s.first <= longest_segment(1300) == 600 for s in steps)


@pytest.mark.parametrize("backend", ["numba", "torch"])
def test_the_number_with_the_largest_sum_less_its_cost_is_taken(backend):
    rng = np.random.default_rng(3)
    mask = torch.tensor([[True] * 14, [True] * 9 + [False] * 5])
    structure = spread_out(torch.from_numpy(rng.standard_normal((2, 14, 5))), mask)
    task = programme(torch.from_numpy(rng.standard_normal((2, 3, 14))), structure, mask)
    penalty = torch.full((2,), 0.3)
    costs = [rng.uniform(0.0, 6.0, size) for size in (6, 4)]
    best = []
    for i, some in enumerate(costs):
        sums = [solve(task, penalty, count=[n, n])[1][i] for n in range(1, len(some) + 1)]
        best.append(1 + int(np.argmax(np.array(sums) - some)))
    found, _ = solve(task, penalty, number=costs, backend=backend)
    assert [len(steps) for steps in found] == best
    exact, _ = solve(task, penalty, count=best)
    assert found == exact


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_steps_too_few_to_fill_a_long_video_are_not_poor_ones():
    frames = torch.eye(3, dtype=torch.float64).repeat_interleave(600, 0)[None]  # one or two steps cannot be so long
    task = programme(None, frames, torch.ones(1, 1800, dtype=torch.bool))
    (steps,), _ = solve(task, torch.zeros(1), number=[np.zeros(6)], least=torch.ones(1))
    assert [(step.first, step.last) for step in steps] == [(0, 600), (600, 1200), (1200, 1800)]
