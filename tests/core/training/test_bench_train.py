"""bench train: the numbers it prints are of the shapes asked for."""

import json

from stepformer.bench.train import Shape, measure
from stepformer.cli import main


def test_every_combination_has_a_row(capsys, monkeypatch):
    monkeypatch.setattr("multiprocessing.get_context", lambda kind: Here)
    assert main(["bench", "train", "--batches", "2", "--frames", "8", "16", "--widths", "16", "--presets", "paper",
                 "default", "--repeats", "1", "--device", "cpu", "--json"]) == 0  # fmt: skip
    shown = json.loads(capsys.readouterr().out)
    assert [(r["preset"], r["frames"]) for r in shown["rows"]] == [
        ("paper", 8), ("paper", 16), ("default", 8), ("default", 16),
    ]  # fmt: skip
    assert all(r["steps_per_s"] > 0 and r["peak_mib"] > 10 and r["parameters"] > 1000 for r in shown["rows"])
    assert shown["commit"] and shown["machine"]


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
    narrow, wide = (measure(Shape("paper", 2, 8, width), 3, 1, "cpu", 1) for width in (16, 32))
    assert wide.parameters > narrow.parameters
