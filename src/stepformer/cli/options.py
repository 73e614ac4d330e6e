"""One options layer for every command: an option is declared once, means one thing, and can be set in four places.

A flag wins over the environment, that over a config file, that over the default. ``--min-share 0.3`` is
``STEPFORMER_MIN_SHARE=0.3`` in the environment and ``min_share = 0.3`` in ``stepformer.toml``: at its top for every
command that has the option, under ``[procedure]`` for one command, under ``[prepare]`` for a group.

An option that two commands have stands in ``OPTIONS`` and is added by name, with a default of the command's own where
it has one: ``add(parser, "model", "seeds", seeds=[0, 1])``. ``run(args)`` gets resolved values; ``args.sources`` says
where each came from. Defaults are added to the help here; where the default is None, the help says "(default: ...)"
itself. This is plain argparse walked once: a settings library would ask for every option again as a typed field.
"""

from __future__ import annotations

import argparse
import difflib
import math
import os
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from stepformer.base.defaults import LANGUAGE, SPEECH_MODEL
from stepformer.base.files import check_place, no_such
from stepformer.errors import UsageError, near

_YES, _NO = ("true", "1", "yes", "on"), ("false", "0", "no", "off")
_PREFIX = "STEPFORMER_"
_NO_OPTIONS = ("cache", "models", "plugins", "commit")  # variables that the library reads itself

# -- kinds of values ---------------------------------------------------------------------------------------------


