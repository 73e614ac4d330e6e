"""``stepformer search``: where in a library of processed videos something happens."""

from __future__ import annotations

import argparse
import time
from functools import partial
from pathlib import Path
from typing import Any

from stepformer.base.defaults import TOP
from stepformer.base.files import no_such
from stepformer.base.guard import in_process
from stepformer.base.many import most_memory, note, run_many
from stepformer.cli.inputs import start_worker, worker
from stepformer.cli.log import answer, log, of
from stepformer.cli.options import LISTENING, add, listening_of, positive
from stepformer.cli.over_videos import LIMITS
from stepformer.errors import InputError, PartialError, UsageError

HELP = """Searches a folder of processed videos for a step described in words. The folder is a feature store from
prepare features, a folder of stores, or one of videos. The answer comes from an index in FOLDER/.stepformer-search,
made and brought up to date by --update: vectors of discovered steps and of every few seconds of video. The score is how
many standard deviations better a place fits than random places do. If most unrelated phrases fit the library better,
the answer is "not here", and the nearest places are listed all the same."""

EXAMPLES = [
    "stepformer search store/ --update                       # make the index, or bring it up to date",
    'stepformer search store/ "flip the pancake"',
    'stepformer search store/ "flip the pancake" --top 3 --json',
    'stepformer search videos/ "rinse the hands" --update    # discovers first, then answers',
]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="FOLDER", help="feature store, or folder of stores or videos")
    parser.add_argument("text", nargs="?", metavar="TEXT", help="what to look for, in words")
    parser.add_argument("--update", action="store_true", help="index new and changed videos first, remove deleted ones")
    parser.add_argument("--rebuild", action="store_true", help="with --update: rebuild the whole index")
    parser.add_argument("--top", type=positive, default=TOP, metavar="N", help="how many places")
    add(parser, "model", "encoder", "device", "threads", "time_limit", *LISTENING)


def run(args: argparse.Namespace) -> int:
    if args.text is None and not args.update:
        raise UsageError("give a text to search for, or --update the index (stepformer search --help has examples)")
    if args.rebuild and not args.update:
        raise UsageError("--rebuild works only with --update")
    if not Path(args.folder).is_dir():
        raise no_such(args.folder, "folder")
    result: dict[str, Any] = {"folder": args.folder}
    code = 0
    if args.update:
        result["update"], code = _update(args)
    if args.text is not None:
        result |= _ask_apart(args) if args.apart else _ask(args.folder, args.text, args.top)
        if not args.update:
            _warn_if_stale(args.folder)
    answer(args, result, _text(result))
    if "hits" in result:
        text_ms, ms = 1000 * result["text_s"], 1000 * result["seconds"]
        log.info(f"{result['videos']} videos searched in {ms:.0f} ms, after {text_ms:.0f} ms for the text")
    return code


def _ask(folder: str, text: str, top: int) -> dict[str, Any]:
    """The answer to one question, in plain values."""
    from stepformer.app.search import HERE, open_index

    index = open_index(folder)
    began = time.perf_counter()
    vector = index.encode(text)
    encoded = time.perf_counter()
    hits = index.search_vector(vector, top)
    share = index.fit_share(vector)
    return {
        "query": text, "videos": index.info.videos,
        "here": None if share is None else share >= HERE,
        "fits_better_than": None if share is None else round(share, 4),
        "text_s": round(encoded - began, 4), "seconds": round(time.perf_counter() - encoded, 4),
        "hits": [hit.to_dict() for hit in hits],
    }  # fmt: skip


def _ask_apart(args: argparse.Namespace) -> dict[str, Any]:
    """In a process of its own: a forged graph, whose checksum is right, can crash the library that walks it."""
    from stepformer.app.search.index import FOLDER

    mapped = sum(path.stat().st_size for path in (Path(args.folder) / FOLDER).rglob("*.usearch"))
    return in_process(
        _ask, args.folder, args.text, args.top, what=f"the search index of {args.folder}", time_s=args.time_limit,
        memory_bytes=most_memory() + mapped,
    )  # fmt: skip


def _index(source: Any) -> Any:
    """What the index keeps of one video file."""
    from stepformer.app.search.library import index_video

    return index_video(source, worker["model"], listening_of(worker["args"]), lambda *done: note(done))


def _update(args: argparse.Namespace) -> tuple[dict[str, Any], int]:
    from stepformer.app.search import update_index
    from stepformer.base.progress import Progress

    model = start_worker(args)
    with Progress("videos", None, "videos") as progress:

        def report(done: int, total: int, name: str) -> None:
            progress.total = total
            progress.advance(1, name)

        limits = LIMITS | {"time_limit_s": args.time_limit, "apart": args.apart}
        each = partial(run_many, _index, initializer=start_worker, initargs=(args,), **limits)
        update = update_index(args.folder, model, rebuild=args.rebuild, report=report, each=each, apart=args.apart)
    for name, error in update.failed:
        log.warning(f"left out: {of(name, error)}")
    if update.info is None:
        raise InputError(f"none of the {len(update.failed)} videos of {args.folder} could be read")
    counts = {
        "added": update.added, "replaced": update.replaced, "removed": update.removed, "kept": update.kept,
        "failed": dict(update.failed), "videos": update.info.videos, "steps": update.info.steps,
        "moments": update.info.moments,
    }  # fmt: skip
    return counts, PartialError.exit_code if update.failed else 0


def _warn_if_stale(folder: str) -> None:
    """A note where the library has changed since it was indexed; looks at times only, which is quick."""
    from stepformer.app.search.index import FOLDER
    from stepformer.data.store import INDEX_FILE

    made = (Path(folder) / FOLDER / "index.json").stat().st_mtime
    lists = [Path(folder) / INDEX_FILE, *Path(folder).glob(f"*/{INDEX_FILE}")]
    if any(path.is_file() and path.stat().st_mtime > made for path in lists):
        log.warning(f"{folder} has changed since it was indexed; --update brings the index up to date")


def _text(result: dict[str, Any]) -> str:
    from stepformer.base.progress import clock
    from stepformer.show.writing import one_line

    lines = []
    if update := result.get("update"):
        lines.append(
            f"{result['folder']}: {update['videos']} videos, {update['steps']} steps, {update['moments']} moments "
            f"({update['added']} added, {update['replaced']} replaced, {update['removed']} removed)"
        )
    hits = result.get("hits", ())
    if hits and result["here"] is False:
        worse = f"{1 - result['fits_better_than']:.0%}"
        lines.append(
            f'"{one_line(result["query"])}" is not here: {worse} of unrelated phrases fit better. The nearest places:'
        )
    tenths = any(clock(hit["start_s"]) == clock(hit["end_s"]) for hit in hits)  # as a drawn timeline has them
    for number, hit in enumerate(hits, 1):
        span = f"{clock(hit['start_s'], tenths)} – {clock(hit['end_s'], tenths)}"
        label = f"  {one_line(hit['label'])}" if hit["label"] else ""
        lines.append(f"{number:>3}  {hit['score']:>5.1f}  {one_line(hit['video'])}  {span}{label}")
    if "hits" in result and not hits:
        lines.append("nothing was found: the index is empty")
    return "\n".join(lines)
