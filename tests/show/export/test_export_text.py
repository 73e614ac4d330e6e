"""Every text format: what is written is read back by a parser that is not ours, and by ours, as the same steps."""

from __future__ import annotations

import csv
import io
import itertools
import json
import re
import time
from importlib import resources

import jsonschema
import pytest
from export_timelines import NASTY, ms, nasty, pancakes, read_ms, relaxed, timelines
from hypothesis import given
from lxml import etree

from stepformer import Step, Timeline
from stepformer.errors import InputError, StepFormerError
from stepformer.show import export
from stepformer.show.writing import (
    Span,
    lanes,
    one_line,
    parse_clock,
    spans,
    stamp,
    step_names,
    unstamp,
    within_video,
    xml_text,
)

SCHEMA = json.loads(resources.files(export).joinpath("timeline.schema.json").read_text("utf-8"))

# ---- helpers -----------------------------------------------------------------------------------------------------


def test_one_line_is_one_line():
    for text in NASTY:
        assert len(one_line(text).splitlines()) == 1
        assert one_line(one_line(text)) == one_line(text)


def test_unlabelled_steps_are_numbered():
    assert step_names(pancakes())[2] == "Step 3"
    assert step_names(Timeline("v", 5, (Step(0, 1, " \n "),))) == ["Step 1"]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1:02:03.004", 3723.004), ("02:03,5", 123.5), ("2:03", 123.0), ("7.25", 7.25), ("100:00:00", 360000.0)],
)
def test_clocks(text, seconds):
    assert parse_clock(text) == seconds


@pytest.mark.parametrize("text", ["", "x", "1:2:3:4", "-1:00", "1:00.", "1e3"])
def test_bad_clocks(text):
    with pytest.raises(InputError):
        parse_clock(text)


@relaxed
@given(timelines())
def test_within_video(timeline):
    cut, notes = within_video(timeline)
    if timeline.duration_s == 0:
        assert cut == timeline and not notes
        return
    assert all(step.end_s <= timeline.duration_s and step.start_s < timeline.duration_s for step in cut)
    # formats of whole milliseconds round the end of the video, which is no news
    changed = sum(step.end_s > timeline.duration_s + 1e-3 or step.start_s >= timeline.duration_s for step in timeline)
    assert len(notes) == changed


@relaxed
@given(timelines())
def test_lanes_do_not_overlap(timeline):
    all_spans = spans(timeline, 1000)
    found = lanes(all_spans)
    for lane in set(found):
        mine = [s for s, own in zip(all_spans, found, strict=True) if own == lane]
        assert all(a.end <= b.start for a, b in itertools.pairwise(mine))
    if all(a.end <= b.start for a, b in itertools.pairwise(all_spans)):
        assert set(found) <= {0}


def test_lanes_by_hand():
    assert lanes([Span(0, 5), Span(2, 4), Span(4, 6), Span(5, 7)]) == [0, 1, 1, 0]


@relaxed
@given(timelines())
def test_stamp_fits_every_comment(timeline):
    text = stamp(timeline)
    assert "--" not in text and "\n" not in text and text.isascii()
    assert unstamp(text)["meta"] == dict(timeline.meta)
    assert unstamp("{}") is None and unstamp("x") is None


# ---- JSON, CSV, TSV ----------------------------------------------------------------------------------------------


@relaxed
@given(timelines())
def test_json_is_lossless_and_valid(timeline):
    text = export.render(timeline, "json").text
    jsonschema.Draft202012Validator(SCHEMA).validate(json.loads(text))
    assert export.parse(text, "json") == timeline


@pytest.mark.parametrize(
    "break_it",
    [
        lambda d: d.pop("steps"),
        lambda d: d.update(schema_version=2),
        lambda d: d["steps"][0].update(start_s="1"),
        lambda d: d["steps"][0].pop("end_s"),
        lambda d: d["steps"][0].update(start_s=-1),
        lambda d: d.update(extra=1),
    ],
)
def test_schema_refuses(break_it):
    data = pancakes().to_dict()
    break_it(data)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(SCHEMA).validate(data)


@relaxed
@given(timelines())
def test_csv_is_lossless(timeline):
    text = export.render(timeline, "csv").text
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    assert [(float(r["start_s"]), float(r["end_s"]), r["label"]) for r in rows] == [
        (s.start_s, s.end_s, s.label or "") for s in timeline
    ]
    back = export.parse(text, "csv", "source")
    assert back.steps == tuple(Step(s.start_s, s.end_s, s.label or None, s.score, s.slot, s.meta) for s in timeline)
    if len(timeline):
        assert (back.video, back.duration_s) == (timeline.video or "source", timeline.duration_s)