class Several(argparse.Action):
    """A list: the flag may be repeated, and a ``type`` that gives a list adds all of it."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        """Adds to what the flags before it gave; :func:`resolve` keeps the default out of it."""
        flat = [item for value in (values if self.nargs else [values]) for item in _listed(value)]
        setattr(namespace, self.dest, [*(getattr(namespace, self.dest, None) or []), *flat])


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _number(expected: str, kind: Callable[[str], Any], holds: Callable[[Any], bool]) -> Callable[[str], Any]:
    """The ``type`` of a number for which ``holds`` is true."""

    def read(text: str) -> Any:
        with suppress(ValueError):
            if holds(value := kind(text)):
                return value
        raise argparse.ArgumentTypeError(f"expected {expected}, got {text!r}")

    return read


# digits alone: Python takes "1_000" and "+1" for whole numbers too
positive = _number("a whole number of at least 1", lambda text: int(text) if text.strip().isdecimal() else 0, bool)
above_zero = _number("a number above 0", float, lambda value: 0 < value < math.inf)
port = _number("a port from 0 to 65535", int, lambda value: 0 <= value <= 65535)
share = _number("a number from 0 to 1", float, lambda value: 0 <= value <= 1)


def words(text: str) -> list[str]:
    """``vtt,srt`` as a list."""
    return [part.strip() for part in text.split(",") if part.strip()]


def numbers(text: str) -> list[int]:
    """``0,1,2`` as a list of whole numbers."""
    if not all(part.isdecimal() for part in words(text)):
        raise argparse.ArgumentTypeError(f"expected whole numbers such as 0,1,2, got {text!r}")
    return [int(part) for part in words(text)]


# -- the options that several commands have ----------------------------------------------------------------------

OPTIONS: dict[str, dict[str, Any]] = {
    # every command
    "json": {"action": "store_true", "help": "print the result as JSON on stdout"},
    "config": {"metavar": "FILE", "help": "TOML file of options (default: the nearest stepformer.toml)"},
    "verbose": {"flags": ("-v",), "action": "store_true", "help": "also show where options come from, times, caches"},
    "quiet": {"flags": ("-q",), "action": "store_true", "help": "no progress and no notes; warnings and errors only"},
    "log_file": {"metavar": "FILE", "help": "append all messages, with times, to this file (default: none)"},
    "debug": {"action": "store_true", "help": "show the traceback of an error"},
    "plugin": {"action": Several, "type": words, "default": [], "metavar": "MODULE",
               "help": "import a module, or a .py file, that adds encoders, losses, ...; repeatable"},
    # what computes
    "model": {"metavar": "NAME", "default": "default", "help": "model name, checkpoint, run folder or hub id"},
    "encoder": {"metavar": "NAME", "help": "encoder of the features, NAME or NAME:VALUE (default: the model's own)"},
    "device": {"metavar": "NAME", "help": "cpu, cuda, cuda:1 or mps (default: the GPU if there is one)"},
    "threads": {"type": positive, "metavar": "N", "help": "CPU threads per process (default: all cores, shared)"},
    "jobs": {"flags": ("-j",), "type": positive, "default": 1, "metavar": "N", "help": "parallel processes"},
    "seed": {"type": int, "default": 0, "metavar": "N", "help": "random seed"},
    "seeds": {"action": Several, "type": numbers, "nargs": "+", "default": [0, 1, 2], "metavar": "N",
              "help": "one result per seed: 0 1 2, or 0,1,2"},
    # what is written
    "out": {"metavar": "PATH", "help": "where to write the results (default: nowhere)"},
    "format": {"action": Several, "type": words, "default": [], "metavar": "NAMES",
               "help": "output formats, comma-separated or repeated"},
    "write": {"action": Several, "default": [], "metavar": "FILE",
              "help": "write the timeline to FILE, format by suffix; {name} is the video's name; repeatable"},
    "plot": {"action": "store_true", "help": "also write a plot of the timeline and similarities, NAME.steps.png"},
    "overwrite": {"action": "store_true", "help": "replace files of an earlier, different run"},
    "skip_existing": {"action": "store_true", "help": "skip inputs whose output files already exist"},
    "title": {"metavar": "TEXT", "help": "title of the page and pictures (default: the name of the input)"},
    # how a run goes
    "keep_going": {"action": "store_true", "help": "continue after an input that fails; exit code 5 at the end"},
    "dry_run": {"action": "store_true", "help": "show what would be done, do nothing"},
    "cluster": {"metavar": "ADDRESS", "help": "run on a Ray cluster (auto, or the address of its head) whose nodes "
                "see the same files (default: this machine)"},
    "time_limit": {"type": above_zero, "metavar": "SECONDS",
                   "help": "give up on a video after this many seconds (default: never)"},
    "no_cache": {"action": "store_true", "help": "ignore the cache: read every video again and store nothing"},
    # steps and names
    "steps": {"type": positive, "metavar": "N", "help": "how many steps (default: follows from the video)"},
    "detail": {"type": share, "metavar": "0..1",
               "help": "from 0, few and long steps, to 1, many and short ones (default: 0.5)"},
    "unordered": {"action": "store_true", "help": "the steps may come in any order"},
    "step": {"action": Several, "default": [], "metavar": "TEXT", "help": "a step to locate; repeatable"},
    "no_labels": {"action": "store_true", "help": "leave the steps unnamed"},
    "sure_only": {"action": "store_true", "help": "leave out names that are guesses"},
    "video": {"metavar": "FILE", "help": "the video file, if it is not where the input says (default: beside it)"},
    "from": {"dest": "from_", "metavar": "KIND", "help": "what the input is (default: detected)"},
    # narration
    "subtitles": {"metavar": "FILE", "help": "narration: any subtitle format, Whisper's JSON or phrases --json "
                  "(default: found automatically)"},
    "no_subtitles": {"action": "store_true", "help": "do not look for subtitles beside or inside the video"},
    "no_speech": {"action": "store_true", "help": "do not transcribe the speech of videos without subtitles"},
    "speech_model": {"metavar": "NAME", "default": SPEECH_MODEL,
                     "help": "speech to text: base, small (slower, fewer errors) or a folder"},
    "language": {"metavar": "CODE", "default": LANGUAGE,
                 "help": "language of the speech, and of subtitles if there are several"},
    # phrases
    "punctuation": {"default": "rules", "metavar": "NAME",
                    "help": "what restores punctuation: rules, none, or a plugin's name"},
    "coreference": {"default": "rules", "metavar": "NAME",
                    "help": "what resolves pronouns: rules, none, or a plugin's name"},
    "parser": {"metavar": "PATH", "help": "folder or package of a spaCy pipeline (default: the pinned one)"},
    "whole_clause": {"action": argparse.BooleanOptionalAction, "default": False,
                     "help": "append the other words of the clause to the phrase"},
    "no_chatter": {"action": "store_true", "help": "leave chatter out instead of marking it"},
    "min_groundability": {"type": share, "default": 0.0, "metavar": "0..1",
                          "help": "leave out phrases whose groundability is lower"},
    "released_filters": {"action": "store_true", "help": "filter as the released code does: a direct object, at most "
                         "100 letters, at most 15 words, no repeats"},
    # data
    "world": {"metavar": "FILE", "help": "simulated world, made by stepformer simulate (default: none)"},
    "data": {"metavar": "FOLDER", "help": "folder of public datasets (default: none)"},
    "split": {"metavar": "NAME", "default": "test", "help": "split of the simulated world"},
    "dataset": {"metavar": "PATH", "help": "annotations: CrossTask, COIN, ProceL or a plain folder (default: none)"},
    "subset": {"metavar": "NAME", "help": "the videos to score: a subset's name, or all (default: the test set)"},
    "features": {"metavar": "FOLDER", "help": "folder of features, one .npy per video (default: none)"},
    "rate": {"type": above_zero, "default": 1.0, "metavar": "HZ", "help": "features, or predicted ids, per second"},
    "videos": {"metavar": "FOLDER", "help": "folder of video files (default: none)"},
    "resume": {"action": "store_true", "help": "continue the run in the --out folder"},
    "checkpoint": {"metavar": "PATH", "help": "weights: a file or a run folder (default: none)"},
    "chart": {"type": Path, "metavar": "FILE", "help": "also draw the times, as SVG or PNG (default: none)"},
    "limit": {"type": positive, "metavar": "N", "help": "at most about this many videos (default: all)"},
    "seconds": {"type": above_zero, "default": 60.0, "metavar": "S", "help": "how much of a video is used"},
    "encoders": {"action": Several, "type": words, "metavar": "NAMES",
                 "help": "encoders, comma-separated or repeated (default: all that read video)"},
    "repeats": {"type": positive, "default": 3, "metavar": "N", "help": "number of timed runs"},
    # training
    "train_steps": {"type": positive, "metavar": "N", "help": "training steps of every model (default: the preset's)"},
    "batch": {"type": positive, "metavar": "N", "help": "videos per training step (default: the preset's)"},
    "set": {"action": Several, "default": [], "metavar": "KEY=VALUE",
            "help": "a field of the training config, e.g. optim.lr=1e-4; repeatable"},
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Command:
    """A command that shares its module with others; the table names it as "module:NAME"."""

    HELP: str
    EXAMPLES: Sequence[str]
    add_arguments: Callable[[argparse.ArgumentParser], object]
    run: Callable[[argparse.Namespace], int | None]


FOLDER = "FOLDER"
"""What ``--out`` takes in a command that writes several files: ``out={"metavar": FOLDER}``."""
COMMON = ("json", "config", "verbose", "quiet", "log_file", "debug", "plugin")
LISTENING = ("no_subtitles", "no_speech", "speech_model", "language")
PHRASES = (
    "punctuation", "coreference", "parser", "whole_clause", "no_chatter", "min_groundability", "released_filters",
)  # fmt: skip


def add(parser: argparse._ActionsContainer, *names: str, **defaults: Any) -> None:
    """Adds options of the table to a parser or group; ``name=value`` gives one a default of this command's own.

    ``name={"required": True}`` changes other argparse settings, for instance ``choices``.
    """
    unknown = set(defaults) - set(names)
    assert not unknown, f"a default for {unknown}, which is not added"
    for name in names:
        settings = dict(OPTIONS[name])
        if name in defaults:
            own = defaults[name] if isinstance(defaults[name], dict) else {"default": defaults[name]}
            settings.update(own)
            if "choices" in own:
                settings.pop("metavar", None)
            if own.get("required") or own.get("default") is not None:
                settings["help"] = settings["help"].partition(" (default")[0]
        parser.add_argument(*settings.pop("flags", ()), "--" + name.replace("_", "-"), **settings)


def workers_of(args: argparse.Namespace) -> int:
    """How many work at once: ``--jobs``, but no more than there are processors, each of which one job keeps busy; on a
    cluster as many as are given, or 0, as many as fit."""
    if args.cluster is not None:
        return 0 if args.sources["jobs"] == "default" else int(args.jobs)
    from stepformer.base.many import cores

    return min(int(args.jobs), cores())


def listening_of(args: argparse.Namespace) -> Any:
    """The Listening that the flags of ``LISTENING`` ask for; a subtitle file that is not there is said at once."""
    from stepformer.narration.listening import Listening

    subtitles = getattr(args, "subtitles", None)
    if subtitles and not Path(subtitles).is_file():
        raise no_such(subtitles, "subtitle file")
    cache = not getattr(args, "no_cache", False)
    return Listening(subtitles, not args.no_subtitles, not args.no_speech, args.speech_model, args.language, cache)


def phrase_options(args: argparse.Namespace) -> Any:
    """The PhraseOptions that the flags of ``PHRASES`` ask for."""
    from stepformer.narration.phrases import PhraseOptions

    return PhraseOptions(
        punctuation=args.punctuation, coreference=args.coreference, parser=args.parser, detail=args.whole_clause,
        chatter=not args.no_chatter, min_groundability=args.min_groundability, released=args.released_filters,
    )  # fmt: skip


def set_fields(pairs: Sequence[str]) -> dict[str, Any]:
    """The fields that ``--set KEY=VALUE`` gives; a value is what TOML takes it for, else the text itself."""
    out: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals:
            raise UsageError(f"--set takes KEY=VALUE, got {pair!r}")
        try:
            out[key.strip()] = tomllib.loads(f"x = {text.strip()}")["x"]
        except tomllib.TOMLDecodeError:
            out[key.strip()] = text.strip()
    return out


# -- parsing -----------------------------------------------------------------------------------------------------


class Parser(argparse.ArgumentParser):
    """Help that starts with the description, which ends with the usage; errors as UsageError, with a near name."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(
            formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False, usage=argparse.SUPPRESS,
            epilog="Switches are off unless given. Options can also be set in stepformer.toml and as STEPFORMER_*.",
            **settings,
        )  # fmt: skip

    def error(self, message: str) -> NoReturn:
        """Raises instead of printing a page of usage."""
        _, colon, rest = message.partition("unrecognized arguments: ")
        if colon:
            given = (rest.split() or ["''"])[0]
            known = [flag for action in self._actions for flag in action.option_strings]
            meant = difflib.get_close_matches(given.partition("=")[0], known, n=1, cutoff=0.6)
            what = "there is no option" if given.startswith("-") else "one argument too many:"
            message = f"{what} {given}" + (f"; did you mean {meant[0]}?" if meant else "")
        wrong = re.match(r"argument (.+): invalid choice: '(.*)' \(choose from (.*)\)$", message)
        if wrong:
            choices = wrong[3].replace("'", "").split(", ")
            message = f"{wrong[1]} does not accept {near(wrong[2], choices)}"
        message = message.replace("the following arguments are required:", "missing:")
        raise UsageError(f"{message.removeprefix('argument ')} (see {self.prog} --help)")


