"""Matroska chapters XML, as mkvmerge (``--chapters``) and mkvpropedit read it.

Written in milliseconds. What lies past the end of the video is cut or left out, told in the notes; a step of no
length is a millisecond long.
"""

from __future__ import annotations

from xml.etree import ElementTree

from stepformer.errors import InputError
from stepformer.show.export.options import Options, Rendered
from stepformer.show.export.xmlfile import comment_stamp, document, parse_xml
from stepformer.show.writing import clock_ms, parse_clock, spans, stamp, step_name, timeline_of, within_video, xml_text
from stepformer.timeline import Step, Timeline

_DOCTYPE = '<!DOCTYPE Chapters SYSTEM "matroskachapters.dtd">\n'


def render(timeline: Timeline, options: Options) -> Rendered:
    """The XML text."""
    stamped = stamp(timeline)
    timeline, notes = within_video(timeline)
    root = ElementTree.Element("Chapters")
    if not len(timeline):
        # an edition must hold a chapter, so a file without steps has no edition either
        return Rendered(document(root, stamped, _DOCTYPE), notes)
    edition = ElementTree.SubElement(root, "EditionEntry")
    for i, (step, span) in enumerate(zip(timeline, spans(timeline, 1000), strict=True)):
        atom = ElementTree.SubElement(edition, "ChapterAtom")
        _text(atom, "ChapterUID", str(i + 1))
        _text(atom, "ChapterTimeStart", clock_ms(span.start) + "000000")
        _text(atom, "ChapterTimeEnd", clock_ms(span.end) + "000000")
        display = ElementTree.SubElement(atom, "ChapterDisplay")
        _text(display, "ChapterString", xml_text(step_name(step, i)))
        _text(display, "ChapterLanguage", "und")
    return Rendered(document(root, stamped, _DOCTYPE), notes)


def parse(text: str, source: str) -> Timeline:
    """A step a chapter atom, nested ones too; one without an end ends where it begins."""
    root = parse_xml(text, source)
    if root.tag != "Chapters":
        raise InputError(f"{source} is not Matroska chapters: its root is {root.tag}")
    steps = []
    for atom in root.iter("ChapterAtom"):
        start = parse_clock(atom.findtext("ChapterTimeStart") or "")
        end = parse_clock(atom.findtext("ChapterTimeEnd") or atom.findtext("ChapterTimeStart") or "")
        steps.append(Step(start, max(start, end), atom.findtext("ChapterDisplay/ChapterString") or None))
    return timeline_of(steps, source, comment_stamp(text))


def _text(parent: ElementTree.Element, tag: str, text: str) -> None:
    ElementTree.SubElement(parent, tag).text = text
