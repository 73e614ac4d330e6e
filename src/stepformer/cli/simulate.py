"""``stepformer simulate``: makes the simulated corpus that training and tables run on."""

from __future__ import annotations

import argparse
import json

from stepformer.cli.log import log
from stepformer.cli.options import add, positive, share
from stepformer.cli.outputs import may_write

HELP = """Makes a simulated world: procedures with timelines, texts and pictures as an encoder sees them, and splits.

With a folder of public datasets (crosstask/, coin/, youcook2/, goalstep/, wikihow/, procel/ and clip/, the pictures;
any may be missing) videos are made of real pictures, procedures and timelines, and the test split is CrossTask's
validation set. Without --data everything comes from the grammar that ships with the package, and pictures are
imagined."""

EXAMPLES = [
    "stepformer simulate --out world.safetensors",
    "stepformer simulate --encoder clip --data DATASETS --out world.safetensors",
]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    add(parser, "out", "overwrite", "encoder", "data", "seed", "threads", out={"required": True})
    parser.add_argument(
        "--procedures", type=positive, default=2000, metavar="N", help="procedures drawn from the grammar"
    )
    parser.add_argument(
        "--wikihow-share", type=share, default=0.4, metavar="0..1", help="share of wikiHow articles taken"
    )


def run(args: argparse.Namespace) -> int:
    """Gathers, embeds, divides and saves; prints what came of it."""
    from stepformer import encoders
    from stepformer.data.worldbuilder import build_world
    from stepformer.encoders.sentence import default_sentence_encoder

    may_write([args.out], args.overwrite)
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
    return 0
