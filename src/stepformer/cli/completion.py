"""``stepformer completion``: a static completion script for a shell.

The command line imports only the command it runs, so the parser of all commands together exists nowhere else; here it
is built from the same table, and shtab writes it out as a script that needs no Python when the user presses tab.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from stepformer.cli.options import OPTIONS, add

HELP = """Prints a completion script with every command, sub-command and option. It is static: nothing of stepformer
runs while you type. Print it again after an update."""

EXAMPLES = [
    "stepformer completion bash > ~/.local/share/bash-completion/completions/stepformer",
    "stepformer completion zsh > ~/.zfunc/_stepformer     # with: fpath+=~/.zfunc; autoload -U compinit; compinit",
    "stepformer completion fish > ~/.config/fish/completions/stepformer.fish",
    "stepformer completion bash --out completions.bash",
]

SHELLS = ("bash", "zsh", "fish")

# arguments whose metavar says that they name a file or a folder
_FOLDERS = ("FOLDER", "DIR")
_FILES = ("FILE", "VIDEO", "TIMELINE", "PATH", "OUT", "SUBTITLES", "STORE", "CONFIG", "WORLD", "CHECKPOINT")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("shell", choices=SHELLS, help="the shell to complete in")
    add(parser, "out", out={"help": OPTIONS["out"]["help"].replace("nowhere", "stdout")})


def run(args: argparse.Namespace) -> int:
    """Prints or writes the script."""
    text = script(args.shell)
    if args.out:
        from stepformer.base.files import write_text

        write_text(args.out, text)
        print(json.dumps({"shell": args.shell, "path": args.out}) if args.json else args.out)
    elif args.json:
        print(json.dumps({"shell": args.shell, "script": text}))
    else:
        sys.stdout.write(text)
    return 0


def script(shell: str) -> str:
    """The completion script for one shell."""
    import shtab

    text = str(shtab.complete(whole_parser(), shell))
    return text if text.endswith("\n") else text + "\n"


def whole_parser() -> argparse.ArgumentParser:
    """One parser with every command of the table, groups ("models", "bench", ...) nested."""
    from stepformer.cli import COMMANDS, GROUPS, command_parser

    # the name by which it is called, whatever this process was started as
    whole = argparse.ArgumentParser(prog="stepformer")
    whole.add_argument("--version", action="version", version="")
    top = whole.add_subparsers()
    groups: dict[str, Any] = {}
    for name, (_, line) in COMMANDS.items():
        group, _, word = name.partition(" ")
        place = top
        if word:
            if group not in groups:
                groups[group] = top.add_parser(group, help=GROUPS.get(group, "")).add_subparsers()
            place = groups[group]
        parser = place.add_parser(word or group, help=line)
        command_parser(name, parser)
        _complete_paths(parser)
    return whole


def _complete_paths(parser: argparse.ArgumentParser) -> None:
    """Marks the arguments that take files and folders, known by their metavar."""
    import shtab

    for action in parser._actions:  # argparse has no public list of a parser's arguments
        metavar = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
        words = metavar.replace("…", "").replace("...", "").split(".")[0]
        if action.nargs == 0 or action.choices:
            continue
        if words in _FOLDERS:
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
        elif words in _FILES or Path(metavar).suffix:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
