"""``stepformer prepare phrases SRC DST``: many videos' subtitles to one table of phrases."""

from __future__ import annotations

import argparse
from pathlib import Path

from stepformer.base.many import cores
from stepformer.cli.log import answer, log, of
from stepformer.cli.options import PHRASES, add, phrase_options, workers_of

HELP = """Turns a folder of subtitle files, or a HowTo100M caption file, into one table of verb phrases with their times
(Parquet or JSON lines, one row per phrase). A run that was stopped goes on where it was. A file that cannot be
read is listed, and the exit code is then 5; the next run tries it again."""
EXAMPLES = [
    "stepformer prepare phrases subtitles/ phrases.parquet",
    "stepformer prepare phrases caption.json phrases.parquet --jobs 16 --no-chatter",
    "stepformer prepare phrases subtitles/ phrases.jsonl --no-whole-clause --released-filters",
]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("src", type=Path, help="folder of subtitles, one subtitle file, or HowTo100M's caption.json")
    parser.add_argument("dst", type=Path, help="table to write, .parquet or .jsonl")
    add(parser, "jobs", "cluster", "overwrite", jobs=cores())
    add(parser.add_argument_group("phrases"), *PHRASES, whole_clause=True)


def run(args: argparse.Namespace) -> int:
    """Does it, lists what failed."""
    from stepformer.base.progress import Progress
    from stepformer.narration.prepare import Report, prepare

    options = phrase_options(args)
    begun = Path(f"{args.dst}.parts")
    if args.dst.is_file() and not args.overwrite and not begun.exists():
        log.warning(f"{args.dst} is there already; --overwrite does it again")
        return 0
    with Progress("phrases", None, "words") as progress:

        def advance(words: int, report: Report) -> None:
            progress.advance(words, f"{len(report.failed)} failed" if report.failed else None)

        report = prepare(args.src, args.dst, options, workers_of(args), advance, args.cluster)
    result = {
        "dst": str(args.dst), "videos": report.videos, "phrases": report.phrases, "resumed": report.resumed,
        "failed": [{"source": name, "error": error} for name, error in report.failed],
    }  # fmt: skip
    before = f", {report.resumed} done before" if report.resumed else ""
    answer(args, result, f"{args.dst}: {report.phrases} phrases of {report.videos} videos{before}")
    for name, error in report.failed:
        log.error(f"failed: {of(name, error)}")
    return 5 if report.failed else 0
