"""``stepformer reproduce real-features``: uniform, K-means and Kukleva et al. on GTEA and the Breakfast sample."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

HELP = """
Baselines on real visual features, task by task, over seeds: GTEA (28 videos; CNN features, and class scores) and
five videos of Breakfast. DATA holds the folders gtea (gtea_features.npz, label_names.json) and breakfast (features,
groundTruth, mapping). Prints F1 a task and all metrics averaged; --out writes Markdown and JSON.
"""

EXAMPLES = [
    "stepformer reproduce real-features --data ../shared/data",
    "stepformer reproduce real-features --data DATA --dataset breakfast --seeds 0 1 2 3 4 --out results",
]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("--data", required=True, help="folder with gtea and breakfast in it")
    parser.add_argument("--dataset", choices=("gtea", "scores", "breakfast"), nargs="+", help="only these (all)")
    parser.add_argument("--task", nargs="+", help="only these activities (all)")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="seeds (0 1 2)")
    parser.add_argument("--updates", type=int, default=0, help="least number of optimiser steps of Kukleva et al. (0)")
    parser.add_argument("--device", default="cpu", help="cpu or cuda (cpu)")
    parser.add_argument("--out", help="folder for real_features.md and real_features.json")


def run(args: argparse.Namespace) -> int:
    """Scores, prints, writes."""
    from stepformer.base.files import write_json, write_text
    from stepformer.base.progress import Progress
    from stepformer.errors import UsageError
    from stepformer.reproduce.real_features import methods, read_real, rows_of, score_real, tables

    names = {"gtea": "GTEA", "scores": "GTEA class scores", "breakfast": "Breakfast"}
    wanted = [names[d] for d in args.dataset or names]
    data = {name: videos for name, videos in read_real(args.data).items() if name in wanted}
    if args.task:
        data = {name: [v for v in videos if v.task in args.task] for name, videos in data.items()}
        data = {name: videos for name, videos in data.items() if videos}
    if not data:
        raise UsageError(f"{args.data} has no videos of {', '.join(wanted)}" + (f" {args.task}" if args.task else ""))
    used = methods(args.updates)
    total = sum(len(rows_of(used, videos)) for videos in data.values()) * len(args.seeds)
    started = time.monotonic()
    with Progress("real features", total, quiet=args.json) as progress:
        scores = [
            score_real(name, videos, used, args.seeds, args.device, lambda done: progress.advance(note=done))
            for name, videos in data.items()
        ]
    made = tables(scores)
    record = {
        "command": "stepformer reproduce real-features",
        "methods": {name: str(row) for name, row in used.items()},
        "seconds": round(time.monotonic() - started, 1),
        "datasets": [score.to_dict() for score in scores],
    }
    if args.out:
        write_text(Path(args.out) / "real_features.md", "\n\n".join(t.to_markdown() for t in made) + "\n")
        write_json(Path(args.out) / "real_features.json", record)
    print(json.dumps(record) if args.json else "\n\n".join(t.to_text() for t in made))
    return 0
