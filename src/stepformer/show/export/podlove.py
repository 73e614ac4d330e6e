"""Podlove Simple Chapters (XML, version 1.2): starts and names. Milliseconds.

The format has no ends: read back, a chapter ends where the next begins. What starts past the end is left out.
"""

from __future__ import annotations

from xml.etree import ElementTree

from stepformer.errors import InputError
from stepformer.show.export.options import Options, Rendered
from stepformer.show.export.xmlfile import comment_stamp, document, parse_xml
from stepformer.show.writing import clock_ms, parse_clock, spans, stamp, step_name, timeline_of, within_video, xml_text
from stepformer.timeline import Step, Timeline

NAMESPACE = "http://podlove.org/simple-chapters"


def render(timeline: Timeline, options: Options) -> Rendered:
    """The XML text."""
    stamped = stamp(timeline)
    timeline, notes = within_video(timeline)
    ElementTree.register_namespace("psc", NAMESPACE)
    root = ElementTree.Element(f"{{{NAMESPACE}}}chapters", {"version": "1.2"})
    for i, (step, span) in enumerate(zip(timeline, spans(timeline, 1000), strict=True)):
        attributes = {"start": clock_ms(span.start), "title": xml_text(step_name(step, i))}
        ElementTree.SubElement(root, f"{{{NAMESPACE}}}chapter", attributes)
    return Rendered(document(root, stamped), notes)


def parse(text: str, source: str) -> Timeline:
    """A step a chapter, ending where the next begins; the last ends with the video."""
    root = parse_xml(text, source)
    if root.tag != f"{{{NAMESPACE}}}chapters":
        raise InputError(f"{source} is not Podlove Simple Chapters: its root is {root.tag}")
    marks = sorted(
        (parse_clock(chapter.get("start", "")), chapter.get("title"))
        for chapter in root.iter(f"{{{NAMESPACE}}}chapter")
    )
    stamped = comment_stamp(text)
    last = float(stamped["duration_s"]) if stamped else 0.0
    ends = [start for start, _ in marks[1:]] + [max(last, start) for start, _ in marks[-1:]]
    steps = [Step(start, end, title or None) for (start, title), end in zip(marks, ends, strict=True)]
    return timeline_of(steps, source, stamped)