@relaxed
@given(timelines())
def test_tsv_has_a_line_a_step(timeline):
    text = export.render(timeline, "tsv").text
    # split as line tools do: at line feeds alone
    assert text.count("\n") == len(timeline) + 1 and "\r" not in text
    back = export.parse(text, "tsv", "source")
    assert [(s.start_s, s.end_s, s.label) for s in back] == [
        (s.start_s, s.end_s, one_line(s.label or "") or None) for s in timeline
    ]


def test_csv_of_others():
    back = export.parse("start,end,label\n1,2.5,mix\n", "csv", "other")
    assert back == Timeline("other", 2.5, (Step(1, 2.5, "mix"),))


@pytest.mark.parametrize("text", ["start_s,end_s\n1,x\n", "a,b\n1,2\n", "start_s,end_s\n1\n", "start_s,end_s\n5,2\n"])
def test_bad_csv(text):
    with pytest.raises(InputError):
        export.parse(text, "csv", "bad")


# ---- captions ----------------------------------------------------------------------------------------------------


@relaxed
@given(timelines())
def test_vtt(timeline):
    import webvtt

    text = export.render(timeline, "vtt").text
    captions = webvtt.from_string(text).captions
    found = [(_vtt_ms(c.start), _vtt_ms(c.end), _unescape(c.raw_text)) for c in captions]
    assert found == ms(timeline)
    back = export.parse(text, "vtt", "source")
    assert read_ms(back) == ms(timeline)
    assert (back.video, back.duration_s, back.meta) == (timeline.video, timeline.duration_s, timeline.meta)


def _vtt_ms(text: str) -> int:
    h, m, s = text.split(":")
    return round((int(h) * 3600 + int(m) * 60 + float(s)) * 1000)


def _unescape(text: str) -> str:
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def test_vtt_of_others():
    text = (
        "\ufeffWEBVTT - title\r\nKind: chapters\r\n\r\nSTYLE\r\n::cue {}\r\n\r\n"
        "00:01.000 --> 00:02.500 align:start\r\n<c.x>mix</c> &amp; <i>stir</i>\r\n\r\n"
        "id\r\n01:00:00.000 --> 01:00:01.000\r\nbake\r\n"
    )
    assert export.parse(text, "vtt", "v").steps == (Step(1, 2.5, "mix & stir"), Step(3600, 3601, "bake"))


def test_not_vtt():
    with pytest.raises(InputError, match="WEBVTT"):
        export.parse("1\n00:00:01,000 --> 00:00:02,000\nx\n", "vtt", "x")


@relaxed
@given(timelines())
def test_srt(timeline):
    import srt

    text = export.render(timeline, "srt").text
    want = [(a, b, n.replace("-->", "→")) for a, b, n in ms(timeline)]
    found = [
        (round(c.start.total_seconds() * 1000), round(c.end.total_seconds() * 1000), c.content) for c in srt.parse(text)
    ]
    assert found == want
    assert read_ms(export.parse(text, "srt")) == want


def test_not_srt():
    with pytest.raises(InputError, match="line 1: expected a cue number"):
        export.parse("hello\n", "srt", "x")


# ---- YouTube -----------------------------------------------------------------------------------------------------


def youtube(text: str) -> list[tuple[int, str]]:
    """What YouTube would read: a time at the start of a line, then the title."""
    out = []
    for line in text.split("\n")[:-1]:
        clock, _, name = line.partition(" ")
        seconds = 0
        for part in clock.split(":"):
            seconds = seconds * 60 + int(part)
        out.append((seconds, name))
    return out


@relaxed
@given(timelines())
def test_youtube_rules_hold(timeline):
    try:
        text = export.render(timeline, "youtube").text
    except StepFormerError as error:
        assert "at least 3" in str(error)
        return
    chapters = youtube(text)
    end = int(timeline.duration_s or max(s.end_s for s in timeline))
    assert len(chapters) >= 3 and chapters[0][0] == 0
    starts = [at for at, _ in chapters] + [end]
    assert all(b - a >= 10 for a, b in itertools.pairwise(starts))
    assert all(name and "<" not in name and ">" not in name for _, name in chapters)
    assert step_names(export.parse(text, "youtube")) == [name for _, name in chapters] or any(
        not name[0].isalnum() for _, name in chapters
    )


def test_youtube_by_hand():
    rendered = export.render(pancakes(), "youtube")
    assert youtube(rendered.text) == [
        (0, "crack the eggs"), (15, "whisk (guess)"), (40, "Step 3"), (55, "flip the pancake"), (70, "Outro"),
    ]  # fmt: skip
    assert rendered.notes == ("'crack the eggs' moved from 0:02 to 0:00, where the first chapter must be",)


