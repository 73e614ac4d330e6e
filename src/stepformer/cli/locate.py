"""``stepformer locate``: when given steps happen in videos."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from typing import Any

from stepformer.app.discover.knobs import check_texts
from stepformer.cli.discover import looks_up
from stepformer.cli.inputs import Input, find_inputs, lines_of
from stepformer.cli.options import LISTENING, add, listening_of
from stepformer.cli.over_videos import OVER_VIDEOS, note_heard, note_read, run_over
from stepformer.errors import UsageError
from stepformer.narration.listening import Listening

HELP = """Finds when given steps happen. They are taken to happen in the order given, unless --unordered. A step that is
not in the video is reported as absent. Steps are aligned through the model's slots, or straight with the video where
that explains them better; which was used is in the result (meta.method)."""

EXAMPLES = [
    'stepformer locate pancakes.mp4 --step "crack the eggs" --step "whisk" --step "pour into the pan"',
    "stepformer locate pancakes.mp4 --steps-file recipe.txt --write chapters.vtt",
    "stepformer locate videos/ --steps-file recipe.txt --unordered --json > located.jsonl",
]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument(
        "videos", nargs="*", metavar="VIDEO", help="files, folders, patterns, features, a feature store, or - for stdin"
    )
    add(parser, "step")
    parser.add_argument("--steps-file", metavar="FILE", help="a file with one step per line; # starts a comment")
    add(parser, "unordered")
    parser.add_argument(
        "--method",
        choices=("auto", "slots", "text"),
        default="auto",
        help="align through slots, or texts with the video",
    )
    parser.add_argument("--all-present", action="store_true", help="take every step to be in the video")
    add(parser, "subtitles", *LISTENING, *OVER_VIDEOS)


def run(args: argparse.Namespace) -> int:
    """Locates, prints, writes."""
    texts = [*args.step, *(lines_of(args.steps_file, "steps file") if args.steps_file else [])]
    if not texts:
        raise UsageError('give the steps: --step "crack the eggs" --step "whisk", or --steps-file FILE')
    wanted = partial(find, texts=check_texts(texts), listening=listening_of(args))
    return run_over(args, find_inputs(args.videos, ids=looks_up(args)), wanted)


def find(model: Any, video: Input, args: argparse.Namespace, texts: Sequence[str], listening: Listening) -> Any:
    """The places of the steps in one video, in whichever process."""
    features = video.read(model, args.rate, note_read, not args.no_cache, True)
    return model.place(
        features, texts, not args.unordered, method=None if args.method == "auto" else args.method,
        judge_presence=not args.all_present, narration=video.heard(listening, note_heard),
    )  # fmt: skip
