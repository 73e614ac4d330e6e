"""Steps and timelines: checked where they are made, and the same after a trip through JSON."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import stepformer as sf
from stepformer.errors import InputError
from stepformer.timeline import SCHEMA_VERSION, Step, Timeline

seconds = st.floats(0, 1e6, allow_nan=False)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
values = st.none() | st.booleans() | st.integers(-9, 9) | st.floats(-1, 1) | texts
metas = st.dictionaries(texts, values | st.lists(values, max_size=3), max_size=3)


@st.composite
def steps(draw):
    start, end = sorted((draw(seconds), draw(seconds)))
    score = draw(st.none() | st.floats(-1, 1))
    return Step(start, end, draw(st.none() | texts), score, draw(st.none() | st.integers(0, 40)), draw(metas))


@st.composite
def timelines(draw):
    ordered = sorted(draw(st.lists(steps(), max_size=5)), key=lambda s: s.start_s)
    return Timeline(draw(texts), draw(seconds), tuple(ordered), draw(metas))


@given(timelines(), st.sampled_from([None, 0, 2]))
def test_json_gives_back_the_same_timeline(timeline, indent):
    text = timeline.to_json(indent)
    assert Timeline.from_json(text) == timeline
    assert Timeline.from_dict(json.loads(text)) == timeline
    assert json.loads(text)["schema_version"] == SCHEMA_VERSION


@given(timelines())
def test_a_timeline_is_the_sequence_of_its_steps(timeline):
    assert list(timeline) == [timeline[i] for i in range(len(timeline))] == list(timeline.steps)
    assert all(step.duration_s == step.end_s - step.start_s >= 0 for step in timeline)


def test_numbers_of_any_kind_become_plain_ones():
    step = Step(np.float32(1.5), np.int64(3), "whisk", np.float64(0.5), np.int32(2))
    assert [type(v) for v in (step.start_s, step.end_s, step.score, step.slot)] == [float, float, float, int]
    timeline = Timeline("v.mp4", np.float32(9), [step])
    assert timeline.steps == (step,) and type(timeline.duration_s) is float
    assert json.loads(timeline.to_json())["steps"][0]["start_s"] == 1.5


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"start_s": -1, "end_s": 2}, "start_s must lie between 0 and"),
        ({"start_s": 3, "end_s": 2}, "0 <= start_s <= end_s"),
        ({"start_s": math.nan, "end_s": 2}, "start_s must lie between 0 and"),
        ({"start_s": 0, "end_s": math.inf}, "end_s must lie between 0 and"),
        ({"start_s": "0:10", "end_s": 2}, "start_s must be seconds, got '0:10'"),
        ({"start_s": None, "end_s": 2}, "start_s must be seconds"),
        ({"start_s": True, "end_s": 2}, "start_s must be seconds"),
        ({"start_s": 0, "end_s": 2, "score": math.nan}, "score must be finite"),
        ({"start_s": 0, "end_s": 2, "score": "high"}, "must be numbers"),
        ({"start_s": 0, "end_s": 2, "slot": [1]}, "must be numbers"),
        ({"start_s": 0, "end_s": 2, "label": 7}, "label must be a text, got 7"),
    ],
)
def test_a_step_that_makes_no_sense_is_refused(arguments, sentence):
    with pytest.raises(InputError, match=sentence):
        Step(**arguments)


def test_a_timeline_that_makes_no_sense_is_refused():
    with pytest.raises(InputError, match="step 1 starts before step 0"):
        Timeline("v", 9, (Step(2, 3), Step(1, 4)))
    for duration in (-1, math.nan, math.inf):
        with pytest.raises(InputError, match="duration_s"):
            Timeline("v", duration)
    assert len(Timeline("v", 9, (Step(1, 5), Step(2, 3)))) == 2  # people's annotations overlap


GOOD = {"video": "v", "duration_s": 9, "steps": [{"start_s": 1, "end_s": 2}]}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"schema_version": 99}, "schema version 99 is not 1"),
        ({"duration_s": "long"}, "duration_s must be seconds"),
        ({"duration_s": None}, "duration_s must be seconds"),
        ({"steps": None}, "wrong type"),
        ({"steps": [3]}, "wrong type"),
        ({"steps": [{"start_s": 1}]}, "lacks the field 'end_s'"),
        ({"steps": [{"start_s": 1, "end_s": 2, "score": "x"}]}, "must be numbers"),
        ({"steps": [{"start_s": 4, "end_s": 2}]}, "start_s <= end_s"),
    ],
)
def test_json_that_is_wrong_says_where(change, sentence):
    assert len(Timeline.from_dict(GOOD)) == 1
    with pytest.raises(InputError, match=sentence):
        Timeline.from_json(json.dumps({**GOOD, **change}))


def test_what_is_no_timeline_at_all_is_refused():
    for missing in ("video", "duration_s", "steps"):
        with pytest.raises(InputError, match=f"lacks the field '{missing}'"):
            Timeline.from_dict({k: v for k, v in GOOD.items() if k != missing})
    with pytest.raises(InputError, match="a timeline is a JSON object, got list"):
        Timeline.from_json("[]")
    with pytest.raises(InputError, match="not JSON"):
        Timeline.from_json("{")


def test_the_names_are_the_packages_own():
    assert sf.Step is Step and sf.Timeline is Timeline
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        sf.nonsense  # noqa: B018


@pytest.mark.parametrize(
    ("meta", "why"),
    [
        ('{"a": NaN}', "NaN is not a number"),
        ('{"a": 1e999}', "too large a number"),
        ('"aaaa"', "Timeline.meta must be an object"),
        ("[" * 300 + "]" * 300, "nested more than 200 deep"),
    ],
)
def test_what_could_not_be_written_again_is_not_read(meta, why):
    """Found by fuzzing every export of strangers' timelines."""
    with pytest.raises(InputError, match=why):
        Timeline.from_json(f'{{"video": "a.mp4", "duration_s": 9, "steps": [], "meta": {meta}}}')


@pytest.mark.parametrize("number", [10**18 - 1, 1 - 10**18, -(10**17) - 1])
def test_whole_numbers_of_eighteen_digits_are_kept(number):
    timeline = Timeline("a.mp4", 1.0, (), {"n": number})
    assert Timeline.from_json(timeline.to_json()) == timeline
