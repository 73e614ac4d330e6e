"""`make docs`: every name of the API page exists, every page is built, nothing comes from elsewhere."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def test_every_name_of_the_api_page_is_there():
    named = re.findall(r"^::: (\S+)$", (ROOT / "docs" / "api.md").read_text("utf-8"), re.MULTILINE)
    assert len(named) > 30
    for name in named:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError:
            module, _, attribute = name.rpartition(".")
            assert getattr(importlib.import_module(module), attribute).__doc__, name


@pytest.mark.slow
def test_the_pages_are_built_offline_from_the_docstrings(tmp_path):
    pytest.importorskip("mkdocstrings_handlers.python")
    pytest.importorskip("material")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(tmp_path / "site")], cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0 and "WARNING" not in done.stderr, done.stderr
    api = (tmp_path / "site" / "api.html").read_text("utf-8")
    for name in ("drop_dtw", "discover_features", "percentile", "make_trainer", "score_video", "MissingError"):
        assert name in api
    assert ":func:" not in api and "crack the eggs" in api  # names stand alone; examples are shown
    for page in (ROOT / "docs").glob("*.md"):
        assert (tmp_path / "site" / f"{page.stem}.html").is_file(), page
    for page in (tmp_path / "site").rglob("*.html"):
        text = page.read_text("utf-8")
        assert not re.findall(r'<(?:script|img|iframe)[^>]+src="(?:https?:)?//', text), page
        assert not re.findall(r'<link[^>]+rel="(?:stylesheet|preconnect)"[^>]+href="(?:https?:)?//', text), page
