"""Chapters and subtitles: WebVTT, SubRip, YouTube, ffmetadata, Podlove and Matroska, written and read back."""

from __future__ import annotations

import heapq
import io
import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape, unescape
from xml.etree.ElementTree import Element, SubElement, register_namespace

from stepformer.base.guard import xml_of
from stepformer.base.progress import clock
from stepformer.errors import InputError, StepFormerError
from stepformer.narration.readers.timed import parse_timed
from stepformer.show.export import Options, Rendered
from stepformer.show.writing import (
    clock_ms,
    comment_stamp,
    document,
    one_line,
    parse_clock,
    spans,
    stamp,
    step_name,
    timeline_of,
    unstamp,
    xml_text,
)
from stepformer.timeline import Step, Timeline

_TAG = re.compile(r"<[^<>]*>")


def render_vtt(timeline: Timeline, options: Options) -> Rendered:
    """WebVTT chapters: one cue per step, for ``<track kind="chapters">`` and players that read it. Milliseconds.

    The first comment of the file holds its provenance, so reading it back gives the video and its length too.
    """
    blocks = ["WEBVTT", f"NOTE {stamp(timeline)}"]
    for i, span in enumerate(spans(timeline, 1000)):
        blocks.append(f"{i + 1}\n{clock_ms(span.start)} --> {clock_ms(span.end)}\n{escape(span.name, quote=False)}")
    return Rendered("\n\n".join(blocks) + "\n")


def parse_vtt(text: str, source: str) -> Timeline:
    """One step per cue; styles, regions and comments are passed over."""
    if not re.match(r"\ufeff?WEBVTT(?:[ \t\r\n]|$)", text):
        raise InputError(f"{source} is not WebVTT: its first line is not WEBVTT")
    notes = (unstamp(note) for note in re.findall(r"^NOTE (\{.*)$", text, re.MULTILINE))
    steps = [replace(step, label=unescape(_TAG.sub("", step.label or "")) or None) for step in _cues(text, source)]
    return timeline_of(steps, source, next(filter(None, notes), None))


