"""``stepformer discover``: the steps of videos, without labels."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stepformer.app.discover.knobs import USES, Knobs
from stepformer.cli import listening
from stepformer.cli.inputs import find_videos
from stepformer.cli.over_videos import COMMON, VideoProgress, run_over
from stepformer.cli.settings import Option, Settings, add_options, resolve
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

OPTIONS: tuple[Option, ...] = (
    Option("steps", int, None, "about how many steps", "N"),
    Option("detail", float, None, "0 few and long, 0.5 as by default, 1 many and short", "0..1"),
    Option("percentile", float, None, "the paper's drop line: this percentile of the similarities", "P"),
    Option("similarity", float, None, "a fixed drop line, as the released code has (0.35)", "S"),
    Option("unordered", bool, False, "give up the order of the slots (the paper's ablation)"),
    Option("use", str, "both", "slots say what, structure says where", choices=USES),
    Option("labels", bool, True, "steps without names", flag="--no-labels"),
    Option("bank", str, None, "file of phrases, one a line, to guess names from", "FILE"),
    *listening.OPTIONS,
    *COMMON,
)


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
    add_options(parser, OPTIONS)


def run(args: argparse.Namespace) -> int:
    """Discovers, prints, writes."""
    settings = resolve("discover", args, OPTIONS)
    knobs = Knobs(
        steps=settings.steps, detail=settings.detail, percentile=settings.percentile, similarity=settings.similarity,
        ordered=not settings.unordered, use=settings.use,
    )  # fmt: skip
    videos = find_videos(args.videos, ids=looks_up(settings))
    return run_over("discover", videos, _requests(settings, knobs), find, settings, args.json)


def looks_up(settings: Settings) -> bool:
    """Whether the encoder finds features by a video's name, so that the video itself need not be here."""
    return str(settings.encoder or "").split(":")[0] in ("captions", "precomputed")


def _requests(settings: Settings, knobs: Knobs) -> Any:
    from stepformer.app.naming import read_bank

    bank = tuple(read_bank(settings.bank)) if settings.bank else None
    request = Request(knobs, listening.listening_from(settings, settings.reuse), settings.labels, bank)
    return lambda _: request


def find(model: Any, video: Path, request: Request, cache: bool, progress: VideoProgress | None) -> Any:
    """One video, in whichever process."""
    from stepformer.narration.listening import narration_of

    features = model.read(video, None if progress is None else progress.read, cache)
    labels = "auto" if request.labels else "none"
    narration = narration_of(video, request.listening, None if progress is None else progress.heard)
    return model.find(features, request.knobs, narration=narration, labels=labels, bank=request.bank)
