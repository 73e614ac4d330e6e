"""``stepformer simulate``: makes the simulated corpus that training and tables run on."""

from __future__ import annotations

import argparse
from typing import Any

from stepformer.base.defaults import GRAMMAR_PROCEDURES
from stepformer.cli.log import answer, log
from stepformer.cli.options import add, positive
from stepformer.cli.outputs import may_write

HELP = """Makes a simulated world: procedures with timelines, texts and pictures as an encoder sees them, and splits.

Everything comes from the grammar that ships with the package, and pictures are synthetic. In a checkout of the
repository, stepformer bench world makes one from public datasets and real pictures."""

EXAMPLES = [
    "stepformer simulate --out world.safetensors",
    "stepformer simulate --encoder clip --procedures 500 --out world.safetensors",
]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add(parser, "out", "overwrite", "encoder", "seed", "threads", encoder="clip",
        out={"required": True, "metavar": "FILE"})  # fmt: skip
    parser.add_argument(
        "--procedures", type=positive, default=GRAMMAR_PROCEDURES, metavar="N", help="procedures drawn from the grammar"
    )


def run(args: argparse.Namespace) -> int:
    from stepformer.data.world import build_world

    return make(args, build_world)


def make(args: argparse.Namespace, build: Any) -> int:
    """Saves the world that ``build(encode, procedures, seed, sentences, encoder, fingerprint)`` makes."""
    from stepformer import encoders
    from stepformer.encoders.sentence import default_sentence_encoder

    may_write([args.out], args.overwrite)
    name = args.encoder
    encoder = encoders.load(name)
    log.info("embedding texts with %s", name)
    sentences = default_sentence_encoder().encode_text
    world = build(encoder.encode_text, args.procedures, args.seed, sentences, name, encoder.fingerprint)
    world.save(args.out)
    summary = {
        "world": args.out,
        "texts": len(world.texts),
        "pictures": len(world.pictures),
        "videos": {split: len(world.split(split)) for split in world.splits},
        "removed_step_instances": world.meta["removed_step_instances"],
        "near_texts": world.meta["near_texts"],
    }
    videos = ", ".join(f"{count} {split}" for split, count in summary["videos"].items())
    answer(args, summary, f"{args.out}: {len(world.texts)} texts, {len(world.pictures)} pictures; videos: {videos}")
    return 0
