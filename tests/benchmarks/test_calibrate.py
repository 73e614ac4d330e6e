"""The simulator's calibration: beside the paper's row, and a search that comes nearer to it."""

import json

from benchmarks import calibrate
from stepformer.cli import main


def test_calibration_stands_beside_the_paper(tiny_world, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(calibrate.calibrate, "__defaults__", (None, (1,), (0.1, 40.0)))
    tiny_world.save(tmp_path / "w.safetensors")
    assert main(["bench", "calibrate", "--world", str(tmp_path / "w.safetensors"), "--device", "cpu", "--json"]) == 0
    table = json.loads(capsys.readouterr().out)
    assert [row["features"] for row in table] == ["simulated", "simulated", "paper (UniVL)"]
    assert table[-1]["zs_iou"] == 0.186
    assert table[0]["zs_iou"] > table[1]["zs_iou"]  # clutter is in the way


def test_fitting_comes_nearer_to_the_paper(tiny_world, tmp_path, capsys, monkeypatch):
    before = calibrate.fit(tiny_world, tries=0, device="cpu")[2]
    world = tmp_path / "w.safetensors"
    tiny_world.save(world)
    assert main(["bench", "calibrate", "--world", str(world), "--search", "--tries", "12", "--device", "cpu"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert calibrate.distance(found["scores"]) < calibrate.distance(before)
    assert found["sight"]["keep"] in calibrate.TRIED_KEEPS
