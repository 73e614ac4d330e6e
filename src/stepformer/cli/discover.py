"""``stepformer discover``: the steps of videos, without labels."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from typing import Any

from stepformer.app.discover.knobs import USES, Knobs
from stepformer.cli.inputs import Source, find_sources
from stepformer.cli.options import LISTENING, add, listening_of
from stepformer.cli.over_videos import OVER_VIDEOS, note_heard, note_read, run_over
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


@dataclass(frozen=True, slots=True)
class Request:
    """What is wanted of one video."""

    knobs: Knobs
    listening: Listening
    labels: bool
    encoder: bool  # whether one was named
    bank: tuple[str, ...] | None
    rate_hz: float
    sure_only: bool

    def __str__(self) -> str:
        heard = "what is said" if self.listening.subtitles is None else self.listening.subtitles
        named = f"names from {heard}, else guessed" if self.labels else "no names"
        turned = ", ".join(f"{k} {v}" for k, v in self.knobs.to_dict().items() if k not in ("ordered", "use"))
        return f"{named}; {turned or 'as finely as the video needs'}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument(
        "videos", nargs="*", metavar="VIDEO", help="files, folders, patterns, features, a feature store, or - for stdin"
    )
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
    add(parser, "subtitles", *LISTENING, *OVER_VIDEOS)


def run(args: argparse.Namespace) -> int:
    """Discovers, prints, writes."""
    from stepformer.app.naming import read_bank

    knobs = Knobs(
        steps=args.steps, detail=args.detail, percentile=args.percentile, similarity=args.similarity,
        ordered=not args.unordered, use=args.use,
    )  # fmt: skip
    bank = tuple(read_bank(args.bank)) if args.bank else None
    request = Request(
        knobs, listening_of(args), not args.no_labels, args.encoder is not None, bank, args.rate, args.sure_only
    )
    return run_over(args, find_sources(args.videos, ids=looks_up(args)), request, find)


def looks_up(args: argparse.Namespace) -> bool:
    """Whether the encoder finds features by a video's name, so that the video itself need not be here."""
    return str(args.encoder or "").split(":")[0] in ("captions", "precomputed")


def find(model: Any, source: Source, request: Request, cache: bool) -> Any:
    """One video, in whichever process."""
    from stepformer.narration.listening import narration_of
    from stepformer.show.writing import without_guesses

    # plain features do not say whose they are, and names need the text side of the encoder that made them
    named = request.labels and (source.kind != "features" or request.encoder)
    features = source.read(model, request.rate_hz, note_read, cache, named)
    heard = named and source.kind == "video"
    narration = narration_of(source.path, request.listening, note_heard) if heard else None
    labels = "auto" if named else "none"
    found = model.find(features, request.knobs, narration=narration, labels=labels, bank=request.bank)
    return replace(found, timeline=without_guesses(found.timeline)) if request.sure_only else found
