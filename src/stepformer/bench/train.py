"""``stepformer bench train``: steps per second and peak memory of training, by preset, batch, frames and width.

The data is random, of the shapes asked for, and costs nothing to make, so that the time is that of the model, the
losses, the alignment and the optimiser. Every combination runs in a process of its own, because the peak memory of
a process never falls.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import platform
import time
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

from stepformer.cli.options import Several, add, numbers, positive
from stepformer.errors import UsageError

HELP = """Trains on random data of given shapes and reports steps per second and peak memory, for planning a run.

Memory is the peak of the whole process on the CPU, and what torch allocated on a GPU. Reading a feature store comes on
top where it is slower than a step (it runs beside it)."""

EXAMPLES = [
    "stepformer bench train",
    "stepformer bench train --device cuda --batches 32 128 --frames 256 512 --widths 384 768 --json",
]


@dataclass(frozen=True)
class Shape:
    """One combination."""

    preset: str
    batch: int
    frames: int
    width: int  # of the features and of the decoder


@dataclass(frozen=True)
class Row:
    """What one combination took."""

    preset: str
    batch: int
    frames: int
    width: int
    steps_per_s: float
    cpu_s_per_step: float  # processor time: with one thread, what a step takes on a machine without other work
    peak_mib: float
    parameters: int


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    several: dict[str, Any] = {"action": Several, "type": numbers, "nargs": "+", "metavar": "N"}
    parser.add_argument(
        "--presets", action=Several, nargs="+", default=["default"], metavar="NAME", help="training presets"
    )
    parser.add_argument("--batches", **several, default=[8, 32], help="videos per step")
    parser.add_argument("--frames", **several, default=[128, 256], help="frames per video")
    parser.add_argument("--widths", **several, default=[384], help="width of features and decoder")
    parser.add_argument("--phrases", type=positive, default=20, metavar="N", help="phrases per video")
    add(parser, "repeats", "device", "threads", device="cpu", threads=1)


def run(args: argparse.Namespace) -> int:
    """Measures and prints."""
    import torch

    from stepformer.core.devices import torch_device
    from stepformer.reproduce.execute import commit, machine

    if min(args.repeats, args.threads, args.phrases, *args.batches, *args.frames, *args.widths) < 1:
        raise UsageError("--batches, --frames, --widths, --phrases, --repeats and --threads must be at least 1")
    device = torch_device(args.device)
    shapes = [Shape(*values) for values in product(args.presets, args.batches, args.frames, args.widths)]
    context = multiprocessing.get_context("spawn")
    rows: list[Row] = []
    for shape in shapes:
        with context.Pool(1) as pool:
            rows.append(pool.apply(measure, (shape, args.phrases, args.repeats, str(device), args.threads)))
    about = {
        "commit": commit(),
        "machine": machine(str(device)),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "threads": args.threads,
        "phrases": args.phrases,
    }
    if args.json:
        print(json.dumps({**about, "rows": [asdict(row) for row in rows]}, indent=2))
        return 0
    print(", ".join(f"{key} {value}" for key, value in about.items()))
    print("| preset | batch | frames | width | steps per second | processor time per step | peak memory |")
    print("|---|---|---|---|---|---|---|")
    for row in rows:
        measured = (f"{row.steps_per_s:.2f}", f"{row.cpu_s_per_step:.2f} s", f"{row.peak_mib:.0f} MiB")
        print(f"| {' | '.join(map(str, (row.preset, row.batch, row.frames, row.width, *measured)))} |")
    return 0


def measure(shape: Shape, phrases: int, repeats: int, device: str, threads: int) -> Row:
    """Steps of one shape: one to warm up, then the median of ``repeats``."""
    import tempfile

    import torch

    from stepformer.core.config import make_config
    from stepformer.core.training import Trainer

    torch.set_num_threads(threads)
    config = make_config(
        {"preset": shape.preset, "batch": shape.batch, "model": {"feature_dim": shape.width, "dim": shape.width}}
    )
    source: Any = RandomBatches(shape, phrases)
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(config, folder, source, device, quiet=True)
        taken, worked = [], []
        for step in range(repeats + 1):
            started, before = time.perf_counter(), time.process_time()
            trainer.train_step(step)
            if device.startswith("cuda"):
                torch.cuda.synchronize()
            taken.append(time.perf_counter() - started)
            worked.append(time.process_time() - before)
    median, processor = (sorted(values[1:])[repeats // 2] for values in (taken, worked))
    parameters = sum(p.numel() for p in trainer.model.parameters())
    return Row(
        **asdict(shape), steps_per_s=round(1 / median, 3), cpu_s_per_step=round(processor, 3),
        peak_mib=round(_peak_mib(device), 1), parameters=parameters,
    )  # fmt: skip


class RandomBatches:
    """One batch of random vectors, given again and again."""

    encoder, origin = "random", "random vectors"

    def __init__(self, shape: Shape, phrases: int) -> None:
        import torch

        from stepformer.data.batches import StoreBatch

        self.dim = shape.width
        draw = torch.Generator().manual_seed(0)
        full = {n: torch.ones(shape.batch, n, dtype=torch.bool) for n in (shape.frames, phrases)}
        video, said = (torch.randn(shape.batch, n, shape.width, generator=draw) for n in (shape.frames, phrases))
        times = torch.linspace(0, shape.frames, phrases).expand(shape.batch, phrases)
        self._batch = StoreBatch(video, full[shape.frames], said, full[phrases], times)
        self.centre = video.mean((0, 1))

    def batch(self, step: int, size: int) -> Any:
        """The batch."""
        return self._batch

    def held_out_batches(self, size: int) -> list[Any]:
        """None."""
        return []

    def describe(self) -> str:
        """Nothing to say."""
        return ""


def _peak_mib(device: str) -> float:
    if device.startswith("cuda"):
        import torch

        return torch.cuda.max_memory_allocated() / 2**20
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if platform.system() == "Darwin" else 2**10)
