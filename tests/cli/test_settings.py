"""Options from a config file: nothing in it is skipped in silence."""

from __future__ import annotations

from argparse import Namespace

import pytest

from stepformer.cli import discover
from stepformer.cli.settings import COMMANDS, resolve
from stepformer.errors import UsageError


def from_file(path, text):
    path.write_text(text)
    given = Namespace(config=str(path), **{option.name: None for option in discover.OPTIONS})
    return resolve("discover", given, discover.OPTIONS)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("stepz = 8", "no command has the option 'stepz'"),
        ("[discovr]\nsteps = 3", "no section is called 'discovr'; there are: discover, locate"),
        ("discover = 5", r"discover is a section, \[discover\], not 5"),
        ("[discover]\nmethod = 'text'", r"\[discover\] has no option 'method'"),
        ("steps = 2.5", "steps must be a whole number, got 2.5"),
        ("labels = 1", "labels must be true or false, got 1"),
    ],
)
def test_a_slip_gets_a_sentence(tmp_path, text, says):
    with pytest.raises(UsageError, match=says):
        from_file(tmp_path / "mine.toml", text)


def test_what_belongs_to_another_command_may_stand_at_the_top(tmp_path):
    settings = from_file(tmp_path / "mine.toml", "method = 'text'\nsteps = 3\n[locate]\nstep = ['whisk']\n")
    assert settings.steps == 3
    assert "method" not in settings.values


def test_every_command_that_reads_a_file_is_known():
    from stepformer.cli import COMMANDS as ALL
    from stepformer.cli import command_module

    reading = {name for name in ALL if hasattr(command_module(name), "OPTIONS")}
    assert reading == set(COMMANDS)
