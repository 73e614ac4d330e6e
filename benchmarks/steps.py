"""``stepformer bench steps``: how many steps the automatic choice finds, beside a constant and one per n seconds.

The prior on the number is learned on simulated videos with the training timelines of COIN, YouCook2 and GoalStep
(``--fit`` prints its constants); the constant and the n of the baselines are fitted on simulated dev videos.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.real import _seen, simulated
from benchmarks.real_clips import clips
from benchmarks.real_data import RealVideo, load
from stepformer.cli.options import add
from stepformer.core import segments
from stepformer.core.evidence import pieces, usual_number
from stepformer.core.inference import find_steps
from stepformer.evaluation.statistics import interval, mean_draws

HELP = """Mean absolute error of the number of discovered steps on held-out simulated tasks, on real clips and, with
--data, on GTEA and Action100M, without narration: the automatic choice, its two halves alone (the penalty; the usual
number for a video with this many pieces), the usual number for a video of this length, a constant and one per n
seconds. The last three are fitted on timelines: of training videos, and of simulated dev videos. --fit prints the
constants of the prior instead."""
EXAMPLES = [
    "stepformer bench steps --world world.safetensors --data DATASETS",
    "stepformer bench steps --world world.safetensors --fit",
]
PER_SOURCE = 200
_LONGEST_S = 1800.0

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Prior:
    """The number of steps is log-normal about ``at * x ** power``; ``spread`` is of its logarithm."""

    at: float
    power: float
    spread: float

    def number(self, x: Floats) -> Floats:
        """(V,) the usual number at x (V,), a whole one of at least 1."""
        return np.maximum(1.0, np.round(self.at * x**self.power))


def fit(world_file: Path, seed: int = 5) -> dict[str, Prior]:
    """The prior by a video's pieces, and by its length, on training videos with real timelines; every source of
    timelines weighs the same."""
    from stepformer.data.simulator import Simulator
    from stepformer.data.world import load_world

    world = load_world(world_file)
    simulator = Simulator(world)
    generator = torch.Generator().manual_seed(seed)
    rows: list[tuple[float, float, float]] = []
    weights: list[float] = []
    for source in range(len(world.sources)):
        timed = (world.train.sources == source) & (world.train.durations < _LONGEST_S)  # NaN: none
        members = torch.nonzero(timed).squeeze(1)
        if len(members) < PER_SOURCE // 4:
            continue
        members = members[torch.randperm(len(members), generator=generator)[:PER_SOURCE]]
        for batch in simulator.render_all(world.train.pick(members), seed=seed, size=8):
            spread = segments.spread_out(batch.video, batch.video_mask)
            lengths = batch.video_mask.sum(1).double()
            number = (batch.steps >= 0).sum(1).double()
            columns = pieces(spread, batch.video_mask).log().double(), lengths.log(), number.log()
            rows += torch.stack(columns, 1).tolist()
            weights += [1.0 / len(members)] * len(number)
    table, w = np.asarray(rows), np.asarray(weights) / np.sum(weights)
    return {name: _line(table[:, column], table[:, 2], w) for column, name in enumerate(("pieces", "length"))}


def _line(x: Floats, y: Floats, w: Floats) -> Prior:
    """Weighted least squares."""
    x0, y0 = w @ x, w @ y
    slope = float(w @ ((x - x0) * (y - y0)) / (w @ (x - x0) ** 2))
    at = float(y0 - slope * x0)
    return Prior(float(np.exp(at)), slope, float(np.sqrt(w @ (y - at - slope * x) ** 2)))


def numbers(videos: list[RealVideo], model: Any) -> dict[str, Floats]:
    """(V,) of each video: how many steps are marked, its length and pieces, and how many each way finds."""
    columns: dict[str, list[float]] = {}
    for video in videos:
        seen = _seen(video)
        output, structure = model.run(seen.vectors), torch.from_numpy(np.asarray(seen.cutting, np.float32))[None]
        mask = torch.ones(1, len(seen), dtype=torch.bool)
        spread = segments.spread_out(structure, mask)
        row: dict[str, float] = {"marked": len(video.steps), "seconds": seen.duration_s}
        row["pieces"] = float(pieces(spread, mask)[0])
        row["usual for so many pieces"] = round(float(usual_number(torch.tensor(row["pieces"]))))
        configs = {"automatic": {}, "penalty alone": {"number_weight": 0.0}, "--detail 0": {"detail": 0.0},
                   "--detail 1": {"detail": 1.0}}  # fmt: skip
        for name, changes in configs.items():
            config = replace(model.inference, **changes)
            found = find_steps(output, mask, config, structure=structure, rate_hz=seen.rate_hz)
            row[name] = len(found.segments[0])
        for name, value in row.items():
            columns.setdefault(name, []).append(float(value))
    return {name: np.asarray(values) for name, values in columns.items()}


def baselines(dev: dict[str, Floats], by_length: Prior) -> dict[str, Any]:
    """Name -> how many steps for videos of some lengths (V,) in seconds; the dev videos' best constant and n."""
    marked = dev["marked"]
    constant = float(np.median(marked))

    def per(seconds: Floats, every: float) -> Floats:
        return np.maximum(1.0, np.round(seconds / every))

    every = min(range(3, 121), key=lambda n: float(np.abs(per(dev["seconds"], n) - marked).mean()))
    return {
        "usual for a video of this length": by_length.number,
        f"always {constant:.0f}": lambda seconds: np.full(len(seconds), constant),
        f"one per {every} s": lambda seconds: per(seconds, every),
    }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    add(parser, "world", "data", "limit", world={"required": True}, limit=200)
    parser.add_argument("--fit", action="store_true", help="print the constants that it chooses")


