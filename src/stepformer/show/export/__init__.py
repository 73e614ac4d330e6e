"""Timelines as files: one small writer per format, and one table of them.

Examples:
    >>> timeline = sf.Timeline("eggs.mp4", 60.0, (sf.Step(5, 20, "crack the eggs"), sf.Step(20, 31.5, "whisk")))
    >>> sf.export.write(timeline, "chapters.vtt").format             # from the suffix
    'vtt'
    >>> sf.export.write(timeline, "chapters.txt", format="youtube").notes
    ("'crack the eggs' moved from 0:05 to 0:00, where the first chapter must be",)
    >>> [step.label for step in sf.export.read("chapters.vtt")]      # where a format can be read back
    ['crack the eggs', 'whisk']

A new format is a function ``render(timeline, options) -> Rendered`` (text) or ``save(timeline, path, options)
-> notes`` (anything else), and one line in :data:`FORMATS`. Files are written beside and renamed into place.

Unless a writer says otherwise, overlaps and steps past the end of the video stay (where a format is ``inside``, what
lies past the end is cut or left out, and noted), and a step of no length is one millisecond or frame long.
"""

from __future__ import annotations

import difflib
import importlib
import math
import os
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from stepformer.base.files import no_such, replacing, write_bytes
from stepformer.base.guard import read_bytes, reader
from stepformer.base.plugins import Registry
from stepformer.errors import InputError, UsageError
from stepformer.show.writing import within_video, without_guesses
from stepformer.timeline import Timeline

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

__all__ = ["FORMATS", "Format", "Options", "Rendered", "Written", "format_of", "parse", "read", "render", "write"]


DEFAULT_FPS = 25.0


@dataclass(frozen=True, slots=True)
class Options:
    """Options of all writers; each uses those that mean something to it.

    Attributes:
        video: The media file, where it is not the timeline's own ``video``.
        fps: Frames per second of frame-based formats; else the video's, else 25.
        title: Of a page or picture; else the video's file name.
        task: Task id or class of annotation formats (CrossTask, COIN).
        task_steps: The task's ordered step names: annotation formats number steps by them.
        similarity: (K, N) steps or slots against frames, shown by the plot.
        embed: Put the video itself into the page.
        target: Where the file goes; ``write`` says so, for paths relative to it.
    """

    video: str | None = None
    fps: float | None = None
    title: str | None = None
    task: str | None = None
    task_steps: tuple[str, ...] = ()
    similarity: ArrayLike | None = None
    embed: bool = False
    target: Path | None = None

    def __post_init__(self) -> None:
        if self.fps is not None and not (math.isfinite(self.fps) and self.fps > 0):
            raise UsageError(f"fps must be positive, got {self.fps!r}")


@dataclass(frozen=True, slots=True)
class Rendered:
    """The text of one file, and sentences on what did not fit the format and was changed."""

    text: str
    notes: tuple[str, ...] = ()


def media_file(timeline: Timeline, options: Options) -> Path | None:
    """The video file if it is here, else None. What only the timeline names must look like a video: a stranger may
    have written it, and the file is shown."""
    from stepformer.media import SUFFIXES

    name = options.video or timeline.video
    try:
        path = Path(name)
        video = bool(options.video) or path.suffix.lower() in SUFFIXES
        return path if name and video and path.is_file() else None
    except (OSError, ValueError):  # a video id can be anything, even what no path may hold
        return None


def media_address(timeline: Timeline, options: Options) -> str:
    """The video as other programs name it: the address of the file if it is here, else what it is called."""
    found = media_file(timeline, options)
    return found.resolve().as_uri() if found else (options.video or timeline.video)


def need_media_file(timeline: Timeline, options: Options, purpose: str) -> Path:
    """The video file, or an error that says how to name it."""
    found = media_file(timeline, options)
    if found is None:
        raise InputError(
            f"{purpose} needs the video itself, and {options.video or timeline.video!r} is not a file here; "
            "name it with --video FILE (in Python video=...)"
        )
    return found


def frame_rate(timeline: Timeline, options: Options) -> tuple[float, tuple[str, ...]]:
    """Frames per second for frame-based formats, and a note if it had to be assumed."""
    from stepformer.media import probe

    if options.fps is not None:
        return float(options.fps), ()
    path = media_file(timeline, options)
    if path is not None and (rate_hz := probe(path).rate_hz):
        return rate_hz, ()
    return DEFAULT_FPS, (f"{DEFAULT_FPS:g} frames per second assumed; name the video (--video) or the rate (--fps)",)


