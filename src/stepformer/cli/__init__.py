"""The command line: parses, calls, prints. The only place that prints results or exits.

Each command is one module with ``HELP``, ``EXAMPLES``, ``add_arguments(parser)`` and ``run(args) -> int``; the
table below names them, so that ``stepformer --help`` imports none of them and stays fast. A command of two
words ("bench align") is a module of its own too. Results go to stdout, progress and messages to stderr.

Exit codes: 0 ok, 1 failure, 2 usage, 3 unreadable input, 4 missing weights or extra, 5 some inputs failed,
130 interrupted.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import os
import sys
from collections.abc import Sequence
from types import ModuleType

from stepformer.errors import StepFormerError
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
    "simulate": ("stepformer.cli.simulate", "make a simulated corpus, or calibrate one"),
    "train": ("stepformer.cli.train", "train a model on a simulated corpus or a feature store"),
    "evaluate": ("stepformer.cli.evaluate", "audit a dataset, or score predictions on it under any protocol"),
    "models convert": ("stepformer.cli.models_convert", "a released checkpoint to safetensors"),
    "models list": ("stepformer.cli.models_list", "the weights known by name, and which are here"),
    "models pull": ("stepformer.cli.models_pull", "download weights by name, verified, once"),
    "models info": ("stepformer.cli.models_info", "source, hashes, licence and training data of weights"),
    "models verify": ("stepformer.cli.models_verify", "hash the pulled weights again"),
    "bench encoders": ("stepformer.bench.encoders", "how good encoders' vectors are for steps, on marked clips"),
    "prepare features": ("stepformer.cli.prepare_features", "videos, or features you have, to a feature store"),
    "bench encode": ("stepformer.bench.encode", "decoding and encoding against real time, and where time goes"),
    "bench narration": ("stepformer.bench.narration", "words a second, against the bare parser; memory"),
    "bench phrases": ("stepformer.bench.phrases", "phrases against the gold set and against human steps"),
    "bench discover": ("stepformer.bench.discover", "time a minute of video, part by part"),
    "bench real": ("stepformer.bench.real", "discovery and localisation on real videos against controls"),
    "bench line": ("stepformer.bench.line", "the automatic drop line against the paper's and the released code's"),
    "bench procedure": ("stepformer.bench.procedure", "common steps of simulated tasks against controls"),
    "bench search": ("stepformer.bench.search", "a library of 10,000 videos: answers, recall against exact"),
    "bench simulated": ("stepformer.bench.simulated", "a checkpoint on simulated videos, beside controls"),
    "bench align": ("stepformer.bench.align", "alignment kernels against a naive Python loop"),
    "bench evaluate": ("stepformer.bench.evaluate", "Table 1 scoring from CrossTask's 360 videos to COIN's 2,596"),
    "reproduce table1": ("stepformer.cli.reproduce_table1", "step discovery against published methods"),
    "reproduce table2": ("stepformer.cli.reproduce_table2", "zero-shot localisation against published methods"),
    "reproduce table3": ("stepformer.cli.reproduce_table3", "losses, Drop-DTW, presets and controls"),
    "reproduce table4": ("stepformer.cli.reproduce_table4", "number of slots and layers"),
    "reproduce data": ("stepformer.cli.reproduce_data", "one encoder or several, open texts or all"),
    "reproduce figures": ("stepformer.cli.reproduce_figures", "timelines, attention, alignment, narration"),
    "reproduce all": ("stepformer.cli.reproduce_all", "the paper's four tables and ours, every run once"),
    "reproduce real-features": ("stepformer.cli.reproduce_real", "uniform, K-means, Kukleva on real features"),
    "doctor": ("stepformer.cli.doctor", "what is here, what is not, and how to mend it"),
    "completion": ("stepformer.cli.completion", "a completion script for bash, zsh or fish"),
}

GROUPS = {
    "prepare": "subtitles to phrases, videos to features",
    "bench": "measure one part of the product against its limit",
    "models": "named weights and released checkpoints",
    "reproduce": "the paper's tables and figures",
}

_DESCRIPTION = "Finds the ordered steps of a how-to video, with start and end times, from the video alone."


def command_module(name: str) -> ModuleType:
    """The module of one command, imported when it is needed."""
    return importlib.import_module(COMMANDS[name][0])


class _Parser(argparse.ArgumentParser):
    """A parser whose help starts with its description, which starts with examples; argparse puts usage first."""

    def format_help(self) -> str:
        """Description, usage, options."""
        formatter = self._get_formatter()
        formatter.add_text(self.description)
        formatter.add_usage(self.usage, self._actions, self._mutually_exclusive_groups)
        for group in self._action_groups:
            formatter.start_section(group.title)
            formatter.add_text(group.description)
            formatter.add_arguments(group._group_actions)
            formatter.end_section()
        return formatter.format_help()


def command_parser(name: str) -> argparse.ArgumentParser:
    """The full parser of one command: its help starts with examples."""
    module = command_module(name)
    examples = "\n".join(f"  {line}" for line in module.EXAMPLES)
    parser = _Parser(
        prog=f"stepformer {name}",
        description=f"examples:\n{examples}\n\n{module.HELP}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON on stdout")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    module.add_arguments(parser)
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
    given, known = (" ".join(argv[:2]), [f"{argv[0]} {word}" for word in group]) if group else (argv[0], [*COMMANDS])
    near = difflib.get_close_matches(given, known, n=1, cutoff=0.75)
    where = f"{argv[0]} --help" if group else "--help"
    meant = f"did you mean {near[0]}? " if near else ""
    print(f"stepformer: no command {given!r}; {meant}stepformer {where} lists them", file=sys.stderr)
    return 2


def _run(argv: list[str]) -> int:
    """Help, version, or one command."""
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
    # intermixed: `export a.json --exact clips/` and `discover a.mp4 --steps 5 b.mp4` mean what they say
    args = command_parser(name).parse_intermixed_args(rest)
    return int(command_module(name).run(args) or 0)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code."""
    argv = list(sys.argv[1:] if argv is None else argv)
    try:
        code = _run(argv)
        sys.stdout.flush()  # here, where a reader that has gone is no error
        return code
    except StepFormerError as error:
        if "--debug" in argv:
            raise
        print(f"stepformer: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("stepformer: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # the reader (head, less) has gone; leave quietly and keep the interpreter from flushing into the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        # a full disk, a folder that may not be written to: nothing that a traceback explains better
        if "--debug" in argv:
            raise
        where = f"{error.filename}: " if error.filename is not None else ""
        print(f"stepformer: {where}{error.strerror or error}", file=sys.stderr)
        return 1
    except SystemExit as stop:
        if stop.code is None:
            return 0
        return stop.code if isinstance(stop.code, int) else 2
