"""bench loader: the rates it prints are of the store it was given."""

import json

import numpy as np
import pytest

from benchmarks.loader import _from_arrow, _from_tar, _write_arrow, _write_tar, make_store, needed
from stepformer.cli import main
from stepformer.data.store import FeatureStore


def test_a_made_store_and_one_that_is_given(tmp_path, capsys):
    make_store(tmp_path / "s", 6)
    for more in ([], [str(tmp_path / "s")]):
        assert main(["bench", "loader", "--made-videos", "5", "--batch", "3", "--repeats", "1", "--json", *more]) == 0
        shown = json.loads(capsys.readouterr().out)
        assert shown["loader_gb_per_s"] > 0 and shown["raw_cpu_s_per_gb"] > 0
        rates = shown["loader_gb_per_s"] / shown["raw_gb_per_s"]
        assert shown["ratio"] == pytest.approx(rates, rel=0.2, abs=0.02)  # they are rounded


def test_formats_are_read_whole(tmp_path, capsys):
    assert main(["bench", "loader", "--layouts", "--made-videos", "3", "--repeats", "1", "--json"]) == 0
    rows = {row["format"]: row for row in json.loads(capsys.readouterr().out)["rows"]}
    assert rows.keys() == {"raw read", "safetensors", "Arrow IPC", "tar"} and rows["raw read"]["ratio"] == 1.0
    make_store(tmp_path / "s", 4)
    store, found = FeatureStore(tmp_path / "s"), []
    numbers = _write_arrow(store, tmp_path / "a")
    _write_tar(store, tmp_path / "t")
    _from_arrow(tmp_path / "a", [numbers[video] for video in store.ids], 768, lambda x: found.append(x.copy()))
    _from_tar(tmp_path / "t", 768, found.append)
    for number, video in enumerate(store.ids):
        for offset in (0, 4):
            np.testing.assert_array_equal(found[number + offset], store.arrays(video).features)


def test_what_howto100m_needs():
    """737 to 744 GB in the 16,667 steps of an epoch."""
    assert needed(72, 4.0) == pytest.approx(743.6 / (16_667 * 0.004), rel=1e-3)
