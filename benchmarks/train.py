"""``stepformer bench train``: the time of a training step beside the straightforward one and beside its floor.

The data is random, of the shapes asked for. It lies in the host's memory, on a GPU in the pinned memory that training's
loader fills, or with --on-device where the step is. The reference is the same step as one would write it first: keys
and values of all frames projected, every loss for itself, kernels launched one by one, torch's clipping and AdamW.

The floor counts what must be computed and moved at least: products with folded projections, frames read once per
product, attention written and read once, every parameter and moment read and written once. It is divided by what this
machine was seen to do in the same run: a large product in the step's precision, and a large copy.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from stepformer.cli.options import Several, add, numbers, positive
from stepformer.errors import UsageError

HELP = """Trains on random data of given shapes and reports the time of a step, how many times as long the
straightforward PyTorch step takes, the floor of each part and the distance to it, peak memory, what 60 epochs over
HowTo100M would take, and the rate at which its features would have to be read.

Memory is the peak of the whole process on the CPU, and what torch allocated on a GPU. With --sweep, step times against
frames, batch, slots and phrases, each changed alone from the first shape."""

EXAMPLES = [
    "stepformer bench train",
    "stepformer bench train --device cuda --presets paper --batches 72 --frames 1000 --widths 768 --phrases 90",
    "stepformer bench train --device cuda --presets paper --batches 72 --frames 1000 --widths 768 --sweep --out s.json",
    "stepformer bench train --report s.json --chart step.svg",
]

VIDEOS, HOURS, EPOCHS = 1_200_000, 134_472, 60
"""HowTo100M and the paper's training."""


@dataclass(frozen=True)
class Shape:
    """One combination."""

    preset: str
    batch: int
    frames: int
    width: int  # of the features and of the decoder
    slots: int = 32
    phrases: int = 20


@dataclass(frozen=True)
class Part:
    """One part of a step: the least it must compute and move, and what it took (None where only the whole is known)."""

    name: str
    gflop: float
    gb: float
    floor_ms: float
    ms: float | None = None


@dataclass(frozen=True)
class Row:
    """What one combination took."""

    preset: str
    batch: int
    frames: int
    width: int
    slots: int
    phrases: int
    step_ms: float
    reference_ms: float | None
    cpu_s_per_step: float  # processor time: with one thread, what a step takes on a machine without other work
    peak_mib: float
    parameters: int
    recorded: bool  # as a CUDA graph
    parts: tuple[Part, ...]

    @property
    def floor_ms(self) -> float:
        """The sum of the parts' floors."""
        return sum(part.floor_ms for part in self.parts)


class Ceilings(NamedTuple):
    """What this machine does in a large product and in a large copy."""

    tflops: float
    tb_per_s: float


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    several: dict[str, Any] = {"action": Several, "type": numbers, "nargs": "+", "metavar": "N"}
    parser.add_argument(
        "--presets", action=Several, nargs="+", default=["default"], metavar="NAME", help="training presets"
    )
    parser.add_argument("--batches", **several, default=[8, 32], help="videos per step")
    parser.add_argument("--frames", **several, default=[128, 256], help="frames per video")
    parser.add_argument("--widths", **several, default=[384], help="width of features and decoder")
    parser.add_argument("--phrases", type=positive, default=20, metavar="N", help="most phrases per video")
    parser.add_argument("--no-reference", action="store_true", help="leave out the straightforward step")
    parser.add_argument("--sweep", action="store_true", help="also step times against frames, batch, slots, phrases")
    parser.add_argument("--on-device", action="store_true", help="batches lie on the GPU already")
    add(parser, "chart")
    parser.add_argument("--report", type=Path, metavar="JSON", help="draw what --out wrote before (default: measure)")
    add(parser, "out")
    add(parser, "repeats", "device", "threads", device="cpu", threads=1)


