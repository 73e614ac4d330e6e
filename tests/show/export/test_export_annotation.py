"""Editing and annotation formats: read back by a parser or tool that is not ours, and by ours, as the same steps."""

from __future__ import annotations

import csv
import io
import itertools
import json
import re

import jsonschema
import pytest
from export_timelines import ms, nasty, pancakes, relaxed, timelines
from hypothesis import given, settings
from lxml import etree

from stepformer import Step, Timeline
from stepformer.errors import StepFormerError
from stepformer.show import export
from stepformer.show.writing import bare_name, spans, step_names, within_video, xml_text


@settings(deadline=None, max_examples=40)
@given(timelines())
def test_elan(timeline):
    import tempfile

    import pympi

    text = export.render(timeline, "elan").text
    with tempfile.NamedTemporaryFile("wb", suffix=".eaf") as file:
        file.write(text.encode())
        file.flush()
        eaf = pympi.Elan.Eaf(file.name)
    tiers = eaf.get_tier_names()
    assert "steps" in tiers
    found = sorted((int(a[0]), int(a[1]), a[2] or "") for tier in tiers for a in eaf.get_annotation_data_for_tier(tier))
    assert found == sorted((a, b, xml_text(n)) for a, b, n in ms(timeline))
    for tier in tiers:
        mine = sorted(eaf.get_annotation_data_for_tier(tier))
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(mine))
    assert list(eaf.timeslots.values()) == sorted(eaf.timeslots.values())


@settings(deadline=None, max_examples=40)
@given(timelines())
def test_otio(timeline):
    import opentimelineio as otio

    rate = 30000 / 1001
    rendered = export.render(timeline, "otio", export.Options(fps=rate))
    read = otio.adapters.read_from_string(rendered.text, "otio_json")
    cut, _ = within_video(timeline)
    found = []
    for track in read.tracks:
        for clip in track.find_clips():
            at = clip.transformed_time_range(clip.source_range, read.tracks)
            found.append((clip.source_range.start_time.value, clip.source_range.duration.value, clip.name))
            assert at.start_time.value == pytest.approx(clip.source_range.start_time.value)
    want = [(s.start, s.end - s.start, n) for s, n in zip(spans(cut, rate), step_names(cut), strict=True)]
    assert sorted(found) == sorted(want)
    assert read.metadata["stepformer"]["video"] == timeline.video


@settings(deadline=None, max_examples=40)
@given(timelines())
def test_edl(timeline):
    import opentimelineio as otio

    rendered = export.render(timeline, "edl", export.Options(fps=25))
    read = otio.adapters.read_from_string(rendered.text, "cmx_3600", rate=25)
    clips = list(read.find_clips())
    cut, _ = within_video(timeline)
    want = []
    all_spans = spans(cut, 25)
    for i, span in enumerate(all_spans):
        end = min(span.end, all_spans[i + 1].start) if i + 1 < len(all_spans) else span.end
        if end > span.start:
            want.append((span.start, end - span.start, step_names(cut)[i]))
    assert [(c.source_range.start_time.value, c.source_range.duration.value) for c in clips] == [w[:2] for w in want]
    comments = re.findall(r"^\* FROM CLIP NAME: (.*)$", rendered.text, re.MULTILINE)
    assert comments == [w[2] for w in want]


def test_edl_ends_at_24_hours():
    with pytest.raises(StepFormerError, match="24 hours"):
        export.render(Timeline("v", 1e6, (Step(90000, 90001, "late"),)), "edl", export.Options(fps=25))


LABEL_STUDIO = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["data", "predictions"],
        "properties": {
            "data": {"type": "object", "required": ["video"], "properties": {"video": {"type": "string"}}},
            "predictions": {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["result", "model_version"],
                    "properties": {
                        "result": {
                            "type": "array",
                            "items": {
                                "type": "object",
                                "required": ["id", "from_name", "to_name", "type", "value"],
                                "properties": {
                                    "type": {"const": "timelinelabels"},
                                    "value": {
                                        "type": "object",
                                        "required": ["ranges", "timelinelabels"],
                                        "additionalProperties": False,
                                        "properties": {
                                            "ranges": {
                                                "type": "array",
                                                "minItems": 1,
                                                "maxItems": 1,
                                                "items": {
                                                    "type": "object",
                                                    "required": ["start", "end"],
                                                    "properties": {
                                                        "start": {"type": "integer", "minimum": 1},
                                                        "end": {"type": "integer", "minimum": 1},
                                                    },
                                                },
                                            },
                                            "timelinelabels": {
                                                "type": "array",
                                                "minItems": 1,
                                                "items": {"type": "string", "minLength": 1},
                                            },
                                        },
                                    },
                                },
                            },
                        }
                    },
                },
            },
        },
    },
}


