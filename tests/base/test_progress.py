"""Progress on stderr, and the tree of errors."""

from __future__ import annotations

import io

import pytest

from stepformer import errors
from stepformer.base import progress
from stepformer.base.progress import Progress, clock


def test_clocks():
    assert [clock(s) for s in (0, 5.4, 65, 3723, -3)] == ["0:00", "0:05", "1:05", "1:02:03", "0:00"]


def test_plain_lines_where_there_is_no_terminal(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    stream = io.StringIO()
    with Progress("train", 40, "steps", stream=stream) as shown:
        for _ in range(30):
            now[0] += 1.0
            shown.advance(note="loss 1.5")
    lines = stream.getvalue().splitlines()
    # every ten seconds, and at the end what was not shown yet
    assert lines[0] == "train: 10/40, 0:30 left, 1 steps/s, loss 1.5"
    assert [line.split(",")[0] for line in lines] == ["train: 10/40", "train: 20/40", "train: 30/40"]


def test_what_an_earlier_run_did_is_no_speed_of_this_one(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    stream = io.StringIO()
    with Progress("train", 1040, "steps", stream=stream) as shown:
        now[0] += 5.0  # loading
        shown.restart(1000)
        for _ in range(10):
            now[0] += 1.0
            shown.advance()
    assert stream.getvalue().splitlines()[-1] == "train: 1010/1040, 0:30 left, 1 steps/s"


def test_unknown_totals_and_silence():
    stream = io.StringIO()
    with Progress("read", None, stream=stream) as shown:
        shown.advance(3)
    assert stream.getvalue().startswith("read: 3") and "left" not in stream.getvalue()
    stream = io.StringIO()
    with Progress("read", 5, quiet=True, stream=stream) as shown:
        shown.advance(3)
    assert stream.getvalue() == "" and shown.done == 3


def test_a_bar_on_a_terminal():
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    stream = Terminal()
    with Progress("train", 4, stream=stream) as shown:
        for _ in range(4):
            shown.advance(note="loss 0.5")
    assert "train" in stream.getvalue()


@pytest.mark.parametrize(
    ("kind", "code"),
    [("StepFormerError", 1), ("UsageError", 2), ("InputError", 3), ("MissingError", 4), ("PartialError", 5)],
)
def test_every_error_has_its_exit_code(kind, code):
    assert getattr(errors, kind).exit_code == code and issubclass(getattr(errors, kind), errors.StepFormerError)


def test_a_missing_extra_says_how_to_get_it():
    error = errors.missing_extra("open_clip", "openclip", "this encoder")
    assert str(error) == "this encoder needs open_clip; install it with: pip install 'stepformer[openclip]'"
    assert error.exit_code == 4 and issubclass(errors.NonFiniteError, ValueError)