@dataclass(frozen=True, slots=True)
class Format:
    """One row of the table: what a format is called, how it is recognised and where its code is."""

    name: str
    suffixes: tuple[str, ...]  # lower case, longest match wins; none: the format must be named
    title: str  # one line for people
    writer: str | Callable[..., Any]  # a function, or the module in this package that has render_NAME or save_NAME
    reader: str | Callable[..., Any] | None = None  # of the text or a file's path, or the module that has parse_NAME
    kind: Literal["text", "file", "folder"] = "text"  # text is rendered, a file or folder is saved
    needs_video: bool = False  # whether the video file itself must be here
    inside: bool = False  # what lies past the end of the video is cut or left out first
    renames: bool = False  # whether the writer itself writes beside and renames, as those of a folder do


@dataclass(frozen=True, slots=True)
class Written:
    """What was written: the file or folder, its format, and sentences on what did not fit and was changed."""

    path: Path
    format: str
    notes: tuple[str, ...] = ()


_CHAPTERS, _ANNOTATION = "chapters", "annotation"
_TABLE = (
    Format("json", (".json",), "the timeline itself, with a published schema", _ANNOTATION, _ANNOTATION),
    Format("csv", (".csv",), "one row per step, for spreadsheets", _ANNOTATION, _ANNOTATION),
    Format("tsv", (".tsv", ".tab"), "one row per step, tab-separated", _ANNOTATION, _ANNOTATION),
    Format("vtt", (".vtt",), "WebVTT chapters, for web players", _CHAPTERS, _CHAPTERS),
    Format("srt", (".srt",), "SubRip subtitles", _CHAPTERS, _CHAPTERS),
    Format("youtube", (".txt",), "chapter list for a YouTube description", _CHAPTERS, _CHAPTERS, inside=True),
    Format("ffmetadata", (".ffmeta", ".ffmetadata"), "chapters for ffmpeg", _CHAPTERS, _CHAPTERS, inside=True),
    Format("podlove", (".psc", ".psc.xml"), "Podlove Simple Chapters", _CHAPTERS, _CHAPTERS, inside=True),
    Format("matroska", (".chapters.xml", ".mkv.xml"), "Matroska chapters, for mkvmerge", _CHAPTERS, _CHAPTERS,
           inside=True),
    Format("elan", (".eaf",), "ELAN annotation tier", _ANNOTATION),
    Format("otio", (".otio",), "OpenTimelineIO, for editing programs", _ANNOTATION, inside=True),
    Format("edl", (".edl",), "CMX 3600 edit decision list", _ANNOTATION, inside=True),
    Format("labelstudio", (".labelstudio.json",), "Label Studio task with predictions", _ANNOTATION),
    Format("fiftyone", (".fiftyone.json",), "FiftyOne temporal detections", _ANNOTATION),
    Format("crosstask", (".crosstask.csv",), "CrossTask annotation rows", _ANNOTATION),
    Format("coin", (".coin.json",), "COIN annotation JSON", _ANNOTATION),
    Format("html", (".html", ".htm"), "one page with the video, its bar and its steps", "html", inside=True),
    Format("plot", (".png", ".svg", ".pdf"), "picture of the timeline and similarity map", "pictures", kind="file"),
    Format("sheet", (".sheet.png", ".sheet.jpg", ".jpg", ".jpeg"), "contact sheet: one thumbnail per step",
           "pictures", kind="file", needs_video=True, inside=True),
    Format("media", (".mp4", ".m4v", ".mov", ".mkv", ".webm"), "a copy of the video with chapters, not re-encoded",
           "video", "video", kind="file", needs_video=True, renames=True),
    Format("clips", (), "a folder with one clip per step", "video", kind="folder", needs_video=True),
)  # fmt: skip

FORMATS: Registry[Format] = Registry("export format", "exporters", {entry.name: entry for entry in _TABLE})
"""All formats by name; a plugin adds its own."""


def format_of(path: str | os.PathLike[str], format: str | None = None) -> Format:
    """The format of that name, or the one the path's suffix tells; a path that ends in a slash is a folder of clips.

    Raises:
        UsageError: there is no such format, or the suffix tells none; the message lists them.
    """
    if format is not None:
        return FORMATS[format]
    text = os.fspath(path)
    if text.endswith(("/", os.sep)):
        return FORMATS["clips"]
    name = Path(text).name.lower()
    # a name that is only a suffix (".vtt", as Path sees it a hidden file) still says what it wants to be
    found = [(len(s), entry) for entry in FORMATS.usable() for s in entry.suffixes if name.endswith(s)]
    if not found:
        suffixes = [suffix for entry in FORMATS.usable() for suffix in entry.suffixes]
        meant = difflib.get_close_matches(Path(name).suffix, suffixes, n=1, cutoff=0.75)
        listed = ", ".join(f"{e.name} ({' '.join(e.suffixes) or 'a path ending in /'})" for e in FORMATS.usable())
        hint = f"did you mean {meant[0]}?" if meant else f"use a suffix of: {listed}"
        raise UsageError(f"the format cannot be determined from {text!r}; {hint}")
    return max(found, key=lambda pair: pair[0])[1]


