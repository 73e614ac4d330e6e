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
from stepformer.cli.outputs import may_write, suffix_of
from stepformer.errors import InputError, StepFormerError, UsageError, WriteError
from stepformer.show import export
from stepformer.show.writing import without_guesses
from stepformer.timeline import Timeline

HELP = """Writes a timeline (what discover and locate write) in other formats. The format follows from the suffix of
each file, or from --format. Without a file, --format writes beside the timeline; without either, the timeline is drawn
on the terminal; - writes text to stdout. If one format refuses the video (YouTube with fewer than three chapters), the
other files are still written."""

EXAMPLES = [
    "stepformer export pancakes.json                                  # draw it here",
    "stepformer export pancakes.json chapters.vtt steps.csv",
    "stepformer export pancakes.json --format vtt,srt                 # pancakes.steps.vtt, pancakes.steps.srt",
    "stepformer export pancakes.json - --format youtube               # paste it into a description",
    "stepformer export pancakes.json page.html sheet.sheet.png --video pancakes.mp4",
    "stepformer export pancakes.json with-chapters.mp4 --video pancakes.mp4",
    "stepformer export pancakes.json clips/",
]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("timeline", nargs="?", metavar="TIMELINE", help="timeline file, or - for JSON on stdin")
    parser.add_argument("out", nargs="*", metavar="OUT", help="files to write; a path ending in / is a folder of clips")
    add(parser, "format", "from")
    parser.add_argument("--formats", action="store_true", help="list the formats and stop")
    add(parser, "video", "title", "sure_only")
    rates = "frames per second of otio, edl and labelstudio (default: the video's)"
    parser.add_argument("--fps", type=above_zero, metavar="RATE", help=rates)
    parser.add_argument("--embed", action="store_true", help="page: put the video into the file")
    parser.add_argument("--task", metavar="NAME", help="task or class, for crosstask and coin")
    parser.add_argument(
        "--task-steps", metavar="FILE", help="the task's ordered step names, one per line, which number the steps"
    )
    add(parser, "overwrite", "skip_existing", "dry_run")


def run(args: argparse.Namespace) -> int:
    """Writes every OUT; notes go to stderr."""
    if args.formats:
        return _list_formats(args)
    if args.timeline is None:
        raise UsageError("name a timeline file to export (stepformer export --help has examples)")
    if len(args.format) > 1 and args.out:
        raise UsageError("every OUT is written once: name one --format, or give the files their suffixes")
    name = args.format[0] if args.format else None
    if "-" in args.out and name is None:
        raise UsageError("stdout has no suffix; name its format with --format (--formats lists them)")
    if args.timeline == "-" and args.format and not args.out:
        raise UsageError("with stdin, --format cannot choose a file name: name the files to write, or - for stdout")
    # a wrong name fails before anything is read
    formats = [export.format_of(out, name) for out in args.out] or [export.FORMATS[each] for each in args.format]
    timeline = _stdin(args.from_) if args.timeline == "-" else export.read(args.timeline, args.from_)
    timeline = without_guesses(timeline) if args.sure_only else timeline
    if not formats:
        from stepformer.show.terminal import draw

        print(timeline.to_json() + "\n" if args.json else draw(timeline), end="")
        return 0
    timeline, video = video_of(timeline, args.timeline, args.video)
    # as discover calls its files: talk.vtt beside talk.mp4 would be taken for what is said in it
    beside = f"{Path(args.timeline).with_suffix('')}".removesuffix(".steps") + ".steps"
    outs = args.out or [f"{beside}{suffix_of(each, Path(video or ''))}" for each in formats]
    steps = lines_of(args.task_steps, "file of steps") if args.task_steps else ()
    options: dict[str, Any] = {
        "video": video, "title": args.title, "fps": args.fps, "embed": args.embed, "task": args.task,
        "task_steps": tuple(steps),
    }  # fmt: skip
    if not args.skip_existing and not args.dry_run:
        may_write(outs, args.overwrite)
    results: list[dict[str, Any]] = []
    code = 0
    for out, chosen in zip(outs, formats, strict=True):
        result: dict[str, Any] = {"path": out, "format": chosen.name, "notes": []}
        shown = printable(f"{out}  {chosen.name}")
        try:
            if out == "-":
                rendered = export.render(timeline, chosen.name, export.Options(**options))
                result |= {"text": rendered.text, "notes": list(rendered.notes)}
                shown = rendered.text
            elif args.skip_existing and Path(out).exists():
                result["skipped"] = True
                shown += " (already exists, not changed)"
            elif args.dry_run:
                result["dry_run"] = True
                shown += " (dry run)"
            else:
                write = partial(export.write, timeline, out, chosen.name, **options)
                result["notes"] = list(with_video(write, video=video, apart=args.apart).notes)
        except WriteError:
            raise
        except StepFormerError as refused:
            log.error(f"{out} is not written: {refused}" if len(outs) > 1 else str(refused))
            code = refused.exit_code
            results.append(result | {"error": str(refused)})
            continue
        results.append(result)
        if not args.json:
            print(shown, end="" if out == "-" else "\n")
        for note in result["notes"]:
            log.info(f"{out}: {note}")
    if args.json:
        answer(args, results, "")
    return code


def _stdin(format: str | None) -> Timeline:
    with reading("stdin", "UTF-8 text"):
        text = sys.stdin.read()
    try:
        return export.parse(text, format or "json", "stdin")
    except InputError as error:
        raise InputError(f"stdin: {error}") from None


def _list_formats(args: argparse.Namespace) -> int:
    rows, lines = [], []
    for f in export.FORMATS.usable():
        reads = f.reader is not None
        rows.append({"format": f.name, "suffixes": list(f.suffixes), "title": f.title, "reads": reads,
                     "needs_video": f.needs_video})  # fmt: skip
        marks = ", ".join(mark for mark, on in (("read back", reads), ("needs the video", f.needs_video)) if on)
        lines.append(f"{f.name:<12} {' '.join(f.suffixes) or 'OUT/':<30} {f.title}{marks and f' ({marks})'}")
    answer(args, rows, "\n".join(lines))
    return 0
