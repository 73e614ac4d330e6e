"""``stepformer export``: a timeline to other formats, or as a picture on the terminal."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path
from typing import Any

from stepformer.base.guard import reading
from stepformer.cli.inputs import lines_of, video_of, with_video
from stepformer.cli.log import answer, log, printable
from stepformer.cli.options import above_zero, add
from stepformer.cli.outputs import may_write
from stepformer.errors import UsageError
from stepformer.show import export
from stepformer.show.writing import without_guesses

HELP = """Writes a timeline (what discover and locate give) in other formats. The format is that of the suffix of each
file, or --format. Without a file the timeline is drawn on the terminal; - writes text to stdout."""

EXAMPLES = [
    "stepformer export pancakes.json                                  # draw it here",
    "stepformer export pancakes.json chapters.vtt steps.csv",
    "stepformer export pancakes.json - --format youtube               # paste it into a description",
    "stepformer export pancakes.json page.html sheet.sheet.png --video pancakes.mp4",
    "stepformer export pancakes.json with-chapters.mp4 --video pancakes.mp4",
    "stepformer export pancakes.json clips/",
]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("timeline", nargs="?", metavar="TIMELINE", help="timeline file, or - for JSON on stdin")
    parser.add_argument("out", nargs="*", metavar="OUT", help="files to write; a path ending in / takes clips")
    add(parser, "format", "from")
    parser.add_argument("--formats", action="store_true", help="list the formats and stop")
    add(parser, "video", "title", "sure_only")
    rates = "frames per second of otio, edl and labelstudio (default: the video's)"
    parser.add_argument("--fps", type=above_zero, metavar="RATE", help=rates)
    parser.add_argument("--embed", action="store_true", help="page: put the video into the file")
    parser.add_argument("--task", metavar="NAME", help="task or class for crosstask and coin")
    parser.add_argument(
        "--task-steps", metavar="FILE", help="the task's ordered step names, one per line, to number by"
    )
    add(parser, "overwrite", "skip_existing", "dry_run")


def run(args: argparse.Namespace) -> None:
    """Writes every OUT; notes go to stderr."""
    if args.formats:
        _list_formats(args)
        return
    if args.timeline is None:
        raise UsageError("name a timeline file to export (stepformer export --help has examples)")
    if len(args.format) > 1:
        raise UsageError("every OUT is written once: name one --format, or give the files their suffixes")
    name = args.format[0] if args.format else None
    if "-" in args.out and name is None:
        raise UsageError("stdout has no suffix; name its format with --format (--formats lists them)")
    formats = [export.format_of(out, name) for out in args.out]  # a wrong name fails before anything is written
    if args.timeline == "-":
        with reading("stdin", "UTF-8 text"):
            timeline = export.parse(sys.stdin.read(), args.from_ or "json", "stdin")
    else:
        timeline = export.read(args.timeline, args.from_)
    timeline = without_guesses(timeline) if args.sure_only else timeline
    if not args.out:
        if name is not None:
            raise UsageError("--format needs a file to write, or - for stdout")
        from stepformer.show.terminal import draw

        print(timeline.to_json() + "\n" if args.json else draw(timeline), end="")
        return
    timeline, video = video_of(timeline, args.timeline, args.video)
    steps = lines_of(args.task_steps, "file of steps") if args.task_steps else ()
    options: dict[str, Any] = {
        "video": video, "title": args.title, "fps": args.fps, "embed": args.embed, "task": args.task,
        "task_steps": tuple(steps),
    }  # fmt: skip
    if not args.skip_existing and not args.dry_run:
        may_write(args.out, args.overwrite)
    results: list[dict[str, Any]] = []
    for out, chosen in zip(args.out, formats, strict=True):
        result: dict[str, Any] = {"path": out, "format": chosen.name, "notes": []}
        shown = printable(f"{out}  {chosen.name}")
        if out == "-":
            rendered = export.render(timeline, chosen.name, export.Options(**options))
            result |= {"text": rendered.text, "notes": list(rendered.notes)}
            shown = rendered.text
        elif args.skip_existing and Path(out).exists():
            result["skipped"] = True
            shown += " (there already, left)"
        elif args.dry_run:
            result["dry_run"] = True
            shown += " (dry run)"
        else:
            write = partial(export.write, timeline, out, chosen.name, **options)
            result["notes"] = list(with_video(write, video=video, apart=args.apart).notes)
        results.append(result)
        if not args.json:
            print(shown, end="" if out == "-" else "\n")
        for note in result["notes"]:
            log.info(f"{out}: {note}")
    if args.json:
        answer(args, results, "")


def _list_formats(args: argparse.Namespace) -> None:
    rows, lines = [], []
    for f in export.FORMATS.usable():
        reads = f.reader is not None
        rows.append({"format": f.name, "suffixes": list(f.suffixes), "title": f.title, "reads": reads,
                     "needs_video": f.needs_video})  # fmt: skip
        marks = ", ".join(mark for mark, on in (("read back", reads), ("needs the video", f.needs_video)) if on)
        lines.append(f"{f.name:<12} {' '.join(f.suffixes) or 'OUT/':<30} {f.title}{marks and f' ({marks})'}")
    answer(args, rows, "\n".join(lines))
