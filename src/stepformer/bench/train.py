"""``stepformer bench train``: the time of a training step beside the straightforward one and beside its floor.

The data is random, and lies in the host's memory, on a GPU in the pinned memory that training's loader fills. The
reference is the same step as one would write it first: see :func:`_plain_step`.

The floor counts what must be computed and moved at least: products with folded projections, frames read once per
product, attention written and read once, every parameter and moment read and written once. It is divided by what this
machine was seen to do in the same run: a large product in the step's precision, and a large copy.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, NamedTuple

from stepformer.cli.log import log
from stepformer.cli.measured import peak_mib, report
from stepformer.cli.options import Several, add, numbers, positive
from stepformer.errors import UsageError

HELP = """Trains on random data of given shapes and reports the time per step, how many times longer a plain PyTorch
step takes, the least time that a step could take on this machine, and peak memory: of the whole process on the CPU, of
torch's allocations on a GPU."""

EXAMPLES = [
    "stepformer bench train",
    "stepformer bench train --presets paper default --batches 8 32 --json > train.json",
    "stepformer bench train --device cuda --presets paper --batches 72 --frames 1000 --widths 768 --phrases 90",
]


def _slots() -> int:
    from stepformer.core.model import ModelConfig

    return ModelConfig().slots


@dataclass(frozen=True)
class Shape:
    """One combination."""

    preset: str
    batch: int
    frames: int
    width: int  # of the features and of the decoder
    slots: int = field(default_factory=_slots)
    phrases: int = 20


Row = dict[str, Any]
"""A shape and what its steps took."""


class Ceilings(NamedTuple):
    """What this machine does in a large product and in a large copy."""

    product_tflops: float
    copy_tb_per_s: float

    def least_ms(self, flop: float, moved_bytes: float) -> float:
        """The time that computing and moving so much takes at least: the longer of the two."""
        return max(flop / self.product_tflops, moved_bytes / self.copy_tb_per_s) / 1e9


def add_arguments(parser: argparse.ArgumentParser) -> None:
    several: dict[str, Any] = {"action": Several, "type": numbers, "nargs": "+", "metavar": "N"}
    parser.add_argument(
        "--presets", action=Several, nargs="+", default=["default"], metavar="NAME", help="training presets"
    )
    parser.add_argument("--batches", **several, default=[8, 32], help="videos per step")
    parser.add_argument("--frames", **several, default=[128, 256], help="frames per video")
    parser.add_argument("--widths", **several, default=[384], help="width of features and decoder")
    parser.add_argument("--phrases", type=positive, default=20, metavar="N", help="most phrases per video")
    add(parser, "repeats", "device", "threads", device="cpu", threads=1)


def run(args: argparse.Namespace) -> None:
    shapes, device = asked(args)
    ceilings = measure_ceilings(device, args.threads)
    rows = []
    for shape in shapes:
        row = apart(partial(measure, repeats=args.repeats, device=device, threads=args.threads), shape, device)
        floor_ms = sum(ceilings.least_ms(*part) for part in least(shape, row["parameters"], row["recorded"]).values())
        ratio = {"ratio": row["reference_ms"] / row["step_ms"], "step_to_floor": row["step_ms"] / floor_ms}
        rows.append({**row, "floor_ms": floor_ms, **ratio})
    report(args, {"threads": args.threads, **ceilings._asdict()}, rows)


def asked(args: argparse.Namespace) -> tuple[list[Shape], str]:
    """The combinations of the options, and the device they are measured on."""
    from stepformer.core.devices import torch_device

    if min(*args.batches, *args.frames, *args.widths) < 1:
        raise UsageError("--batches, --frames and --widths must be at least 1")
    combined = itertools.product(args.presets, args.batches, args.frames, args.widths)
    return [Shape(*sizes, phrases=args.phrases) for sizes in combined], str(torch_device(args.device))


def apart(work: Callable[[Shape], Row], shape: Shape, device: str) -> Row:
    """What was measured of one shape: on a CPU in a process of its own, because the peak memory of one never falls."""
    from stepformer.base.many import run_many

    row = next(run_many(work, [shape], apart=not device.startswith("cuda"))).result()
    log.info("%s: %.3f ms", shape, row["step_ms"])  # those that follow may take long
    return row


