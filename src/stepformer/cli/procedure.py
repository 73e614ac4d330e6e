"""``stepformer procedure``: several videos of one task to one ordered list of steps."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from stepformer.cli.inputs import Input, find_inputs, start_worker, worker
from stepformer.cli.log import answer, log, of
from stepformer.cli.options import FOLDER, LISTENING, add, listening_of, share
from stepformer.cli.outputs import may_write, warn_of_cache
from stepformer.cli.over_videos import LIMITS
from stepformer.errors import InputError, PartialError

HELP = """Finds the steps that several videos of one task have in common: clustered across the videos, named and
ordered, with how many videos have each, how often one comes before another, and each video's timeline in terms of them.
VIDEO is a file, a folder, a pattern, a feature store (prepare features), or - for a list on stdin. --out writes
procedure.json, flow.mmd (Mermaid), flow.png and one timeline per video into a folder."""

EXAMPLES = [
    "stepformer procedure pancakes/*.mp4",
    "stepformer procedure pancakes/ --out pancakes-steps --title 'Make pancakes'",
    "stepformer procedure pancakes/ --steps 8 --json > procedure.json",
    "stepformer procedure store/ --mermaid",
]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from stepformer.app.procedure.finding import MIN_SHARE

    parser.add_argument(
        "videos", nargs="+", metavar="VIDEO", help="videos, folders, patterns, feature stores, or - for stdin"
    )
    common = {"help": "how many steps (default: the number that best separates the steps of the videos)"}
    add(parser, "steps", "detail", "no_labels", steps=common)
    parser.add_argument(
        "--min-share",
        type=share,
        default=MIN_SHARE,
        metavar="0..1",
        help="a common step is in at least this share of the videos",
    )
    parser.add_argument("--mermaid", action="store_true", help="print the flow graph as Mermaid instead of the list")
    add(parser, "out", "overwrite", "title", "model", "encoder", "device", "threads", "rate", "seed", "keep_going",
        out={"metavar": FOLDER})  # fmt: skip
    add(parser, "no_cache", "time_limit", "dry_run", *LISTENING)


def run(args: argparse.Namespace) -> int:
    sources = find_inputs(args.videos)
    if args.dry_run:
        names = [str(source) for source in sources]
        answer(args, names, "\n".join(names))
        return 0
    if len(sources) < 2:
        raise InputError(
            f"a procedure is what several videos of one task have in common, and there is {len(sources) or 'no'} video "
            f"here; give at least two (for one: stepformer discover {args.videos[0]})"
        )
    if args.out:
        may_write([str(Path(args.out) / "procedure.json")], args.overwrite)
    from stepformer.app.procedure import find

    findings, failed = _find_all(sources, args)
    procedure = find(
        findings, start_worker(args), steps=args.steps, min_share=args.min_share, detail=args.detail, seed=args.seed,
        labels="auto" if all(source.may_be_named(args) for source in sources) else "none",
    )  # fmt: skip
    written = _write(procedure, Path(args.out), args.title) if args.out else {}
    from stepformer.show.flow import mermaid

    text = mermaid(procedure).rstrip("\n") if args.mermaid else "\n".join([as_text(procedure), *written.values()])
    answer(args, procedure.to_dict() | {"files": written, "failed": failed}, text)
    for note in procedure.meta.get("notes", ()):
        log.warning(note)
    for name, error in failed.items():
        log.warning(f"left out: {of(name, error)}")
    return PartialError.exit_code if failed else 0


def _find(source: Input) -> Any:
    """The steps of one video."""
    from stepformer.app.discover.options import DiscoverOptions

    args = worker["args"]
    return source.find(worker["model"], args, DiscoverOptions(detail=args.detail), listening_of(args))


def _find_all(sources: list[Input], args: argparse.Namespace) -> tuple[list[Any], dict[str, str]]:
    from stepformer.base.many import run_many
    from stepformer.base.progress import Progress

    if not args.no_cache:
        warn_of_cache()
    findings: dict[Input, Any] = {}
    failed: dict[str, str] = {}
    with Progress("videos", len(sources), "videos") as progress:
        limits = LIMITS | {"time_limit_s": args.time_limit, "apart": args.apart}
        for outcome in run_many(_find, sources, 1, start_worker, (args,), **limits):
            if outcome.error is None:
                findings[outcome.item] = outcome.value
            elif args.keep_going:
                failed[str(outcome.item)] = outcome.error
            else:
                outcome.result()
            progress.advance(1, str(outcome.item))
    return list(findings.values()), failed


def _write(procedure: Any, folder: Path, title: str | None) -> dict[str, str]:
    from stepformer.base.files import write_json, write_text
    from stepformer.show.flow import mermaid, save_flow

    files = {name: folder / name for name in ("procedure.json", "flow.mmd", "flow.png")}
    write_json(files["procedure.json"], procedure.to_dict())
    write_text(files["flow.mmd"], mermaid(procedure))
    save_flow(procedure, files["flow.png"], title)
    taken: set[str] = set()
    for number, timeline in enumerate(procedure.timelines):
        stem = Path(timeline.video).stem or f"video-{number + 1}"
        name = stem if stem not in taken else f"{stem}-{number + 1}"
        taken.add(name)
        file = f"timelines/{name}.steps.json"  # as discover names it
        files[file] = folder / file
        write_text(files[file], timeline.to_json() + "\n")
    return {name: str(path) for name, path in files.items()}


def as_text(procedure: Any) -> str:
    """The common steps as a table, and each video as the numbers of its steps."""
    from stepformer.show.writing import one_line

    total = len(procedure.timelines)
    head = (
        f"{len(procedure.steps)} common steps of {total} videos; "
        f"their order is kept in {procedure.consistency:.0%} of pairs"
    )
    if doubt := procedure.meta.get("doubt"):
        head = f"{doubt[0].upper()}{doubt[1:]}.\nIf they do, this is what looks alike in them:"
    lines = [head, ""]
    wide = max((len(one_line(step.name)) for step in procedure.steps), default=0)
    for i, step in enumerate(procedure.steps):
        guess = f"guess {step.similarity:.2f}" if step.guess else ""
        lines.append(
            f"{i + 1:>3}  {one_line(step.name):<{wide}}  {step.videos:>3}/{total} videos  {step.times:>3} times  "
            f"{step.duration_s:>5.1f} s  at {step.place:>4.0%}  {guess}".rstrip()
        )
    lines.append("")
    for timeline in procedure.timelines:
        path = " ".join(str(step.meta.get("common") or "·") for step in timeline) or "no steps"
        lines.append(f"{timeline.video}: {path}")
    return "\n".join(lines)