def run(args: argparse.Namespace) -> int:
    """Measures and prints."""
    from stepformer.app.discover.loading import load_model

    priors = fit(Path(args.world))
    if args.fit:
        print(json.dumps({name: asdict(prior) for name, prior in priors.items()}))
        return 0
    default = load_model("default")
    found = {
        f"simulated {split}": numbers(simulated(Path(args.world), args.limit, split=split), default)
        for split in ("dev", "test")
    }
    for name, videos in load(Path(args.data) if args.data else None, default).items():
        found[name] = numbers(videos, default)
    for use, marked_clips in clips(default)[0].items():
        if marked_clips:
            found[f"real clips, {use}"] = numbers([video for _, video in marked_clips], default)
    others = baselines(found["simulated dev"], priors["length"])
    rows: list[dict[str, Any]] = []
    for data, columns in found.items():
        marked = columns["marked"]
        ways = {name: columns[name] for name in ("automatic", "penalty alone", "usual for so many pieces")}
        ways |= {name: number(columns["seconds"]) for name, number in others.items()}
        errors = np.stack([np.abs(number - marked) for number in ways.values()])  # (R, V)
        draws = mean_draws(errors, np.arange(len(marked)), "videos")
        for i, (name, number) in enumerate(ways.items()):
            less = interval(draws[:, i] - draws[:, 0])
            rows.append({
                "data": data, "videos": len(marked), "marked": float(marked.mean()), "way": name,
                "number": float(number.mean()), "error": float(errors[i].mean()), "beyond_automatic": less,
                "range": [float(columns[f"--detail {end}"].mean()) for end in (0, 1)],
            })  # fmt: skip
    if args.json:
        print(json.dumps({"priors": {name: asdict(prior) for name, prior in priors.items()}, "rows": rows}, indent=2))
        return 0
    print("| data | videos | steps marked | way | steps | mean absolute error | more than automatic, 95% |")
    print("|---|---|---|---|---|---|---|")
    for row in rows:
        low, high = row["beyond_automatic"]
        more = "" if row["way"] == "automatic" else f"{low:+.2f} to {high:+.2f}"
        print(
            f"| {row['data']} | {row['videos']} | {row['marked']:.1f} | {row['way']} | {row['number']:.1f} | "
            f"{row['error']:.2f} | {more} |"
        )
    for data, columns in found.items():
        ends = [columns[f"--detail {end}"].mean() for end in (0, 1)]
        print(f"{data}: --detail 0 to 1 gives {ends[0]:.1f} to {ends[1]:.1f} steps")
    return 0
