"""bench capacity: the table is arithmetic on rates; what has no rate is not made up."""

from __future__ import annotations

import json
import re

import pytest

from benchmarks.capacity import MEAN_S, NAMES, RATES, hours, read_rates, video_bytes, volumes
from stepformer.cli import main
from stepformer.errors import InputError


def test_hours_are_work_over_machines():
    rates = dict.fromkeys(NAMES) | {"decode_cpu_s_per_s": 0.1, "step_ms": 4.0, "loader_cpu_s_per_gb": 0.2}
    table = hours(rates, 1_200_000)
    assert table["decode (cores)"]["one machine"] == pytest.approx(134_472 * 0.1 / 16)
    assert table["decode (cores)"]["100 nodes"] == pytest.approx(134_472 * 0.1 / 1600)
    assert table["train, 60 epochs (GPUs)"] == pytest.approx(
        {"one machine": 1.1111, "8 GPUs": 1.1111 / 8, "100 nodes": 0.011111}, rel=1e-3
    )
    reading = 60 * 1.2e6 * video_bytes() / 1e9 * 0.2 / 3600  # hours of one thread
    assert table["read 60 epochs (8 threads per GPU)"]["8 GPUs"] == pytest.approx(reading / 64)
    assert set(table["encode on GPUs"].values()) == {None}
    assert pytest.approx(403.4, abs=0.05) == MEAN_S
    assert volumes(rates, 1_200_000)["store"].startswith("0.84 TB in 3,1")
    assert volumes(rates, 1_200_000)["search index"] is None
    whole = "video to vectors, 16 cores and one GPU"
    assert volumes(rates, 1_200_000)[whole] is None
    fast, slow = ({**rates, "encode_gpu_x_real_time": x} for x in (1000.0, 100.0))  # cores: 160 times real time
    assert volumes(fast, 1)[whole] == "1,428 videos/h, decoding the limit"
    assert volumes(slow, 1)[whole] == "892 videos/h, encoding the limit"


def test_the_committed_rates_say_where_they_come_from(capsys):
    for name, rate in json.loads(RATES.read_text("utf-8")).items():
        assert name in NAMES and rate["command"].startswith("stepformer bench "), name
        assert rate["value"] is None or (rate["machine"] and re.fullmatch("[0-9a-f]{7,40}", rate["commit"])), name
    assert main(["bench", "capacity"]) == 0
    shown = capsys.readouterr().out
    assert "1,200,000 videos of 403 s, 134,472 hours" in shown and "| decode (cores) |" in shown


def test_a_file_that_is_none(tmp_path):
    (tmp_path / "r.json").write_text('{"step_ms": 4}')
    with pytest.raises(InputError, match="is no file of rates"):
        read_rates(tmp_path / "r.json")
