"""Tables, and files for annotation and editing programs (ELAN, Label Studio, FiftyOne, CrossTask, COIN, OTIO, EDL)."""

from __future__ import annotations

import csv
import io
import json
import mimetypes
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path, PurePath
from typing import Any
from xml.etree.ElementTree import Element, SubElement, register_namespace, tostring

from stepformer.errors import InputError, StepFormerError
from stepformer.show.export import Options, Rendered, frame_rate, media_address
from stepformer.show.writing import (
    bare_name,
    document,
    flat,
    is_guess,
    one_line,
    spans,
    stamp,
    step_name,
    step_names,
    step_numbers,
    timeline_of,
    tracks,
    xml_text,
)
from stepformer.timeline import Step, Timeline
from stepformer.version import __version__


def render_json(timeline: Timeline, options: Options) -> Rendered:
    """JSON: the timeline itself, as ``Timeline.to_json`` has it; its schema is ``timeline.schema.json`` beside this
    file. The one format that keeps everything, exactly, whatever the steps are."""
    return Rendered(timeline.to_json() + "\n")


def parse_json(text: str, source: str) -> Timeline:
    """The timeline, equal to the one written."""
    return Timeline.from_json(text)


COLUMNS = ("video", "duration_s", "step", "start_s", "end_s", "label", "guess", "score", "slot")


def render_csv(timeline: Timeline, options: Options, dialect: str = "excel") -> Rendered:
    """CSV and TSV: one row per step, with the video's name and length in every row, so that files can be joined.

    Times have full precision and a field is empty where there is no value. CSV keeps a name as it is, quoted where it
    must be; in TSV a name is one line, so that line tools can read it. Names are not changed to please spreadsheets:
    one that begins with ``=`` is a formula to them unless the column is imported as text. An empty timeline is a
    header.
    """
    out = io.StringIO(newline="")
    # CSV ends lines as RFC 4180 says; with a bare "\n" Python 3.11 leaves a "\r" inside a label unquoted, which reads
    # as two rows. TSV has labels on one line and tools that split at "\n".
    tidy, end = (str, "\r\n") if dialect == "excel" else (one_line, "\n")
    writer = csv.writer(out, dialect, lineterminator=end)
    writer.writerow(COLUMNS)
    for i, step in enumerate(timeline):
        writer.writerow([
            tidy(timeline.video), repr(timeline.duration_s), i + 1, repr(step.start_s), repr(step.end_s),
            tidy(step.label or ""), "true" if is_guess(step) else "",
            "" if step.score is None else repr(step.score), "" if step.slot is None else step.slot,
        ])  # fmt: skip
    return Rendered(out.getvalue())


def parse_csv(text: str, source: str, dialect: str = "excel") -> Timeline:
    """A timeline of rows with at least ``start_s`` and ``end_s`` (or ``start`` and ``end``) under a header."""
    # splitlines would cut at U+2028 and the like inside names; newline="" leaves line ends to the csv module
    rows = csv.DictReader(io.StringIO(text.removeprefix("\ufeff"), newline=""), dialect=dialect)
    video: str | None = None
    duration_s: float | None = None
    steps = []
    try:
        for row in rows:
            steps.append(_step(row))
            video = video if video is not None else row.get("video")
            if row.get("duration_s"):
                duration_s = float(row["duration_s"])
    except (KeyError, TypeError, ValueError, csv.Error) as error:
        missing = f"no column {error}" if isinstance(error, KeyError) else str(error)
        raise InputError(
            f"{source}, line {rows.line_num}: {missing}; a step needs start_s and end_s in seconds"
        ) from None
    return timeline_of(steps, video or source, {"duration_s": duration_s})


render_tsv = partial(render_csv, dialect="excel-tab")
parse_tsv = partial(parse_csv, dialect="excel-tab")


