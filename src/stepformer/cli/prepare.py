"""``stepformer prepare features | phrases``: videos, or features you have, to a feature store; subtitles to phrases."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stepformer.base.files import check_place, no_such
from stepformer.base.many import cores
from stepformer.cli.log import answer, log, of
from stepformer.cli.options import LISTENING, PHRASES, Command, add, listening_of, phrase_options, workers_of
from stepformer.errors import UsageError

KINDS = ("videos", "released", "arrays")


def _add_features(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "src", type=Path, metavar="SRC", help="folder or pattern of videos, list of videos (one per line), or one video"
    )
    parser.add_argument("dst", type=Path, metavar="DST", help="feature store to fill: a new folder, or one to add to")
    named = {"help": "encoder of the features, NAME or NAME:VALUE (default: clip)"}
    add(parser, "from", "encoder", encoder=named, **{"from": {"choices": KINDS, "default": "videos"}})
    parser.add_argument(
        "--captions", type=Path, help="text for --from arrays: HowTo100M's caption.json, or a folder of subtitle files"
    )
    add(parser, "jobs", "cluster", "time_limit", jobs=cores())
    parser.add_argument("--no-text", action="store_true", help="ignore subtitles and speech")
    add(parser, *LISTENING)
    add(parser.add_argument_group("phrases"), *PHRASES, whole_clause=True)


def _features(args: argparse.Namespace) -> int:
    if args.captions is not None and args.from_ != "arrays":
        raise UsageError("--captions works only with --from arrays; subtitles of videos are found beside them")
    check_place(args.dst, folder=True)
    summary = _videos(args) if args.from_ == "videos" else _imported(args)
    report = {"store": str(args.dst), **summary.to_dict()}
    answer(args, report, _text(report))
    for note in summary.notes:
        log.warning(note)
    for name, error in summary.failed:
        log.error(f"failed: {of(name, error)}")
    return 5 if summary.failed else 0


def _videos(args: argparse.Namespace) -> Any:
    from stepformer import encoders
    from stepformer.data.features import Settings, find_sources

    heard = listening_of(args)
    sources = find_sources(args.src, heard.language)
    jobs = min(workers_of(args), len(sources))
    threads = max(1, cores() // jobs) if args.cluster is None else 1
    options = None if args.no_text else phrase_options(args)
    settings = Settings(
        str(args.dst), args.encoder or encoders.DEFAULT, threads, phrases=not args.no_text, phrase_options=options,
        listening=heard,
    )  # fmt: skip
    limits = {"time_limit_s": args.time_limit, "cluster": args.cluster, "apart": args.apart}
    return encode_all(sources, settings, jobs, **limits)


def encode_all(sources: Sequence[Any], settings: Any, jobs: int = 1, **limits: Any) -> Any:
    """Encodes videos into a store with a bar, and gives the summary; ``limits`` as ``prepare_features`` takes them."""
    from stepformer.base.progress import Progress
    from stepformer.data.features import Summary, prepare_features

    summary = Summary()
    with Progress("videos", len(sources), "videos") as progress:
        for summary, name in prepare_features(sources, settings, jobs, **limits):
            if not progress.done and summary.skipped:
                progress.restart(summary.skipped)
            if name:
                progress.advance(1, f"{summary.seconds / max(summary.wall_s, 1e-9):.1f} x real time, {name}")
    return summary


def _imported(args: argparse.Namespace) -> Any:
    from stepformer.base.progress import Progress
    from stepformer.data.features import import_features

    if args.from_ == "released" and args.encoder is not None:
        raise UsageError("the released tars hold UniVL's features; --encoder cannot be combined with --from released")
    if args.from_ == "arrays" and args.encoder is None:
        raise UsageError("--from arrays needs --encoder NAME: whose features are they?")
    captions = None if args.no_text else args.captions
    with Progress("videos", None, "videos") as progress:
        return import_features(args.src, args.dst, args.encoder, captions, phrase_options(args), progress.advance)


def _text(report: dict[str, Any]) -> str:
    lines = [
        f"{report['store']}: {report['videos']} videos encoded, {report['skipped']} already there, "
        f"{len(report['failed'])} failed",
        f"{report['seconds']:.0f} s of video and {report['phrases']} phrases in {report['wall_s']:.1f} s"
        + (f", {report['x_real_time']:.1f} x real time" if report["x_real_time"] else ""),
    ]
    spent = {name: report[f"{name}_s"] for name in ("decode", "encode", "text")}
    if total := sum(spent.values()):
        lines.append("time: " + ", ".join(f"{name} {value / total:.0%}" for name, value in spent.items()))
    lines += [f"warning: {entry['problem']}" for entry in report["problems"]]
    return "\n".join(lines)


def _add_phrases(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "src", type=Path, metavar="SRC", help="folder of subtitles, one subtitle file, or HowTo100M's caption.json"
    )
    parser.add_argument("dst", type=Path, metavar="DST", help="table to write, .parquet or .jsonl")
    add(parser, "jobs", "cluster", "overwrite", jobs=cores())
    add(parser.add_argument_group("phrases"), *PHRASES, whole_clause=True)


def _phrases(args: argparse.Namespace) -> int:
    from stepformer.base.progress import Progress
    from stepformer.narration.prepare import Report, prepare

    options = phrase_options(args)
    begun = Path(f"{args.dst}.parts")
    if args.dst.is_file() and not args.overwrite and not begun.exists():
        if not args.src.exists():
            raise no_such(args.src, "file or folder")
        said = f"{args.dst} already exists; use --overwrite to replace it"
        log.warning(said)
        if args.json:
            answer(args, {"dst": str(args.dst), "skipped": True}, said)
        return 0
    with Progress("words", None, "words") as progress:

        def advance(words: int, report: Report) -> None:
            progress.advance(words, f"{len(report.failed)} failed" if report.failed else None)

        report = prepare(args.src, args.dst, options, workers_of(args), advance, args.cluster)
    result = {
        "dst": str(args.dst), "videos": report.videos, "phrases": report.phrases, "resumed": report.resumed,
        "not_english": report.not_english,
        "failed": [{"source": name, "error": error} for name, error in report.failed],
    }  # fmt: skip
    before = f", {report.resumed} done before" if report.resumed else ""
    answer(args, result, f"{args.dst}: {report.phrases} phrases of {report.videos} videos{before}")
    if report.not_english:
        log.warning(f"no phrases of {report.not_english}: not English, the only language that phrases are found in")
    for name, error in report.failed:
        log.error(f"failed: {of(name, error)}")
    return 5 if report.failed else 0


FEATURES = Command(
    """Encodes a folder of videos (subtitles of the same name beside them), a list of videos or one video, and puts
