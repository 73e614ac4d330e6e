"""``stepformer locate``: when given steps happen in videos."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stepformer.app.discover.knobs import check_texts
from stepformer.cli.discover import looks_up
from stepformer.cli.inputs import find_videos
from stepformer.cli.options import add
from stepformer.cli.over_videos import OVER_VIDEOS, VideoProgress, run_over
from stepformer.errors import InputError, UsageError

HELP = """Finds when given steps happen. They are taken to happen in the order given, unless --unordered. A step that is
not in the video is told as absent. Steps are aligned through the model's slots, or straight with the video where that
explains them better; which was used is in the result (meta.method)."""

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

    def __str__(self) -> str:
        return f"{len(self.texts)} steps, {'in order' if self.ordered else 'in any order'}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("videos", nargs="*", metavar="VIDEO", help="files, folders, patterns, or - for a list on stdin")
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
    add(parser, *OVER_VIDEOS)


def run(args: argparse.Namespace) -> int:
    """Locates, prints, writes."""
    texts = [*args.step, *(_lines(args.steps_file) if args.steps_file else [])]
    if not texts:
        raise UsageError('give the steps: --step "crack the eggs" --step "whisk", or --steps-file FILE')
    method = None if args.method == "auto" else args.method
    request = Request(tuple(check_texts(texts)), not args.unordered, method, not args.all_present)
    return run_over(args, find_videos(args.videos, ids=looks_up(args)), lambda _: request, find)


def find(model: Any, video: Path, request: Request, cache: bool, progress: VideoProgress | None) -> Any:
    """One video, in whichever process."""
    features = model.read(video, None if progress is None else progress.read, cache)
    return model.place(
        features, list(request.texts), request.ordered, method=request.method, judge_presence=request.judge_presence
    )


def _lines(path: str) -> list[str]:
    try:
        lines = Path(path).read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"the steps file {path} cannot be read: {error}") from None
    return [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
