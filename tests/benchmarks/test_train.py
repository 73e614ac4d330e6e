"""bench train: the numbers it prints are of the shapes asked for."""

import json
from dataclasses import replace

import pytest
import torch

from benchmarks.train import Ceilings, Shape, _plain_losses, _trainer, floors, measure, sweep
from stepformer.cli import main


def test_every_combination_has_a_row(capsys, monkeypatch):
    monkeypatch.setattr("multiprocessing.get_context", lambda kind: Here)
    assert main(["bench", "train", "--batches", "2", "--frames", "8", "16", "--widths", "16", "--presets", "paper",
                 "default", "--repeats", "1", "--device", "cpu", "--json"]) == 0  # fmt: skip
    shown = json.loads(capsys.readouterr().out)
    assert [(r["preset"], r["frames"]) for r in shown["rows"]] == [
        ("paper", 8), ("paper", 16), ("default", 8), ("default", 16),
    ]  # fmt: skip
    for row in shown["rows"]:
        assert row["step_ms"] > 0 and row["reference_ms"] > 0 and row["peak_mib"] > 10 and row["parameters"] > 1000
        assert 0 < row["floor_ms"] == pytest.approx(sum(part["floor_ms"] for part in row["parts"]), abs=1e-3)
        assert row["needed_videos_per_s"] == pytest.approx(2 / row["step_ms"] * 1e3, rel=0.01)
    assert shown["commit"] and shown["machine"] and shown["product_tflops"] > 0


class Here:
    """A pool that works in this process: starting one takes longer than the test."""

    class Pool:
        def __init__(self, size):
            pass

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def apply(self, function, args):
            return function(*args)


def test_a_wider_decoder_has_more_parameters():
    narrow, wide = (measure(Shape("paper", 2, 8, width, phrases=3), 1, "cpu", 1) for width in (16, 32))
    assert wide.parameters > narrow.parameters


@pytest.mark.parametrize("preset", ["paper", "released", "default"])
def test_the_reference_computes_the_same_loss(preset):
    trainer = _trainer(Shape(preset, 3, 12, 16, slots=4, phrases=5), "cpu")
    video, video_mask, phrases, phrase_mask, times = trainer._on_device(trainer.source.batch(0, 3))
    output = trainer.model.eval()(video, video_mask, attention=trainer.criterion.needs_attention)
    torch.manual_seed(0)
    plain = _plain_losses(output, phrases, phrase_mask, video_mask, times, trainer.config.loss)
    torch.manual_seed(0)
    total, _ = trainer.criterion(output, phrases, phrase_mask, video_mask, phrase_times=times)
    assert plain.item() == pytest.approx(total.item(), rel=1e-5)


def test_the_floor_grows_with_the_shape_and_the_sweep_changes_one_thing_at_a_time():
    shape = Shape("paper", 4, 16, 16, slots=4, phrases=6)
    row = measure(shape, 1, "cpu", 1)
    ceilings = Ceilings(1e-3, 1e-3)
    small = sum(part.floor_ms for part in floors(row, ceilings))
    for more in (replace(row, batch=8), replace(row, frames=32), replace(row, slots=8), replace(row, phrases=12)):
        assert small < sum(part.floor_ms for part in floors(more, ceilings)) < 4 * small
    for other in sweep(shape)[1:]:
        assert (
            sum(getattr(other, name) != getattr(shape, name) for name in ("batch", "frames", "slots", "phrases")) == 1
        )
