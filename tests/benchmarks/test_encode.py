"""``stepformer bench encode``: rows that can be trusted, on a small clip."""

import json

import pytest

from benchmarks.encode import decode_rows, encode_rows
from benchmarks.timecode import write_clip
from stepformer import cli


def test_decode_rows(tmp_path):
    path = tmp_path / "a.mp4"
    write_clip(path, [i / 10 for i in range(130 * 10)], size=(32, 64), group=50)
    rows = decode_rows(path, repeats=1)
    assert [(row.wanted, row.way) for row in rows if row.wanted == "1 in 60 s"] == [
        ("1 in 60 s", "every frame"),
        ("1 in 60 s", "what is needed, read on"),
        ("1 in 60 s", "what is needed, seek"),
    ]
    for wanted in ("1 a second", "1 in 10 s", "1 in 60 s"):
        all_frames, *others = [row for row in rows if row.wanted == wanted]
        assert all_frames.ratio == 1.0
        assert all(row.pictures_decoded < all_frames.pictures_decoded for row in others)
    assert rows[-1].seeks == 2
    assert all(row.x_real_time > 0 for row in rows)


def test_command(tmp_path, capsys):
    path = tmp_path / "a.mp4"
    write_clip(path, [i / 10 for i in range(30)], size=(32, 64))
    assert cli.main(["bench", "encode", str(path), "--encoders", "openclip", "--repeats", "1", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert {row["wanted"] for row in report["decode"]} == {"16 a second", "1 a second"}
    assert report["encode"][0]["note"].startswith("not measured")
    assert cli.main(["bench", "encode", str(path), "--encoders", "", "--repeats", "1"]) == 0
    assert "every frame" in capsys.readouterr().out
    assert cli.main(["bench", "encode", str(path), "--repeats", "0"]) == 2


@pytest.mark.slow
def test_untrained_stand_ins(tmp_path, monkeypatch):
    monkeypatch.setenv("STEPFORMER_CACHE", str(tmp_path / "no weights here"))
    path = tmp_path / "a.mp4"
    write_clip(path, [i / 10 for i in range(20)], size=(32, 64))
    (row,) = encode_rows("univl", path, 1.0, 1)
    assert "untrained" in row.note
    assert row.encode_s > row.decode_s > 0


@pytest.mark.slow
def test_the_image_tower_alone_needs_neither_a_video_nor_weights(capsys):
    assert cli.main(["bench", "encode", "--pictures", "2", "--repeats", "1", "--device", "cpu", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["structure_per_s"] > found["vectors_per_s"] > 0
    assert found["vectors_per_s"] < found["times_real_time"] < 2 * found["vectors_per_s"]
    assert found["device"] == "cpu" and found["commit"]