def write(
    timeline: Timeline,
    path: str | os.PathLike[str],
    format: str | None = None,
    *,
    video: str | None = None,
    fps: float | None = None,
    title: str | None = None,
    task: str | None = None,
    task_steps: Sequence[str] = (),
    similarity: ArrayLike | None = None,
    embed: bool = False,
    sure_only: bool = False,
) -> Written:
    """Writes a timeline to a file; a format uses the options that mean something to it.

    Args:
        timeline: The steps.
        path: Where to; what is there is replaced.
        format: A name; by default the one that the suffix tells.
        video: The media file, where it is not the timeline's own.
        fps: Of frame-based formats; by default the video's, else 25.
        title: Of a page or picture.
        task: Id of the task, for annotation formats.
        task_steps: Its ordered step names.
        similarity: (K, N), shown by the plot.
        embed: Put the video itself into the page.
        sure_only: Leave out names that are guesses.

    Raises:
        UsageError: an unknown format, or an option that makes no sense.
        InputError: a format that needs the video, and it is not here.
    """
    chosen, target = format_of(path, format), Path(path)
    timeline = without_guesses(timeline) if sure_only else timeline
    settings = Options(video, fps, title, task, tuple(task_steps), similarity, embed, target)
    if chosen.kind == "text":
        rendered = render(timeline, chosen.name, settings)
        # a path that was no UTF-8 on disk holds lone surrogates; \udcff is how JSON writes one, and visible elsewhere
        write_bytes(target, rendered.text.encode("utf-8", "backslashreplace"))
        return Written(target, chosen.name, rendered.notes)
    timeline, cut = within_video(timeline) if chosen.inside else (timeline, ())
    # a folder is filled, a file is written beside and renamed: once, or an error names the temporary file
    with nullcontext(target) if chosen.kind == "folder" or chosen.renames else replacing(target) as place:
        notes = _code(chosen, "write")(timeline, place, settings)
    return Written(target, chosen.name, (*cut, *notes))


def render(timeline: Timeline, format: str, options: Options | None = None) -> Rendered:
    """The text of a text format and its notes, without writing a file.

    Examples:
        >>> from stepformer import Step, Timeline
        >>> print(render(Timeline("eggs.mp4", 60, (Step(5, 20, "crack the eggs"),)), "srt").text)
        1
        00:00:05,000 --> 00:00:20,000
        crack the eggs
        <BLANKLINE>
    """
    chosen = FORMATS[format]
    if chosen.kind != "text":
        raise UsageError(f"{format} is not text: write it to a {chosen.kind}")
    timeline, cut = within_video(timeline) if chosen.inside else (timeline, ())
    rendered: Rendered = _code(chosen, "write")(timeline, options or Options())
    return Rendered(rendered.text, (*cut, *rendered.notes))


@reader("timeline")
def read(path: str | os.PathLike[str], format: str | None = None) -> Timeline:
    """The timeline of a file, as well as its format can tell; JSON gives it back equal.

    Raises:
        UsageError: an unknown format, or one that cannot be read back.
        InputError: no such file, or not what its suffix says.
    """
    if not Path(path).exists() or Path(path).is_dir():
        raise no_such(path)
    chosen = format_of(path, format)
    if chosen.reader is not None and chosen.kind == "file":
        timeline: Timeline = _code(chosen, "read")(Path(path))
        return timeline
    try:
        text = read_bytes(path).decode("utf-8")
    except UnicodeDecodeError:
        raise InputError(f"{path} is not UTF-8 text; is it really {chosen.name}?") from None
    try:
        return parse(text, chosen.name, Path(path).stem)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def parse(text: str, format: str, source: str = "") -> Timeline:
    """The timeline of text in that format; ``source`` names the video where the text does not."""
    chosen = FORMATS[format]
    if chosen.reader is None:
        readable = ", ".join(entry.name for entry in FORMATS.usable() if entry.reader)
        raise UsageError(f"{chosen.name} files cannot be read back; these can: {readable}")
    if chosen.kind != "text":
        raise UsageError(f"{chosen.name} is not text: read it from its file")
    timeline: Timeline = _code(chosen, "read")(text, source)
    return timeline


def _code(format: Format, what: Literal["write", "read"]) -> Any:
    """The function that writes or reads a format."""
    where = format.writer if what == "write" else format.reader
    if not isinstance(where, str):
        return where
    verb = "parse" if what == "read" else "render" if format.kind == "text" else "save"
    return getattr(importlib.import_module(f"{__name__}.{where}"), f"{verb}_{format.name}")
