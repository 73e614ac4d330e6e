"""The marks of real clips: every clip has a video and a use, and what is printed of them is what it says."""

from __future__ import annotations

import csv
import itertools
from pathlib import Path

import numpy as np
import pytest

import benchmarks.real_clips as real_clips
from stepformer.base.weights import parse

DATA = Path(real_clips.__file__).parent / "data"


def rows() -> dict[str, list[dict[str, str]]]:
    with (DATA / "real_clips.csv").open(newline="", encoding="utf-8") as stream:
        found = list(csv.DictReader(stream))
    return {clip: list(of) for clip, of in itertools.groupby(found, lambda row: row["clip"])}


def test_clips_are_put_aside_by_their_place_in_the_alphabet():
    clips = rows()
    assert list(clips) == sorted(clips)
    for i, of in enumerate(clips.values()):
        assert {row["use"] for row in of} == {"dev" if i % 2 == 0 else "test"}


def test_marks_are_in_order_and_do_not_overlap():
    for of in rows().values():
        edges = [float(row[key]) for row in of for key in ("start_s", "end_s")]
        assert edges == sorted(edges) and all(row["label"] == row["label"].strip() for row in of)
        assert all(float(row["start_s"]) < float(row["end_s"]) for row in of)


def test_every_clip_has_one_video_and_every_video_has_marks():
    packages = parse((DATA / "real_clips.toml").read_text(encoding="utf-8"))
    assert sorted(Path(file.path).stem for package in packages for file in package.files) == sorted(rows())


def test_iou_of_steps_in_order():
    marked = [(0.0, 2.0), (2.0, 4.0)]
    assert real_clips.mean_iou(marked, marked) == 1.0
    assert real_clips.mean_iou([(0.0, 1.0), None], marked) == pytest.approx(0.25)
    assert real_clips.mean_iou([(0.0, 2.0)], marked) == pytest.approx(0.5)
    assert real_clips.mean_iou([(2.0, 4.0), (0.0, 2.0)], marked) == 0.0


def test_rank_of_a_steps_own_text():
    from benchmarks.real_data import RealVideo
    from stepformer.encoders.reading import Features

    eye = np.eye(4, dtype=np.float32)
    video = RealVideo("a", Features(eye[[0, 0, 1, 1]]), ((0.0, 2.0, "zero"), (2.0, 4.0, "two")), eye[[0, 2]])
    assert real_clips._ranks(video, ["zero", "one", "two"], eye[:3]).tolist() == [0, 1]


def test_without_clips_there_is_no_row():
    assert real_clips.measure({}, None) == []
