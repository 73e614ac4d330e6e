"""The command line: parses, calls, prints. The only place that prints results or exits.

Each command is a module with ``HELP``, ``EXAMPLES``, ``add_arguments(parser)`` and ``run(args)``, which gives the exit
code where it may not be 0, or a ``Command`` with these in a module of several. Results go to stdout, messages and
progress to stderr.

Exit codes: 0 ok, 1 failure, 2 usage, 3 unreadable input, 4 missing weights or extra, 5 some inputs failed,
130 interrupted.
"""

from __future__ import annotations

import difflib
import errno
import importlib
import io
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from stepformer.cli.log import log, messages
from stepformer.cli.options import Parser, finish, misspelt, resolve
from stepformer.errors import StepFormerError, UsageError
from stepformer.version import __version__

# name of the command -> (module, one line of help). Order is the order of `stepformer --help`.
COMMANDS: dict[str, tuple[str, str]] = {
    "discover": ("stepformer.cli.discover", "find the ordered steps of videos, with times and names"),
    "locate": ("stepformer.cli.locate", "find when given steps happen"),
    "demo": ("stepformer.cli.demo", "run everything on one real video"),
    "procedure": ("stepformer.cli.procedure", "find the common steps of several videos of one task"),
    "search": ("stepformer.cli.search", "find where in a library of processed videos a step happens"),
    "export": ("stepformer.cli.export", "convert a timeline to chapters, subtitles, tables, pictures, clips, a page"),
    "view": ("stepformer.cli.view", "show a timeline in the browser"),
    "phrases": ("stepformer.cli.phrases", "turn subtitles into verb phrases with times"),
    "prepare phrases": (
        "stepformer.cli.prepare:PHRASE_TABLE",
        "turn subtitles of many videos into one table of phrases",
    ),
    "simulate": ("stepformer.cli.simulate", "make a simulated corpus"),
    "train": ("stepformer.cli.train", "train a model on a simulated corpus or a feature store"),
    "adapt": ("stepformer.cli.adapt", "train a model for another encoder or your videos"),
    "evaluate": ("stepformer.cli.evaluate", "audit a dataset, or score predictions on it under any protocol"),
    "models convert": ("stepformer.cli.models:CONVERT", "convert a released checkpoint to safetensors"),
    "models list": ("stepformer.cli.models:LIST", "list the weights known by name, and which are downloaded"),
    "models pull": ("stepformer.cli.models:PULL", "download weights by name and verify them"),
    "models info": ("stepformer.cli.models:INFO", "show source, hashes, licence and training data of weights"),
    "models verify": ("stepformer.cli.models:VERIFY", "verify the downloaded weights"),
    "prepare features": ("stepformer.cli.prepare:FEATURES", "turn videos, or existing features, into a feature store"),
    "bench discover": ("stepformer.bench.discover", "time per minute of video, part by part"),
    "bench search": ("stepformer.bench.search", "answer time and recall in a library of 10,000 videos"),
    "bench align": ("stepformer.bench.align", "time of the alignment kernels against a naive Python loop"),
    "bench train": (
        "stepformer.bench.train",
        "time and memory of a training step, against plain PyTorch and its floor",
    ),
    "bench evaluate": ("stepformer.bench.evaluate", "time of Table 1 scoring, CrossTask's 360 videos to COIN's 2,596"),
    "reproduce": ("stepformer.cli.reproduce", "reproduce the paper's tables and figures, and our own"),
    "doctor": ("stepformer.cli.doctor", "check the installation and say how to fix it"),
}

GROUPS = {
    "prepare": "turn subtitles into phrases, videos into features",
    "bench": "measure one part of the product against its limit",
    "models": "named weights and released checkpoints",
}

_DESCRIPTION = "Finds the ordered steps of a how-to video, with start and end times and names."
_MORE = "stepformer COMMAND --help starts with examples. stepformer --version prints the version."
_HELP = ("-h", "--help", "help")


def _studies() -> dict[str, tuple[str, str]]:
    """The commands of ``benchmarks/``, which lies beside ``src/`` in a checkout and is not in the wheel."""
    source = Path(__file__).parents[2]
    if source.name != "src" or not (source.parent / "benchmarks" / "__init__.py").is_file():
        return {}
    sys.path.append(str(source.parent))
    studies: dict[str, str] = importlib.import_module("benchmarks").STUDIES
    return {f"bench {word}": (f"benchmarks.{word}", text) for word, text in studies.items()}


