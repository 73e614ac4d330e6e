"""``stepformer discover``: the steps of videos, without labels."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stepformer.app.discover.knobs import USES, Knobs
from stepformer.cli.inputs import find_videos
from stepformer.cli.options import LISTENING, add, listening_of
from stepformer.cli.over_videos import OVER_VIDEOS, VideoProgress, run_over
from stepformer.narration.listening import Listening

HELP = """Finds the ordered steps of videos, with start, end, name and score. Turn at most one of --steps, --detail,
--percentile and --similarity; by default a video is cut as finely as it needs. Names come from what is said: subtitles
given, beside or inside the video, else its speech; where nothing is said they are guesses and say so."""

EXAMPLES = [
    "stepformer discover pancakes.mp4",
    "stepformer discover pancakes.mp4 --steps 8 --write chapters.vtt --plot",
    "stepformer discover videos/ --format json --format youtube --out results --keep-going --skip-existing",
    "stepformer discover '**/*.mkv' --detail 0.8 --json > steps.jsonl",
    "find . -name '*.mp4' | stepformer discover - --no-labels --jobs 2",
]


@dataclass(frozen=True, slots=True)
class Request:
    """What is wanted of one video."""

    knobs: Knobs
    listening: Listening
    labels: bool
    bank: tuple[str, ...] | None

    def __str__(self) -> str:
        heard = "what is said" if self.listening.subtitles is None else self.listening.subtitles
        named = f"names from {heard}, else guessed" if self.labels else "no names"
        turned = ", ".join(f"{k} {v}" for k, v in self.knobs.to_dict().items() if k not in ("ordered", "use"))
        return f"{named}; {turned or 'as finely as the video needs'}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("videos", nargs="*", metavar="VIDEO", help="files, folders, patterns, or - for a list on stdin")
    add(parser, "steps", "detail")
    parser.add_argument(
        "--percentile", type=float, metavar="P", help="the paper's drop threshold: this percentile of similarities"
    )
    parser.add_argument(
        "--similarity", type=float, metavar="S", help="a fixed drop threshold, as the released code has (0.35)"
    )
    add(parser, "unordered", "no_labels")
    parser.add_argument("--use", choices=USES, default="both", help="slots say what, structure says where")
    parser.add_argument("--bank", metavar="FILE", help="phrases, one per line, to guess names from (default: ours)")
    add(parser, "subtitles", *LISTENING, *OVER_VIDEOS)


def run(args: argparse.Namespace) -> int:
    """Discovers, prints, writes."""
    knobs = Knobs(
        steps=args.steps, detail=args.detail, percentile=args.percentile, similarity=args.similarity,
        ordered=not args.unordered, use=args.use,
    )  # fmt: skip
    return run_over(args, find_videos(args.videos, ids=looks_up(args)), _requests(args, knobs), find)


def looks_up(args: argparse.Namespace) -> bool:
    """Whether the encoder finds features by a video's name, so that the video itself need not be here."""
    return str(args.encoder or "").split(":")[0] in ("captions", "precomputed")


def _requests(args: argparse.Namespace, knobs: Knobs) -> Any:
    from stepformer.app.naming import read_bank

    bank = tuple(read_bank(args.bank)) if args.bank else None
    request = Request(knobs, listening_of(args), not args.no_labels, bank)
    return lambda _: request


def find(model: Any, video: Path, request: Request, cache: bool, progress: VideoProgress | None) -> Any:
    """One video, in whichever process."""
    from stepformer.narration.listening import narration_of

    features = model.read(video, None if progress is None else progress.read, cache)
    labels = "auto" if request.labels else "none"
    narration = narration_of(video, request.listening, None if progress is None else progress.heard)
    return model.find(features, request.knobs, narration=narration, labels=labels, bank=request.bank)
