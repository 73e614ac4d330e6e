"""``stepformer bench real``: discovery and localisation on real videos, against controls, and what each part adds.

Inference was chosen on the simulated dev split (``--world``, and ``stepformer bench threshold``). The shape of the
segment penalty was chosen with a look at GTEA's and the dev clips, and how often short videos are sampled with a look
at our two hand-washing clips.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.quality import boundary_f1
from benchmarks.real_clips import clips, measure
from benchmarks.real_data import RealVideo, load
from stepformer.app.discover.options import DiscoverOptions
from stepformer.base.arrays import unit
from stepformer.base.progress import Progress
from stepformer.cli.options import add
from stepformer.core.inference import find_steps, find_texts, pooled_slots
from stepformer.core.model import Slots
from stepformer.core.segments import Segment
from stepformer.evaluation.hungarian import assign
from stepformer.evaluation.metrics import score_video
from stepformer.evaluation.statistics import interval, mean_draws

HELP = """Discovery: cuts found within 1 s (and 0.5 s) of marked ones (F1), and overlap of found with marked
steps (IoU, matched one to one, over the larger number of the two), beside equal parts: as many steps, or as many cuts,
because steps with background between them have more; and the 95% interval of the cut F1 beyond structure only (paired
bootstrap over videos). Localisation of the marked steps' own names in order: IoU, precision, recall, MoF. Then the
product as it comes, narration included, on each clip: steps and cuts; the mean IoU of steps that are typed in order,
also as the mean over eight copies of the features with slight noise (cosine .998), beside equal parts and beside the
product's own cuts given to the texts in order; and how often a marked step's own text is the best, or among
the best five, of all marked texts for its pictures. The clips come out of packages (benchmarks/data/real_clips.toml,
370 MB on the first run). --data adds GTEA (class scores times class names as vectors, CNN features as structure) and
Action100M (captions as the video)."""

EXAMPLES = [
    "stepformer bench real",
    "stepformer bench real --data DATASETS",
    "stepformer bench real --world world.safetensors --json",
]

Ints = NDArray[np.int64]
Finder = Callable[[RealVideo, Any], list[tuple[float, float]]]


@dataclass(frozen=True, slots=True)
class Discovery:
    """Means over a set's videos; ``uniform_*`` are equal parts, as many as the row has steps, ``equal_cuts_*`` with
    as many cuts. ``beyond``: the interval of the cut F1 less that of structure only."""

    data: str
    method: str
    beyond: tuple[float, float]
    steps: float
    marked: float
    boundary_f1: float
    uniform_f1: float
    equal_cuts_f1: float
    boundary_f1_half: float
    equal_cuts_f1_half: float
    overlap: float
    uniform_overlap: float
    background: float


@dataclass(frozen=True, slots=True)
class Localisation:
    """Means over a set's videos."""

    data: str
    method: str
    iou: float
    precision: float
    recall: float
    mof: float


# -- discovery --------------------------------------------------------------------------------------------------


def _by_model(use: str, steps: bool = False) -> Finder:
    def find(video: RealVideo, model: Any) -> list[tuple[float, float]]:
        options = DiscoverOptions(use=use, steps=len(video.steps) if steps else None)  # type: ignore[arg-type]
        found = model.find(video.features, options, labels="none").timeline
        return [(step.start_s, step.end_s) for step in found]

    return find


def _pooled(video: RealVideo, model: Any) -> list[tuple[float, float]]:
    """Means of 32 equal stretches in place of slots; otherwise the paper's inference."""
    seen = _seen(video)
    output = _pooled_output(seen.vectors)
    config = replace(DiscoverOptions(use="slots").inference(model.inference), read_share=0.0)
    return _spans(find_steps(output, _all(output), config, rate_hz=seen.rate_hz).segments[0], seen.rate_hz)


def _kmeans(video: RealVideo, model: Any) -> list[tuple[float, float]]:
    """K-means of the frames' structure into as many clusters as steps are marked; its runs are the steps."""
    from stepformer.evaluation.kmeans import kmeans

    seen = _seen(video)
    points = unit(seen.cutting).astype(np.float32)
    labels = kmeans(points, min(len(video.steps), len(points)), seed=0, restarts=4).labels
    cuts = [0, *(np.flatnonzero(np.diff(labels)) + 1).tolist(), len(labels)]
    return [(a / seen.rate_hz, b / seen.rate_hz) for a, b in itertools.pairwise(cuts)]


def _uniform(video: RealVideo, model: Any) -> list[tuple[float, float]]:
    return _equal(len(video.steps), video.features.duration_s)


DISCOVERY: dict[str, Finder] = {
    "slots and structure (default)": _by_model("both"),
    "slots only (the paper's)": _by_model("slots"),
    "structure only": _by_model("structure"),
    "default, given the number of steps": _by_model("both", steps=True),
    "pooled32 slots": _pooled,
    "K-means of frames, given the number": _kmeans,
    "uniform, given the number": _uniform,
}


