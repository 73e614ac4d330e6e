"""``stepformer discover``: the steps of videos, without labels."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from stepformer.app.discover.options import USES, DiscoverOptions
from stepformer.cli.inputs import Input
from stepformer.cli.options import add, strongest
from stepformer.cli.over_videos import add_videos, run_over
from stepformer.narration.listening import Listening

HELP = """Finds the ordered steps of videos, with start, end, name and score. Give at most one of --steps, --detail,
--percentile and --similarity; by default the number of steps follows from the video. Names come from the narration:
subtitles given, beside or inside the video, else its speech. Without narration, steps are numbered.

VIDEO may also be features: a folder of .npy, .npz or safetensors files (--rate vectors per second), a single such file,
or a feature store. stepformer evaluate reads what this command writes. --out without --format writes JSON; stepformer
export --formats lists the formats."""

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
        "--similarity", type=float, metavar="S", help="a fixed drop threshold; the released code uses 0.35"
    )
    add(parser, "unordered", "no_labels", "sure_only")
    parser.add_argument("--use", choices=USES, default="both", help="cut by slots, by structure, or both")
    parser.add_argument("--bank", metavar="FILE", help="file of phrases, one per line, to guess names from the frames")
    parser.add_argument(
        "--vectors", action="store_true", help="also write NAME.steps.vectors.npy beside JSON, for evaluate to cluster"
    )
    add_videos(parser)


def run(args: argparse.Namespace) -> int:
    from stepformer.app.naming import read_bank

    strongest(args, "steps", "detail", "percentile", "similarity")
    options = DiscoverOptions(
        steps=args.steps, detail=args.detail, percentile=args.percentile, similarity=args.similarity,
        ordered=not args.unordered, use=args.use,
    )  # fmt: skip
    bank = tuple(read_bank(args.bank)) if args.bank else None
    return run_over(args, partial(find, options=options, bank=bank))


def find(
    model: Any, video: Input, args: argparse.Namespace, options: DiscoverOptions, bank: Sequence[str] | None,
    listening: Listening,
) -> Any:  # fmt: skip
    """The steps of one video, in whichever process."""
    from stepformer.show.writing import without_guesses

    found = video.find(model, args, options, listening, bank)
    return replace(found, timeline=without_guesses(found.timeline)) if args.sure_only else found
