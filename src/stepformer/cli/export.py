"""``stepformer export``: a timeline to other formats, or as a picture on the terminal."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from stepformer.cli.inputs import lines_of, video_of, with_video
from stepformer.cli.log import log, printable
from stepformer.cli.options import above_zero, add
from stepformer.cli.outputs import may_write
from stepformer.errors import UsageError
from stepformer.show import export
from stepformer.show.writing import without_guesses
from stepformer.timeline import Timeline

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
    """Options of the command."""
    parser.add_argument("timeline", nargs="?", metavar="TIMELINE", help="timeline file, or - for JSON on stdin")
    parser.add_argument("out", nargs="*", metavar="OUT", help="files to write; a path ending in / takes clips")
    add(parser, "format", "from")
    parser.add_argument("--formats", action="store_true", help="list the formats and stop")
    add(parser, "video", "title", "sure_only")
    parser.add_argument(
        "--fps",
        type=above_zero,
        metavar="RATE",
        help="frames per second of otio, edl and labelstudio (default: the video's)",
    )
    parser.add_argument("--embed", action="store_true", help="page: put the video into the file")
    parser.add_argument("--task", metavar="NAME", help="task or class for crosstask and coin")
    parser.add_argument(
        "--task-steps", metavar="FILE", help="the task's ordered step names, one per line, to number by"
    )
    add(parser, "overwrite", "skip_existing", "dry_run")


def run(args: argparse.Namespace) -> int:
    """Writes every OUT; notes go to stderr."""
    if args.formats:
        _list_formats(args.json)
        return 0
    if args.timeline is None:
        raise UsageError("name a timeline file to export (stepformer export --help has examples)")
    if len(args.format) > 1:
        raise UsageError("every OUT is written once: name one --format, or give the files their suffixes")
    name = args.format[0] if args.format else None
    formats = [_format_of(out, name) for out in args.out]  # a wrong name fails before anything is written
    timeline = _read(args.timeline, args.from_)
    timeline = without_guesses(timeline) if args.sure_only else timeline
    if not args.out:
        if name is not None:
            raise UsageError("--format needs a file to write, or - for stdout")
        _draw(timeline, args.json)
        return 0
    options = _options(args)
    timeline, options["video"] = video_of(timeline, args.timeline, options["video"])
    if not args.skip_existing and not args.dry_run:
        may_write(args.out, args.overwrite)
    results: list[dict[str, Any]] = []
    for out, chosen in zip(args.out, formats, strict=True):
        if out == "-":
            rendered = export.render(timeline, chosen.name, export.Options(**options))
            if not args.json:
                sys.stdout.write(rendered.text)
            results.append({"path": "-", "format": chosen.name, "text": rendered.text, "notes": list(rendered.notes)})
        elif args.skip_existing and Path(out).exists():
            results.append({"path": out, "format": chosen.name, "skipped": True, "notes": []})
        elif args.dry_run:
            results.append({"path": out, "format": chosen.name, "dry_run": True, "notes": []})
        else:
            written = with_video(_write, timeline, out, chosen.name, options, video=options["video"], apart=args.apart)
            results.append({"path": out, "format": chosen.name, "notes": list(written.notes)})
    if args.json:
        print(json.dumps(results, ensure_ascii=False, indent=2))
    else:
        _print(results)
    return 0


def _write(timeline: Timeline, out: str, format: str, options: dict[str, Any]) -> export.Written:
    return export.write(timeline, out, format=format, **options)


def _format_of(out: str, name: str | None) -> export.Format:
    if out != "-":
        return export.format_of(out, name)
    if name is None:
        raise UsageError("stdout has no suffix; name its format with --format (--formats lists them)")
    return export.format_of("", name)


def _read(name: str, from_format: str | None) -> Timeline:
    if name == "-":
        return export.parse(sys.stdin.read(), from_format or "json", "stdin")
    return export.read(name, from_format)


def _options(args: argparse.Namespace) -> dict[str, Any]:
    options: dict[str, Any] = {
        "video": args.video, "title": args.title, "fps": args.fps, "embed": args.embed,
        "task": args.task,
    }  # fmt: skip
    if args.task_steps:
        options["task_steps"] = tuple(lines_of(args.task_steps, "file of steps"))
    return options


def _draw(timeline: Timeline, as_json: bool) -> None:
    from stepformer.show.terminal import draw

    print(timeline.to_json() if as_json else draw(timeline), end="\n" if as_json else "")


def _list_formats(as_json: bool) -> None:
    rows = [
        {"format": f.name, "suffixes": list(f.suffixes), "title": f.title, "reads": f.reader is not None,
         "needs_video": f.needs_video}
        for f in export.FORMATS.usable()
    ]  # fmt: skip
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    for f in export.FORMATS.usable():
        marks = [mark for mark, on in (("read back", f.reader), ("needs the video", f.needs_video)) if on]
        more = f" ({', '.join(marks)})" if marks else ""
        print(f"{f.name:<12} {' '.join(f.suffixes) or 'OUT/':<30} {f.title}{more}")


def _print(results: list[dict[str, Any]]) -> None:
    for result in results:
        state = " (there already, left)" if result.get("skipped") else " (dry run)" if result.get("dry_run") else ""
        if result["path"] != "-":
            print(printable(f"{result['path']}  {result['format']}{state}"))
        for note in result["notes"]:
            log.info(f"{result['path']}: {note}")
