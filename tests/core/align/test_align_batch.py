"""drop_dtw_batch, in every backend there is here, against drop_dtw item by item."""

from __future__ import annotations

import importlib.util
import itertools
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from align_brute import best_cost, close
from align_problems import problems
from hypothesis import given, settings
from hypothesis import strategies as st

import stepformer as sf
from stepformer.core.align import batch as batch_module
from stepformer.core.align import torch_batch
from stepformer.errors import NonFiniteError, UsageError

CPU_BACKENDS = ["torch", "numba"]
RULES = list(itertools.product(["one_to_one", "many_to_one"], [True, False]))


def random_batch(seed, B=9, K=7, N=11, ties=False, infinities=False):
    """A padded batch whose padding is NaN, with lengths that include nothing and everything."""
    rng = np.random.default_rng(seed)

    def numbers(*shape):
        values = rng.integers(-3, 4, shape).astype(float) if ties else rng.normal(size=shape)
        if infinities:
            values[rng.random(shape) < 0.1] = np.inf
            values[rng.random(shape) < 0.1] = -np.inf
        return values

    costs, column_drop, row_drop = numbers(B, K, N), numbers(B, N), numbers(B, K)
    lengths, row_lengths = rng.integers(0, N + 1, B), rng.integers(0, K + 1, B)
    lengths[:3], row_lengths[:3] = [0, N, N], [K, 0, K]
    for b in range(B):
        costs[b, row_lengths[b] :] = costs[b, :, lengths[b] :] = np.nan
        column_drop[b, lengths[b] :] = row_drop[b, row_lengths[b] :] = np.nan
    return costs, column_drop, row_drop, lengths, row_lengths


@pytest.mark.parametrize("backend", CPU_BACKENDS)
@pytest.mark.parametrize("matching, contiguous", RULES)
@pytest.mark.parametrize("kind", [{}, {"ties": True}, {"infinities": True}, {"ties": True, "infinities": True}])
@pytest.mark.parametrize("drop_rows", [True, False])
def test_each_item_is_aligned_as_if_alone(backend, matching, contiguous, kind, drop_rows):
    for seed in range(3):
        costs, column_drop, row_drop, lengths, row_lengths = random_batch(seed, **kind)
        matrix, cost = sf.align.drop_dtw_batch(
            torch.tensor(costs), torch.tensor(column_drop), torch.tensor(row_drop) if drop_rows else None,
            torch.tensor(lengths), matching, contiguous, row_lengths=torch.tensor(row_lengths), return_cost=True,
            backend=backend,
        )  # fmt: skip
        assert matrix.dtype == torch.bool
        assert matrix.shape == costs.shape
        for b, (n, k) in enumerate(zip(lengths, row_lengths, strict=True)):
            alone = sf.align.drop_dtw(
                costs[b, :k, :n], column_drop[b, :n], row_drop[b, :k] if drop_rows else None, matching, contiguous
            )
            assert matrix[b, :k, :n].numpy().tolist() == alone.matrix().tolist()
            assert not matrix[b, k:].any()
            assert not matrix[b, :, n:].any()
            assert cost[b].item() == alone.cost


@settings(deadline=None, max_examples=150)
@given(st.lists(problems(max_rows=3, max_columns=4), min_size=1, max_size=4), st.sampled_from(RULES))
def test_torch_version_agrees_with_enumeration(items, rule):
    """Items of different shapes and drops, padded into one batch."""
    B, K, N = len(items), max(len(p.costs) for p in items), max(p.costs.shape[1] for p in items)
    costs, column_drop, row_drop = torch.full((B, K, N), torch.nan), torch.zeros(B, N), torch.zeros(B, K)
    for b, p in enumerate(items):
        k, n = p.costs.shape
        costs[b, :k, :n] = torch.tensor(p.costs)
        column_drop[b, :n], row_drop[b, :k] = torch.tensor(p.column_costs), torch.tensor(p.row_costs)
    matrix, cost = sf.align.drop_dtw_batch(
        costs, column_drop, row_drop, [p.costs.shape[1] for p in items], *rule,
        row_lengths=[len(p.costs) for p in items], return_cost=True, backend="torch",
    )  # fmt: skip
    assert (matrix.sum(dim=1) <= 1).all()  # never two rows to a column
    for b, p in enumerate(items):
        expected = best_cost(p.costs, p.column_costs, p.row_costs, rule[0] == "one_to_one", rule[1])
        assert close(cost[b].item(), expected)