def run(args: argparse.Namespace) -> int:
    """Measures and prints."""
    import torch

    from stepformer.base.files import write_json
    from stepformer.base.guard import reading
    from stepformer.core.devices import torch_device
    from stepformer.reproduce.execute import commit, machine

    if min(args.repeats, args.threads, args.phrases, *args.batches, *args.frames, *args.widths) < 1:
        raise UsageError("--batches, --frames, --widths, --phrases, --repeats and --threads must be at least 1")
    if args.report is not None:
        if args.chart is None:
            raise UsageError("--report goes with --chart")
        with reading(args.report, "JSON of bench train"):
            plot(json.loads(args.report.read_text("utf-8")), args.chart)
        return 0
    if args.chart is not None and not args.sweep:
        raise UsageError("--chart goes with --sweep, or with --report")
    device = str(torch_device(args.device))
    shapes = [
        Shape(preset, batch, frames, width, phrases=args.phrases)
        for preset in args.presets for batch in args.batches for frames in args.frames for width in args.widths
    ]  # fmt: skip
    do = _in_turn if device.startswith("cuda") else _in_processes
    settings = args.repeats, device, args.threads, args.on_device
    rows = do(shapes, *settings, True, not args.no_reference)
    swept = do(sweep(shapes[0]), *settings) if args.sweep else []
    ceilings = measure_ceilings(device, args.threads)
    rows, swept = ([replace(row, parts=floors(row, ceilings)) for row in some] for some in (rows, swept))
    about = {
        "commit": commit(),
        "machine": machine(device),
        "cpu": machine("cpu").split(",")[0],
        "python": platform.python_version(),
        "torch": torch.__version__,
        "threads": args.threads,
        "batches": "on the device" if args.on_device or not device.startswith("cuda") else "from pinned memory",
        "product_tflops": round(ceilings.tflops, 3),
        "copy_tb_per_s": round(ceilings.tb_per_s, 4),
    }
    report = {
        **about,
        "rows": [{**asdict(row), "floor_ms": round(row.floor_ms, 4), **projected(row)} for row in rows],
        "sweep": [{k: v for k, v in asdict(row).items() if k != "parts"} for row in swept],
    }
    if args.out:
        write_json(args.out, report)
    if args.chart is not None:
        plot(report, args.chart)
    if args.json:
        print(json.dumps(report, indent=2))
        return 0
    print(", ".join(f"{key} {value}" for key, value in about.items()))
    print_rows(rows)
    for row in swept:
        print(
            f"{row.batch} videos, {row.frames} frames, {row.slots} slots, {row.phrases} phrases: {row.step_ms:.3f} ms"
        )
    return 0


def plot(report: dict[str, Any], path: Path) -> None:
    """Draws the step times of a sweep."""
    from stepformer.bench.curves import Curve, draw

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