def discovery_rows(data: str, videos: list[RealVideo], model: Any, advance: Callable[[], None]) -> list[Discovery]:
    """All methods on one set."""
    each = {}
    for method, find in DISCOVERY.items():
        each[method] = _discovery(find, videos, model)
        advance()
    alone = each["structure only"][:, 2]
    out = []
    for method, rows in each.items():
        drawn = mean_draws(np.stack([rows[:, 2], alone]), np.zeros(len(videos)), "videos")
        beyond = interval(drawn[:, 0] - drawn[:, 1])
        out.append(Discovery(data, method, beyond, *(float(x) for x in rows.mean(0))))
    return out


def _discovery(find: Finder, videos: list[RealVideo], model: Any) -> NDArray[np.float64]:
    """(V, 10): what :class:`Discovery` has, of each video."""
    rows = []
    for video in videos:
        end_s = video.features.duration_s
        found = find(video, model)
        equal = _equal(max(1, len(found)), end_s)
        marked = [(s, min(e, end_s)) for s, e, _ in video.steps]
        true, cuts = _cuts(marked, end_s), _cuts(found, end_s)
        as_many = _cuts(_equal(len(cuts) + 1, end_s), end_s)
        covered = sum(e - s for s, e in found)
        rows.append((
            len(found), len(marked), boundary_f1(cuts, true), boundary_f1(_cuts(equal, end_s), true),
            boundary_f1(as_many, true), boundary_f1(cuts, true, 0.5), boundary_f1(as_many, true, 0.5),
            overlap(found, marked), overlap(equal, marked), max(0.0, 1.0 - covered / end_s),
        ))  # fmt: skip
    return np.asarray(rows, np.float64)


def overlap(found: list[tuple[float, float]], marked: list[tuple[float, float]]) -> float:
    """Summed IoU of spans matched one to one so that it is largest, over the larger number of spans."""
    if not found or not marked:
        return 0.0
    a, b = np.asarray(found)[:, None], np.asarray(marked)[None]
    shared = np.maximum(np.minimum(a[..., 1], b[..., 1]) - np.maximum(a[..., 0], b[..., 0]), 0.0)
    either = (a[..., 1] - a[..., 0]) + (b[..., 1] - b[..., 0]) - shared
    iou = np.where(either > 0, shared / np.maximum(either, 1e-9), 0.0)
    rows, columns = assign(iou)
    return float(iou[rows, columns].sum() / max(len(found), len(marked)))


def _cuts(spans: list[tuple[float, float]], end_s: float, apart_s: float = 0.5) -> list[float]:
    """Starts and ends inside the video, those closer than half a second as one."""
    edges = sorted({edge for span in spans for edge in span if 0.25 < edge < end_s - 0.25})
    out: list[float] = []
    for edge in edges:
        if not out or edge - out[-1] >= apart_s:
            out.append(edge)
    return out


def _equal(count: int, end_s: float) -> list[tuple[float, float]]:
    return [(i * end_s / count, (i + 1) * end_s / count) for i in range(count)]


def _spans(pieces: tuple[Segment, ...], rate_hz: float) -> list[tuple[float, float]]:
    return [(piece.first / rate_hz, piece.last / rate_hz) for piece in pieces]


def _seen(video: RealVideo) -> Any:
    from stepformer.app.discover.stepformer import _at_working_rate

    return _at_working_rate(video.features)


def _pooled_output(vectors: NDArray[Any]) -> Slots:
    frames = torch.as_tensor(np.asarray(vectors, np.float32))[None]
    return pooled_slots(frames, torch.ones(frames.shape[:2], dtype=torch.bool))


def _all(output: Slots) -> torch.Tensor:
    return torch.ones(output.frames.shape[:2], dtype=torch.bool)


# -- localisation -----------------------------------------------------------------------------------------------


def _located(video: RealVideo, model: Any, method: str) -> Ints:
    """Step of each frame at the working rate, -1 none."""
    seen = _seen(video)
    count = len(seen)
    if method == "uniform":
        return np.arange(count) * len(video.steps) // count
    output = _pooled_output(seen.vectors) if method == "pooled32 slots" else model.run(seen.vectors)
    share = {"default": model.inference.text_share, "text alignment": 1.0}.get(method, 0.0)
    config = replace(model.inference, text_share=share)
    if method.endswith("no structure"):
        config = replace(config, structure_weight=0.0, penalty_share=0.0)
    texts = torch.from_numpy(np.asarray(video.texts, np.float32))[None]
    found = find_texts(
        output, _all(output), texts, torch.tensor([texts.shape[1]]), config,
        structure=torch.from_numpy(seen.cutting)[None], rate_hz=seen.rate_hz,
    )  # fmt: skip
    return found.assignment[0].numpy()


LOCALISATION = (
    "default", "through slots", "through slots, no structure", "text alignment", "pooled32 slots", "uniform",
)  # fmt: skip


def localisation_row(data: str, method: str, videos: list[RealVideo], model: Any) -> Localisation:
    """One method on one set."""
    scores = []
    for video in videos:
        seen = _seen(video)
        score = score_video(_located(video, model, method), video.labels(seen.rate_hz, len(seen)))
        scores.append((score.iou, score.precision, score.recall, score.mof))
    return Localisation(data, method, *(float(x) for x in np.mean(scores, axis=0)))