@pytest.mark.parametrize("backend", CPU_BACKENDS)
def test_drops_are_numbers_one_an_item_or_one_an_element(backend):
    costs = torch.tensor(random_batch(1)[0]).nan_to_num(0.3)
    B, K, N = costs.shape
    per_item = torch.linspace(-1, 1, B, dtype=torch.float64)

    def run(column_drop, row_drop):
        return sf.align.drop_dtw_batch(costs, column_drop, row_drop, backend=backend)

    assert torch.equal(run(0.25, 0.125), run(torch.full((B, N), 0.25), torch.full((B, K), 0.125)))
    assert torch.equal(run(torch.tensor(0.25), np.float64(0.125)), run([0.25] * B, torch.full((1, K), 0.125)))
    assert torch.equal(run(per_item, per_item), run(per_item[:, None].expand(B, N), per_item[:, None].expand(B, K)))
    assert torch.equal(run(None, 0.0), run(float("inf"), 0.0))
    assert torch.equal(run(0.0, None), run(0.0, float("inf")))


@pytest.mark.parametrize("backend", CPU_BACKENDS)
@pytest.mark.parametrize("shape", [(0, 2, 3), (2, 0, 3), (2, 3, 0), (2, 0, 0)])
def test_empty_batches_and_sides(backend, shape):
    matrix, cost = sf.align.drop_dtw_batch(torch.zeros(shape), 1.0, 2.0, return_cost=True, backend=backend)
    assert matrix.shape == shape
    assert cost.tolist() == [shape[1] * 2.0 + shape[2] * 1.0] * shape[0]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_any_float_type_and_no_gradient(dtype):
    similarity = torch.rand(4, 5, 6, generator=torch.Generator().manual_seed(3)).to(dtype).requires_grad_()
    with pytest.warns(RuntimeWarning, match="no gradient"):
        found = {
            backend: sf.align.drop_dtw_batch(-similarity, sf.align.percentile_drop(similarity), 0.0, backend=backend)
            for backend in CPU_BACKENDS
        }
    assert torch.equal(found["torch"], found["numba"])
    assert not found["torch"].requires_grad


@pytest.mark.parametrize("backend", ["auto", *CPU_BACKENDS])
def test_nan_that_counts_is_an_error_that_says_where(backend):
    costs = torch.zeros(3, 4, 5)
    costs[1, 2, 3] = torch.nan
    with pytest.raises(NonFiniteError, match=r"costs\[1, 2, 3\] is NaN \(item 1, row 2, column 3\)"):
        sf.align.drop_dtw_batch(costs, 0.0, 0.0, backend=backend)
    sf.align.drop_dtw_batch(costs, 0.0, 0.0, lengths=[5, 3, 5], backend=backend)
    sf.align.drop_dtw_batch(costs, 0.0, 0.0, row_lengths=[4, 2, 4], backend=backend)
    drops = torch.zeros(3, 5)
    drops[2, 4] = torch.nan
    with pytest.raises(NonFiniteError, match=r"column_drop\[2, 4\]"):
        sf.align.drop_dtw_batch(torch.zeros(3, 4, 5), drops, 0.0, backend=backend)
    with pytest.raises(NonFiniteError, match=r"row_drop\[0, 0\]"):
        sf.align.drop_dtw_batch(torch.zeros(3, 4, 5), 0.0, float("nan"), backend=backend)


