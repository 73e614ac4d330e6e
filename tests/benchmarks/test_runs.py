"""Curves of training runs."""

from __future__ import annotations

import json

import pytest

from benchmarks.runs import draw, read_run
from stepformer.errors import InputError


def test_a_run_is_read_from_its_folder_and_drawn(tmp_path):
    rows = [
        {"step": 10, "seq": 4.0, "glob": 4.2},
        {"step": 10, "val_zs_iou": 0.1, "val_un_f1": 0.3},
        {"step": 20, "seq": 3.0},
    ]
    (tmp_path / "metrics.jsonl").write_text("\n".join(map(json.dumps, rows)))
    curves = read_run(tmp_path)
    assert curves["seq"] == [(10, 4.0), (20, 3.0)] and curves["val_un_f1"] == [(10, 0.3)]
    draw({"a": curves, "b": curves}, tmp_path / "runs.svg")
    assert (tmp_path / "runs.svg").read_text().count("<svg") == 1


@pytest.mark.parametrize("text", ["", "{}", "[1", '{"step": 3}'])
def test_a_file_without_numbers_is_refused(tmp_path, text):
    (tmp_path / "metrics.jsonl").write_text(text)
    with pytest.raises(InputError):
        read_run(tmp_path)
