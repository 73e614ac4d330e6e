"""bench train and bench step: the numbers they print are of the shapes asked for."""

import json
from dataclasses import replace

import pytest
import torch

from benchmarks.step import sweep
from stepformer.bench.train import Ceilings, Shape, _plain_step, least, make_trainer, measure
from stepformer.cli import main


@pytest.fixture
def here(monkeypatch):
    """In this process: starting one takes longer than the test."""
    from stepformer.base.many import Outcome

    monkeypatch.setattr("stepformer.base.many.run_many", lambda f, items, **_: (Outcome(i, f(i)) for i in items))


SMALL = ["--batches", "2", "--frames", "8", "16", "--widths", "16", "--repeats", "1", "--device", "cpu", "--json"]


def test_every_combination_has_a_row(capsys, here):
    assert main(["bench", "train", *SMALL, "--presets", "paper", "default"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [(r["preset"], r["frames"]) for r in shown["rows"]] == [
        ("paper", 8), ("paper", 16), ("default", 8), ("default", 16),
    ]  # fmt: skip
    for row in shown["rows"]:
        assert row["step_ms"] > 0 and row["reference_ms"] > 0 and row["peak_mib"] > 10 and row["parameters"] > 1000
        assert row["ratio"] == pytest.approx(row["reference_ms"] / row["step_ms"])
        assert 0 < row["floor_ms"] == pytest.approx(row["step_ms"] / row["step_to_floor"])
    assert shown["commit"] and shown["machine"] and shown["product_tflops"] > 0


def test_the_study_adds_the_parts_and_what_howto100m_takes(capsys, here, tmp_path):
    assert main(["bench", "step", *SMALL, "--presets", "paper", "--sweep", "--chart", str(tmp_path / "s.svg")]) == 0
    shown = json.loads(capsys.readouterr().out)
    for row in shown["rows"]:
        assert set(row["parts"]) == {"forward", "losses, both ways", "backward", "clip, update, mean"}
        assert row["needed_videos_per_s"] == pytest.approx(2 / row["step_ms"] * 1e3, rel=0.01)
    assert len(shown["sweep"]) == 13 and (tmp_path / "s.svg").stat().st_size > 1000


def test_a_wider_decoder_has_more_parameters():
    narrow, wide = (measure(Shape("paper", 2, 8, width, phrases=3), 1, "cpu", 1, reference=False) for width in (16, 32))
    assert wide["parameters"] > narrow["parameters"]


@pytest.mark.parametrize("preset", ["paper", "released", "default"])
def test_the_reference_is_the_same_step(preset):
    shape = Shape(preset, 3, 12, 16, slots=4, phrases=5)
    ours, plain = (make_trainer(shape, "cpu") for _ in range(2))
    logged = ours.train_step(0)
    _plain_step(plain)(0)
    assert float(logged["loss"]) > 0
    for mine, theirs in zip(ours.model.parameters(), plain.model.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=2 * ours.config.optim.lr)


def test_the_floor_grows_with_the_shape_and_the_sweep_changes_one_thing_at_a_time():
    shape = Shape("paper", 4, 16, 16, slots=4, phrases=6)

    def floor_ms(shape):
        return sum(Ceilings(1e-3, 1e-3).least_ms(*part) for part in least(shape, 50_000, False).values())

    small = floor_ms(shape)
    for more in ({"batch": 8}, {"frames": 32}, {"slots": 8}, {"phrases": 12}):
        assert small < floor_ms(replace(shape, **more)) < 4 * small
    for other in sweep(shape)[1:]:
        assert (
            sum(getattr(other, name) != getattr(shape, name) for name in ("batch", "frames", "slots", "phrases")) == 1
        )
