"""The picture on the terminal and the plot."""

from __future__ import annotations

import io
import json
import re

import numpy as np
import pytest
from export_timelines import nasty, pancakes, timelines
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageColor
from rich.cells import cell_len
from rich.style import Style

from stepformer import Step, Timeline
from stepformer.errors import InputError
from stepformer.show import export
from stepformer.show.terminal import _owners, draw
from stepformer.show.writing import STEP_COLORS, step_colors

ANSI = re.compile(r"\x1b\[[0-9;]*m")


@settings(deadline=None, max_examples=100)
@given(timelines(), st.integers(24, 160), st.booleans(), st.booleans())
def test_never_wider_than_the_terminal(timeline, width, color, unicode):
    text = draw(timeline, width, color, unicode)
    plain = ANSI.sub("", text)
    assert all(cell_len(line) <= max(width, 40) for line in plain.splitlines())
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", plain)
    assert color or "\x1b" not in text
    if not unicode:
        assert plain.isascii()


@settings(deadline=None, max_examples=100)
@given(timelines(), st.integers(24, 160))
def test_bar_is_as_wide_as_asked_and_shows_every_step(timeline, width):
    end_s = timeline.duration_s or max((s.end_s for s in timeline), default=0.0)
    if not len(timeline) or not end_s:
        return
    lines = ANSI.sub("", draw(timeline, width, True, True)).split("\n")
    assert cell_len(lines[1]) == width
    owners = _owners(timeline, end_s, width)
    assert len(owners) == width and max(owners) == len(timeline) - 1


def test_plain_bar_by_hand():
    timeline = Timeline("v.mp4", 40, (Step(0, 10, "a"), Step(10, 20, "b"), Step(30, 40, "c")))
    lines = draw(timeline, 40, False, False).split("\n")
    assert lines[1] == "#" * 10 + "=" * 10 + "." * 10 + "#" * 10
    assert lines[3:] == ["# 1  0:00 - 0:10  a", "= 2  0:10 - 0:20  b", "# 3  0:30 - 0:40  c", ""]


def test_wide_names_line_up_and_are_cut():
    timeline = Timeline("v.mp4", 10, (Step(0, 5, "翻转煎饼" * 30), Step(5, 9, "x" * 300, meta={"guess": True})))
    for line in draw(timeline, 60, False, True).splitlines():
        assert cell_len(line) <= 60
    assert "…" in draw(timeline, 60, False, True)
    assert "(guess)" in draw(timeline, 60, False, True)


def test_bidi_controls_cannot_reorder_the_line():
    text = draw(Timeline("v.mp4", 10, (Step(0, 5, "abc\u202edef\u2066"),)), 60, False, True)
    assert "\u202e" not in text and "\u2066" not in text


class _Stream(io.StringIO):
    def __init__(self, tty: bool) -> None:
        super().__init__()
        self._tty = tty

    def isatty(self) -> bool:
        return self._tty


def test_color_only_where_it_is_wanted(monkeypatch):
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)

    def colored(tty):
        monkeypatch.setattr("sys.stdout", _Stream(tty))
        return "\x1b" in draw(pancakes(), 60)

    monkeypatch.setenv("TERM", "xterm-256color")
    assert colored(True) and not colored(False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert colored(False)
    monkeypatch.setenv("NO_COLOR", "1")
    assert not colored(True)
    monkeypatch.delenv("FORCE_COLOR")
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert not colored(True)


def forget_styles():
    """A style keeps the codes of the first terminal it was drawn on."""
    Style.parse.cache_clear()
    Style._add.cache_clear()


def test_true_color_only_where_the_terminal_says_so(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLORTERM", "truecolor")
    forget_styles()
    assert "38;2;" in draw(pancakes(), 60, True, True)
    monkeypatch.delenv("COLORTERM")
    forget_styles()
    text = draw(pancakes(), 60, True, True)
    assert "38;2;" not in text and "38;5;" in text


def test_colors_of_names():
    timeline = Timeline("v", 9, (Step(0, 1, "a"), Step(1, 2, "b"), Step(2, 3, "a"), Step(3, 4), Step(4, 5)))
    colors = step_colors(timeline)
    assert colors[0] == colors[2] and len(set(colors)) == 4


@settings(deadline=None, max_examples=60)
@given(st.lists(st.sampled_from("abcdefghijklmnopq"), max_size=40))
def test_neighbours_differ_when_their_names_are_first_seen(names):
    timeline = Timeline("v", 99, tuple(Step(i, i + 1, name) for i, name in enumerate(names)))
    colors = step_colors(timeline)
    seen: set[str] = set()
    for i, name in enumerate(names):
        if i and name not in seen and name != names[i - 1]:
            assert colors[i] != colors[i - 1]
        seen.add(name)
    assert set(colors) <= set(STEP_COLORS)


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf"])
def test_plot(tmp_path, suffix):
    matrix = np.random.default_rng(0).random((6, 90))
    path = tmp_path / f"a{suffix}"
    export.write(pancakes(), path, similarity=matrix)
    head = path.read_bytes()[:400]
    assert {".png": b"\x89PNG", ".svg": b"<svg", ".pdf": b"%PDF"}[suffix] in head
    if suffix == ".png":
        image = Image.open(path)
        assert image.width == 1800
        assert json.loads(image.text["Description"])["video"] == "pancakes.mp4"
        found = {tuple(c) for c in np.asarray(image.convert("RGB")).reshape(-1, 3)[::7]}
        assert {ImageColor.getrgb(c) for c in step_colors(pancakes())} <= found
    if suffix == ".svg":
        assert "flip the pancake" in path.read_text()


def test_plot_of_awkward_timelines(tmp_path):
    formula = Timeline("a_$x$_b.mp4", 5, (Step(0, 2, "costs $5 and $6"), Step(1, 3, "\\alpha_{"), Step(3, 3)))
    for i, timeline in enumerate([nasty(), Timeline("v", 0), Timeline("v", 5), formula]):
        export.write(timeline, tmp_path / f"{i}.png")
        assert (tmp_path / f"{i}.png").stat().st_size > 3000
    export.write(pancakes(), tmp_path / "x.png", similarity=np.zeros((0, 5)))


@pytest.mark.parametrize("bad", [np.zeros(5), np.full((2, 2), np.nan), np.zeros((1, 2, 3))])
def test_bad_maps(tmp_path, bad):
    with pytest.raises(InputError, match="similarity map"):
        export.write(pancakes(), tmp_path / "x.png", similarity=bad)


def test_no_step_seems_to_end_when_it_begins():
    short = Timeline("v.mp4", 20.0, (Step(0.0, 13.6), Step(13.6, 14.4), Step(14.4, 20.0)))
    assert "0:13.6 – 0:14.4" in draw(short, 80, False, True)
    plain = Timeline("v.mp4", 20.0, (Step(0.0, 13.6), Step(13.6, 20.0)))
    assert "0:14 – 0:20" in draw(plain, 80, False, True)
