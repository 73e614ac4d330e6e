"""The rooms of the house: who may import whom (the contracts stand in pyproject.toml)."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ALLOWED = {"torch", "numpy", "safetensors", "numba", "triton"}


@pytest.fixture(scope="module")
def graph():
    grimp = pytest.importorskip("grimp")
    return grimp.build_graph("stepformer", include_external_packages=True, cache_dir=None)


def test_the_contracts_hold(monkeypatch, capsys):
    use_cases = pytest.importorskip("importlinter.application.use_cases")
    from importlinter.configuration import configure

    monkeypatch.chdir(ROOT)
    configure()
    assert use_cases.lint_imports(config_filename="pyproject.toml", cache_dir=None), capsys.readouterr().out


def test_the_core_imports_nothing_but_torch_numpy_and_safetensors(graph):
    import sys

    core = {"stepformer.core", *graph.find_descendants("stepformer.core")}
    used = {(m, d) for m in core for d in graph.find_modules_directly_imported_by(m) if not d.startswith("stepformer")}
    wrong = {(m, d) for m, d in used if d.split(".")[0] not in ALLOWED | sys.stdlib_module_names}
    assert len(core) > 15 and ("stepformer.core.losses", "torch") in used
    assert not wrong


def test_only_the_command_line_uses_the_whole_package(graph):
    """A room that imports ``stepformer`` itself could reach every other through it, unseen."""
    users = graph.find_modules_that_directly_import("stepformer")
    assert {user.split(".")[1] for user in users} <= {"__main__", "cli", "bench"}


def test_every_dependency_is_forbidden_to_the_core_or_allowed():
    """A new dependency cannot slip in behind the core's back."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    forbidden = next(c["forbidden_modules"] for c in contracts if c["type"] == "forbidden")
    names = {"pillow": "PIL", "protobuf": "google"}
    needed = {
        names.get(name, name.replace("-", "_"))
        for name in (line.split(">")[0].split("<")[0] for line in project["project"]["dependencies"])
    }
    # rich is what a terminal shows progress with, and only there
    assert needed - ALLOWED - {"rich"} <= set(forbidden)