def finish(parser: argparse.ArgumentParser) -> None:
    """Adds what every command has, the default to each help, and the usage to the description."""
    add(parser.add_argument_group("every command"), *COMMON)
    shown = []
    for action in parser._actions:
        if not action.option_strings:
            name = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
            shown.append({"?": f"[{name}]", "*": f"[{name} ...]", "+": f"{name} ..."}.get(str(action.nargs), name))
        if not action.option_strings or action.dest == "help":
            continue
        action.help = action.help or ""
        if action.required:
            action.help += " (required)"
        elif isinstance(action, argparse.BooleanOptionalAction):
            plain = action.help.replace(" (default: %(default)s)", "")  # Python 3.11 adds one by itself
            action.help = f"{plain} (default: {'yes' if action.default else 'no'})"
        elif action.nargs != 0 and "(default:" not in action.help:
            text = " ".join(str(value) for value in _listed(action.default) if value is not None)
            action.help += f" (default: {text or 'none'})".replace("%", "%%")
    parser.description = f"{parser.description}\n\nusage: {' '.join([parser.prog, *shown])} [options]"


def resolve(parser: argparse.ArgumentParser, command: str, argv: Sequence[str], fields: Sequence[str] = ()) -> Any:
    """The namespace of a command: flags, then environment, then config file, then defaults; ``sources`` says which.

    ``fields`` are names that the command's section of a file may hold beside its options (the fields and sections of a
    training config); they come as they stand in the dictionary ``fields``. In a file given by ``--config`` they may
    stand at the top too.
    """
    options = {key_of(a): a for a in parser._actions if a.option_strings and a.dest != "help"}
    defaults = {key: (action.default, action.required) for key, action in options.items()}
    for action in options.values():
        action.default, action.required = argparse.SUPPRESS, False  # so that the flags given are seen apart
    # intermixed: `export a.json --title T clips/` and `discover a.mp4 --steps 5 b.mp4` mean what they say
    args = parser.parse_intermixed_args(argv)
    path = config_file(getattr(args, "config", None) or os.environ.get("STEPFORMER_CONFIG"))
    table, args.fields = _read(path, command, options, fields, "config" in args) if path else ({}, {})
    args.sources = {}
    for key, action in options.items():
        variable = f"{_PREFIX}{key.upper()}"
        action.default, action.required = defaults[key]
        if hasattr(args, action.dest):
            args.sources[key] = "flag"
        elif os.environ.get(variable, "") != "":
            text = os.environ[variable]
            # a list of texts, as steps are, has one per line: a text may hold a comma
            several = isinstance(action, Several) and action.type is None
            value = _value(parser, action, text.splitlines() if several else text, variable)
            setattr(args, action.dest, value)
            args.sources[key] = "environment"
        elif key in table:
            setattr(args, action.dest, _value(parser, action, table[key], f"{path}: {key}"))
            args.sources[key] = str(path)
        elif action.required:
            parser.error(f"{action.option_strings[-1]} is required")
        else:
            default = list(action.default) if isinstance(action.default, (list, tuple)) else action.default
            setattr(args, action.dest, default)
            args.sources[key] = "default"
    if "out" in options and args.out and options["out"].metavar == FOLDER:
        check_place(args.out, folder=True)  # before the work, which may take hours
    strongest(args, "verbose", "quiet")
    args.command = command
    return args


