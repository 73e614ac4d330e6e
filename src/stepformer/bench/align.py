"""``stepformer bench align``: the alignment kernels against a naive Python loop over cells, in one run.

The naive loop is `core.align.reference`, pure Python on lists. The floor is the least that a dynamic programme over the
cells must do on one core: one addition and one comparison per cell, each waiting for the one before, without drops,
checks or a path to follow back.

``--threads`` holds for torch and for numba's batches. A numba batch uses one thread per 2^19 cells: of the cases, that
of 64 items uses two at most, the others one.
"""

from __future__ import annotations

import argparse
import timeit
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from stepformer.cli.measured import report
from stepformer.cli.options import add, positive
from stepformer.errors import StepFormerError

if TYPE_CHECKING:
    from torch import Tensor

    from stepformer.core.align.single import Matching

HELP = """Times every alignment kernel on batches like those of training and inference, against a naive Python loop
over cells and against the least work on one core, and checks that all give the same alignments. Times are the best of
the repeats, because other work on the machine can only add to a time; a first call to warm up, which may compile, is
not counted. "One by one" is drop_dtw with its checks. A small batch is called more often: 128 items per repeat."""

EXAMPLES = [
    "stepformer bench align",
    "stepformer bench align --json > align.json",
    "stepformer bench align --device cuda",
]


@dataclass(frozen=True)
class Case:
    """A batch as one part of the product makes it: B items, K rows, N columns, both sides droppable."""

    name: str
    matching: Matching
    B: int
    K: int
    N: int


CASES = (
    Case("one video: slots to frames", "many_to_one", 1, 32, 400),
    Case("inference: slots to frames", "many_to_one", 64, 32, 600),
    Case("training: slots to phrases", "one_to_one", 128, 32, 40),
)

_ITEMS = 128


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add(parser, "device", "threads", "repeats", "seed", device="cpu", threads=1, repeats=5)
    parser.add_argument("--naive-items", type=positive, default=8, metavar="N", help="items that the naive loop aligns")


def run(args: argparse.Namespace) -> None:
    from stepformer.core.devices import torch_device

    device = torch_device(args.device)
    rows = [row for case in CASES for row in measure(case, device, args.repeats, args.naive_items, args.seed)]
    cases = {c.name: f"{c.matching}, {c.B} items of {c.K} x {c.N}" for c in CASES}
    facts = {"cases": cases, "threads": args.threads, "agree": True}
    report(args, facts, rows, "all kernels gave the same matches and costs, exactly")


def measure(case: Case, device: Any, repeats: int, naive_items: int, seed: int) -> list[dict[str, Any]]:
    """The rows of one case, a kernel each: ``ratio``, how many times faster an item is done than by the naive loop, and
    ``to_floor``, how many times as long it takes as the floor. Raises StepFormerError where two kernels differ."""
    import torch

    from stepformer.core.align import columns_of, drop_dtw, drop_dtw_batch, reference

    costs, column_drop = problem(case, seed)
    items = [(c, float(u), 0.0, case.matching) for c, u in zip(costs.numpy(), column_drop, strict=True)]
    few = costs[: min(naive_items, case.B)].numpy()
    calls = repeats * -(-_ITEMS // case.B)
    drops = [np.full(case.N, float(u)) for u in column_drop]

    def naive() -> list[tuple[float, Any]]:
        rule = case.matching == "one_to_one", True
        return [reference.align(c, u, np.zeros(case.K), *rule) for c, u in zip(few, drops, strict=False)]

    def batched(backend: Any, where: Any) -> Callable[[], Any]:
        given = costs.to(where), column_drop.to(where), 0.0
        options = {"matching": case.matching, "return_cost": True, "check": False, "backend": backend}
        return lambda: drop_dtw_batch(*given, **options)

    one_by_one = "drop_dtw, one by one (numba)", "cpu"
    kernels: dict[tuple[str, str], Callable[[], Any]] = {one_by_one: lambda: [drop_dtw(*item) for item in items]}
    wanted = [("numba", "cpu"), ("torch", "cpu")]
    if device.type == "cuda":
        wanted += [("torch", str(device)), ("triton", str(device))]
    kernels |= {(f"drop_dtw_batch ({backend})", where): batched(backend, where) for backend, where in wanted}

    slow = naive()
    naive_ms = best_ms(naive, repeats) / len(few)
    times, first = {("naive Python loop", "cpu"): naive_ms}, None
    floor_ms = _floor_ms(costs.numpy(), calls)
    for (name, where), call in kernels.items():
        found = call()  # warms up, and is what gets compared
        if (name, where) == one_by_one:
            costs_found = torch.tensor([a.cost for a in found], dtype=torch.float64)
            found = torch.from_numpy(np.stack([a.matrix() for a in found])), costs_found
        matrix, cost = (x.cpu() for x in found)
        wait = torch.cuda.synchronize if where != "cpu" else None
        times[name, where] = best_ms(call, calls, wait) / case.B
        for b, (slow_cost, assignment) in enumerate(slow):
            if cost[b].item() != slow_cost or columns_of(matrix[b]).tolist() != assignment.tolist():
                raise StepFormerError(
                    f"{case.name}, item {b}: {name} on {where} differs from the naive loop; please report this"
                )
        first = first or (matrix, cost)
        if not (matrix.equal(first[0]) and cost.equal(first[1])):
            raise StepFormerError(f"{case.name}: {name} on {where} differs from the first kernel; please report this")
    return [
        {"case": case.name, "kernel": name, "device": where, "ms_per_item": ms, "ms_per_batch": ms * case.B,
         "ratio": naive_ms / ms, "to_floor": ms / floor_ms}
        for (name, where), ms in times.items()
    ]  # fmt: skip


def _floor_ms(costs: Any, repeats: int) -> float:
    """ms per item of one addition and one comparison per cell, row by row: costs (B, K, N)."""
    from numba import njit

    @njit
    def scan(costs: Any) -> float:  # pragma: no cover  # compiled
        total = 0.0
        for item in costs:
            above = np.zeros(item.shape[1])
            for row in item:
                best = 0.0
                for n in range(len(row)):
                    best = row[n] + min(best, above[n])
                    above[n] = best
            total += best
        return total

    scan(costs)  # compiles
    return best_ms(lambda: scan(costs), repeats) / len(costs)


def problem(case: Case, seed: int) -> tuple[Tensor, Tensor]:
    """Costs (B, K, N) and column drops (B,): similarities with an ordered story in them, 30% kept."""
    import torch

    from stepformer.core.align import percentile_drop

    random = torch.Generator().manual_seed(seed)
    similarity = 0.2 * torch.randn(case.B, case.K, case.N, generator=random, dtype=torch.float64)
    place = torch.linspace(0, 1, case.N) - torch.linspace(0, 1, case.K)[:, None]
    similarity += 0.5 * torch.exp(-((place * case.K) ** 2))
    return -similarity, percentile_drop(similarity, keep=0.3)


def best_ms(call: Callable[[], Any], repeats: int, wait: Callable[[], None] | None = None) -> float:
    """ms of the fastest of some calls; ``wait``: until the device is done."""
    return 1000 * min(timeit.repeat(call if wait is None else lambda: (call(), wait()), number=1, repeat=repeats))
