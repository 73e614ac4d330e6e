"""The benchmark measures what it says, and fails where kernels differ."""

from __future__ import annotations

import json

import pytest
import torch

from stepformer.bench import align as bench
from stepformer.cli import main
from stepformer.errors import StepFormerError


@pytest.fixture
def small(monkeypatch):
    cases = (bench.Case("one", "many_to_one", 3, 5, 20), bench.Case("two", "one_to_one", 3, 5, 6))
    monkeypatch.setattr(bench, "CASES", cases)


def test_table_and_json(small, capsys):
    assert main(["bench", "align", "--repeats", "1", "--naive-items", "2", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["agree"] is True
    for case in ("one", "two"):
        rows = {row["kernel"]: row for row in result["rows"] if row["case"] == case}
        assert rows["naive Python loop"]["ratio"] == 1.0
        naive = rows["naive Python loop"]["ms_per_item"]
        for row in rows.values():
            assert row["ratio"] == pytest.approx(naive / row["ms_per_item"])
            assert row["ms_per_batch"] == pytest.approx(3 * row["ms_per_item"])
        assert {"drop_dtw_batch (torch)", "drop_dtw_batch (numba)"} <= set(rows)
    assert main(["bench", "align", "--repeats", "1"]) == 0
    assert "all kernels gave the same matches and costs" in capsys.readouterr().out


def test_a_kernel_that_differs_fails_the_run(small, monkeypatch, capsys):
    from stepformer.core.align import torch_batch

    right = torch_batch.align_batch

    def wrong(*args):
        matrix, cost = right(*args)
        matrix[0] = False
        return matrix, cost

    monkeypatch.setattr(torch_batch, "align_batch", wrong)
    assert main(["bench", "align", "--repeats", "1"]) == 1
    assert "(torch) on cpu differs from the naive loop" in capsys.readouterr().err
    with pytest.raises(StepFormerError, match="item 0"):
        bench.measure(bench.CASES[0], torch.device("cpu"), 1, 1, 0)


@pytest.mark.parametrize("options, code", [(["--device", "tpu9"], 2), (["--repeats", "0"], 2)])
def test_wrong_options(options, code, capsys):
    assert main(["bench", "align", *options]) == code
    assert "stepformer:" in capsys.readouterr().err


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
def test_a_device_that_is_not_there(capsys):
    assert main(["bench", "align", "--device", "cuda"]) == 4
    assert "cuda cannot be used here" in capsys.readouterr().err