@pytest.mark.parametrize("apart_s", [20.0, 5.0])  # chapters, and steps that are too short to be one
def test_a_hundred_thousand_steps_take_time_in_proportion(apart_s):
    def seconds(count):
        steps = tuple(Step(apart_s * i, apart_s * i + 4, f"step {i}") for i in range(count))
        timeline = Timeline("v.mp4", 2_100_000, steps)
        began = time.process_time()
        export.render(timeline, "youtube")
        return time.process_time() - began

    seconds(1000)
    assert seconds(100_000) < 30 * seconds(10_000) + 1.0  # ten times as many; quadratic time would be a hundred


def test_youtube_joins_and_tells():
    steps = (Step(12, 30, "peel"), Step(30, 34, "rinse"), Step(34, 60, "chop"), Step(60, 95, "fry"))
    rendered = export.render(Timeline("v.mp4", 95, steps), "youtube")
    assert youtube(rendered.text) == [(0, "Intro"), (12, "peel / rinse"), (34, "chop"), (60, "fry")]
    assert rendered.notes == ("'rinse' (4 s at 0:30) is shorter than 10 s: joined with 'peel'",)


def test_youtube_needs_three():
    steps = (Step(0, 30, "a"), Step(30, 60, "b"))
    with pytest.raises(StepFormerError, match=r"at least 3.*has 2"):
        export.render(Timeline("v.mp4", 60, steps), "youtube")
    with pytest.raises(StepFormerError, match="has 0"):
        export.render(Timeline("v.mp4", 60), "youtube")


def test_youtube_hours():
    steps = tuple(Step(i * 1800, i * 1800 + 1800, f"part {i}") for i in range(4))
    assert "1:30:00 part 3\n" in export.render(Timeline("v.mp4", 7200, steps), "youtube").text


# ---- chapters ----------------------------------------------------------------------------------------------------


@relaxed
@given(timelines())
def test_ffmetadata(timeline):
    text = export.render(timeline, "ffmetadata").text
    back = export.parse(text, "ffmetadata", "x")
    cut, _ = within_video(timeline)
    assert read_ms(back) == ms(cut)
    assert (back.video, back.duration_s, back.meta) == (timeline.video, timeline.duration_s, timeline.meta)


def test_ffmetadata_continued_lines_and_bases():
    chapter = "[CHAPTER]\nTIMEBASE=1/90000\nSTART=90000\nEND=135000\ntitle=a\\\nb\\=c\n"
    text = f";FFMETADATA1\ntitle=whole\n{chapter}[STREAM]\nx=y\n"
    assert export.parse(text, "ffmetadata").steps == (Step(1, 1.5, "a\nb=c"),)


def test_ffmetadata_of_a_name_that_ends_in_a_backslash():
    timeline = Timeline("v.mp4", 9, (Step(0, 1, "a\\"), Step(1, 2, "b")))
    assert step_names(export.parse(export.render(timeline, "ffmetadata").text, "ffmetadata")) == ["a\\", "b"]


@relaxed
@given(timelines())
def test_podlove(timeline):
    text = export.render(timeline, "podlove").text
    cut, _ = within_video(timeline)
    root = etree.fromstring(text.encode())
    assert root.tag == "{http://podlove.org/simple-chapters}chapters" and root.get("version") == "1.2"
    want = [(a, xml_text(n)) for a, _, n in ms(cut)]
    assert [(_vtt_ms(c.get("start")), c.get("title")) for c in root] == want
    assert all(re.fullmatch(r"\d\d+:\d\d:\d\d\.\d\d\d", c.get("start")) for c in root)
    back = export.parse(text, "podlove", "x")
    assert sorted((a, n) for a, _, n in read_ms(back)) == sorted(want)


@relaxed
@given(timelines())
def test_matroska(timeline):
    text = export.render(timeline, "matroska").text
    cut, _ = within_video(timeline)
    root = etree.fromstring(text.encode())
    found = [
        (_vtt_ms(a.findtext("ChapterTimeStart")), _vtt_ms(a.findtext("ChapterTimeEnd")),
         a.findtext("ChapterDisplay/ChapterString"))
        for a in root.iter("ChapterAtom")
    ]  # fmt: skip
    want = [(a, b, xml_text(n)) for a, b, n in ms(cut)]
    assert found == want
    assert len({a.findtext("ChapterUID") for a in root.iter("ChapterAtom")}) == len(want)
    back = export.parse(text, "matroska", "x")
    assert read_ms(back) == want and back.meta == timeline.meta


@pytest.mark.parametrize("name", ["podlove", "matroska"])
@pytest.mark.parametrize("text", ["", "<a>", "<other/>"])
def test_not_chapters_xml(name, text):
    with pytest.raises(InputError):
        export.parse(text, name, "x")


@pytest.mark.parametrize(
    "name", [n for n, f in export.FORMATS.items() if f.kind == "text" and n not in ("youtube", "html")]
)
def test_nasty_and_empty_in_every_text_format(name):
    assert export.render(nasty(), name, export.Options(fps=25)).text
    assert isinstance(export.render(Timeline("v.mp4", 0), name, export.Options(fps=25)).text, str)
