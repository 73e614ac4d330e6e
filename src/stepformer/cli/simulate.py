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

HELP = """Makes a simulated world: procedures with timelines, their text vectors, and what is held out for testing.

Without --data everything comes from the grammar that ships with the package. With a folder of public datasets
(crosstask/, coin/, youcook2/, wikihow/; any may be missing) their procedures and real timelines are used too, and the
test split is CrossTask's validation set. --calibrate prints how ground-truth texts score on the test split through
each simulated encoder, beside the paper's numbers for real UniVL features; --fit searches for a nearer mixture."""

EXAMPLES = [
    "stepformer simulate --out world.safetensors",
    "stepformer simulate --data DATASETS --out world.safetensors",
    "stepformer simulate --world world.safetensors --calibrate",
    "stepformer simulate --world world.safetensors --fit concepts --tries 40",
]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    add(parser, "out", "overwrite", "data", "world", "seed", "device", "threads")
    parser.add_argument(
        "--procedures", type=positive, default=6000, metavar="N", help="procedures drawn from the grammar"
    )
    parser.add_argument(
        "--wikihow-share", type=share, default=0.3, metavar="0..1", help="share of wikiHow articles taken"
    )
    parser.add_argument("--calibrate", action="store_true", help="score ground-truth texts through each encoder")
    parser.add_argument(
        "--fit", metavar="ENCODER", help="search the mixture of a simulated encoder: plain, concepts, joint"
    )
    parser.add_argument("--tries", type=positive, default=40, metavar="N", help="mixtures that --fit tries")


def run(args: argparse.Namespace) -> int:
    """Makes a world, or calibrates one."""
    from stepformer.data.world import load_world
    from stepformer.errors import UsageError

    if not args.out and not args.world:
        raise UsageError("give --out FILE to make a world, or --world FILE with --calibrate or --fit")
    if args.out and not args.world:
        may_write([args.out], args.overwrite)
    world: World
    if args.world:
        world = load_world(args.world)
    else:
        from stepformer.data.worldbuilder import build_world
        from stepformer.encoders.concepts import class_names
        from stepformer.encoders.sentence import default_sentence_encoder

        encoder = default_sentence_encoder()
        concepts = [*class_names("imagenet1k"), *class_names("kinetics400")]
        log.info("embedding texts with the sentence encoder")
        world = build_world(encoder.encode_text, concepts, args.data, args.procedures, args.wikihow_share, args.seed)
        world.save(args.out)
        summary = {"world": args.out, "texts": len(world.texts), **world.meta["videos"]}
        summary["removed_step_instances"] = world.meta["removed_step_instances"]
        print(json.dumps(summary) if args.json else "  ".join(f"{k} {v}" for k, v in summary.items()))
    if args.calibrate:
        from stepformer.evaluation.calibration import calibrate

        rows = calibrate(world, args.device)
        if args.json:
            print(json.dumps(rows))
        else:
            for row in rows:
                print("  ".join(f"{k} {v:.3f}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items()))
    if args.fit:
        fit_encoder(args, world)
    return 0


def fit_encoder(args: argparse.Namespace, world: World) -> None:
    """Searches one encoder's mixture and prints it."""
    from dataclasses import asdict

    from stepformer.data.simulator import ENCODERS
    from stepformer.errors import UsageError
    from stepformer.evaluation.calibration import fit

    if args.fit not in ENCODERS:
        raise UsageError(f"no simulated encoder {args.fit!r}; there are {', '.join(ENCODERS)}")
    encoder, keep, scores = fit(world, args.fit, args.tries, args.device, say=log.info)
    found = {**{k: round(v, 4) if isinstance(v, float) else v for k, v in asdict(encoder).items()}, "keep": keep}
    print(json.dumps({"encoder": found, "scores": scores}))
