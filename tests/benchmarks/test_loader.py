"""bench loader: the rates it prints are of the store it was given."""

import json

import pytest

from benchmarks.loader import make_store, needed
from stepformer.cli import main


def test_a_made_store_and_one_that_is_given(tmp_path, capsys):
    make_store(tmp_path / "s", 6)
    for more in ([], [str(tmp_path / "s")]):
        assert main(["bench", "loader", "--made-videos", "5", "--batch", "3", "--repeats", "1", "--json", *more]) == 0
        shown = json.loads(capsys.readouterr().out)
        assert shown["loader_gb_per_s"] > 0 and shown["raw_cpu_s_per_gb"] > 0
        rates = shown["loader_gb_per_s"] / shown["raw_gb_per_s"]
        assert shown["ratio"] == pytest.approx(rates, rel=0.2, abs=0.02)  # they are rounded


def test_what_howto100m_needs():
    """737 to 744 GB in the 16,667 steps of an epoch."""
    assert needed(72, 4.0) == pytest.approx(743.6 / (16_667 * 0.004), rel=1e-3)
