"""drop_dtw, its reference and its compiled kernel against enumeration of every choice."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from align_brute import best_cost, close, cost_of, is_valid
from align_problems import Problem, problems
from hypothesis import example, given, settings

import stepformer as sf
from stepformer.core.align import cpu, reference, single
from stepformer.errors import InputError, NonFiniteError, UsageError


def compiled(*args):
    """What the product runs: the compiled kernel where it may be used."""
    cost, assignment = cpu.align(*args)
    return single._with_torch(*args) if math.isnan(cost) else (cost, assignment)


KERNELS = {"reference": reference.align, "cpu": compiled, "torch": single._with_torch}


@settings(deadline=None, max_examples=600)
@given(problems())
@example(Problem(np.zeros((0, 0)), None, None, "many_to_one", True))
@example(Problem(np.zeros((3, 2)), 0.0, None, "many_to_one", True))  # more undroppable rows than columns
@example(Problem(np.full((2, 3), np.inf), None, None, "many_to_one", True))
@example(Problem(np.array([[-np.inf, np.inf]]), None, -np.inf, "one_to_one", True))  # -inf does not lift +inf
@example(Problem(np.array([[-1.0, 5.0, -1.0]]), 0.0, None, "many_to_one", False))
@example(Problem(np.array([[-1.0, 5.0, -1.0]]), 0.0, None, "many_to_one", True))
def test_cost_and_path_are_those_of_enumeration(problem):
    found = sf.align.drop_dtw(
        problem.costs, problem.column_drop, problem.row_drop, problem.matching, problem.contiguous
    )
    expected = best_cost(problem.costs, problem.column_costs, problem.row_costs, *problem.rule)
    assert close(found.cost, expected)
    if expected < math.inf:
        assert is_valid(found.assignment, len(problem.costs), *problem.rule)
    else:
        assert (found.assignment == -1).all()
    assert close(cost_of(found.assignment, problem.costs, problem.column_costs, problem.row_costs), found.cost)


@settings(deadline=None, max_examples=300)
@given(problems(max_rows=6, max_columns=7))
def test_all_kernels_return_the_very_same_path(problem):
    args = (
        problem.costs.astype(np.float64), problem.column_costs.copy(), problem.row_costs.copy(), *problem.rule
    )  # fmt: skip
    cost, assignment = reference.align(*args)
    for name, kernel in KERNELS.items():
        other_cost, other = kernel(*args)
        assert other_cost == cost, name
        assert other.tolist() == assignment.tolist(), name


def test_plain_costs_are_aligned_by_the_compiled_kernel_itself():
    for rule in ((True, True), (False, True), (False, False)):
        cost, _ = cpu.align(np.array([[1.0, np.inf]]), np.zeros(2), np.array([np.inf]), *rule)
        assert cost == 1.0
    assert math.isnan(cpu.align(np.array([[-np.inf, 0.0]]), np.zeros(2), np.zeros(1), False, True)[0])


@pytest.mark.parametrize("seed", range(12))
def test_kernels_agree_at_larger_sizes(seed):
    rng = np.random.default_rng(seed)
    K, N = (int(x) for x in rng.integers(1, 70, 2))
    for one_to_one in (True, False):
        for contiguous in (True, False):
            row_drop = rng.normal(size=K) if seed % 2 else np.full(K, np.inf)
            args = (rng.normal(size=(K, N)), rng.normal(size=N), row_drop, one_to_one, contiguous)
            cost, assignment = reference.align(*args)
            for kernel in (compiled, single._with_torch):
                other_cost, other = kernel(*args)
                assert other_cost == cost
                assert other.tolist() == assignment.tolist()
            if cost < np.inf:
                assert is_valid(assignment, K, one_to_one, contiguous)
            assert close(cost_of(assignment, *args[:3]), cost)


@pytest.mark.parametrize("matching", ["many_to_one", "one_to_one"])
def test_a_planted_path_is_found_again(matching):
    rng = np.random.default_rng(7)
    K, N = 12, 200
    planted = np.full(N, -1)
    edges = np.sort(rng.choice(np.arange(1, N), 2 * K, replace=False))
    for row in range(K):
        start, stop = edges[2 * row], edges[2 * row + 1]
        planted[start : stop if matching == "many_to_one" else start + 1] = row
    costs = rng.uniform(0.5, 1.5, size=(K, N))
    matched = planted >= 0
    costs[planted[matched], np.flatnonzero(matched)] = rng.uniform(-1.0, -0.5, matched.sum())
    found = sf.align.drop_dtw(costs, 0.0, 0.3, matching)
    assert found.assignment.tolist() == planted.tolist()
    assert found.cost == pytest.approx(costs[planted[matched], np.flatnonzero(matched)].sum())


def test_an_absent_row_is_dropped_and_the_others_keep_their_place():
    costs = np.array([[-1.0, 1, 1, 1], [1, 1, 1, 1], [1, 1, -1.0, -1.0]])
    found = sf.align.drop_dtw(costs, 0.0, row_drop=0.25)
    assert found.assignment.tolist() == [0, -1, 2, 2]
    assert found.cost == -2.75
    assert found.matrix().tolist() == [[True, False, False, False], [False] * 4, [False, False, True, True]]


def test_contiguity_decides_whether_a_gap_may_be_dropped():
    costs = [[-1.0, 5.0, -1.0]]
    assert sf.align.drop_dtw(costs, 0.0, contiguous=False).assignment.tolist() == [0, -1, 0]
    assert sf.align.drop_dtw(costs, 0.0, contiguous=True).assignment.tolist() in ([0, -1, -1], [-1, -1, 0])


def test_two_rows_never_share_a_column():
    # one cheap column for three undroppable rows: two of them must go elsewhere, at a price
    costs = np.array([[0.0, 9.0, 9.0], [9.0, 0.0, 9.0], [9.0, 0.0, 9.0]])
    found = sf.align.drop_dtw(costs, 0.0)
    assert found.matrix().sum(axis=0).max() == 1
    assert found.assignment.tolist() == [0, 1, 2]
    assert found.cost == 9.0
    with_too_few = sf.align.drop_dtw(costs[:, :2], 0.0)
    assert with_too_few.cost == math.inf
    assert with_too_few.assignment.tolist() == [-1, -1]


def test_ties_are_broken_as_written():
    # a match before a drop, a dropped column before a dropped row, a row begun before one continued
    assert sf.align.drop_dtw([[2.0]], 1.0, 1.0).assignment.tolist() == [0]
    assert sf.align.drop_dtw(np.zeros((2, 3)), 0.0, 0.0).assignment.tolist() == [-1, 0, 1]
    assert sf.align.drop_dtw(np.zeros((2, 4)), None, None).assignment.tolist() == [0, 0, 0, 1]


@given(problems(max_rows=6, max_columns=8))
@settings(deadline=None, max_examples=100)
def test_many_to_one_is_never_dearer_than_what_it_allows_less_of(problem):
    cost = {
        rule: sf.align.drop_dtw(problem.costs, problem.column_drop, problem.row_drop, *rule).cost
        for rule in (("one_to_one", True), ("many_to_one", True), ("many_to_one", False))
    }
    loose, middle, strict = cost["many_to_one", False], cost["many_to_one", True], cost["one_to_one", True]
    assert loose <= middle or close(loose, middle)
    assert middle <= strict or close(middle, strict)


@pytest.mark.parametrize("K, N", [(0, 0), (0, 3), (3, 0), (1, 1)])
@pytest.mark.parametrize("matching", ["many_to_one", "one_to_one"])
def test_sides_without_elements(K, N, matching):
    costs = np.full((K, N), 10.0)
    found = sf.align.drop_dtw(costs, 1.0, 2.0, matching)
    assert found.cost == N + 2.0 * K
    assert found.assignment.tolist() == [-1] * N
    assert found.matrix().shape == (K, N)
    undroppable = sf.align.drop_dtw(costs, 1.0, None, matching)
    assert undroppable.cost == (math.inf if K > N else N if K == 0 else 10.0)


def test_lists_arrays_and_tensors_of_all_float_types_are_taken():
    costs = [[-1.0, 0.5, 0.25], [0.5, -0.75, 0.5]]
    expected = sf.align.drop_dtw(costs, 0.125, [0.5, 0.25])
    for made in (np.float32, np.float64, np.float16):
        found = sf.align.drop_dtw(np.array(costs, made), made(0.125), np.array([0.5, 0.25], made))
        assert (found.cost, found.assignment.tolist()) == (expected.cost, expected.assignment.tolist())
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
        tensor = torch.tensor(costs, dtype=dtype, requires_grad=True)
        found = sf.align.drop_dtw(tensor, torch.tensor(0.125), torch.tensor([0.5, 0.25]))
        assert (found.cost, found.assignment.tolist()) == (expected.cost, expected.assignment.tolist())
    wide = np.full((4, 6), 9.0)
    wide[::2, ::2] = costs
    for view in (wide[::2, ::2], np.asfortranarray(costs)):  # not contiguous
        assert sf.align.drop_dtw(view, 0.125, [0.5, 0.25]).assignment.tolist() == expected.assignment.tolist()
    assert sf.align.drop_dtw([], 1.0).assignment.tolist() == []


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_nan_is_an_error_that_says_where(dtype):
    costs = np.zeros((4, 6), dtype)
    costs[2, 5] = np.nan
    with pytest.raises(NonFiniteError, match=r"costs\[2, 5\] is NaN \(row 2, column 5\)") as caught:
        sf.align.drop_dtw(costs, 0.0)
    assert isinstance(caught.value, InputError)
    with pytest.raises(NonFiniteError, match=r"column_drop\[3\] is NaN \(column 3\)"):
        sf.align.drop_dtw(np.zeros((4, 6)), [0, 0, 0, np.nan, 0, 0])
    with pytest.raises(NonFiniteError, match=r"row_drop\[1\] is NaN \(row 1\).*2 NaN in all"):
        sf.align.drop_dtw(np.zeros((4, 6)), 0.0, [0, np.nan, np.nan, 0])
    with pytest.raises(NonFiniteError, match="column_drop"):
        sf.align.drop_dtw(np.zeros((4, 6)), float("nan"))


@pytest.mark.parametrize(
    "args, says",
    [
        ((np.zeros(3), 0.0), "two axes"),
        ((np.zeros((2, 3, 1)), 0.0), "two axes"),
        ((np.zeros((2, 3)), np.zeros(2)), "column_drop must be one number or one for each of the 3 columns"),
        ((np.zeros((2, 3)), 0.0, np.zeros(3)), "row_drop"),
        ((np.zeros((2, 3)), 0.0, 0.0, "one-to-one"), "matching must be 'one_to_one' or 'many_to_one'"),
        (([[1.0, 2.0], [3.0]], 0.0), "rectangular"),
        (([["a"]], 0.0), "numbers"),
    ],
)
def test_what_makes_no_sense_is_refused(args, says):
    with pytest.raises(UsageError, match=says):
        sf.align.drop_dtw(*args)


def test_an_alignment_cannot_be_changed():
    found = sf.align.drop_dtw([[0.0, 1.0]], 0.5)
    with pytest.raises(AttributeError):
        found.cost = 3.0
    with pytest.raises(ValueError, match="read-only"):
        found.assignment[0] = 1


def test_the_door_is_light_and_numba_is_not_needed():
    script = """
import sys
sys.modules["numba"] = None  # as if it were not installed
import stepformer.core.align
assert "torch" not in sys.modules and "numpy" not in sys.modules
import numpy as np, torch
costs = [[-1.0, 0.5, 0.2], [0.5, 0.3, -1.0]]
single = stepformer.core.align.drop_dtw(costs, 0.0, 0.0)
batch = stepformer.core.align.drop_dtw_batch(torch.tensor([costs]), 0.0, 0.0)
assert single.assignment.tolist() == [0, -1, 1] and batch[0].numpy().tolist() == single.matrix().tolist()
try:
    stepformer.core.align.drop_dtw_batch(torch.tensor([costs]), 0.0, 0.0, backend="numba")
except stepformer.errors.MissingError:
    print("fine")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "fine", done.stderr