def _step(row: Mapping[str, str]) -> Step:
    start, end = (row[f"{edge}_s" if f"{edge}_s" in row else edge] for edge in ("start", "end"))
    score = float(row["score"]) if row.get("score") else None
    slot = int(row["slot"]) if row.get("slot") else None
    meta = {"guess": True} if row.get("guess") == "true" else {}
    return Step(float(start), float(end), row.get("label") or None, score, slot, meta)


_XSI = "http://www.w3.org/2001/XMLSchema-instance"


def render_elan(timeline: Timeline, options: Options) -> Rendered:
    """ELAN (.eaf, format 3.0): the steps as an annotation tier to look at and correct by hand. Milliseconds.

    A tier's annotations may not overlap, so overlapping steps go to further tiers ("steps 2", ...). Scores, slots and
    guesses are not annotations and are left to JSON.
    """
    register_namespace("xsi", _XSI)
    root = Element("ANNOTATION_DOCUMENT", {
        "AUTHOR": "stepformer", "DATE": datetime.now(UTC).isoformat(timespec="seconds"),
        "FORMAT": "3.0", "VERSION": "3.0",
        f"{{{_XSI}}}noNamespaceSchemaLocation": "http://www.mpi.nl/tools/elan/EAFv3.0.xsd",
    })  # fmt: skip
    header = SubElement(root, "HEADER", MEDIA_FILE="", TIME_UNITS="milliseconds")
    kind = mimetypes.guess_type(Path(options.video or timeline.video).name)[0] or "video/*"
    SubElement(header, "MEDIA_DESCRIPTOR", MEDIA_URL=xml_text(media_address(timeline, options)), MIME_TYPE=kind)
    SubElement(header, "PROPERTY", NAME="lastUsedAnnotationId").text = str(len(timeline))
    all_spans = spans(timeline, 1000)
    order = SubElement(root, "TIME_ORDER")
    # ELAN wants its slots in order of time; each annotation has two slots of its own, so moving one moves no other
    marks = [(at, f"{i}{end}") for i, span in enumerate(all_spans) for at, end in ((span.start, "a"), (span.end, "b"))]
    slots: dict[str, str] = {}
    for at, key in sorted(marks):
        slots[key] = f"ts{len(slots) + 1}"
        SubElement(order, "TIME_SLOT", TIME_SLOT_ID=slots[key], TIME_VALUE=str(at))
    for name, members in tracks(all_spans).items():
        tier = SubElement(root, "TIER", LINGUISTIC_TYPE_REF="step", TIER_ID=name)
        for i in members:
            place = {"ANNOTATION_ID": f"a{i + 1}", "TIME_SLOT_REF1": slots[f"{i}a"], "TIME_SLOT_REF2": slots[f"{i}b"]}
            alignable = SubElement(SubElement(tier, "ANNOTATION"), "ALIGNABLE_ANNOTATION", place)
            SubElement(alignable, "ANNOTATION_VALUE").text = xml_text(all_spans[i].name)
    SubElement(root, "LINGUISTIC_TYPE", GRAPHIC_REFERENCES="false", LINGUISTIC_TYPE_ID="step", TIME_ALIGNABLE="true")
    return Rendered(document(root, stamp(timeline)))


def render_labelstudio(timeline: Timeline, options: Options) -> Rendered:
    """Label Studio: a task with the steps as a prediction on the video's timeline, to correct by hand. Whole frames.

    Frames are counted from 1 and both ends are inclusive, as Label Studio's ``TimelineLabels`` has them. Its labelling
    configuration must know the names and the frame rate: :func:`labeling_config` writes one, and the notes hold it.
    """
    rate, notes = frame_rate(timeline, options)
    result = [
        {
            "id": f"step{number}",
            "from_name": "steps",
            "to_name": "video",
            "type": "timelinelabels",
            "origin": "prediction",
            "value": {"ranges": [{"start": span.start + 1, "end": span.end}], "timelinelabels": [span.name]},
            **_known(score=step.score),
        }
        for number, (step, span) in enumerate(zip(timeline, spans(timeline, rate), strict=True), 1)
    ]
    task = {
        "data": {"video": options.video or timeline.video},
        "meta": json.loads(stamp(timeline)),
        "predictions": [{"model_version": f"stepformer {__version__}", "result": result}],
    }
    config = f"labelling configuration for these names: {labeling_config(timeline, rate)}"
    return Rendered(json.dumps([task], indent=2, ensure_ascii=False) + "\n", (*notes, config))