COMMANDS |= _studies()


def _is_study(name: str) -> bool:
    return COMMANDS[name][0].startswith("benchmarks.")


def command_module(name: str) -> Any:
    """What one command is made of, imported when it is needed: a module, or a Command in one ("module:name")."""
    path, _, part = COMMANDS[name][0].partition(":")
    module = importlib.import_module(path)
    return getattr(module, part) if part else module


def command_parser(name: str) -> Parser:
    """The full parser of one command: its help starts with examples."""
    module = command_module(name)
    examples = "\n".join(f"  {line}" for line in module.EXAMPLES)
    parser = Parser(prog=f"stepformer {name}", description=f"examples:\n{examples}\n\n{module.HELP}")
    module.add_arguments(parser)
    finish(parser)
    return parser


def _listing(group: str = "") -> str:
    """The commands, a group of them in one line; or the commands of a group."""
    lines: dict[str, str] = {}
    for name, (_, text) in COMMANDS.items():
        first, _, word = name.partition(" ")
        if first == group:
            lines[name] = text
        elif not group:
            inside = [other for other in COMMANDS if other.startswith(first + " ")]
            words = "|".join(other.split()[1] for other in inside if not _is_study(other))
            studies = sum(map(_is_study, inside))
            more = f", and {studies} studies" if studies else ""
            lines[first] = f"{GROUPS[first]} ({words}{more})" if word else text
    width = max(map(len, lines))
    return "\n".join(f"  {name:<{width}}  {text}" for name, text in lines.items())


def _no_command(argv: Sequence[str]) -> int:
    """The commands of a group (``stepformer bench --help``), or what is wrong with a command that is none."""
    group = argv[0] if argv[0] in GROUPS else ""
    asked = argv[1:2] and argv[1] in _HELP
    if group and (asked or not argv[1:]):
        shown = f"usage: stepformer {group} COMMAND [options]\n\n{GROUPS[group]}:\n{_listing(group)}\n\n{_MORE}"
        print(shown, file=sys.stdout if asked else sys.stderr)
        return 0 if asked else 2
    given = " ".join(argv[:2]) if group else argv[0]
    near = difflib.get_close_matches(given, [*COMMANDS, *GROUPS], n=1, cutoff=0.7)
    meant = f"did you mean {near[0]}? " if near else ""
    studies = group != "bench" or any(map(_is_study, COMMANDS))
    elsewhere = "" if studies else "; studies run in a checkout of the repository, not from a wheel"
    raise UsageError(f"no command {given!r}; {meant}stepformer {group and group + ' '}--help lists them{elsewhere}")


def _run(argv: list[str], apart: bool) -> int:
    """Help, version, or one command. ``apart``: a single job has a process of its own too, as a decoder may crash."""
    if not argv or argv[0] in _HELP:
        print(f"{_DESCRIPTION}\n\nusage: stepformer COMMAND [options]\n\ncommands:\n{_listing()}\n\n{_MORE}")
        return 0
    if argv[0] == "--version":
        print(f"stepformer {__version__}")
        return 0
    name = next((name for name in (" ".join(argv[:2]), argv[0]) if name in COMMANDS), None)
    if name is None:
        return _no_command(argv)
    module, rest = command_module(name), argv[len(name.split()) :]
    args = resolve(command_parser(name), name, rest, getattr(module, "FIELDS", ()))
    args.apart = apart
    with messages(args.verbose, args.quiet, args.log_file):
        for sentence in misspelt(args.sources):
            log.warning(sentence)
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
        _no_more_output()  # the reader (head, less) has gone: leave quietly
        return 0
    except (StepFormerError, OSError, MemoryError) as error:
        if debug:
            raise
        if isinstance(error, MemoryError):
            log.error("not enough memory")
            return 1
        if isinstance(error, StepFormerError):
            log.error(str(error))
            return error.exit_code
        # a full disk, a folder that may not be written to: nothing that a traceback explains better
        where = f"{error.filename}: " if error.filename is not None else ""
        if not where and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO):
            where = "the result cannot be printed: "  # files are written with their names, stdout has none
            _no_more_output()
        log.error("%s%s", where, error.strerror or error)
        return 1


def _no_more_output() -> None:
    """Keeps the interpreter from flushing into what took no more."""
    with suppress(OSError, ValueError):  # in a notebook stdout is no file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


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
