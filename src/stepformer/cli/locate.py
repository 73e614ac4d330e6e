"""``stepformer locate``: when given steps happen in videos."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from typing import Any

from stepformer.app.discover.options import check_texts
from stepformer.cli.inputs import Input, lines_of
from stepformer.cli.options import add
from stepformer.cli.over_videos import add_videos, run_over
from stepformer.errors import UsageError
from stepformer.narration.listening import Listening

HELP = """Finds when given steps happen. They are assumed to happen in the given order, unless --unordered is set. A
step that is not in the video is reported as absent. Steps are placed by their texts, the narration and visual cuts.
--method auto uses the model's own options (the shipped model uses no slots), "text" never uses slots, and "slots" is
the paper's inference; meta.method in the result reports which was used.

VIDEO may also be features, as in stepformer discover. --out without --format writes JSON; stepformer export --formats
lists the formats."""

EXAMPLES = [
    'stepformer locate pancakes.mp4 --step "crack the eggs" --step "whisk" --step "pour into the pan"',
    "stepformer locate pancakes.mp4 --steps-file recipe.txt --write chapters.vtt",
    "stepformer locate videos/ --steps-file recipe.txt --unordered --json > located.jsonl",
]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add(parser, "step")
    parser.add_argument("--steps-file", metavar="FILE", help="a file with one step per line; # starts a comment")
    add(parser, "unordered")
    methods = ("auto", "slots", "text")
    parser.add_argument(
        "--method",
        choices=methods,
        default="auto",
        help="the model's own options, the paper's inference, or no slots",
    )
    parser.add_argument("--all-present", action="store_true", help="assume that every step is in the video")
    add_videos(parser)


def run(args: argparse.Namespace) -> int:
    texts = [*args.step, *(lines_of(args.steps_file, "steps file") if args.steps_file else [])]
    if not texts:
        raise UsageError('give the steps: --step "crack the eggs" --step "whisk", or --steps-file FILE')
    return run_over(args, partial(find, texts=check_texts(texts)))


def find(model: Any, video: Input, args: argparse.Namespace, texts: Sequence[str], listening: Listening) -> Any:
    """The places of the steps in one video, in whichever process."""
    features = video.read(model, args.rate, not args.no_cache)
    return model.place(
        features, texts, not args.unordered, method=None if args.method == "auto" else args.method,
        all_present=args.all_present, narration=video.heard(listening),
    )  # fmt: skip
