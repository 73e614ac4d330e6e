"""``stepformer completion``: a static completion script for a shell.

The command line imports only the command it runs, so the parser of all commands together exists nowhere else; here it
is built from the same table, and shtab writes it out as a script that needs no Python when the user presses tab.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from stepformer.cli.log import answer

HELP = """Prints a completion script with every command, sub-command and option. It is static: nothing of stepformer
runs while you type. Print it again after an update."""

EXAMPLES = [
    "stepformer completion bash > ~/.local/share/bash-completion/completions/stepformer",
    "stepformer completion zsh > ~/.zfunc/_stepformer     # with: fpath+=~/.zfunc; autoload -U compinit; compinit",
    "stepformer completion fish > ~/.config/fish/completions/stepformer.fish",
]

SHELLS = ("bash", "zsh", "fish")
# what an argument's metavar is where it names a file or a folder
_FOLDERS = ("FOLDER", "DIR")
_FILES = ("FILE", "VIDEO", "TIMELINE", "PATH", "OUT", "SUBTITLES", "STORE", "CONFIG", "WORLD", "CHECKPOINT")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help=", ".join(SHELLS))


def run(args: argparse.Namespace) -> None:
    text = script(args.shell)
    answer(args, {"shell": args.shell, "script": text}, text)


def script(shell: str) -> str:
    """The completion script for one shell."""
    import shtab

    return str(shtab.complete(_whole_parser(), shell)).rstrip("\n")


def _whole_parser() -> argparse.ArgumentParser:
    """One parser with every command of the table, groups ("models", "bench", ...) nested."""
    import shtab

    from stepformer.cli import COMMANDS, GROUPS, command_parser

    kinds = dict.fromkeys(_FOLDERS, shtab.DIRECTORY) | dict.fromkeys(_FILES, shtab.FILE)

    # the name by which it is called, whatever this process was started as
    whole = argparse.ArgumentParser(prog="stepformer")
    whole.add_argument("--version", action="version", version="")
    top = whole.add_subparsers()
    groups: dict[str, Any] = {name: top.add_parser(name, help=text).add_subparsers() for name, text in GROUPS.items()}
    for name, (_, line) in COMMANDS.items():
        group, _, word = name.partition(" ")
        parser = (groups[group] if word else top).add_parser(word or group, help=line)
        for action in command_parser(name, parser)._actions:  # argparse has no public list of a parser's arguments
            metavar = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
            kind = kinds.get(metavar, shtab.FILE if Path(metavar).suffix else None)
            if kind is not None and action.nargs != 0 and not action.choices:
                action.complete = kind  # type: ignore[attr-defined]
    return whole