def strongest(args: argparse.Namespace, *keys: str) -> None:
    """Of options that exclude each other, one that is set in a weaker place than another is not set: ``--detail`` on
    the command line wins over ``steps`` in a file."""
    given = [key for key in keys if getattr(args, key) not in (None, False)]
    places = {key: ("flag", "environment", args.sources[key]).index(args.sources[key]) for key in given}
    for key in given:
        if places[key] > min(places.values()):
            setattr(args, key, False if getattr(args, key) is True else None)
            args.sources[key] = "default"


def misspelt(known: Iterable[str]) -> list[str]:
    """A sentence for each ``STEPFORMER_*`` variable that no command reads and whose name is near one of ``known``."""
    from stepformer.cli import COMMANDS

    names = {*known, *OPTIONS, *_NO_OPTIONS}
    given = {name.removeprefix(_PREFIX).lower() for name in os.environ if name.startswith(_PREFIX)} - names
    meant = {name: found[0] for name in given if (found := difflib.get_close_matches(name, names, n=1, cutoff=0.75))}
    others = _options_of([*COMMANDS]) if meant else ()
    return [
        f"{_PREFIX}{name.upper()} is set, but there is no such option; did you mean {_PREFIX}{meant[name].upper()}?"
        for name in sorted(meant) if name not in others
    ]  # fmt: skip


