"""No text, however broken, raises anything but the documented error or loses the order of times."""

from __future__ import annotations

import json

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stepformer.errors import InputError
from stepformer.narration import Cue, extract_phrases, parse_subtitles
from stepformer.narration.cleaning import unroll
from stepformer.narration.cues import spread_words
from stepformer.narration.readers import FORMATS

LINES = st.sampled_from(
    [
        "WEBVTT", "1", "00:00:01,000 --> 00:00:02,000", "00:03.5 --> 00:01", "--> 5", "<c>hi</c><00:00:01.5> there",
        "<v Bob>", "&amp;lt;", "[Music]", ">> so", "NOTE", "0:05 stir", "{", "<tt>", "</p>", '<p begin="1s">',
        '{"events": [{"tStartMs": 1, "segs": [{"utf8": "a"}]}]}', "5.0\t6\tadd", "crack the eggs", "don't", "\u200b",
        "♪", "{\\an8}", "-00:00:05,1 --> 99:99:99,999", "", " ", "\t",
    ]
)  # fmt: skip
KEYS = st.sampled_from(["events", "segs", "utf8", "tStartMs", "segments", "start", "end", "text", "words", "word"])
MESSY = st.one_of(
    st.text(max_size=300),
    st.lists(st.one_of(LINES, st.text(max_size=40)), max_size=25).map("\n".join),
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS | st.text(max_size=3), inner, max_size=5),
        max_leaves=12,
    ).map(json.dumps),
)  # fmt: skip


def check(cues: list[Cue]) -> None:
    starts = [cue.start_s for cue in cues]
    assert starts == sorted(starts)
    for cue in cues:
        assert 0 <= cue.start_s <= cue.end_s
        assert cue.text == " ".join(cue.text.split()) and cue.text
        times = [word.start_s for word in spread_words(cue)]
        assert times == sorted(times)
        if cue.words:
            assert [word.text for word in cue.words] == cue.text.split()


@settings(deadline=None, max_examples=300)
@given(MESSY, st.sampled_from([None, *FORMATS]), st.sampled_from(["a.vtt", "a.srt", "a.json", "a.txt", "a"]))
def test_any_text_is_read_or_refused(text: str, kind: str | None, name: str) -> None:
    try:
        cues = parse_subtitles(text, name, format=kind)
    except InputError as error:
        assert str(error).startswith(name)
        assert "line" in str(error) or "readable" in str(error)
        return
    check(cues)


@settings(deadline=None, max_examples=200)
@given(st.binary(max_size=400) | MESSY.map(lambda text: text.encode("utf-16", "surrogatepass")))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        check(parse_subtitles(data, "a"))
    except InputError as error:
        assert "line" in str(error) or "readable" in str(error)


TIMES = st.floats(0, 5000, allow_nan=False)
WORDS = st.lists(
    st.sampled_from(
        [
            "um",
            "the",
            "eggs",
            "crack",
            "whisk",
            "them",
            "it",
            "and",
            "then",
            "don't",
            "stir",
            "turn",
            "off",
            "heat",
            "pan",
            ".",
            ",",
            "into",
            "bowl",
            "you",
            "want",
            "to",
            "let's",
            "so",
            "now",
            "are",
            "added",
        ]
    )
    | st.text(max_size=12),
    max_size=30,
).map(" ".join)
CUES = st.lists(
    st.builds(lambda at, length, text: Cue(at, at + length, text), TIMES, st.floats(0, 30), WORDS), max_size=8
)


@settings(deadline=None, max_examples=100)
@given(CUES)
def test_unrolling_adds_no_word(cues: list[Cue]) -> None:
    cues = sorted(cues, key=lambda cue: cue.start_s)
    said = [word for cue in cues for word in cue.text.split()]
    left = [word for cue in unroll(cues) for word in cue.text.split()]
    at = iter(said)
    assert all(word in at for word in left)  # a subsequence


@settings(
    deadline=None, max_examples=120, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(CUES)
def test_any_cues_give_ordered_phrases_within_their_time(parser, cues: list[Cue]) -> None:
    phrases = extract_phrases(cues)
    starts = [phrase.start_s for phrase in phrases]
    assert starts == sorted(starts)
    for phrase in phrases:
        assert phrase.text == " ".join(phrase.text.split()) and phrase.text
        assert phrase.start_s <= phrase.end_s
        assert 0.0 <= phrase.groundability <= 1.0
        assert min(cue.start_s for cue in cues) <= phrase.start_s
        assert phrase.end_s <= max(cue.end_s for cue in cues) + 1e-6


@settings(
    deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(st.text(alphabet=st.characters(), max_size=200) | st.text(alphabet="\ud800\udfff a\0\n", max_size=50))
def test_any_unicode_goes_through_the_parser(parser, text: str) -> None:
    for phrase in extract_phrases([Cue(1.0, 9.0, text)]):
        assert 1.0 <= phrase.start_s <= phrase.end_s <= 9.0