their features, phrases and phrase vectors into a feature store: what training, evaluation and search read. A run that
was stopped resumes; a video whose file has changed is processed again. A file that cannot be read is listed, and the
exit code is then 5; the next run tries it again. A store holds the features of one encoder.

--from released reads the released StepFormer's tars (through a reader that runs none of their code); --from arrays
reads a folder of .npy, .npz or safetensors files, one per video, as features of the encoder given, with phrases from
--captions. Files are matched by name, without the endings of video files: abc.mp4.npy belongs to abc.csv.""",
    [
        "stepformer prepare features videos/ store/",
        "stepformer prepare features videos/ store/ --encoder openclip:ViT-B-32/laion2b_s34b_b79k --jobs 4",
        "stepformer prepare features list.txt store/ --encoder univl:weights/",
        "stepformer prepare features s3d/ store/ --from arrays --encoder univl:weights/ --captions caption.json",
        "stepformer prepare features videos/ store/ --cluster auto                   # on a Ray cluster",
        "stepformer prepare features train-000.tar store/ --from released",
    ],
    _add_features,
    _features,
)
PHRASE_TABLE = Command(
    """Turns a folder of subtitle files, or a HowTo100M caption file, into one table of verb phrases with their times
(Parquet or JSON lines, one row per phrase). A run that was stopped resumes. A file that cannot be
read is listed, and the exit code is then 5; the next run tries it again.""",
    [
        "stepformer prepare phrases subtitles/ phrases.parquet",
        "stepformer prepare phrases caption.json phrases.parquet --jobs 16 --no-chatter",
        "stepformer prepare phrases subtitles/ phrases.jsonl --no-whole-clause --released-filters",
    ],
    _add_phrases,
    _phrases,
)
