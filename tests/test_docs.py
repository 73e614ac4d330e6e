"""`make docs`: every name of the API page exists, every page is built, nothing comes from elsewhere."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import stepformer as sf

ROOT = Path(__file__).parents[1]


def test_the_api_page_has_every_public_name_as_it_is_reached():
    """``::: stepformer.x`` is ``sf.x``; of a room, the page shows what its ``__all__`` names."""
    page = (ROOT / "docs" / "api.md").read_text("utf-8")
    named = re.findall(r"^::: stepformer\.(\w+)$", page, re.MULTILINE)
    assert {*named} == {*sf.__all__} - {"__version__"} and len(named) == page.count(":::")
    for name in named:
        thing = getattr(sf, name)
        if inspect.ismodule(thing):
            assert all(getattr(thing, inner) is not None for inner in thing.__all__), name


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
    shown = {*re.findall(r'<h[2-5] id="stepformer\.([\w.]+)"', api)}
    for room in (name for name in sf.__all__ if inspect.ismodule(getattr(sf, name))):
        assert {f"{room}.{name}" for name in getattr(sf, room).__all__} <= shown, room
    assert {"load_model", "StepFormer.discover_features", "Timeline.to_json"} <= shown
    assert "&gt;&gt;&gt;" in api and "<blockquote>" not in api  # examples are blocks of code
    assert ":func:" not in api and "crack the eggs" in api  # names stand alone; examples are shown
    for page in (ROOT / "docs").glob("*.md"):
        assert (tmp_path / "site" / f"{page.stem}.html").is_file(), page
    for page in (tmp_path / "site").rglob("*.html"):
        text = page.read_text("utf-8")
        assert not re.findall(r'<(?:script|img|iframe)[^>]+src="(?:https?:)?//', text), page
        assert not re.findall(r'<link[^>]+rel="(?:stylesheet|preconnect)"[^>]+href="(?:https?:)?//', text), page
