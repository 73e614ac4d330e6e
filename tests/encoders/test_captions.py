"""Captions of any captioner as the video side."""

import json
import zlib

import numpy as np
import pytest

from stepformer.encoders import captions as module
from stepformer.encoders.captions import CaptionsEncoder, parse_captions, read_captions
from stepformer.errors import InputError

TAP, SOAP = "a hand turns on a tap", "a hand takes soap"


class Words:
    """A text tower that needs no weights: each text its own direction."""

    dim = 64
    fingerprint = "words"

    def encode_text(self, texts):
        rows = [np.random.default_rng(zlib.crc32(text.encode())).normal(size=self.dim) for text in texts]
        return np.array([row / np.linalg.norm(row) for row in rows], np.float32).reshape(len(texts), self.dim)


@pytest.fixture(autouse=True)
def words(monkeypatch):
    monkeypatch.setattr(module, "ClipText", Words)


SEGMENTS = [{"start": 0, "end": 2, "text": TAP}, {"start": 2, "end": 4, "text": SOAP}]


@pytest.mark.parametrize(
    "value",
    [
        SEGMENTS,
        {"segments": SEGMENTS},
        {"captions": [{"start_s": 0, "end_s": 2, "caption": TAP}, {"begin": 2, "end_time": 4, "description": SOAP}]},
        {"chunks": [{"timestamp": [0, 2], "text": TAP}, {"timestamp": [2, 4], "text": SOAP}]},
        {"duration": 4, "timestamps": [[0, 2], [2, 4]], "sentences": [TAP, SOAP]},
        list(reversed(SEGMENTS)),
    ],
)
def test_every_shape_reads_the_same(value):
    found, duration = parse_captions(value)
    assert [(c.start_s, c.end_s, c.text) for c in found] == [(0, 2, TAP), (2, 4, SOAP)]
    assert duration == 4


def test_a_table_of_videos_is_looked_up_by_name(tmp_path):
    (tmp_path / "all.json").write_text(json.dumps({"a.mp4": SEGMENTS, "b": SEGMENTS[:1]}))
    assert len(read_captions(tmp_path / "all.json", "a")[0]) == 2
    assert len(read_captions(tmp_path / "all.json", "b")[0]) == 1
    with pytest.raises(InputError, match=r"'c'.*a\.mp4"):
        read_captions(tmp_path / "all.json", "c")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([{"end": 3, "text": TAP}], "segment 0"),
        ([{"start": 0, "end": 1, "text": " "}], "no captions"),
        ([{"start": float("nan"), "end": 1, "text": "x"}], "segment 0"),
        (["words"], "to be an object"),
        ([], "no captions"),
        ({"duration": 3, "timestamps": [[0, 1]], "sentences": []}, "do not match"),
        ({"segments": "no"}, "expected a list"),
        ({"duration": 3e7, "segments": [{"start": 0, "end": 4, "text": TAP}]}, "the duration must lie .* got 3e[+]07"),
        ({"duration": 2e6, "segments": [{"start": 0, "end": 4, "text": TAP}]}, "end at 4 s, which does not fit"),
        ([{"start": 0, "end": 2e6, "text": TAP}], "does not fit"),
    ],
)
def test_what_is_wrong_is_said(value, message):
    with pytest.raises(InputError, match=message):
        parse_captions(value)


def test_not_json_is_said(tmp_path):
    (tmp_path / "x.json").write_text("{")
    with pytest.raises(InputError, match="not readable JSON"):
        read_captions(tmp_path / "x.json")


def test_a_second_has_the_vector_of_what_is_said_of_it():
    encoder = CaptionsEncoder()
    out = encoder.encode_captions(*parse_captions(SEGMENTS)).vectors
    tap, soap = Words().encode_text([TAP, SOAP])
    np.testing.assert_allclose(out, [tap, tap, soap, soap], atol=1e-6)


def test_a_short_caption_counts_more_than_a_long_one():
    value = [{"start": 0, "end": 20, "text": TAP}, {"start": 5, "end": 6, "text": SOAP}]
    out = CaptionsEncoder().encode_captions(*parse_captions(value)).vectors
    tap, soap = Words().encode_text([TAP, SOAP])
    assert out[5] @ soap > 0.9 > out[5] @ tap
    assert out[4] @ tap == pytest.approx(1, abs=1e-5)


def test_gaps_take_the_nearest_caption_and_far_gaps_nothing():
    value = {"duration": 30, "segments": [{"start": 0, "end": 2, "text": TAP}, {"start": 28, "end": 30, "text": SOAP}]}
    out = CaptionsEncoder().encode_captions(*parse_captions(value)).vectors
    tap, soap = Words().encode_text([TAP, SOAP])
    assert out.shape == (30, 64)
    assert out[4] @ tap == pytest.approx(1, abs=1e-5) and out[25] @ soap == pytest.approx(1, abs=1e-5)
    assert not out[15].any()


def test_captions_lie_beside_the_video_in_a_folder_or_in_one_file(tmp_path):
    video = tmp_path / "talk.mp4"
    with pytest.raises(InputError, match=r"talk\.captions\.json"):
        CaptionsEncoder().features(video)
    (tmp_path / "talk.captions.json").write_text(json.dumps(SEGMENTS))
    assert CaptionsEncoder().features(video).vectors.shape == (4, 64)
    assert CaptionsEncoder(tmp_path).features("elsewhere/talk.webm").vectors.shape == (4, 64)
    (tmp_path / "all.json").write_text(json.dumps({"talk": SEGMENTS}))
    assert CaptionsEncoder(tmp_path / "all.json").features(video).vectors.shape == (4, 64)
    with pytest.raises(InputError, match="no caption file"):
        CaptionsEncoder(tmp_path / "nothing")
