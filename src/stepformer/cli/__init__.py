"""The command line: parses, calls, prints. The only place that prints results or exits.

Each command is a module with ``HELP``, ``EXAMPLES``, ``add_arguments(parser)`` and ``run(args) -> int``, or a
``Command`` with these in a module of several; the table below names them, so that ``stepformer --help`` imports none of
them and stays fast. ``options`` has what they take. Results go to stdout, progress and messages (``log``) to stderr.

Exit codes: 0 ok, 1 failure, 2 usage, 3 unreadable input, 4 missing weights or extra, 5 some inputs failed,
130 interrupted.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import io
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from stepformer.cli.log import log, messages
from stepformer.cli.options import Parser, finish, resolve
from stepformer.errors import StepFormerError, UsageError
from stepformer.version import __version__

# name of the command -> (module, one line of help). Order is the order of `stepformer --help`.
COMMANDS: dict[str, tuple[str, str]] = {
    "discover": ("stepformer.cli.discover", "the ordered steps of videos, with times and names"),
    "locate": ("stepformer.cli.locate", "when given steps happen in videos"),
    "demo": ("stepformer.cli.demo", "the whole product on one real video"),
    "procedure": ("stepformer.cli.procedure", "several videos of one task to one ordered list of steps"),
    "search": ("stepformer.cli.search", "where in a library of processed videos a step happens"),
    "export": ("stepformer.cli.export", "a timeline as chapters, subtitles, tables, pictures, clips, a page"),
    "view": ("stepformer.cli.view", "the page of a timeline in a browser"),
    "phrases": ("stepformer.cli.phrases", "subtitles to verb phrases with times"),
    "prepare phrases": ("stepformer.cli.prepare_phrases", "subtitles of many videos to one table of phrases"),
    "simulate": ("stepformer.cli.simulate", "make a simulated corpus"),
    "train": ("stepformer.cli.train", "train a model on a simulated corpus or a feature store"),
    "adapt": ("stepformer.cli.adapt", "a model for an encoder of yours, or for your videos"),
    "evaluate": ("stepformer.cli.evaluate", "audit a dataset, or score predictions on it under any protocol"),
    "models convert": ("stepformer.cli.models:CONVERT", "a released checkpoint to safetensors"),
    "models list": ("stepformer.cli.models:LIST", "the weights known by name, and which are here"),
    "models pull": ("stepformer.cli.models:PULL", "download weights by name, verified, once"),
    "models info": ("stepformer.cli.models:INFO", "source, hashes, licence and training data of weights"),
    "models verify": ("stepformer.cli.models:VERIFY", "hash the pulled weights again"),
    "prepare features": ("stepformer.cli.prepare_features", "videos, or features you have, to a feature store"),
    "bench discover": ("stepformer.bench.discover", "time per minute of video, part by part"),
    "bench search": ("stepformer.bench.search", "a library of 10,000 videos: answers, recall against exact"),
    "bench align": ("stepformer.bench.align", "alignment kernels against a naive Python loop"),
    "bench train": ("stepformer.bench.train", "a training step beside the plain one and its floor; peak memory"),
    "bench evaluate": ("stepformer.bench.evaluate", "Table 1 scoring from CrossTask's 360 videos to COIN's 2,596"),
    "reproduce": ("stepformer.cli.reproduce", "the paper's tables and figures, and the evidence behind ours"),
    "doctor": ("stepformer.cli.doctor", "what is here, what is not, and how to fix it"),
    "completion": ("stepformer.cli.completion", "a completion script for bash, zsh or fish"),
}

GROUPS = {
    "prepare": "subtitles to phrases, videos to features",
    "bench": "measure one part of the product against its limit",
    "models": "named weights and released checkpoints",
}

_DESCRIPTION = "Finds the ordered steps of a how-to video, with start and end times, from the video alone."


def _studies() -> dict[str, tuple[str, str]]:
    """The commands of ``benchmarks/``, which lies beside ``src/`` in a checkout and is not in the wheel."""
    source = Path(__file__).parents[2]
    if source.name != "src" or not (source.parent / "benchmarks" / "__init__.py").is_file():
        return {}
    sys.path.append(str(source.parent))
    studies: dict[str, str] = importlib.import_module("benchmarks").STUDIES
    return {f"bench {word}": (f"benchmarks.{word}", text) for word, text in studies.items()}


COMMANDS |= _studies()


def command_module(name: str) -> Any:
    """What one command is made of, imported when it is needed: a module, or a Command in one ("module:name")."""
    path, _, part = COMMANDS[name][0].partition(":")
    module = importlib.import_module(path)
    return getattr(module, part) if part else module


def command_parser(name: str, parser: argparse.ArgumentParser | None = None) -> argparse.ArgumentParser:
    """The full parser of one command: its help starts with examples. ``parser``: one to fill, of shell completion."""
    module = command_module(name)
    if parser is None:
        examples = "\n".join(f"  {line}" for line in module.EXAMPLES)
        parser = Parser(prog=f"stepformer {name}", description=f"examples:\n{examples}\n\n{module.HELP}")
    module.add_arguments(parser)
    finish(parser)
    return parser


def _overview() -> str:
    lines = [_DESCRIPTION, "", "usage: stepformer COMMAND [options]", "", "commands:"]
    shown: set[str] = set()
    for name, (_, text) in COMMANDS.items():
        group = name.split()[0]
        if " " in name:
            if group not in shown:
                shown.add(group)
                words = "|".join(other.split()[1] for other in COMMANDS if other.startswith(group + " "))
                lines.append(f"  {group:<12} {GROUPS.get(group, '')} ({words})")
        else:
            lines.append(f"  {name:<12} {text}")
    lines += ["", "stepformer COMMAND --help starts with examples. stepformer --version prints the version."]
    return "\n".join(lines)


def _split_command(argv: Sequence[str]) -> tuple[str, list[str]] | None:
    """The longest command name that ``argv`` starts with, and the rest."""
    for words in (2, 1):
        name = " ".join(argv[:words])
        if len(argv) >= words and name in COMMANDS:
            return name, list(argv[words:])
    return None


def _group(argv: Sequence[str]) -> int:
    """The commands of a group (``stepformer bench --help``), or what is wrong with a command that is none."""
    group = {name.split()[1]: text for name, (_, text) in COMMANDS.items() if name.startswith(argv[0] + " ")}
    if group and argv[1:] and argv[1] in ("-h", "--help", "help"):
        width = max(map(len, group))
        lines = [f"  stepformer {argv[0]} {word:<{width}}  {text}" for word, text in group.items()]
        print(f"{GROUPS[argv[0]]}:\n")
        print("\n".join(lines))
        print(f"\nstepformer {argv[0]} WORD --help starts with examples.")
        return 0
    if group and not argv[1:]:
        print(f"usage: stepformer {argv[0]} {{{'|'.join(group)}}} [options]", file=sys.stderr)
        return 2
    within = f"{argv[0]} " if group else ""
    given, known = (argv[1], [*group]) if group else (argv[0], [*COMMANDS, *GROUPS])
    near = difflib.get_close_matches(given, known, n=1, cutoff=0.7)
    meant = f"did you mean {within}{near[0]}? " if near else ""
    studies = argv[0] != "bench" or any(path.startswith("benchmarks.") for path, _ in COMMANDS.values())
    elsewhere = "" if studies else "; studies run in a checkout of the repository, not from a wheel"
    raise UsageError(f"no command {within + given!r}; {meant}stepformer {within}--help lists them{elsewhere}")


def _run(argv: list[str], apart: bool) -> int:
    """Help, version, or one command.

    ``apart``: a single job, too, has a process of its own, so that a decoder that crashes costs one video.
    """
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(_overview())
        return 0
    if argv[0] == "--version":
        print(f"stepformer {__version__}")
        return 0
    found = _split_command(argv)
    if found is None:
        return _group(argv)
    name, rest = found
    module = command_module(name)
    args = resolve(command_parser(name), name, rest, getattr(module, "FIELDS", ()))
    args.apart = apart
    with messages(args.verbose, args.quiet, args.log_file):
        for key, source in args.sources.items():
            if source not in ("flag", "default"):
                log.debug("%s comes from %s", key, source)
        if getattr(args, "threads", None):
            from stepformer.base.many import limit_threads

            limit_threads(args.threads)
        if args.plugin:
            from stepformer.base.plugins import use_plugins

            use_plugins(args.plugin)
        return _caught(lambda: module.run(args), args.debug)


def _caught(action: Callable[[], int | None], debug: bool) -> int:
    """The exit code of an action; an error is one sentence on stderr, or with ``debug`` what it is."""
    try:
        code = int(action() or 0)
        sys.stdout.flush()  # here, where a reader that has gone is no error
        return code
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 2 if stop.code else 0
    except KeyboardInterrupt:
        log.error("interrupted")
        return 130
    except BrokenPipeError:
        # the reader (head, less) has gone; leave quietly and keep the interpreter from flushing into the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (StepFormerError, OSError, MemoryError) as error:
        if debug:
            raise
        if isinstance(error, MemoryError):
            log.error("there is not enough memory for it")
            return 1
        if isinstance(error, StepFormerError):
            log.error(str(error))
            return error.exit_code
        # a full disk, a folder that may not be written to: nothing that a traceback explains better
        log.error("%s%s", f"{error.filename}: " if error.filename is not None else "", error.strerror or error)
        return 1


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code.

    With ``argv`` given, a program calls (a notebook, a test), maybe with encoders that other processes do not know.
    """
    apart = argv is None
    if apart and isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a file name may be no UTF-8
    argv = list(sys.argv[1:] if argv is None else argv)
    with messages():
        return _caught(lambda: _run(argv, apart), "--debug" in argv)