@relaxed
@given(timelines())
def test_label_studio(timeline):
    rendered = export.render(timeline, "labelstudio", export.Options(fps=25))
    data = json.loads(rendered.text)
    jsonschema.validate(data, LABEL_STUDIO)
    result = data[0]["predictions"][0]["result"]
    found = [
        (r["value"]["ranges"][0]["start"] - 1, r["value"]["ranges"][0]["end"], r["value"]["timelinelabels"][0])
        for r in result
    ]
    assert found == [(s.start, s.end, n) for s, n in zip(spans(timeline, 25), step_names(timeline), strict=True)]
    config = rendered.notes[-1].partition(": ")[2]
    names = [label.get("value") for label in etree.fromstring(config).iter("Label")]
    assert set(names) == {xml_text(n) for n in step_names(timeline)}


@relaxed
@given(timelines())
def test_fiftyone(timeline):
    data = json.loads(export.render(timeline, "fiftyone").text)
    # FiftyOneTemporalDetectionDataset: {"labels": {stem: [{label, timestamps, confidence?, attributes?}] or null}}
    assert set(data) == {"labels"} and len(data["labels"]) == 1
    (found,) = data["labels"].values()
    if not len(timeline):
        assert found is None
        return
    assert all(set(d) <= {"label", "timestamps", "confidence", "attributes"} for d in found)
    assert [(d["label"], *d["timestamps"], d.get("confidence")) for d in found] == [
        (bare_name(s, i), s.start_s, s.end_s, s.score) for i, s in enumerate(timeline)
    ]


@relaxed
@given(timelines())
def test_crosstask_rows(timeline):
    rows = list(csv.reader(io.StringIO(export.render(timeline, "crosstask").text)))
    assert all(len(row) == 3 for row in rows)
    assert [(float(a), float(b)) for _, a, b in rows] == [
        (pytest.approx(s.start_s, abs=6e-4), pytest.approx(s.end_s, abs=6e-4)) for s in timeline
    ]
    numbers = [int(row[0]) for row in rows]
    assert sorted(set(numbers)) == list(range(1, len(set(numbers)) + 1))


def test_crosstask_numbers_follow_the_task():
    steps = (Step(0, 1, "Pour  batter"), Step(1, 2, "new thing"), Step(2, 3, "crack eggs"), Step(3, 4, "pour batter"))
    options = export.Options(task_steps=("crack eggs", "whisk", "pour batter"))
    rendered = export.render(Timeline("v", 9, steps), "crosstask", options)
    assert [row.split(",")[0] for row in rendered.text.split()] == ["3", "4", "1", "3"]
    assert rendered.notes == ("step 4 is 'new thing'",)


@relaxed
@given(timelines())
def test_coin(timeline):
    data = json.loads(export.render(timeline, "coin", export.Options(task="MakePancakes")).text)
    ((_, entry),) = data["database"].items()
    assert {"duration", "class", "recipe_type", "subset", "start", "end", "video_url", "annotation"} <= set(entry)
    assert entry["class"] == "MakePancakes"
    assert [(a["label"], *a["segment"]) for a in entry["annotation"]] == [
        (n, s.start_s, s.end_s) for n, s in zip(step_names(timeline), timeline, strict=True)
    ]


def test_our_own_reader_reads_coin(tmp_path):
    from stepformer.data.coin import read_coin

    export.write(nasty(), tmp_path / "COIN.coin.json", task="MakePancakes")
    dataset = read_coin(tmp_path / "COIN.coin.json")
    (video,) = dataset.videos
    assert not dataset.problems
    assert [(a.text, a.start_s, a.end_s) for a in video.annotations] == [
        (n, s.start_s, s.end_s) for n, s in zip(step_names(nasty()), nasty(), strict=True)
    ]


def test_our_own_reader_reads_crosstask_rows():
    from stepformer.data.crosstask import parse_annotation
    from stepformer.data.records import Problems, Task

    task = Task("1", "pancakes", ("whisk", "flip the pancake", "crack the eggs", "serve"))
    text = export.render(pancakes(), "crosstask", export.Options(task_steps=task.steps)).text
    problems = Problems()
    rows = parse_annotation(text, "x.csv", task, problems.report)
    assert [(r.start_s, r.end_s, r.text) for r in rows] == [
        (s.start_s, s.end_s, s.label) for s in pancakes() if s.label is not None
    ]
    assert len(problems) == 1  # the step without a name is number 5, behind the task's four


@pytest.mark.slow
def test_label_studio_accepts_the_prediction():
    reason = "label-studio-sdk is not installed (pip install label-studio-sdk)"
    interface = pytest.importorskip("label_studio_sdk.label_interface", reason=reason)
    rendered = export.render(nasty(), "labelstudio", export.Options(fps=25))
    checker = interface.LabelInterface(rendered.notes[-1].partition(": ")[2])
    checker.validate()
    prediction = json.loads(rendered.text)[0]["predictions"][0]
    assert checker.validate_prediction(prediction, return_errors=True) == []
    prediction["result"][0]["value"]["timelinelabels"] = ["a name that the configuration does not have"]
    assert checker.validate_prediction(prediction, return_errors=True)