def _known(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def labeling_config(timeline: Timeline, rate: float) -> str:
    """The labelling configuration (XML on one line) in which the timeline's names exist."""
    view = Element("View")
    SubElement(view, "Video", name="video", value="$video", frameRate=f"{rate:g}")
    labels = SubElement(view, "TimelineLabels", name="steps", toName="video")
    for name in dict.fromkeys(step_names(timeline)):
        SubElement(labels, "Label", value=xml_text(name))
    return tostring(view, encoding="unicode")


def render_fiftyone(timeline: Timeline, options: Options) -> Rendered:
    """FiftyOne: the ``labels.json`` of a ``FiftyOneTemporalDetectionDataset``. Seconds, as ``timestamps``.

    The key is the stem of the video's file, which FiftyOne finds in the folder ``data`` beside the file. Names are
    given as strings (no ``classes``). Zero lengths stay.
    """
    detections = []
    for i, step in enumerate(timeline):
        attributes = ({"guess": True} if is_guess(step) else {}) | _known(slot=step.slot)
        detection = {"label": bare_name(step, i), "timestamps": [step.start_s, step.end_s]}
        detections.append(detection | _known(confidence=step.score, attributes=attributes or None))
    key = PurePath(options.video or timeline.video).stem or "video"
    return Rendered(json.dumps({"labels": {key: detections or None}}, indent=2, ensure_ascii=False) + "\n")


def render_crosstask(timeline: Timeline, options: Options) -> Rendered:
    """CrossTask annotation rows: ``step,start,end`` without a header, as ``annotations/<task>_<video>.csv`` holds them.

    ``step`` is the 1-based place of the step in its task's list. Give that list as ``task_steps``; names that are not
    in it are numbered behind it, and without it steps are numbered as they first appear; the notes say which number is
    which name. Milliseconds; zero lengths stay.
    """
    numbers = step_numbers(timeline, options.task_steps)
    rows = [f"{n},{step.start_s:.3f},{step.end_s:.3f}\n" for n, step in zip(numbers, timeline, strict=True)]
    names = {n: step_name(step, i) for i, (n, step) in enumerate(zip(numbers, timeline, strict=True))}
    added = {n: name for n, name in sorted(names.items()) if n > len(options.task_steps)}
    notes = [f"step {n} is {name!r}" for n, name in added.items()]
    return Rendered("".join(rows), tuple(notes))


def render_coin(timeline: Timeline, options: Options) -> Rendered:
    """COIN annotation JSON: ``{"database": {video: {..., "annotation": [{id, segment, label}]}}}``. Seconds.

    Ids follow ``task_steps`` as CrossTask's numbers do. ``class`` is the ``task`` option, ``subset`` is "testing", and
    the video is named by the stem of its file. Zero lengths stay.
    """
    numbers = step_numbers(timeline, options.task_steps)
    key = PurePath(timeline.video).stem or "video"
    entry: dict[str, Any] = {
        "video_url": options.video or timeline.video,
        "duration": timeline.duration_s,
        "recipe_type": 0,
        "class": options.task or "",
        "subset": "testing",
        "start": timeline[0].start_s if len(timeline) else 0.0,
        "end": max((step.end_s for step in timeline), default=timeline.duration_s),
        "annotation": [
            {"id": str(n), "segment": [step.start_s, step.end_s], "label": step_name(step, i)}
            for i, (n, step) in enumerate(zip(numbers, timeline, strict=True))
        ],
    }
    value = {"database": {key: entry}, "stepformer": json.loads(stamp(timeline))}
    return Rendered(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def render_otio(timeline: Timeline, options: Options) -> Rendered:
    """OpenTimelineIO (.otio): one clip per step, at its own place in time, for editing programs. Whole frames.

    Overlapping steps go to further tracks. Score, slot and meta of a step are in its clip's metadata.
    """
    rate, notes = frame_rate(timeline, options)
    target = media_address(timeline, options)
    all_spans = spans(timeline, rate)
    layers = []
    for name, members in tracks(all_spans).items():
        children: list[dict[str, Any]] = []
        at = 0
        for step, span in ((timeline[i], all_spans[i]) for i in members):
            if span.start > at:
                children.append({"OTIO_SCHEMA": "Gap.1", "source_range": _range(0, span.start - at, rate)})
            children.append({
                "OTIO_SCHEMA": "Clip.2",
                "name": span.name,
                "source_range": _range(span.start, span.end - span.start, rate),
                "metadata": {"stepformer": step.to_dict()},
                "media_references": {"DEFAULT_MEDIA": {"OTIO_SCHEMA": "ExternalReference.1", "target_url": target}},
                "active_media_reference_key": "DEFAULT_MEDIA",
            })  # fmt: skip
            at = span.end
        layers.append({"OTIO_SCHEMA": "Track.1", "name": name, "kind": "Video", "children": children})
    value = {
        "OTIO_SCHEMA": "Timeline.1",
        "name": options.title or Path(timeline.video).stem,
        "global_start_time": None,
        "metadata": {"stepformer": json.loads(stamp(timeline))},
        "tracks": {"OTIO_SCHEMA": "Stack.1", "name": "tracks", "children": layers},
    }
    return Rendered(json.dumps(value, indent=2, ensure_ascii=False) + "\n", notes)


def _range(start: int, duration: int, rate: float) -> dict[str, Any]:
    return {
        "OTIO_SCHEMA": "TimeRange.1",
        "start_time": {"OTIO_SCHEMA": "RationalTime.1", "value": start, "rate": rate},
        "duration": {"OTIO_SCHEMA": "RationalTime.1", "value": duration, "rate": rate},
    }


_REEL = "AX"  # what editing programs call a source that is a file and not a tape


def render_edl(timeline: Timeline, options: Options) -> Rendered:
    """CMX 3600 edit decision list (.edl): one event per step, in its place. Whole frames, non-drop timecode.

    One video track, so a step is cut where the next begins and one that is then empty is left out; the notes say so.
    Timecode counts at the nominal rate (30 for 29.97). The format ends at 24 hours and has no escape: names are one
    line behind ``FROM CLIP NAME``.
    """
    rate, notes = frame_rate(timeline, options)
    nominal = max(1, round(rate))
    title = one_line(options.title or Path(timeline.video).stem) or "steps"
    lines = [f"TITLE: {title}", "FCM: NON-DROP FRAME", ""]
    events, cut = flat(spans(timeline, rate))
    for event, span in enumerate(events, 1):
        start, end = (_timecode(at, nominal) for at in (span.start, span.end))
        lines.append(f"{event:03d}  {_REEL:<8} V     C        {start} {end} {start} {end}")
        lines.append(f"* FROM CLIP NAME: {span.name}")
    if events:  # a comment belongs to an event; strict readers stumble over one without
        lines.append(f"* {stamp(timeline)}")
    return Rendered("\n".join(lines) + "\n", (*notes, *cut))


def _timecode(frame: int, nominal: int) -> str:
    seconds, rest = divmod(frame, nominal)
    if seconds >= 24 * 3600:
        raise StepFormerError("an EDL ends at 24 hours and a step is later than that; write .otio instead")
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}:{rest:02d}"
