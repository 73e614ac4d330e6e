"""Where a command looks for narration: the same options for every command that reads videos."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from stepformer.cli.settings import Option
from stepformer.errors import InputError
from stepformer.narration.listening import Listening

FILE = Option(
    "subtitles", str, None, "what is said, from any subtitle format, Whisper's JSON or phrases --json", "FILE"
)
COMMON: tuple[Option, ...] = (
    Option("find_subtitles", bool, True, "do not look for subtitles beside or inside the video", flag="--no-subtitles"),
    Option("speech", bool, True, "do not listen to videos without subtitles", flag="--no-speech"),
    Option("speech_model", str, "base", "speech to text: base, small (from the model hub only) or a folder", "NAME"),
    Option("language", str, "en", "of subtitles where there are several, and of the speech", "CODE"),
)
OPTIONS = (FILE, *COMMON)


def add_flags(parser: argparse.ArgumentParser, options: tuple[Option, ...] = COMMON) -> None:
    """The options as plain flags, for commands that read no settings; many videos have no one subtitle file."""
    group = parser.add_argument_group("narration")
    for option in options:
        shown = "" if isinstance(option.default, bool) or option.default is None else f" (default: {option.default})"
        how: dict[str, Any] = {"dest": option.name, "default": option.default, "help": option.help + shown}
        if option.kind is bool:
            group.add_argument(option.spelled, action="store_false", **how)
        else:
            group.add_argument(option.spelled, metavar=option.metavar, **how)


def listening_from(given: Any, cache: bool = True) -> Listening:
    """The options as a record; a subtitle file that is not there is said before any work is done."""
    subtitles = getattr(given, "subtitles", None)
    if subtitles and not Path(subtitles).is_file():
        raise InputError(f"there is no subtitle file {subtitles}")
    return Listening(subtitles, given.find_subtitles, given.speech, given.speech_model, given.language, cache)