def settings_of(args: argparse.Namespace) -> dict[str, Any]:
    """The resolved options and where each came from, as saved beside the output."""
    sources = {key: source for key, source in args.sources.items() if key not in COMMON}
    return {"options": {key: getattr(args, key, getattr(args, f"{key}_", None)) for key in sources}, "sources": sources}


def key_of(action: argparse.Action) -> str:
    """The name of an option in files and, in capitals, in the environment."""
    long = next(flag for flag in action.option_strings if flag.startswith("--"))
    return long.removeprefix("--").replace("-", "_")


# -- values from files and the environment -----------------------------------------------------------------------


def config_file(named: str | None) -> Path | None:
    """The file named, or the nearest ``stepformer.toml`` upwards, or the user's."""
    if named is not None:
        if not Path(named).is_file():
            raise no_such(named, "config file")
        return Path(named)
    from platformdirs import user_config_dir

    here = Path.cwd()
    folders = [here, *here.parents, Path(user_config_dir("stepformer", appauthor=False))]
    return next((folder / "stepformer.toml" for folder in folders if (folder / "stepformer.toml").is_file()), None)


def _read(
    path: Path, command: str, options: Mapping[str, Any], fields: Sequence[str], named: bool
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The options that a file sets for a command, and its further fields. A name that no command knows is an error."""
    from stepformer.base.guard import read_text, toml_of
    from stepformer.cli import COMMANDS

    table: Any = toml_of(read_text(path), path)
    found: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    parts = command.split()
    for depth in range(len(parts) + 1):  # the top, the group's section, the command's
        level, last = parts[:depth], depth == len(parts)
        section = f"[{'.'.join(level)}]"
        table = table.get(level[-1], {}) if level else table
        if not isinstance(table, dict):
            raise UsageError(f"{path}: {level[-1]} is a section, {section}, not {table!r}")
        below = [name for name in COMMANDS if name.split()[:depth] == level]
        sections = {name.split()[depth] for name in below if len(name.split()) > depth}
        for key, value in table.items():
            if key in options and not isinstance(value, dict):
                found[key] = value
            elif key in fields and (last or (named and not level)):
                extra[key] = value
            elif key in sections and (isinstance(value, dict) or key == parts[depth]):
                continue  # a section of its own, read when its turn comes
            elif isinstance(value, dict):
                raise UsageError(f"{path}: no section is called {near(key, sections)}")
            elif last:
                raise UsageError(f"{path}: {section} has no option {near(key, options)}")
            elif key not in (others := _options_of(below)):
                raise UsageError(f"{path}: no command has the option {near(key, others)}")
    return found, extra


def _options_of(commands: Sequence[str]) -> set[str]:
    """The keys of all options of some commands; imports them, so it is called for doubtful names alone."""
    from stepformer.cli import command_parser

    return {key_of(a) for name in commands for a in command_parser(name)._actions if a.option_strings}


def _value(parser: argparse.ArgumentParser, action: argparse.Action, given: Any, where: str) -> Any:
    """A value from a file or the environment, checked as argparse checks that of the flag."""
    if action.nargs == 0:
        said = str(given).lower()
        if said not in (*_YES, *_NO) or not isinstance(given, (bool, str)):
            raise UsageError(f"{where} must be true or false, got {given!r}")
        return said in _YES
    several = isinstance(action, Several)
    values: list[Any] = []
    for item in given if several and isinstance(given, list) else [given]:
        if isinstance(item, (bool, dict, list)):
            raise UsageError(f"{where} must be a text or a number, got {item!r}")
        try:
            value = parser._get_value(action, str(item))
            parser._check_value(action, value)
        except argparse.ArgumentError as error:
            raise UsageError(f"{where}: {error.message}") from None
        values += _listed(value)
    return values if several else values[0]
