"""``stepformer locate``: when given steps happen in videos."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any

from stepformer.app.discover.knobs import check_texts
from stepformer.cli.discover import looks_up
from stepformer.cli.inputs import Source, find_sources, lines_of
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


@dataclass(frozen=True, slots=True)
class Request:
    """What is wanted of a video."""

    texts: tuple[str, ...]
    ordered: bool
    method: Any
    judge_presence: bool
    rate_hz: float
    listening: Listening

    def __str__(self) -> str:
        return f"{len(self.texts)} steps, {'in order' if self.ordered else 'in any order'}"


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
    method = None if args.method == "auto" else args.method
    request = Request(
        tuple(check_texts(texts)), not args.unordered, method, not args.all_present, args.rate, listening_of(args)
    )
    return run_over(args, find_sources(args.videos, ids=looks_up(args)), request, find)


def find(model: Any, source: Source, request: Request, cache: bool) -> Any:
    """One video, in whichever process."""
    from stepformer.narration.listening import narration_of

    features = source.read(model, request.rate_hz, note_read, cache, True)
    video = source.kind == "video"
    narration = narration_of(source.path, request.listening, note_heard) if video else None
    return model.place(
        features, list(request.texts), request.ordered, method=request.method, judge_presence=request.judge_presence,
        narration=narration,
    )  # fmt: skip