def print_rows(rows: list[Row]) -> None:
    """The table of shapes, and under it the parts of each."""
    print("| preset | batch | frames | width | step | processor | reference | ratio | floor | step / floor | memory |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for row in rows:
        reference = "" if row.reference_ms is None else f"{row.reference_ms:.2f} ms"
        ratio = "" if row.reference_ms is None else f"{row.reference_ms / row.step_ms:.1f}"
        cells = (
            row.preset, row.batch, row.frames, row.width, f"{row.step_ms:.2f} ms", f"{row.cpu_s_per_step:.3f} s",
            reference, ratio, f"{row.floor_ms:.2f} ms", f"{row.step_ms / row.floor_ms:.2f}", f"{row.peak_mib:.0f} MiB",
        )  # fmt: skip
        print(f"| {' | '.join(map(str, cells))} |")
    for row in rows:
        how = "one CUDA graph" if row.recorded else "kernels one by one"
        print(f"\n{row.preset}, {row.batch} x {row.frames} x {row.width} ({how}): floor by part")
        for part in row.parts:
            took = "" if part.ms is None else f", took {part.ms:.3f} ms"
            print(f"  {part.name}: {part.gflop:.1f} GFLOP, {part.gb:.3f} GB, at least {part.floor_ms:.3f} ms{took}")
        plan = projected(row)
        print(
            f"  {EPOCHS} epochs over HowTo100M ({VIDEOS / 1e6:g} million videos): {plan['howto100m_h']:.1f} h; its "
            f"features must be read at {plan['needed_gb_per_s']:.2f} GB/s"
        )


def projected(row: Row) -> dict[str, float]:
    """What 60 epochs over HowTo100M take at this step time, and the rate of reading that needs, in float16."""
    steps_per_s = 1000 / row.step_ms
    per_video = HOURS * 3600 / VIDEOS * row.width * 2  # bytes, one vector per second
    return {
        "howto100m_h": round(EPOCHS * VIDEOS / row.batch / steps_per_s / 3600, 2),
        "needed_videos_per_s": round(row.batch * steps_per_s, 1),
        "needed_gb_per_s": round(row.batch * steps_per_s * per_video / 1e9, 3),
    }


def sweep(shape: Shape) -> list[Shape]:
    """The shape with each of frames, batch, slots and phrases changed alone."""
    made = [shape]
    for name in ("frames", "batch", "slots", "phrases"):
        made += [replace(shape, **{name: max(2, round(getattr(shape, name) * by))}) for by in (0.25, 0.5, 2)]
    return made


# -- measuring --------------------------------------------------------------------------------------------------------


def _in_turn(shapes: list[Shape], *settings: Any) -> list[Row]:
    """On a GPU, whose peak memory can be reset."""
    rows = []
    for shape in shapes:
        rows.append(measure(shape, *settings))
        _say(rows[-1])
    return rows


def _say(row: Row) -> None:
    """One shape is measured: those that follow may take long."""
    shape = f"{row.preset}, {row.batch} videos, {row.frames} frames, {row.slots} slots, {row.phrases} phrases"
    reference = "" if row.reference_ms is None else f", reference {row.reference_ms:.2f} ms"
    took = f"{row.step_ms:.3f} ms{reference}, {row.peak_mib:.0f} MiB"
    print(f"{shape}, width {row.width}: {took}", file=sys.stderr, flush=True)


def _in_processes(shapes: list[Shape], *settings: Any) -> list[Row]:
    """Every shape in a process of its own, because the peak memory of a process never falls."""
    context = multiprocessing.get_context("spawn")
    rows: list[Row] = []
    for shape in shapes:
        with context.Pool(1) as pool:
            rows.append(pool.apply(measure, (shape, *settings)))
        _say(rows[-1])
    return rows


def measure(
    shape: Shape, repeats: int, device: str, threads: int, on_device: bool = False, parts: bool = False,
    reference: bool = False,
) -> Row:  # fmt: skip
    """Steps of one shape: two to warm up, then the median of ``repeats``, on a GPU of stretches without waiting."""
    import torch

    torch.set_num_threads(threads)
    cuda = device.startswith("cuda")
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    trainer = _trainer(shape, device, on_device)
    step_ms, processor = _time(trainer.train_step, repeats, cuda)
    trainer.settle()
    peak = _peak_mib(device)
    found = tuple(Part(name, 0.0, 0.0, 0.0, ms) for name, ms in _parts(trainer).items()) if cuda and parts else ()
    slow = None
    if reference:
        slow, _ = _time(_plain_step(_trainer(shape, device, on_device)), max(3, repeats // 2), cuda)
    return Row(
        **asdict(shape), step_ms=round(step_ms, 4), reference_ms=None if slow is None else round(slow, 4),
        cpu_s_per_step=round(processor, 4), peak_mib=round(peak, 1),
        parameters=sum(p.numel() for p in trainer.model.parameters()), recorded=trainer.eager_because is None,
        parts=found,
    )  # fmt: skip


def _trainer(shape: Shape, device: str, on_device: bool = False) -> Any:
    import tempfile

    from stepformer.core.config import make_config
    from stepformer.core.training import Trainer

    size = {"feature_dim": shape.width, "dim": shape.width, "slots": shape.slots}
    config = make_config({
        "preset": shape.preset, "batch": shape.batch, "steps": 1_000_000, "model": size,
        "data": {"store": "random", "max_frames": shape.frames},
    })  # fmt: skip
    source: Any = RandomBatches(shape, device, on_device)
    return Trainer(config, tempfile.gettempdir(), source, device, quiet=True)


def _time(step: Callable[[int], Any], repeats: int, cuda: bool) -> tuple[float, float]:
    """Median ms per step and processor seconds per step. On a GPU a repeat is ten steps started without waiting."""
    import torch

    inner = 10 if cuda else 1
    number = iter(range(1_000_000))
    taken, worked = [], []
    for repeat in range(repeats + (2 if cuda else 1)):
        if cuda:
            torch.cuda.synchronize()
        started, before = time.perf_counter(), time.process_time()
        for _ in range(inner if repeat else 1):
            step(next(number))
        if cuda:
            torch.cuda.synchronize()
        taken.append((time.perf_counter() - started) / inner)
        worked.append((time.process_time() - before) / inner)
    middle = [sorted(values[2 if cuda else 1 :])[repeats // 2] for values in (taken, worked)]
    return middle[0] * 1e3, middle[1]


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

    if graph is None:
        assert function is not None
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            function()
        torch.cuda.current_stream().wait_stream(side)
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


class Batch(NamedTuple):
    """What a step reads."""

    video: Any
    video_mask: Any
    phrases: Any
    phrase_mask: Any
    phrase_times: Any


class RandomBatches:
    """One batch of random vectors in float16, as stores keep them, given again and again; 20 phrases at least."""

    encoder, origin = "random", "random vectors"

    def __init__(self, shape: Shape, device: str, on_device: bool) -> None:
        import torch

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
        self.centre = video.float().mean((0, 1)).cpu()

    def batch(self, step: int, size: int) -> Any:
        """The batch."""
        return self._batch

    def held_out_batches(self, size: int) -> list[Any]:
        """None."""
        return []

    def describe(self) -> str:
        """Nothing to say."""
        return ""


# -- the straightforward step -----------------------------------------------------------------------------------------


def _plain_step(trainer: Any) -> Callable[[int], None]:
    """A training step as one would write it first, on the trainer's model, data and settings."""
    import torch

    from stepformer.core.model import Attention

    model, config = trainer.model, trainer.config
    o = config.optim
    mean = [p.detach().clone() for p in model.parameters()]
    optimizer = torch.optim.AdamW(model.parameters(), lr=o.lr, betas=o.betas, weight_decay=o.weight_decay)
    for module in model.modules():
        if isinstance(module, Attention):
            module.folds = False

    def step(number: int) -> None:
        torch.manual_seed(number)
        video, video_mask, phrases, phrase_mask, times = trainer._on_device(trainer.source.batch(number, config.batch))
        optimizer.zero_grad()
        with trainer._autocast():
            output = model(video, video_mask, attention=trainer.criterion.needs_attention)
        loss = _plain_losses(output, phrases, phrase_mask, video_mask, times, config.loss)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), o.clip or float("inf"))
        if not bool(torch.isfinite(norm)):
            raise UsageError(f"step {number} of the reference is not finite")
        optimizer.step()
        if o.ema:
            with torch.no_grad():
                for kept, p in zip(mean, model.parameters(), strict=True):
                    kept.lerp_(p, 1 - o.ema)

    return step


def _plain_losses(output: Any, phrases: Any, mask: Any, video_mask: Any, times: Any, c: Any) -> Any:
    """The losses of the presets one after the other, each from the vectors, in plain torch operations."""
    import torch

    from stepformer.core import losses
    from stepformer.core.align import drop_dtw_batch, percentile_drop

    slots, frames = output.slots, output.frames
    B, K, _ = slots.shape
    with torch.no_grad():
        similarity = losses.cosines(slots, phrases)
        drop = percentile_drop(similarity, c.keep, top_per_row=c.best_per_slot, lengths=mask.sum(1))
        matched = drop_dtw_batch(-similarity, drop, 0.0, lengths=mask.sum(1), matching="one_to_one", check=False)
    total = c.weights["seq"] * losses.seq_loss(losses.cosines(slots, phrases), mask, matched, c.gamma, c.seq_average)
    flat = losses.cosines(slots.flatten(0, 1), phrases.flatten(0, 1)) / c.gamma
    flat = flat.masked_fill(~mask.flatten()[None], torch.finfo(flat.dtype).min)
    own = torch.diagonal(flat.view(B, K, B, -1), dim1=0, dim2=2).movedim(-1, 0)
    ratio = own.logsumexp(2) - flat.logsumexp(1).view(B, K)
    glob = losses.nce(ratio, mask.any(1)[:, None].expand(B, K), c.glob_form)
    if c.glob_both_ways:
        back = own.logsumexp(1) - flat.logsumexp(0).view(B, -1)
        glob = glob + losses.nce(torch.where(mask, back, 0.0), mask, c.glob_form)
    total = total + c.weights["glob"] * glob
    if c.div_on == "attention":
        total = total + c.weights["div"] * losses.attention_div_loss(output.attention)
    else:
        total = total + c.weights["div"] * losses.div_loss(losses.unit(slots))
    if c.weights.get("moment"):
        given = c.options.get("moment", {})
        moment = losses.moment_loss(frames, phrases, times, video_mask, mask, c.gamma, **given)
        total = total + c.weights["moment"] * moment
    if c.smooth == "released":
        return total + c.weights["smooth"] * losses.released_smooth_loss(frames, slots, video_mask)
    index, valid = losses.sample_frames(video_mask, c.smooth_frames)
    window = (video_mask.sum(1) * c.smooth_window).clamp(min=1.0)
    picked = losses.cosines(frames.gather(1, index[..., None].expand(-1, -1, frames.shape[-1])), slots)
    smooth = losses.smooth_loss(picked, index, valid, window, c.smooth_gamma, c.smooth_form, c.smooth_with_self)
    return total + c.weights["smooth"] * smooth


# -- the floor --------------------------------------------------------------------------------------------------------


def measure_ceilings(device: str, threads: int) -> Ceilings:
    """A large product in the precision that steps have there (bf16 on a GPU), and a large copy: the best of some."""
    import torch

    torch.set_num_threads(threads)
    cuda = device.startswith("cuda")
    size, kind = (8192, torch.bfloat16) if cuda else (1024, torch.float32)
    a = torch.randn(size, size, device=device).to(kind)
    source = torch.randn((1 << 29) if cuda else (1 << 24), device=device)
    target = torch.empty_like(source)

    def best(work: Callable[[], Any]) -> float:
        times = []
        for _ in range(6):
            if cuda:
                torch.cuda.synchronize()
            started = time.perf_counter()
            for _ in range(4 if cuda else 1):
                work()
            if cuda:
                torch.cuda.synchronize()
            times.append((time.perf_counter() - started) / (4 if cuda else 1))
        return min(times[1:])

    product, copied = best(lambda: a @ a), best(lambda: target.copy_(source))
    return Ceilings(2 * size**3 / product / 1e12, 2 * source.numel() * 4 / copied / 1e12)


def floors(row: Row, ceilings: Ceilings) -> tuple[Part, ...]:
    """The least that the parts of a step of this shape compute and move; a part takes the longer of the two."""
    from stepformer.core.config import make_config

    size = {"feature_dim": row.width, "dim": row.width, "slots": row.slots}
    config = make_config({"preset": row.preset, "model": size})
    model = config.model
    B, N, D, K, L, layers = row.batch, row.frames, row.width, row.slots, row.phrases, model.layers
    R, KH, bytes_ = B * K, K * model.heads, 2 if row.recorded else 4
    attended = 2.0 * B * KH * N * D  # FLOP of one product of the folded queries with the frames
    linear = 2.0 * R * (8 * D * D + 2 * D * model.feedforward)  # of a layer: two attentions, feed-forward
    # keys and values that gradients flow into: two more products; context layers: projections and attention
    context = model.context_layers * (2.0 * B * N * (4 * D * D + 2 * D * model.feedforward) + 4.0 * B * N * N * D)
    into_frames = 2 * layers * attended if model.context_layers else 0.0
    frames, rows, scores = B * N * D * bytes_, B * KH * D * bytes_, B * KH * N * bytes_
    moved = 2 * (frames + rows + scores)  # the two products of a layer, each way
    parameters, gradients = row.parameters * 4.0, row.parameters * float(bytes_)  # on a GPU in bf16
    mean = 2 if config.optim.ema else 0
    matrix = float(R * B * L)
    given = {
        "forward": (layers * (2 * attended + linear) + context, layers * moved + 2 * frames),
        "losses, both ways": (2 * 2 * matrix * D, 4 * matrix * 4 + 2 * R * D * 4),
        "backward": (layers * (2 * attended + 2 * linear) + 2 * context + into_frames, layers * moved + gradients),
        "clip, update, mean": (0.0, 2 * gradients + parameters * (6 + mean + 0.5)),
    }
    took = {part.name: part.ms for part in row.parts}
    made = []
    for name, (flop, moved_bytes) in given.items():
        least = max(flop / ceilings.tflops / 1e9, moved_bytes / ceilings.tb_per_s / 1e9)
        made.append(Part(name, round(flop / 1e9, 2), round(moved_bytes / 1e9, 4), round(least, 4), took.get(name)))
    return tuple(made)


def _peak_mib(device: str) -> float:
    if device.startswith("cuda"):
        import torch

        return torch.cuda.max_memory_allocated() / 2**20
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if platform.system() == "Darwin" else 2**10)