def measure(
    shape: Shape, repeats: int, device: str, threads: int, on_device: bool = False, reference: bool = True
) -> Row:
    """Median step time of one shape, processor time per step, peak memory; and the straightforward step's time."""
    import torch

    torch.set_num_threads(threads)
    cuda = device.startswith("cuda")
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    trainer = make_trainer(shape, device, on_device)
    step_ms, cpu_s = _time(trainer.train_step, repeats, cuda, 100)
    trainer.settle()
    row = {
        **asdict(shape), "step_ms": step_ms, "cpu_s_per_step": cpu_s,
        "peak_mib": torch.cuda.max_memory_allocated() / 2**20 if cuda else peak_mib(),
        "parameters": sum(p.numel() for p in trainer.model.parameters()),
        "recorded": trainer.eager_because is None,  # as a CUDA graph
    }  # fmt: skip
    if reference:
        plain = _plain_step(make_trainer(shape, device, on_device))
        row["reference_ms"], _ = _time(plain, max(3, repeats // 2), cuda)
    return row


def make_trainer(shape: Shape, device: str, on_device: bool = False) -> Any:
    """A trainer on random data of the shape, which lies on the GPU already where ``on_device``."""
    import tempfile

    from stepformer.core.config import make_config
    from stepformer.core.training import Trainer

    size = {"feature_dim": shape.width, "dim": shape.width, "slots": shape.slots}
    config = make_config({
        "preset": shape.preset, "batch": shape.batch, "steps": 1_000_000, "model": size,
        "data": {"store": "random", "max_frames": shape.frames},
    })  # fmt: skip
    source: Any = _RandomBatches(shape, device, on_device)
    return Trainer(config, tempfile.gettempdir(), source, device, quiet=True)


def _time(step: Callable[[int], Any], repeats: int, cuda: bool, at_once: int = 10) -> tuple[float, float]:
    """Median ms per step and processor seconds per step. On a GPU a repeat is ``at_once`` steps, started without
    waiting: the first waits for its batch, all others find theirs brought beside the step before, as in training."""
    import torch

    inner, warm = (at_once, 2) if cuda else (1, 1)
    number = itertools.count()
    taken, worked = [], []
    for repeat in range(repeats + warm):
        if cuda:
            torch.cuda.synchronize()
        started, before = time.perf_counter(), time.process_time()
        for _ in range(inner if repeat else 1):
            step(next(number))
        if cuda:
            torch.cuda.synchronize()
        taken.append((time.perf_counter() - started) / inner)
        worked.append((time.process_time() - before) / inner)
    return 1e3 * sorted(taken[warm:])[repeats // 2], sorted(worked[warm:])[repeats // 2]


class _RandomBatches:
    """One batch of random vectors in float16, as stores keep them, given again and again; 20 phrases at least."""

    encoder, origin = "random", "random vectors"

    def __init__(self, shape: Shape, device: str, on_device: bool) -> None:
        import torch

        from stepformer.core.distributed import Batch

        self.dim = shape.width
        B, N, L, D = shape.batch, shape.frames, shape.phrases, shape.width
        draw = torch.Generator(device).manual_seed(0)
        video, phrases = (torch.randn(B, n, D, generator=draw, device=device).half() for n in (N, L))
        said = torch.randint(min(20, L), L + 1, (B, 1), generator=draw, device=device)
        times = torch.linspace(0, N, L, device=device).expand(B, L).contiguous()
        seen = torch.ones(B, N, dtype=torch.bool, device=device)
        made = Batch(video, seen, phrases, torch.arange(L, device=device) < said, times)
        brought = device.startswith("cuda") and not on_device
        self._batch = Batch(*(value.cpu().pin_memory() for value in made)) if brought else made

    def batch(self, step: int, size: int) -> Any:
        return self._batch

    def held_out_batches(self, size: int) -> list[Any]:
        return []

    def describe(self) -> str:
        return ""


def _plain_step(trainer: Any) -> Callable[[int], Any]:
    """The trainer's own step in plain torch, kernel by kernel, keys and values of all frames projected."""
    from stepformer.core.devices import plain_torch
    from stepformer.core.model import Attention

    trainer.eager_because = "it is what the step is compared with"
    for module in trainer.model.modules():
        if isinstance(module, Attention):
            module.folds = False

    def step(number: int) -> None:
        with plain_torch():
            trainer.train_step(number)

    return step


# -- the floor --------------------------------------------------------------------------------------------------------


def measure_ceilings(device: str, threads: int) -> Ceilings:
    """A large product in the precision that steps have there (bf16 on a GPU), and a large copy: the best of some."""
    import torch
    from torch.utils.benchmark import Timer

    cuda = device.startswith("cuda")
    size, kind = (8192, torch.bfloat16) if cuda else (1024, torch.float32)
    a = torch.randn(size, size, device=device).to(kind)
    source = torch.randn((1 << 29) if cuda else (1 << 24), device=device)
    target = torch.empty_like(source)

    def best_s(work: Callable[[], Any]) -> float:
        timer = Timer("work()", globals={"work": work}, num_threads=threads)
        return float(min(timer.blocked_autorange(min_run_time=0.5).times))

    product_s, copy_s = best_s(lambda: a @ a), best_s(lambda: target.copy_(source))
    return Ceilings(2 * size**3 / product_s / 1e12, 2 * source.nbytes / copy_s / 1e12)


def least(shape: Shape, parameters: int, recorded: bool) -> dict[str, tuple[float, float]]:
    """The least that each part of a step of this shape computes and moves: FLOP and bytes."""
    from stepformer.core.config import make_config

    size = {"feature_dim": shape.width, "dim": shape.width, "slots": shape.slots}
    config = make_config({"preset": shape.preset, "model": size})
    model = config.model
    B, N, D, K, L, layers = shape.batch, shape.frames, shape.width, shape.slots, shape.phrases, model.layers
    R, KH, bytes_ = B * K, K * model.heads, 2 if recorded else 4
    attended = 2.0 * B * KH * N * D  # FLOP of one product of the folded queries with the frames
    linear = 2.0 * R * (8 * D * D + 2 * D * model.feedforward)  # of a layer: two attentions, feed-forward
    frames, rows, scores = B * N * D * bytes_, B * KH * D * bytes_, B * KH * N * bytes_
    moved = 2 * (frames + rows + scores)  # the two products of a layer, each way
    weights, gradients = parameters * 4.0, parameters * float(bytes_)  # on a GPU in bf16, as the two moments
    mean = 2 if config.optim.ema else 0
    matrix = float(R * B * L)
    return {
        "forward": (layers * (2 * attended + linear), layers * moved + 2 * frames),
        "losses, both ways": (2 * 2 * matrix * D, 4 * matrix * 4 + 2 * R * D * 4),
        "backward": (layers * (2 * attended + 2 * linear), layers * moved + gradients),
        "clip, update, mean": (0.0, 6 * gradients + weights * (2 + mean + 0.5)),
    }
