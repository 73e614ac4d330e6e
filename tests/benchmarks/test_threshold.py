"""The bench of thresholds: what it measures on planted videos, and that taking background out does that."""

from __future__ import annotations

import numpy as np
import torch

from benchmarks.real_data import RealVideo
from benchmarks.threshold import ENCODERS, MEASURES, Seen, _markdown, measure, parts, thresholds, with_less_background
from stepformer.core.model import Slots
from stepformer.encoders.reading import Features


def planted():
    """200 s: background, two steps of 30 s that slots 3 and 7 show, background between and after."""
    rng = np.random.default_rng(0)
    marks = np.repeat([0, 1, 0, 2, 0], [60, 30, 30, 30, 50])
    vectors = np.eye(16)[marks] + 0.02 * rng.standard_normal((200, 16))
    slots = np.zeros((32, 16))
    slots[:, :4] = 0.1, 0.6, 0.6, 0.5  # every slot fits the frames of both steps, and no other
    slots[3, :4], slots[7, :4] = (0.1, 0.9, 0.3, 0.3), (0.1, 0.3, 0.9, 0.3)
    output = Slots(*(torch.from_numpy(x)[None].float() for x in (slots, vectors)), None)
    steps = ((60.0, 90.0, "a"), (120.0, 150.0, "b"))
    return Seen(RealVideo("v", Features(vectors), steps, np.zeros((2, 16), np.float32)), output)


def test_the_automatic_threshold_finds_what_is_planted_and_a_low_one_drops_nothing():
    ways = {(w.inference, w.name): w for w in thresholds()}
    found = dict(zip(MEASURES, measure(planted(), ways["slots and structure", "automatic"]), strict=True))
    assert found["steps"] == found["marked"] == 2
    assert found["overlap"] > 0.95 and found["frame_f1"] > 0.98 and found["cut_f1"] == 1.0
    assert abs(found["dropped"] - 0.7) < 0.02 and found["uniform_overlap"] < 0.5
    low = dict(zip(MEASURES, measure(planted(), ways["slots", "similarity 0.35"]), strict=True))
    assert abs(low["dropped"] - 0.7) < 0.02  # between background and steps: right here, by luck
    assert {"percentile 90", "similarity 0.35", "similarity 0.44"} <= {way.name for way in thresholds()}


def test_every_part_can_be_turned():
    assert len({way.config for way in parts()}) == len(parts()) - 2  # structure and slots alone have the default's
    assert all(len(measure(planted(), way)) == len(MEASURES) for way in parts())


def test_background_is_taken_out():
    video = planted().video
    less = with_less_background(video)
    assert less is not None and len(less.features) == 75
    marks = less.labels(1.0, 75)
    assert (marks < 0).mean() == 0.2 and (marks == 0).sum() == (marks == 1).sum() == 30
    assert len(less.steps) == 2
    short = RealVideo("v", video.features, video.steps[:1], video.texts[:1])
    assert with_less_background(short) is None


def test_the_table_has_a_row_per_way_and_a_value_per_encoder():
    row = dict.fromkeys(MEASURES, 0.5) | {
        "sd": dict.fromkeys(MEASURES, 0.01),
        "view": "as they are",
        "threshold": "automatic",
    }
    rows = [row | {"encoder": e, "inference": i} for e in ENCODERS for i in ("slots", "both")]
    text = _markdown({"model": "0" * 64, "seeds": [0, 1, 2], "videos": {"as they are": 7}, "rows": rows}, "default")
    table = [line for line in text.splitlines() if line.startswith("| ")]
    assert len(table) == 3 + 3 and ", ".join([".500 ± .010"] * len(ENCODERS)) in table[1]