def _cues(text: str, source: str) -> list[Step]:
    """The cues of a subtitle file as steps."""
    cues = parse_timed(text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n"), source)
    return [Step(cue.start_s, cue.end_s, cue.text.replace("\n", " ") or None) for cue in cues]


def render_srt(timeline: Timeline, options: Options) -> Rendered:
    """SubRip subtitles (.srt): one subtitle per step. Milliseconds.

    The format has no comments and no escape: ``-->`` in a name would look like a time line and is written as an arrow.
    """
    blocks = []
    for i, span in enumerate(spans(timeline, 1000)):
        name = span.name.replace("-->", "\N{RIGHTWARDS ARROW}")
        blocks.append(f"{i + 1}\n{clock_ms(span.start, ',')} --> {clock_ms(span.end, ',')}\n{name}\n")
    return Rendered("\n".join(blocks))


def parse_srt(text: str, source: str) -> Timeline:
    """One step per subtitle."""
    return timeline_of(_cues(text, source) if text.strip() else [], source, None)


MIN_CHAPTERS = 3
MIN_LENGTH_S = 10
MAX_NAME = 100  # characters of a joined name; a player cuts longer ones
MAX_DESCRIPTION = 5000  # characters of a whole description

_LINE = re.compile(r"^\W*((?:\d+:)?\d{1,2}:\d\d)\b[\s\-\u2013\u2014:.)\]]*(.*)$")


@dataclass(slots=True)
class _Chapter:
    """A chapter while it is being made: whole seconds, and the names that were joined in it."""

    start_s: int
    end_s: int
    names: list[str]

    @property
    def length_s(self) -> int:
        return self.end_s - self.start_s

    @property
    def name(self) -> str:
        return " / ".join(self.names)


def render_youtube(timeline: Timeline, options: Options) -> Rendered:
    """YouTube chapters: lines to paste into a video's description, by the rules without which YouTube shows none.

    The first chapter is at 0:00, there are at least three, each is ten seconds long or more, and they ascend. So a
    short chapter is joined with its shorter neighbour (both names are kept while they fit), a beginning or an end
    without a step becomes a chapter if it is long enough, and the notes report what was joined or moved.
    A timeline that cannot give three chapters is an error. Whole seconds; gaps belong to the step before them; what
    overlaps is cut by the next start. Descriptions may not hold ``<`` and ``>``: they become ‹ and ›.
    """
    said: list[str] = []
    chapters = _tiles(timeline, said)
    _join_short(chapters, said)
    if len(chapters) < MIN_CHAPTERS:
        find = "more" if len(timeline) < MIN_CHAPTERS else "fewer, longer"
        hint = "" if timeline.duration_s < MIN_CHAPTERS * MIN_LENGTH_S else f"find {find} steps, or "
        raise StepFormerError(
            f"YouTube wants at least {MIN_CHAPTERS} chapters of {MIN_LENGTH_S} seconds or more; {timeline.video} has "
            f"{len(chapters)}; {hint}use another format (vtt, ffmetadata)"
        )
    lines = [f"{clock(c.start_s)} {c.name.replace('<', '‹').replace('>', '›')}" for c in chapters]
    text = "\n".join(lines) + "\n"
    if len(text) > MAX_DESCRIPTION:
        said.append(f"the list has {len(text)} characters; a YouTube description holds {MAX_DESCRIPTION}")
    return Rendered(text, tuple(said))


def parse_youtube(text: str, source: str) -> Timeline:
    """Chapters of any description: each ends where the next begins, the last where it begins (its end is unknown)."""
    marks = [(parse_clock(m.group(1)), one_line(m.group(2))) for m in map(_LINE.match, text.splitlines()) if m]
    return timeline_of(_until_the_next(marks), source, None)


def _until_the_next(marks: Sequence[tuple[float, str | None]], last_s: float = 0.0) -> list[Step]:
    """Steps of (start, name), each ending where the next begins, the last at ``last_s``."""
    ends = [*(start for start, _ in marks[1:]), last_s]
    return [Step(start, max(start, end), name or None) for (start, name), end in zip(marks, ends, strict=False)]


def _tiles(timeline: Timeline, said: list[str]) -> list[_Chapter]:
    """Chapters from 0:00 to the end without gaps."""
    if not len(timeline):
        return []
    end_s = int(timeline.duration_s or max(step.end_s for step in timeline))
    chapters = [_Chapter(int(step.start_s), 0, [step_name(step, i)]) for i, step in enumerate(timeline)]
    first, last = chapters[0], timeline[len(timeline) - 1]
    if first.start_s >= MIN_LENGTH_S:
        chapters.insert(0, _Chapter(0, 0, ["Intro"]))
    elif first.start_s:
        said.append(f"{first.name!r} moved from {clock(first.start_s)} to 0:00, where the first chapter must be")
        first.start_s = 0
    if end_s - int(last.end_s) >= MIN_LENGTH_S and int(last.end_s) - int(last.start_s) >= MIN_LENGTH_S:
        chapters.append(_Chapter(int(last.end_s), 0, ["Outro"]))
    for i, chapter in enumerate(chapters):
        chapter.end_s = max(chapters[i + 1].start_s if i + 1 < len(chapters) else end_s, chapter.start_s)
    return chapters


def _join_short(chapters: list[_Chapter], said: list[str]) -> None:
    """Joins the shortest chapter with its shorter neighbour until none is too short or only one is left."""
    left = dict(enumerate(chapters))  # a chapter goes into the place of the one before it
    places = list(left)
    queue = [(chapter.length_s, place) for place, chapter in left.items()]
    heapq.heapify(queue)
    while len(left) > 1 and queue[0][0] < MIN_LENGTH_S:
        length_s, at = heapq.heappop(queue)
        if at not in left or left[at].length_s != length_s:  # it has been joined since
            continue
        i = bisect_left(places, at)
        other = min(places[max(0, i - 1) : i] + places[i + 1 : i + 2], key=lambda place: left[place].length_s)
        said.append(
            f"{left[at].name!r} ({length_s} s at {clock(left[at].start_s)}) is shorter than {MIN_LENGTH_S} s: "
            f"joined with {left[other].name!r}"
        )
        place = min(at, other)
        first, second = left[place], left.pop(places.pop(i + (at < other)))
        joined = _Chapter(first.start_s, second.end_s, list(dict.fromkeys(first.names + second.names)))
        if len(joined.name) > MAX_NAME:
            joined.names = max((first, second), key=lambda c: c.length_s).names
        left[place] = joined
        heapq.heappush(queue, (joined.length_s, place))
    chapters[:] = left.values()
    if chapters and chapters[0].length_s < MIN_LENGTH_S:
        chapters.clear()


_SPECIAL = re.compile(r"([=;#\\\n])")
_HEADER = ";FFMETADATA1"


def render_ffmetadata(timeline: Timeline, options: Options) -> Rendered:
    """ffmetadata: chapters as ffmpeg reads them (``ffmpeg -i in.mp4 -i chapters.ffmeta -map_chapters 1 -c copy
    out.mp4``). Milliseconds. A comment holds the provenance."""
    parts = [f"{_HEADER}\n;{stamp(timeline)}\n"]
    for span in spans(timeline, 1000):
        # FFmpeg takes a backslash at the end of a line, an escaped one too, for a line that goes on
        title = _SPECIAL.sub(r"\\\1", span.name) + " " * span.name.endswith("\\")
        parts.append(f"[CHAPTER]\nTIMEBASE=1/1000\nSTART={span.start}\nEND={span.end}\ntitle={title}\n")
    return Rendered("".join(parts))


def parse_ffmetadata(text: str, source: str) -> Timeline:
    """One step per chapter, as FFmpeg reads them."""
    import av

    from stepformer.media.container import chapters_of

    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    if not text.startswith(_HEADER):
        raise InputError(f"{source} is not ffmetadata: its first line is not {_HEADER}")
    with av.open(io.BytesIO(text.encode("utf-8", "replace")), format="ffmetadata") as file:
        bad = [c for c in file.chapters() if c["time_base"] is None or {"START", "END"} & c["metadata"].keys()]
        if bad:
            raise InputError(f"{source}: a chapter without valid TIMEBASE, START and END: {bad[0]['metadata']}")
        steps = list(chapters_of(file, 0.0))
    stamps = (unstamp(line[1:]) for line in text.split("\n") if line.startswith(";"))
    return timeline_of(steps, source, next(filter(None, stamps), None))


NAMESPACE = "http://podlove.org/simple-chapters"


def render_podlove(timeline: Timeline, options: Options) -> Rendered:
    """Podlove Simple Chapters (XML, version 1.2): starts and names, in milliseconds. It has no ends: read back, a
    chapter ends where the next begins."""
    register_namespace("psc", NAMESPACE)
    root = Element(f"{{{NAMESPACE}}}chapters", version="1.2")
    for span in spans(timeline, 1000):
        SubElement(root, f"{{{NAMESPACE}}}chapter", start=clock_ms(span.start), title=xml_text(span.name))
    return Rendered(document(root, stamp(timeline)))


def parse_podlove(text: str, source: str) -> Timeline:
    """One step per chapter, ending where the next begins; the last ends with the video."""
    root = xml_of(text.removeprefix("\ufeff"), source)
    if root.tag != f"{{{NAMESPACE}}}chapters":
        raise InputError(f"{source} is not Podlove Simple Chapters: its root is {root.tag}")
    marks = sorted(
        (parse_clock(chapter.get("start", "")), chapter.get("title"))
        for chapter in root.iter(f"{{{NAMESPACE}}}chapter")
    )
    stamped = comment_stamp(text)
    last_s = float(stamped["duration_s"]) if stamped else 0.0
    return timeline_of(_until_the_next(marks, last_s), source, stamped)


_DOCTYPE = '<!DOCTYPE Chapters SYSTEM "matroskachapters.dtd">\n'


def render_matroska(timeline: Timeline, options: Options) -> Rendered:
    """Matroska chapters XML, as mkvmerge (``--chapters``) and mkvpropedit read it. Milliseconds."""
    root = Element("Chapters")
    # an edition must hold a chapter, so a file without steps has no edition either
    edition = SubElement(root, "EditionEntry") if len(timeline) else root
    for i, span in enumerate(spans(timeline, 1000)):
        atom = SubElement(edition, "ChapterAtom")
        SubElement(atom, "ChapterUID").text = str(i + 1)
        SubElement(atom, "ChapterTimeStart").text = clock_ms(span.start) + "000000"
        SubElement(atom, "ChapterTimeEnd").text = clock_ms(span.end) + "000000"
        display = SubElement(atom, "ChapterDisplay")
        SubElement(display, "ChapterString").text = xml_text(span.name)
        SubElement(display, "ChapterLanguage").text = "und"
    return Rendered(document(root, stamp(timeline), _DOCTYPE))


def parse_matroska(text: str, source: str) -> Timeline:
    """One step per chapter atom, nested ones too; one without an end ends where it begins."""
    root = xml_of(text.removeprefix("\ufeff"), source)
    if root.tag != "Chapters":
        raise InputError(f"{source} is not Matroska chapters: its root is {root.tag}")
    steps = []
    for atom in root.iter("ChapterAtom"):
        start = parse_clock(atom.findtext("ChapterTimeStart") or "")
        end = parse_clock(atom.findtext("ChapterTimeEnd") or atom.findtext("ChapterTimeStart") or "")
        steps.append(Step(start, max(start, end), atom.findtext("ChapterDisplay/ChapterString") or None))
    return timeline_of(steps, source, comment_stamp(text))
