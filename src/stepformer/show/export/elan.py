"""ELAN (.eaf, format 3.0): the steps as an annotation tier to look at and correct by hand. Milliseconds.

A tier's annotations may not overlap, so overlapping steps go to further tiers ("steps 2", ...). Steps past the end
stay. A step of no length is a millisecond long. Scores, slots and guesses are not annotations and are left to JSON.
"""

from __future__ import annotations

import mimetypes
from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree

from stepformer.show.export.options import Options, Rendered, media_file
from stepformer.show.export.xmlfile import document
from stepformer.show.writing import lanes, spans, stamp, step_name, xml_text
from stepformer.timeline import Timeline

TIER = "steps"
_XSI = "http://www.w3.org/2001/XMLSchema-instance"


def render(timeline: Timeline, options: Options) -> Rendered:
    """The EAF text."""
    ElementTree.register_namespace("xsi", _XSI)
    root = ElementTree.Element("ANNOTATION_DOCUMENT", {
        "AUTHOR": "stepformer", "DATE": datetime.now(UTC).isoformat(timespec="seconds"),
        "FORMAT": "3.0", "VERSION": "3.0",
        f"{{{_XSI}}}noNamespaceSchemaLocation": "http://www.mpi.nl/tools/elan/EAFv3.0.xsd",
    })  # fmt: skip
    header = ElementTree.SubElement(root, "HEADER", {"MEDIA_FILE": "", "TIME_UNITS": "milliseconds"})
    ElementTree.SubElement(header, "MEDIA_DESCRIPTOR", _media(timeline, options))
    used = ElementTree.SubElement(header, "PROPERTY", {"NAME": "lastUsedAnnotationId"})
    used.text = str(len(timeline))

    all_spans = spans(timeline, 1000)
    all_lanes = lanes(all_spans)
    order = ElementTree.SubElement(root, "TIME_ORDER")
    # ELAN wants its slots in order of time; each annotation has two slots of its own, so moving one moves no other
    marks = [(span.start, f"{i}a") for i, span in enumerate(all_spans)]
    marks += [(span.end, f"{i}b") for i, span in enumerate(all_spans)]
    slots: dict[str, str] = {}
    for at, key in sorted(marks):
        slots[key] = f"ts{len(slots) + 1}"
        ElementTree.SubElement(order, "TIME_SLOT", {"TIME_SLOT_ID": slots[key], "TIME_VALUE": str(at)})

    for lane in range(max(all_lanes, default=0) + 1):
        name = TIER if lane == 0 else f"{TIER} {lane + 1}"
        tier = ElementTree.SubElement(root, "TIER", {"LINGUISTIC_TYPE_REF": "step", "TIER_ID": name})
        for i, step in enumerate(timeline):
            if all_lanes[i] != lane:
                continue
            annotation = ElementTree.SubElement(tier, "ANNOTATION")
            alignable = ElementTree.SubElement(annotation, "ALIGNABLE_ANNOTATION", {
                "ANNOTATION_ID": f"a{i + 1}", "TIME_SLOT_REF1": slots[f"{i}a"], "TIME_SLOT_REF2": slots[f"{i}b"],
            })  # fmt: skip
            ElementTree.SubElement(alignable, "ANNOTATION_VALUE").text = xml_text(step_name(step, i))
    ElementTree.SubElement(root, "LINGUISTIC_TYPE", {
        "GRAPHIC_REFERENCES": "false", "LINGUISTIC_TYPE_ID": "step", "TIME_ALIGNABLE": "true",
    })  # fmt: skip
    return Rendered(document(root, stamp(timeline)))


def _media(timeline: Timeline, options: Options) -> dict[str, str]:
    name = options.video or timeline.video
    found = media_file(timeline, options)
    return {
        "MEDIA_URL": xml_text(found.resolve().as_uri() if found else name),
        "MIME_TYPE": mimetypes.guess_type(Path(name).name)[0] or "video/*",
    }
