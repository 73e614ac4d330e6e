"""``stepformer bench threshold``: the automatic one, the paper's percentile and the released code's values.

Measured on the simulated dev split, which is what the default was chosen on; the test split is not touched. Each
encoder's videos are rendered with several seeds (other frames for the same timelines); means over seeds are printed
with their standard deviations. A second view takes background out of the same videos until a fifth is left: a threshold
that suits videos that are half background may ruin those that are nearly all steps.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from benchmarks.quality import boundary_f1
from benchmarks.real import _cuts, _equal, overlap, simulated
from benchmarks.real_data import RealVideo
from stepformer.app.discover.options import DiscoverOptions
from stepformer.base.progress import Progress
from stepformer.cli.options import add
from stepformer.core.inference import find_steps
from stepformer.core.model import Slots
from stepformer.core.options import DEFAULT_INFERENCE, InferenceConfig
from stepformer.encoders.reading import Features

HELP = """Compares thresholds below which a frame is background: automatic (the default), a percentile of all slot-frame
similarities (the paper; the released configuration keeps the top tenth), a fixed similarity (0.35 in the released test
script, 0.44 in its demo). For the paper's inference (slots alone) and for the default (slots and structure). Cut F1
within a second and overlap are printed beside a uniform split into the same number of steps; frame F1 and MoF are of
step against background. --parts shows what each part of the default adds."""

EXAMPLES = [
    "stepformer bench threshold --world world.safetensors",
    "stepformer bench threshold --world world.safetensors --parts",
    "stepformer bench threshold --world world.safetensors --seeds 0 --limit 20 --json",
]

PERCENTILES = (70.0, 80.0, 90.0, 95.0)
SIMILARITIES = (0.35, 0.44, 0.55, 0.65, 0.75)
NOTES = {"percentile 90": "the paper's, as released", "similarity 0.35": "released test", "similarity 0.44": "its demo"}
ENCODERS = ("simulated",)
VIEWS = ("as they are", "a fifth background")
MEASURES = (
    "steps", "marked", "cut_f1", "uniform_f1", "overlap", "uniform_overlap", "frame_f1", "mof", "dropped",
)  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """One simulated video and what the model makes of it; marks are ``video.steps``."""

    video: RealVideo
    output: Slots


@dataclass(frozen=True, slots=True)
class Way:
    """One threshold."""

    inference: str  # "slots" or "slots and structure"
    name: str
    options: DiscoverOptions
    config: InferenceConfig = DEFAULT_INFERENCE


def thresholds() -> list[Way]:
    """The thresholds compared, for both inferences."""
    out = []
    for inference, use in (("slots", "slots"), ("slots and structure", "both")):
        out.append(Way(inference, "automatic", DiscoverOptions(use=use)))  # type: ignore[arg-type]
        out += [
            Way(inference, f"percentile {value:g}", DiscoverOptions(use=use, percentile=value))  # type: ignore[arg-type]
            for value in PERCENTILES
        ]
        out += [
            Way(inference, f"similarity {value:g}", DiscoverOptions(use=use, similarity=value))  # type: ignore[arg-type]
            for value in SIMILARITIES
        ]
    return out


def parts() -> list[Way]:
    """The default with one of its weights turned, down and up, at a time."""
    turned: dict[str, tuple[Any, ...]] = {
        "penalty_share": (1 / 16, 1 / 12, 1 / 6), "contrast_to": (0.6, 1.0, 2.0),
        "evidence_temperature": (0.01, 0.04, 0.15), "step_weight": (1.0, 4.0), "row_weight": (0.0, 0.3, 1.0),
    }  # fmt: skip
    ways = [Way("slots and structure", "default", DiscoverOptions())]
    for name, values in turned.items():
        ways += [
            Way("slots and structure", f"{name} {v:.3g}", DiscoverOptions(), replace(DEFAULT_INFERENCE, **{name: v}))
            for v in values
        ]
    return [
        *ways,
        Way("structure", "structure alone", DiscoverOptions(use="structure")),
        Way("slots", "slots alone", DiscoverOptions(use="slots")),
    ]


def measure(seen: Seen, way: Way) -> tuple[float, ...]:
    """The measures of one video, in the order of MEASURES."""
    features = seen.video.features
    structure = torch.from_numpy(np.asarray(features.cutting))[None]
    mask = torch.ones(1, len(features), dtype=torch.bool)
    config = way.options.inference(way.config)
    found_in = find_steps(seen.output, mask, config, structure=structure, rate_hz=features.rate_hz)
    pieces = found_in.segments[0]
    end_s, rate = features.duration_s, features.rate_hz
    found = [(piece.first / rate, min(piece.last / rate, end_s)) for piece in pieces]
    marked = [(start, min(end, end_s)) for start, end, _ in seen.video.steps]
    equal = _equal(max(1, len(found)), end_s)
    true = _cuts(marked, end_s)
    shown = np.zeros(len(features), bool)
    for piece in pieces:
        shown[piece.first : piece.last] = True
    steps = seen.video.labels(rate, len(features)) >= 0
    both = shown.sum() + steps.sum()
    return (
        len(found), len(marked), boundary_f1(_cuts(found, end_s), true), boundary_f1(_cuts(equal, end_s), true),
        overlap(found, marked), overlap(equal, marked), 2.0 * (shown & steps).sum() / both if both else 1.0,
        float((shown == steps).mean()), 1.0 - float(shown.mean()),
    )  # fmt: skip


def with_less_background(video: RealVideo, share: float = 0.2) -> RealVideo | None:
    """The video with whole stretches of background left out until about ``share`` of it is background.

    None for a video of fewer than 40 marked seconds: what is left of it would be too short to drop anything from.
    """
    features = video.features
    marks = video.labels(features.rate_hz, len(features))
    wanted = int((marks >= 0).sum() * share / (1 - share))
    if (marks >= 0).sum() < 40 * features.rate_hz:
        return None
    background = np.flatnonzero(marks < 0)
    runs = np.split(background, np.flatnonzero(np.diff(background) > 1) + 1)
    keep = marks >= 0
    for run in np.random.default_rng(len(marks)).permutation(len(runs)):
        taken = runs[run][:wanted]
        keep[taken] = True
        wanted -= len(taken)
    left = marks[keep]
    steps = tuple(
        (float(at[0]) / features.rate_hz, float(at[-1] + 1) / features.rate_hz, video.steps[k][2])
        for k in range(len(video.steps))
        if len(at := np.flatnonzero(left == k))
    )
    present = [k for k in range(len(video.steps)) if (left == k).any()]
    return RealVideo(video.name, Features(features.vectors[keep], features.rate_hz), steps, video.texts[present])


def _sets(args: argparse.Namespace, model: Any) -> Iterator[tuple[str, str, int, list[Seen]]]:
    """(view, encoder, seed, videos)."""
    for encoder in ENCODERS:
        for seed in args.seeds:
            videos = simulated(args.world, args.limit, seed)
            thinned = [less for video in videos if (less := with_less_background(video)) is not None]
            for view, chosen in zip(VIEWS, (videos, thinned), strict=True):
                if chosen:
                    seen = [Seen(v, model.run(v.features.vectors)) for v in chosen]
                    yield view, encoder, seed, seen


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    add(parser, "world", "model", "limit", "seeds", world={"required": True}, limit=60)
    parser.add_argument("--parts", action="store_true", help="what the default is made of, instead of thresholds")


def run(args: argparse.Namespace) -> int:
    """Measures and prints one table a view."""
    from stepformer.app.discover.loading import load_model

    model = load_model(args.model)
    ways = parts() if args.parts else thresholds()
    found: dict[tuple[str, str, str, str], list[Any]] = {}
    numbers: dict[str, int] = {}
    total = len(ENCODERS) * len(args.seeds) * len(VIEWS) * len(ways)
    with Progress("measuring", total, "rows", quiet=args.json) as progress:
        for view, encoder, _, videos in _sets(args, model):
            numbers[view] = len(videos)
            for way in ways:
                means = np.mean([measure(seen, way) for seen in videos], axis=0)
                found.setdefault((view, encoder, way.inference, way.name), []).append(means)
                progress.advance()
    rows = [
        {
            "view": view, "encoder": encoder, "inference": inference, "threshold": name,
            **{m: round(float(v), 4) for m, v in zip(MEASURES, np.mean(runs, axis=0), strict=True)},
            "sd": {m: round(float(v), 4) for m, v in zip(MEASURES, np.std(runs, axis=0), strict=True)},
        }
        for (view, encoder, inference, name), runs in found.items()
    ]  # fmt: skip
    report = {"model": model.checkpoint.hash, "split": "dev", "videos": numbers, "seeds": args.seeds, "rows": rows}
    print(json.dumps(report, indent=2) if args.json else _markdown(report, args.model))
    return 0


def _markdown(report: dict[str, Any], model: str) -> str:
    """One table a view, a row a way; a cell has one value an encoder, in the order of ENCODERS."""
    by = {(row["view"], row["inference"], row["threshold"], row["encoder"]): row for row in report["rows"]}
    ways = list(dict.fromkeys((row["inference"], row["threshold"]) for row in report["rows"]))
    out = [
        f"model {model} ({report['model'][:12]}); simulated dev split, "
        + (f"{len(report['seeds'])} seeds, mean ± standard deviation" if len(report["seeds"]) > 1 else "one seed")
        + f"; in each cell: {', '.join(ENCODERS)}"
    ]
    for view, number in report["videos"].items():
        out += [
            "", f"{number} videos an encoder and seed, {view}:", "",
            "| inference | threshold | steps (marked) | cut F1 | (uniform) | overlap | (uniform) | frame F1 | MoF "
            "| dropped |",
            "|---|---|---|---|---|---|---|---|---|---|",
        ]  # fmt: skip
        for inference, threshold in ways:
            rows = [by[view, inference, threshold, encoder] for encoder in ENCODERS]
            note = f" ({NOTES[threshold]})" if threshold in NOTES else ""
            steps = ", ".join(f"{row['steps']:.1f}" for row in rows)
            cells = [
                inference, threshold + note, f"{steps} ({rows[0]['marked']:.1f})", _spread(rows, "cut_f1"),
                _short(rows, "uniform_f1"), _spread(rows, "overlap"), _short(rows, "uniform_overlap"),
                _spread(rows, "frame_f1"), _spread(rows, "mof"), _short(rows, "dropped"),
            ]  # fmt: skip
            out.append(f"| {' | '.join(cells)} |")
    out += ["", "Means over encoders and views:", "", "| inference | threshold | cut F1 | overlap | frame F1 | MoF |"]
    out.append("|---|---|---|---|---|---|")
    for inference, threshold in ways:
        rows = [row for row in report["rows"] if (row["inference"], row["threshold"]) == (inference, threshold)]
        means = (np.mean([row[name] for row in rows]) for name in ("cut_f1", "overlap", "frame_f1", "mof"))
        out.append(f"| {inference} | {threshold} | {' | '.join(f'{mean:.3f}' for mean in means)} |")
    return "\n".join(out)


def _spread(rows: list[dict[str, Any]], name: str) -> str:
    def cell(row: dict[str, Any]) -> str:
        spread = f" ± {row['sd'][name]:.3f}" if row["sd"][name] > 0 else ""
        return f"{row[name]:.3f}{spread}".replace("0.", ".")

    return ", ".join(cell(row) for row in rows)


def _short(rows: list[dict[str, Any]], name: str) -> str:
    return ", ".join(f"{row[name]:.2f}" for row in rows)
