"""The example notebook: its code cells run in order in one namespace, with a small model and drawn videos."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "app" / "discover"))
from discover_parts import tiny_model, write_video

NOTEBOOK = Path(__file__).parents[2] / "examples" / "discover.ipynb"
COLOURS = [(250, 10, 10), (10, 250, 10), (10, 10, 250), (240, 240, 10)]


def code_cells():
    notebook = json.loads(NOTEBOOK.read_text("utf-8"))
    assert notebook["nbformat"] == 4
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]


def run(cells):
    space = {"__name__": "__main__"}
    for number, source in enumerate(cells):
        exec(compile(source, f"cell {number}", "exec"), space)
    return space


def test_the_notebook_runs(tmp_path, monkeypatch, capsys):
    for i in (1, 2):
        write_video(tmp_path / f"washing-hands-{i}.mp4", COLOURS, seconds_each=3 + i)
    monkeypatch.setattr("stepformer.base.weights.pull", lambda name: tmp_path / "washing-hands-1.mp4")
    monkeypatch.setattr("stepformer.load_model", lambda name: tiny_model(), raising=False)
    space = run(code_cells())
    out = capsys.readouterr().out
    assert len(space["timeline"]) >= 1
    assert "flowchart TD" in out
    assert "WEBVTT" in out


@pytest.mark.slow
def test_the_notebook_runs_on_the_real_video():
    import stepformer
    from stepformer.base import weights
    from stepformer.errors import MissingError

    needed = ("demo-video", "minilm", "clip-vit-b16-image")
    if any(weights.find(name) is None for name in needed):
        pytest.skip(f"needs the weights {', '.join(needed)}")
    try:
        stepformer.load_model("default")
    except MissingError:
        pytest.skip("the default model is not here")
    space = run(code_cells())
    assert len(space["timeline"]) >= 2
    assert len(space["procedure"].steps) >= 1