# -- the command ------------------------------------------------------------------------------------------------


def simulated(world_file: Path, limit: int, seed: int = 0, split: str = "dev") -> list[RealVideo]:
    """Videos of a simulated split; the constants of inference were chosen on "dev"."""
    from stepformer.data.simulator import Simulator
    from stepformer.data.world import load_world
    from stepformer.encoders.reading import Features
    from stepformer.evaluation.validation import make_trial

    world = load_world(world_file)
    trial = make_trial(Simulator(world), split, limit, seed)
    out: list[RealVideo] = []
    for batch, texts in zip(trial.batches, trial.texts, strict=True):
        for i in range(len(batch.video)):
            count = int(batch.video_mask[i].sum())
            marks = batch.labels[i, :count].numpy()
            there = [int(k) for k in np.unique(marks[marks >= 0])]
            spans = [np.flatnonzero(marks == k) for k in there]
            steps = tuple((float(s[0]), float(s[-1] + 1), str(k)) for k, s in zip(there, spans, strict=True))
            vectors = batch.video[i, :count].numpy()
            if steps:
                out.append(RealVideo(str(len(out)), Features(vectors), steps, texts[i][there].numpy()))
    return out


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    add(parser, "data", "world", "limit", "model", limit=40)


def run(args: argparse.Namespace) -> int:
    """Measures and prints both tables."""
    from stepformer.app.discover.loading import load_model

    model = load_model(args.model)
    marked: dict[str, list[tuple[Path, RealVideo]]] = {}
    missing: list[str] = []
    if args.world:
        sets = {"simulated dev": simulated(Path(args.world), args.limit)}
    else:
        sets = load(Path(args.data) if args.data else None, model)
        marked, missing = clips(model)
        sets |= {f"real clips, {use}": [video for _, video in videos] for use, videos in marked.items() if videos}
    found: list[Discovery] = []
    located: list[Localisation] = []
    total = len(sets) * (len(DISCOVERY) + len(LOCALISATION))
    with Progress("measuring", total, "rows", quiet=args.json) as progress:
        for name, videos in sets.items():
            found += discovery_rows(name, videos, model, progress.advance)
            for method in LOCALISATION:
                located.append(localisation_row(name, method, videos, model))
                progress.advance()
        rows_of_clips = measure(marked, model)
    sizes = {name: len(videos) for name, videos in sets.items()}
    if args.json:
        rows = {"discovery": [asdict(row) for row in found], "localisation": [asdict(row) for row in located]}
        rows |= {"clips": [asdict(row) for row in rows_of_clips]}
        print(json.dumps({"model": model.checkpoint.hash, "videos": sizes, "left_out": missing, **rows}, indent=2))
        return 0
    print(f"model {args.model} ({model.checkpoint.hash[:12]}); videos: {sizes}\n")
    print(
        "| data | discovery | steps (marked) | cut F1 ±1 s (equal steps, equal cuts) | beyond structure, 95% "
        "| ±0.5 s (equal cuts) | overlap (equal steps) | dropped |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for d in found:
        print(
            f"| {d.data} | {d.method} | {d.steps:.1f} ({d.marked:.1f}) | {d.boundary_f1:.2f} ({d.uniform_f1:.2f}, "
            f"{d.equal_cuts_f1:.2f}) | {d.beyond[0]:+.2f} to {d.beyond[1]:+.2f} | "
            f"{d.boundary_f1_half:.2f} ({d.equal_cuts_f1_half:.2f}) | "
            f"{d.overlap:.2f} ({d.uniform_overlap:.2f}) | {d.background:.2f} |"
        )
    print("\n| data | localisation | IoU | precision | recall | MoF |\n|---|---|---|---|---|---|")
    for row in located:
        values = " | ".join(f"{value:.3f}" for value in (row.iou, row.precision, row.recall, row.mof))
        print(f"| {row.data} | {row.method} | {values} |")
    if rows_of_clips:
        texts = len({label for videos in marked.values() for _, video in videos for _, _, label in video.steps})
        print(
            "\n| clip | use | steps (marked) | cut F1 ±1 s (equal steps, equal cuts) | locate IoU (with noise) "
            f"| equal parts | own cuts in order | R@1 of {texts} texts | R@5 |\n|---|---|---|---|---|---|---|---|---|"
        )
    for c in rows_of_clips:
        print(
            f"| {c.clip} | {c.use} | {c.steps:.1f} ({c.marked:.1f}) | {c.cut_f1:.2f} ({c.uniform_f1:.2f}, "
            f"{c.equal_cuts_f1:.2f}) | {c.locate_iou:.2f} ({c.noisy_iou:.2f}) | {c.equal_iou:.2f} | {c.cuts_iou:.2f} | "
            f"{c.recall_1:.2f} | {c.recall_5:.2f} |"
        )
    print(*(f"\nleft out: {sentence}" for sentence in missing), sep="", end="")
    return 0
