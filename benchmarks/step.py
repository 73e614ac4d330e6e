"""``stepformer bench step``: ``bench train`` with the parts of a step and step times against each size."""

from __future__ import annotations

import argparse
import json
import platform
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from stepformer.bench import train
from stepformer.bench.train import Ceilings, Row, Shape, apart, asked, least, make_trainer, measure, measure_ceilings
from stepformer.cli.options import add
from stepformer.errors import UsageError

HELP = """Measures as bench train does, and also prints what each part of a step must compute and move, how long it
took, what 60 epochs over HowTo100M would take, and the rate at which its features would have to be read. With --sweep,
step times against frames, batch, slots and phrases, each changed alone from the first shape."""

EXAMPLES = [
    "stepformer bench step --device cuda --presets paper --batches 72 --frames 1000 --widths 768 --phrases 90",
    "stepformer bench step --device cuda --presets paper --batches 72 --frames 1000 --widths 768 --sweep --out s.json",
    "stepformer bench step --report s.json --chart step.svg",
]

VIDEOS, HOURS, EPOCHS = 1_200_000, 134_472, 60
"""HowTo100M and the paper's training."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    train.add_arguments(parser)
    parser.add_argument("--sweep", action="store_true", help="also step times against frames, batch, slots, phrases")
    parser.add_argument("--on-device", action="store_true", help="batches lie on the GPU already")
    parser.add_argument(
        "--report", type=Path, metavar="JSON", help="show the JSON of an earlier run (default: measure)"
    )
    add(parser, "chart", "out")


def run(args: argparse.Namespace) -> int:
    """Measures and prints."""
    import torch

    from stepformer.base.files import write_json
    from stepformer.base.guard import reading
    from stepformer.reproduce.execute import commit, machine

    if args.report is not None:
        if args.chart is None:
            raise UsageError("--report works only with --chart")
        with reading(args.report, "JSON of bench step"):
            plot(json.loads(args.report.read_text("utf-8")), args.chart)
        return 0
    if args.chart is not None and not args.sweep:
        raise UsageError("--chart works only with --sweep or --report")
    shapes, device = asked(args)
    given: dict[str, Any] = {
        "repeats": args.repeats, "device": device, "threads": args.threads, "on_device": args.on_device
    }  # fmt: skip
    rows = [apart(partial(measure, **given), shape, device) for shape in shapes]
    more = sweep(shapes[0]) if args.sweep else []
    swept = [apart(partial(measure, **given, reference=False), shape, device) for shape in more]
    ceilings = measure_ceilings(device, args.threads)
    report = {
        "commit": commit(),
        "machine": machine(device),
        "cpu": machine("cpu").split(",")[0],
        "python": platform.python_version(),
        "torch": torch.__version__,
        "threads": args.threads,
        "batches": "on the device" if args.on_device or not device.startswith("cuda") else "from pinned memory",
        **ceilings._asdict(),
        "rows": [
            {**row, **projected(row), "parts": parts(shape, row, ceilings, device, args.on_device)}
            for shape, row in zip(shapes, rows, strict=True)
        ],
        "sweep": swept,
    }
    if args.out:
        write_json(args.out, report)
    if args.chart is not None:
        plot(report, args.chart)
    if args.json:
        print(json.dumps(report, indent=2))
        return 0
    print(", ".join(f"{key} {value}" for key, value in report.items() if key not in ("rows", "sweep")))
    print_rows(report["rows"])
    for row in swept:
        sizes = f"{row['batch']} videos, {row['frames']} frames, {row['slots']} slots, {row['phrases']} phrases"
        print(f"{sizes}: {row['step_ms']:.3f} ms")
    return 0


def plot(report: dict[str, Any], path: Path) -> None:
    """Draws the step times of a sweep."""
    from benchmarks.curves import Curve, draw

    rows = report.get("sweep") or []
    if not rows:
        raise UsageError("there are no step times to plot; measure them with --sweep --out FILE")
    first, names = rows[0], {"frames": "frames", "batch": "videos", "slots": "slots", "phrases": "phrases"}

    def alone(row: dict[str, Any], name: str) -> bool:
        return all(row[other] == first[other] for other in names if other != name)

    curves = [
        Curve(label, list({row[name]: row["step_ms"] for row in rows if alone(row, name)}.items()))
        for name, label in names.items()
    ]
    shape = ", ".join(f"{first[name]} {label}" for name, label in names.items())
    draw(curves, path, f"training step, {first['preset']}, {shape}; {report['machine']}")


def print_rows(rows: list[dict[str, Any]]) -> None:
    """Every shape and its parts."""
    for row in rows:
        how = "one CUDA graph" if row["recorded"] else "kernels one by one"
        floor_ms = sum(part["floor_ms"] for part in row["parts"].values())
        known = [part["ms"] for part in row["parts"].values() if part["ms"] is not None]
        alone = f" ms (one alone {sum(known):.2f})" if known else " ms"
        print(
            f"\n{row['preset']}, {row['batch']} x {row['frames']} x {row['width']} ({how}): {row['step_ms']:.2f}{alone}"
            f", {row['step_ms'] / floor_ms:.2f} times the floor; the straightforward step {row['reference_ms']:.2f} ms"
            f", {row['reference_ms'] / row['step_ms']:.1f} times; {row['peak_mib']:.0f} MiB"
        )
        for name, part in row["parts"].items():
            took = "" if part["ms"] is None else f", took {part['ms']:.3f} ms"
            least = f"{part['gflop']:.1f} GFLOP, {part['gb']:.3f} GB, at least {part['floor_ms']:.3f} ms"
            print(f"  {name}: {least}{took}")
        print(
            f"  {EPOCHS} epochs over HowTo100M ({VIDEOS / 1e6:g} million videos): {row['howto100m_h']:.1f} h; its "
            f"features must be read at {row['needed_gb_per_s']:.2f} GB/s"
        )


def projected(row: Row) -> dict[str, float]:
    """What 60 epochs over HowTo100M take at this step time, and the rate of reading that needs, in float16."""
    steps_per_s = 1000 / row["step_ms"]
    per_video = HOURS * 3600 / VIDEOS * row["width"] * 2  # bytes, one vector per second
    return {
        "howto100m_h": round(EPOCHS * VIDEOS / row["batch"] / steps_per_s / 3600, 2),
        "needed_videos_per_s": round(row["batch"] * steps_per_s, 1),
        "needed_gb_per_s": round(row["batch"] * steps_per_s * per_video / 1e9, 3),
    }


def sweep(shape: Shape) -> list[Shape]:
    """The shape with each of frames, batch, slots and phrases changed alone."""
    made = [shape]
    for name in ("frames", "batch", "slots", "phrases"):
        made += [replace(shape, **{name: max(2, round(getattr(shape, name) * by))}) for by in (0.25, 0.5, 2)]
    return made


# -- the parts of a step ----------------------------------------------------------------------------------------------


def parts(
    shape: Shape, row: Row, ceilings: Ceilings, device: str, on_device: bool
) -> dict[str, dict[str, float | None]]:
    """The least that each part of a step must compute and move, and the ms it took, where a GPU could tell."""
    took: dict[str, float] = {}
    if device.startswith("cuda"):
        trainer = make_trainer(shape, device, on_device)
        for step in range(3):
            trainer.train_step(step)
        trainer.settle()
        took = _parts(trainer)
    return {
        name: {"gflop": flop / 1e9, "gb": moved / 1e9, "floor_ms": ceilings.least_ms(flop, moved), "ms": took.get(name)}
        for name, (flop, moved) in least(shape, row["parameters"], row["recorded"]).items()
    }


def _parts(trainer: Any) -> dict[str, float]:
    """ms of the parts of a recorded step, from graphs that hold its first parts only."""
    import torch

    graph = trainer._graph
    if graph is None or graph.stack is None:
        return {}
    recorded = next(iter(graph._recorded.values()))
    with torch.no_grad():
        kept = graph.forward(recorded)
    slots = kept.slots.detach().requires_grad_()
    alone = kept._replace(slots=slots, frames=kept.frames.detach())

    def loss(output: Any) -> Any:
        return graph.losses(recorded, output, graph.ahead(recorded))[0]

    took = {
        "forward": _replayed(lambda: graph.forward(recorded)),
        "losses": _replayed(lambda: torch.autograd.grad(loss(alone), slots, allow_unused=True)),
        "gradients": _replayed(lambda: graph.gradients(loss(graph.forward(recorded)))),
        "whole": _replayed(None, recorded.graph),
    }
    return {
        "forward": took["forward"],
        "losses, both ways": took["losses"],
        "backward": took["gradients"] - took["forward"] - took["losses"],
        "clip, update, mean": took["whole"] - took["gradients"],
    }


def _replayed(function: Callable[[], Any] | None, graph: Any = None) -> float:
    """Median ms of a function recorded as a CUDA graph."""
    import torch

    from stepformer.core.devices import Beside

    if graph is None:
        assert function is not None
        warm_up = Beside(torch.device("cuda"), 11)
        with warm_up:
            function()
        warm_up.join()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            function()
    times = []
    for _ in range(13):
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        first.record()
        graph.replay()
        last.record()
        torch.cuda.synchronize()
        times.append(first.elapsed_time(last))
    return round(float(sorted(times[3:])[5]), 4)