@pytest.mark.parametrize("backend", CPU_BACKENDS)
@pytest.mark.parametrize("matching, contiguous", RULES)
def test_unchecked_nan_counts_as_forbidden(backend, matching, contiguous):
    costs, column_drop, row_drop, _, _ = (torch.tensor(x) for x in random_batch(5, infinities=True))
    given = [costs, column_drop, row_drop]
    forbidden = [x.masked_fill(x.isnan(), torch.inf) for x in given]
    unchecked = sf.align.drop_dtw_batch(*given, None, matching, contiguous, check=False, backend=backend)
    assert torch.equal(unchecked, sf.align.drop_dtw_batch(*forbidden, None, matching, contiguous, backend=backend))


@pytest.mark.parametrize(
    "change, says",
    [
        ({"costs": torch.zeros(2, 3)}, "three axes"),
        ({"costs": [[[0.0]]]}, "tensor"),
        ({"costs": np.zeros((2, 3))}, "three axes"),
        ({"column_drop": torch.zeros(4)}, "one number for each of the 2 items"),
        ({"column_drop": torch.zeros(2, 3)}, "column_drop must be"),
        ({"row_drop": torch.zeros(2, 4)}, "row_drop must be"),
        ({"lengths": [1, 5]}, "between 0 and 4"),
        ({"lengths": [1]}, "each of the 2 items"),
        ({"row_lengths": [-1, 2]}, "between 0 and 3"),
        ({"lengths": [1.5, 2.0]}, "whole numbers"),
        ({"costs": torch.zeros(2, 3, 4, dtype=torch.complex64)}, "complex"),
        ({"column_drop": "cheap"}, "column_drop must be numbers"),
        ({"matching": "both"}, "matching"),
        ({"backend": "cuda"}, "backend"),
    ],
)
def test_what_makes_no_sense_is_refused(change, says):
    args = {"costs": torch.zeros(2, 3, 4), "column_drop": 0.0, "row_drop": 0.0, **change}
    with pytest.raises(UsageError, match=says):
        sf.align.drop_dtw_batch(**args)


def test_auto_falls_back_when_triton_does_not_work(monkeypatch):
    """What happens on a GPU image without a compiler, played on the CPU: a warning once, the same result."""
    costs = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    class Elsewhere(torch.Tensor):
        """A CPU tensor that says it is on a GPU, until it reaches plain torch."""

        device = torch.device("cuda")

    calls = []
    align_batch = torch_batch.align_batch

    def plain(problem, *rest):
        calls.append(problem.costs)
        return align_batch(problem._replace(costs=problem.costs.as_subclass(torch.Tensor)), *rest)

    monkeypatch.setattr(batch_module, "_broken", set())
    monkeypatch.setattr(torch_batch, "align_batch", plain)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: True)
    monkeypatch.setitem(sys.modules, "stepformer.core.align.triton_kernel", None)  # import fails
    given = torch_batch.Problem(
        costs.as_subclass(Elsewhere), torch.zeros(2, 4).double(), torch.zeros(2, 3).double(), torch.tensor([3, 3]),
        torch.tensor([4, 4]),
    )  # fmt: skip
    with pytest.warns(RuntimeWarning, match="plain torch"):
        first = batch_module._dispatch(given, False, True, False, "auto")
    second = batch_module._dispatch(given, False, True, False, "auto")
    assert len(calls) == 2
    monkeypatch.undo()
    assert torch.equal(first[0], second[0])
    assert torch.equal(first[0], sf.align.drop_dtw_batch(costs, 0.0, 0.0))


def test_columns_of():
    costs = torch.randn(5, 4, 9, generator=torch.Generator().manual_seed(0))
    rows = sf.align.columns_of(sf.align.drop_dtw_batch(costs, 0.0, 0.0))
    for b in range(5):
        assert rows[b].tolist() == sf.align.drop_dtw(costs[b], 0.0, 0.0).assignment.tolist()
    assert sf.align.columns_of(torch.zeros(2, 0, 3, dtype=torch.bool)).tolist() == [[-1] * 3] * 2


