"""``stepformer bench align``: the alignment kernels against a naive Python loop over cells, in one run.

The naive loop is `core.align.reference`, pure Python on lists. Every kernel aligns the same batch, and its
matches and costs must equal the naive loop's exactly on the items the loop does, and those of every other kernel on
all, or the command fails.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stepformer.cli.measured import report
from stepformer.cli.options import add, positive
from stepformer.errors import StepFormerError

if TYPE_CHECKING:
    from torch import Tensor

    from stepformer.core.align.single import Matching

HELP = """Times every alignment kernel on the batches that training and inference make, against a naive Python
loop over cells, and checks that all give the same alignments. Times are the best of the repeats (other work on the
machine only ever adds to a time), after one call to warm up, which compiles where there is something to compile."""

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
    Case("inference: slots to frames", "many_to_one", 64, 32, 600),
    Case("training: slots to phrases", "one_to_one", 128, 32, 40),
)


Row = dict[str, Any]
"""One kernel on one case; ``ratio`` is how many times faster an item is done than by the naive loop."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this command."""
    add(parser, "device", "threads", "repeats", "seed", device="cpu", threads=1, repeats=5)
    parser.add_argument("--naive-items", type=positive, default=8, metavar="N", help="items that the naive loop aligns")


def run(args: argparse.Namespace) -> int:
    """Measures, compares, prints."""
    import torch

    from stepformer.core.devices import torch_device

    device = torch_device(args.device)
    threads = torch.get_num_threads()
    torch.set_num_threads(args.threads)
    try:
        rows = [row for case in CASES for row in measure(case, device, args.repeats, args.naive_items, args.seed)]
    finally:
        torch.set_num_threads(threads)
    facts: dict[str, Any] = {
        "cases": {c.name: f"{c.matching}, {c.B} items of {c.K} x {c.N}" for c in CASES},
        "threads": args.threads,
        "agree": True,
        "numba": _version("numba"),
        "triton": _version("triton"),
    }
    report(args, facts, rows, "all kernels gave the same matches and costs, exactly")
    return 0


def measure(case: Case, device: Any, repeats: int, naive_items: int, seed: int) -> list[Row]:
    """The rows of one case. Raises StepFormerError where two kernels differ."""
    import torch

    from stepformer.core.align import drop_dtw, drop_dtw_batch, reference

    costs, column_drop = problem(case, seed)
    one_to_one = case.matching == "one_to_one"
    n = min(naive_items, case.B)
    arrays = [(costs[b].numpy(), column_drop[b].expand(case.N).numpy(), torch.zeros(case.K).double().numpy())
              for b in range(n)]  # fmt: skip

    def naive() -> list[tuple[float, Any]]:
        return [reference.align(*item, one_to_one, True) for item in arrays]

    slow = naive()
    naive_ms = best_ms(naive, repeats, None) / n
    rows: list[Row] = []

    def write(kernel: str, where: str, ms: float) -> None:
        row = {"case": case.name, "kernel": kernel, "device": where, "ms_per_item": ms}
        rows.append({**row, "ms_per_batch": ms * case.B, "ratio": naive_ms / ms})

    def add(kernel: str, where: str, call: Callable[[], Any], wait: Callable[[], None] | None = None) -> Any:
        found = call()  # warms up, and is what gets compared
        write(kernel, where, best_ms(call, repeats, wait) / case.B)
        return found

    write("naive Python loop", "cpu", naive_ms)

    results: dict[str, tuple[Tensor, Tensor]] = {}
    if importlib.util.find_spec("numba"):
        items = [(costs[b].numpy(), float(column_drop[b])) for b in range(case.B)]
        singles = add("drop_dtw, one by one (numba)", "cpu",
                      lambda: [drop_dtw(c, u, 0.0, case.matching) for c, u in items])  # fmt: skip
        matrices = torch.stack([torch.from_numpy(a.matrix()) for a in singles])
        results["drop_dtw"] = matrices, torch.tensor([a.cost for a in singles], dtype=torch.float64)
    backends = [("numba", "cpu")] if importlib.util.find_spec("numba") else []
    backends.append(("torch", "cpu"))
    if device.type == "cuda":
        backends.append(("torch", str(device)))
        if importlib.util.find_spec("triton"):
            backends.append(("triton", str(device)))
    for backend, where in backends:
        on_device = costs.to(where), column_drop.to(where)
        wait = torch.cuda.synchronize if where != "cpu" else None

        def call(backend: Any = backend, on_device: tuple[Tensor, Tensor] = on_device) -> Any:
            return drop_dtw_batch(
                on_device[0], on_device[1], 0.0, matching=case.matching, return_cost=True, check=False, backend=backend
            )

        found = add(f"drop_dtw_batch ({backend})", where, call, wait)
        results[f"{backend} on {where}"] = found[0].cpu(), found[1].cpu()

    _compare(case, slow, results)
    return rows


def _compare(case: Case, slow: list[tuple[float, Any]], results: dict[str, tuple[Tensor, Tensor]]) -> None:
    """Raises unless all kernels gave the naive loop's costs and matches, and the same as one another elsewhere."""
    from stepformer.core.align import columns_of

    first_name, first = next(iter(results.items()))
    for name, (matrix, cost) in results.items():
        columns = columns_of(matrix)
        for b, (slow_cost, assignment) in enumerate(slow):
            if cost[b].item() != slow_cost or columns[b].tolist() != assignment.tolist():
                raise StepFormerError(f"{case.name}, item {b}: {name} differs from the naive loop; please report this")
        if not (matrix.equal(first[0]) and cost.equal(first[1])):
            raise StepFormerError(f"{case.name}: {name} differs from {first_name}; please report this")


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
    times = []
    for _ in range(repeats):
        if wait:
            wait()
        started = time.perf_counter()
        call()
        if wait:
            wait()
        times.append((time.perf_counter() - started) * 1000)
    return min(times)


def _version(package: str) -> str | None:
    if not importlib.util.find_spec(package):
        return None
    return str(importlib.import_module(package).__version__)
