"""From captions to a table on a made-up corpus: the script in a clean folder, and the notebook."""

from __future__ import annotations

import ast
import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from stepformer.errors import MissingError
from stepformer.narration import extract_phrases
from stepformer.narration.cues import Cue

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def parser():
    try:
        extract_phrases([Cue(0.0, 1.0, "crack the eggs.")])
    except MissingError as error:
        pytest.skip(str(error))


@pytest.mark.slow
def test_the_script_goes_from_captions_to_a_table(tmp_path, parser):
    done = subprocess.run(
        ["bash", str(EXAMPLES / "whole_path.sh"), str(tmp_path / "work"), "6"],
        env={**os.environ, "PYTHON": sys.executable, "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "102 phrases of 24 videos" in done.stdout
    assert "8 videos of 4 tasks" in done.stdout and "Table 2" in done.stdout
    assert (tmp_path / "work" / "run" / "best.safetensors").is_file()
    table = json.loads((tmp_path / "work" / "table" / "table2.json").read_text())
    assert table


def test_what_the_notebook_imports_is_there():
    """The notebook itself runs with the slow tests alone, and names move."""
    notebook = json.loads((EXAMPLES / "whole_path.ipynb").read_text("utf-8"))
    code = "\n".join("".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code")
    for line in ast.walk(ast.parse(code)):
        if isinstance(line, ast.ImportFrom) and line.module.startswith("stepformer"):
            module = importlib.import_module(line.module)
            assert not [name.name for name in line.names if not hasattr(module, name.name)], line.module


@pytest.mark.slow
def test_the_notebook_goes_the_same_way(parser, monkeypatch, capsys):
    monkeypatch.setenv("STEPFORMER_EXAMPLES", str(EXAMPLES))
    monkeypatch.setenv("STEPFORMER_NOTEBOOK_STEPS", "4")
    monkeypatch.setattr(sys, "path", list(sys.path))
    notebook = json.loads((EXAMPLES / "whole_path.ipynb").read_text("utf-8"))
    space = {"__name__": "__main__"}
    for number, cell in enumerate(c for c in notebook["cells"] if c["cell_type"] == "code"):
        exec(compile("".join(cell["source"]), f"cell {number}", "exec"), space)
    stored = space["stored"].to_dict()  # notes: videos without captions, phrases without a vector
    assert stored["videos"] == 24 and stored["phrases"] == 102 and not stored["notes"]
    assert "| this model |" in capsys.readouterr().out
    assert 0 <= space["rows"]["this model"]["zs_iou"] <= 1
