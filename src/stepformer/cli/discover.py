"""``stepformer discover``: the steps of videos, without labels."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from stepformer.app.discover.knobs import USES, Knobs
from stepformer.cli.inputs import Input
from stepformer.cli.options import add
from stepformer.cli.over_videos import add_videos, run_over
from stepformer.narration.listening import Listening

HELP = """Finds the ordered steps of videos, with start, end, name and score. Give at most one of --steps, --detail,
--percentile and --similarity; by default a video is cut as finely as it needs. Names come from what is said: subtitles
given, beside or inside the video, else its speech. Where nothing is said, steps are numbered.

VIDEO may also be features: a folder of .npy, .npz or safetensors files (--rate of them per second), one of them, or a
feature store. What is written is what stepformer evaluate reads. --out without --format writes JSON."""

EXAMPLES = [
    "stepformer discover pancakes.mp4",
    "stepformer discover pancakes.mp4 --steps 8 --write chapters.vtt --plot",
    "stepformer discover videos/ --format json,youtube --out results --keep-going --skip-existing",
    "stepformer discover '**/*.mkv' --detail 0.8 --json > steps.jsonl",
    "find . -name '*.mp4' | stepformer discover - --no-labels --jobs 2",
    "stepformer discover videos/ --format json --out results --keep-going --cluster auto    # on a Ray cluster",
    "stepformer discover features/ --model runs/mine --out predictions    # then: evaluate --predictions predictions",
]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add(parser, "steps", "detail")
    parser.add_argument(
        "--percentile", type=float, metavar="P", help="the paper's drop threshold: this percentile of similarities"
    )
    parser.add_argument(
        "--similarity", type=float, metavar="S", help="a fixed drop threshold, as the released code has (0.35)"
    )
    add(parser, "unordered", "no_labels", "sure_only")
    parser.add_argument("--use", choices=USES, default="both", help="slots say what, structure says where")
    parser.add_argument("--bank", metavar="FILE", help="phrases, one per line, to guess names from by sight")
    parser.add_argument(
        "--vectors", action="store_true", help="also NAME.steps.vectors.npy beside JSON, for evaluate to cluster by"
    )
    add_videos(parser)


def run(args: argparse.Namespace) -> int:
    from stepformer.app.naming import read_bank

    knobs = Knobs(
        steps=args.steps, detail=args.detail, percentile=args.percentile, similarity=args.similarity,
        ordered=not args.unordered, use=args.use,
    )  # fmt: skip
    bank = tuple(read_bank(args.bank)) if args.bank else None
    return run_over(args, partial(find, knobs=knobs, bank=bank))


def find(
    model: Any, video: Input, args: argparse.Namespace, knobs: Knobs, bank: Sequence[str] | None, listening: Listening
) -> Any:
    """The steps of one video, in whichever process."""
    from stepformer.show.writing import without_guesses

    # plain features do not say whose they are, and names need the text side of the encoder that made them
    named = not args.no_labels and (video.kind != "features" or args.encoder is not None)
    features = video.read(model, args.rate, not args.no_cache, named)
    narration = video.heard(listening) if named else None
    found = model.find(features, knobs, narration=narration, labels="auto" if named else "none", bank=bank)
    return replace(found, timeline=without_guesses(found.timeline)) if args.sure_only else found
