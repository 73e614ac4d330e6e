"""``stepformer simulate``: makes the simulated corpus that training and tables run on."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from stepformer.cli.log import log
from stepformer.cli.options import add, positive, share
from stepformer.cli.outputs import may_write

if TYPE_CHECKING:
    from stepformer.data.world import World

HELP = """Makes a simulated world: procedures with timelines, texts and pictures as an encoder sees them, and splits.

With a folder of public datasets (crosstask/, coin/, youcook2/, goalstep/, wikihow/, procel/ and clip/, the pictures;
any may be missing) videos are made of real pictures, procedures and timelines, and the test split is CrossTask's
validation set. Without --data everything comes from the grammar that ships with the package, and pictures are
imagined. --calibrate prints how ground-truth texts score on simulated CrossTask videos, beside the paper's
numbers for real UniVL features; --fit searches for videos that come nearer."""

EXAMPLES = [
    "stepformer simulate --out world.safetensors",
    "stepformer simulate --encoder clip --data DATASETS --out world.safetensors",
    "stepformer simulate --world world.safetensors --calibrate",
    "stepformer simulate --world world.safetensors --fit --tries 40",
]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    add(parser, "out", "overwrite", "encoder", "data", "world", "limit", "seed", "device", "threads")
    parser.add_argument(
        "--procedures", type=positive, default=2000, metavar="N", help="procedures drawn from the grammar"
    )
    parser.add_argument(
        "--wikihow-share", type=share, default=0.4, metavar="0..1", help="share of wikiHow articles taken"
    )
    parser.add_argument("--calibrate", action="store_true", help="score ground-truth texts on simulated videos")
    parser.add_argument("--fit", action="store_true", help="search how videos must look to meet the paper's row")
    parser.add_argument("--tries", type=positive, default=40, metavar="N", help="looks that --fit tries")


def run(args: argparse.Namespace) -> int:
    """Makes a world, or calibrates one."""
    from stepformer.data.world import load_world
    from stepformer.errors import UsageError

    if not args.out and not args.world:
        raise UsageError("give --out FILE to make a world, or --world FILE with --calibrate or --fit")
    if args.out and not args.world:
        may_write([args.out], args.overwrite)
    world = load_world(args.world) if args.world else make_world(args)
    if args.calibrate:
        from stepformer.evaluation.calibration import calibrate

        rows = calibrate(world, args.device)
        if args.json:
            print(json.dumps(rows))
        else:
            for row in rows:
                print("  ".join(f"{k} {v:.3f}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items()))
    if args.fit:
        from dataclasses import asdict

        from stepformer.evaluation.calibration import fit

        sight, keep, scores = fit(world, args.tries, args.device, limit=args.limit, say=log.info)
        found = {**{k: round(v, 4) for k, v in asdict(sight).items()}, "keep": keep}
        print(json.dumps({"sight": found, "scores": scores}))
    return 0


def make_world(args: argparse.Namespace) -> World:
    """Gathers, embeds, divides and saves; prints what came of it."""
    from stepformer import encoders
    from stepformer.data.worldbuilder import build_world
    from stepformer.encoders.sentence import default_sentence_encoder

    name = args.encoder or encoders.DEFAULT
    encoder = encoders.load(name)
    log.info("embedding texts with %s", name)
    world = build_world(
        encoder.encode_text, args.data, args.procedures, args.wikihow_share, args.seed,
        default_sentence_encoder().encode_text, name, encoder.fingerprint,
    )  # fmt: skip
    world.save(args.out)
    summary = {
        "world": args.out,
        "texts": len(world.texts),
        "pictures": len(world.pictures),
        "videos": {split: len(world.split(split)) for split in world.splits},
        "removed_step_instances": world.meta["removed_step_instances"],
        "near_texts": world.meta["near_texts"],
    }
    if args.json:
        print(json.dumps(summary))
    else:
        for name, value in summary.items():
            shown = "  ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, dict) else value
            print(f"{name}: {shown}")
    return world
