import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepformer.data import Annotation, VideoRecord
from stepformer.errors import InputError
from stepformer.evaluation import LengthError, frame_count, own_labels, rasterise, resample, task_labels


def record(*rows):
    return VideoRecord("v", "t", None, tuple(Annotation(step, start, end, str(step)) for step, start, end in rows))


def test_floor_to_ceil():
    assert rasterise([(2, 1.5, 2.2)], 5, 1.0).tolist() == [-1, 2, 2, -1, -1]
    assert rasterise([(0, 0, 3.2)], 40, 10.0).tolist() == [0] * 32 + [-1] * 8  # 3.2 * 10 is a hair above 32


def test_the_last_wins_and_the_end_is_cut():
    assert rasterise([(0, 0, 4), (1, 2, 9)], 6, 1.0).tolist() == [0, 0, 1, 1, 1, 1]
    assert rasterise([(1, 2, 9), (0, 0, 4)], 6, 1.0).tolist() == [0, 0, 0, 0, 1, 1]
    assert rasterise([(0, 7, 9)], 3, 1.0).tolist() == [-1] * 3
    assert rasterise([(0, 2, 2)], 3, 1.0).tolist() == [-1] * 3


def test_file_order_decides_task_labels_and_time_order_the_own_list():
    video = record((5, 4, 6), (3, 0, 2), (5, 5, 8))
    assert task_labels(video, 8.0, 1.0).tolist() == [3, 3, -1, -1, 5, 5, 5, 5]
    assert own_labels(video, 8.0, 1.0).tolist() == [0, 0, -1, -1, 1, 2, 2, 2]  # 5 is done twice


def test_a_video_without_annotations():
    assert task_labels(VideoRecord("v", "t", 2.0, None), 2.0, 4.0).tolist() == [-1] * 8


@settings(deadline=None)
@given(st.lists(st.integers(-1, 5), min_size=1, max_size=30))
def test_one_a_second_becomes_sixteen(ids):
    assert resample(ids, 1.0, 16 * len(ids)).tolist() == np.repeat(ids, 16).tolist()


def test_slack_of_two_seconds_and_no_more():
    assert resample([3, 3, 3], 1.0, 5, 1.0).tolist() == [3, 3, 3, -1, -1]
    assert resample([3] * 7, 1.0, 5, 1.0).tolist() == [3] * 5
    with pytest.raises(LengthError, match="rate"):
        resample([3] * 50, 1.0, 160)
    with pytest.raises(LengthError):
        resample([3] * 10, 1.0, 16 * 20)


def test_frame_count():
    assert frame_count(3.2, 10) == 32
    assert frame_count(0.01, 16) == 1
    assert frame_count(0, 16) == 0
    with pytest.raises(InputError):
        frame_count(-1, 16)