@pytest.mark.parametrize("kind", [{}, {"ties": True}, {"infinities": True}])
def test_order_agnostic_batch(kind):
    costs, column_drop, _, lengths, row_lengths = random_batch(2, **kind)
    matrix = sf.align.order_agnostic_batch(
        torch.tensor(costs), torch.tensor(column_drop), torch.tensor(lengths), row_lengths=torch.tensor(row_lengths)
    )
    for b, (n, k) in enumerate(zip(lengths, row_lengths, strict=True)):
        options = np.concatenate([costs[b, :k, :n], column_drop[b, None, :n]])  # a match goes before a drop
        best = options.argmin(0)
        feasible = (options.min(0) < np.inf).all()
        assert matrix[b, :k, :n].numpy().tolist() == (feasible & (np.arange(k)[:, None] == best)).tolist()
        assert matrix[b].sum() == feasible * (best < k).sum()
    bad = torch.zeros(1, 2, 3)
    bad[0, 1, 2] = torch.nan
    with pytest.raises(NonFiniteError, match=r"costs\[0, 1, 2\]"):
        sf.align.order_agnostic_batch(bad, 0.0)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
@pytest.mark.parametrize("backend", ["torch", "triton"])
@pytest.mark.parametrize("matching, contiguous", RULES)
def test_cuda_gives_what_the_cpu_gives(backend, matching, contiguous):
    if backend == "triton":
        pytest.importorskip("triton")
    for seed, kind in enumerate([{}, {"ties": True}, {"infinities": True}, {"K": 70, "N": 90}]):
        costs, column_drop, row_drop, lengths, row_lengths = (torch.tensor(x) for x in random_batch(seed, **kind))

        def run(device, backend, x=(costs, column_drop, row_drop, lengths), rows=row_lengths):
            return sf.align.drop_dtw_batch(
                *(t.to(device) for t in x), matching, contiguous, row_lengths=rows.to(device), return_cost=True,
                backend=backend,
            )  # fmt: skip

        on_gpu, on_cpu = run("cuda", backend), run("cpu", "torch")
        assert on_gpu[0].device.type == "cuda"
        assert torch.equal(on_gpu[0].cpu(), on_cpu[0])
        assert torch.equal(on_gpu[1].cpu(), on_cpu[1])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
@pytest.mark.parametrize("backend", ["torch", "triton"])
def test_unchecked_alignment_never_waits_for_the_device(backend):
    if backend == "triton":
        pytest.importorskip("triton")
    similarity = torch.rand(3, 4, 5, device="cuda")
    lengths = torch.tensor([5, 3, 0], device="cuda")

    def align():
        drop = sf.align.percentile_drop(similarity, 0.8, top_per_row=2, lengths=lengths)
        return sf.align.drop_dtw_batch(
            -similarity, drop, 0.0, lengths, "one_to_one", return_cost=True, check=False, backend=backend
        )

    align()  # compiles
    torch.cuda.set_sync_debug_mode("error")  # raises where torch waits
    try:
        align()
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_a_large_batch_on_several_threads_is_what_its_items_give(monkeypatch):
    from stepformer.core.align import cpu

    pools = []
    monkeypatch.setattr(cpu, "_WORTH_A_THREAD", 100)
    monkeypatch.setattr(cpu, "ThreadPoolExecutor", lambda n: (pools.append(n), ThreadPoolExecutor(n))[1])
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    generator = torch.Generator().manual_seed(1)
    costs = torch.randn(7, 9, 30, generator=generator, dtype=torch.float64)
    lengths, rows = torch.tensor([30, 1, 0, 17, 30, 4, 29]), torch.tensor([9, 9, 3, 0, 4, 5, 8])
    matrix, cost = sf.align.drop_dtw_batch(
        costs, -0.2, 0.1, lengths, row_lengths=rows, return_cost=True, backend="numba"
    )
    for b in range(7):
        found = sf.align.drop_dtw(costs[b, : rows[b], : lengths[b]].numpy(), -0.2, 0.1)
        assert found.cost == float(cost[b])
        assert (matrix[b, : rows[b], : lengths[b]].numpy() == found.matrix()).all()
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    sf.align.drop_dtw_batch(costs, -0.2, 0.1, backend="numba")
    assert pools == [3]  # as many threads as torch may use, none beside a single one
