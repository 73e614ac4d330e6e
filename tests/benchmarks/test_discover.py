"""``stepformer bench discover``: a short video is made long by showing it again; four jobs are faster than one."""

import json

import pytest

from benchmarks.jobs import compare_jobs, write_pieces
from benchmarks.timecode import read_time_s, write_clip
from stepformer.base import weights
from stepformer.bench import discover
from stepformer.bench.discover import long_enough
from stepformer.cli import main
from stepformer.media import VideoReader


def test_a_short_video_is_shown_again(tmp_path):
    path = tmp_path / "a.mp4"
    write_clip(path, [i / 10 for i in range(30)], group=10)
    assert long_enough(path, 2.0, tmp_path) == path
    shown = [read_time_s(p) for _, _, p in VideoReader(long_enough(path, 7.0, tmp_path)).seconds()]
    assert shown[:7] == pytest.approx([0.5, 1.5, 2.5] * 2 + [0.5], abs=0.2)  # its last frame is a short one


@pytest.mark.slow
def test_a_new_process_beside_every_frame_and_decoding_alone(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(discover, "_REFERENCE_S", 0.5)
    write_clip(tmp_path / "a.mp4", [i / 10 for i in range(45)], size=(90, 160), group=10)  # shown two or three times
    words = ["bench", "discover", str(tmp_path / "a.mp4"), "--seconds", "9", "--repeats", "1"]
    assert main([*words, "--cold", "--heights", "46", "90", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["height"] for row in found["rows"]] == [46, 90]
    for row in found["rows"]:
        assert 9.0 <= row["video_s"] < 14.0 and row["processor_s"] > 0
        assert row["times_real_time"] == pytest.approx(row["video_s"] / row["cold_s"])
        assert row["ratio"] == pytest.approx(row["reference_s"] / row["cold_s"])
        assert row["to_floor"] == pytest.approx(row["cold_s"] / row["floor_s"]) and row["to_floor"] > 1
    assert main([*words, "--heights", "46"]) == 2


@pytest.mark.slow
def test_four_jobs_are_faster_than_one_on_small_videos(tmp_path):
    """On two cores by a fifth or more: where one job waits for the last batch of a video, four begin the next one."""
    write_pieces(weights.pull("demo-video"), tmp_path, 12)
    found = compare_jobs(tmp_path, "default", 4, repeats=3)
    assert found["same"]
    assert found["faster"] > 1.0, found
