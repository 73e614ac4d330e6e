"""Options from a config file, the environment and flags, in that order of weight, and where each came from.

A config file is TOML: keys are the long flags with underscores, at the top for every command or under ``[discover]``,
``[locate]``. It is ``--config FILE``, else ``stepformer.toml`` here, else the one in the user's config folder.
The environment says the same as ``STEPFORMER_STEPS=8``, ``STEPFORMER_MODEL=...``. Flags win.
"""

from __future__ import annotations

import argparse
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from stepformer.errors import InputError, UsageError

COMMANDS = {"discover": "stepformer.cli.discover", "locate": "stepformer.cli.locate"}  # those that a file speaks to
_KINDS: dict[type, str] = {
    int: "a whole number", float: "a number", str: "a text", bool: "true or false", list: "a list of texts"
}  # fmt: skip
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


@dataclass(frozen=True, slots=True)
class Option:
    """One settable option: its name (of flag, key and variable), type, default, and help."""

    name: str
    kind: type  # int, float, str, bool, list (of str)
    default: Any
    help: str
    metavar: str | None = None
    choices: tuple[str, ...] = ()
    flag: str = ""  # where the flag is not the name with dashes ("--no-labels" sets labels to False)

    @property
    def spelled(self) -> str:
        """The flag as it is typed."""
        return self.flag or "--" + self.name.replace("_", "-")


@dataclass(frozen=True, slots=True)
class Settings:
    """The resolved options, and the source of each: "flag", "environment", a file's name or "default"."""

    values: Mapping[str, Any]
    sources: Mapping[str, str]

    def __getattr__(self, name: str) -> Any:
        try:
            return self.values[name]
        except KeyError:
            raise AttributeError(name) from None

    def to_dict(self) -> dict[str, Any]:
        """As it is saved beside the output."""
        return {"options": dict(self.values), "sources": dict(self.sources)}


def add_options(parser: argparse.ArgumentParser, options: tuple[Option, ...]) -> None:
    """Flags of the options, unset unless given, so that files and environment can speak."""
    parser.add_argument("--config", metavar="FILE", help="TOML file of options (default: stepformer.toml, if here)")
    for option in options:
        note = f" (default: {option.default})" if option.default not in (None, False, True, []) else ""
        common: dict[str, Any] = {"dest": option.name, "default": None, "help": option.help + note}
        if option.kind is bool:
            parser.add_argument(option.spelled, action="store_const", const=not option.default, **common)
        elif option.kind is list:
            parser.add_argument(option.spelled, action="append", metavar=option.metavar, **common)
        else:
            if option.choices:
                common["choices"] = option.choices
            else:
                common["metavar"] = option.metavar
            parser.add_argument(option.spelled, type=option.kind, **common)


def resolve(command: str, args: argparse.Namespace, options: tuple[Option, ...]) -> Settings:
    """Config file, then environment, then flags."""
    path = _config_file(args.config)
    table = _read(path, command, options) if path is not None else {}
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for option in options:
        value, source = option.default, "default"
        if option.name in table:
            value, source = _checked(option, table[option.name], f"{path}: {option.name}"), str(path)
        variable = f"STEPFORMER_{option.name.upper()}"
        if os.environ.get(variable, "") != "":
            value, source = _from_text(option, os.environ[variable], variable), "environment"
        flag = getattr(args, option.name)
        if flag is not None:
            value, source = flag, "flag"
        values[option.name], sources[option.name] = value, source
    return Settings(values, sources)


def _config_file(named: str | None) -> Path | None:
    if named is not None:
        if not Path(named).is_file():
            raise InputError(f"there is no config file {named}")
        return Path(named)
    from platformdirs import user_config_dir

    places = (Path("stepformer.toml"), Path(user_config_dir("stepformer", appauthor=False)) / "stepformer.toml")
    return next((place for place in places if place.is_file()), None)


def _read(path: Path, command: str, options: tuple[Option, ...]) -> dict[str, Any]:
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"the config file {path} cannot be read: {error}") from None
    own = table.get(command, {})
    known = {option.name for option in options}
    if not isinstance(own, dict):
        raise UsageError(f"{path}: {command} is a section, [{command}], not {own!r}")
    top = {key: value for key, value in table.items() if not isinstance(value, dict)}
    # at the top a key may belong to another command, but it must belong to one
    anywhere = known | {option.name for name in COMMANDS for option in import_module(COMMANDS[name]).OPTIONS}
    for what, given, there in (
        (f"[{command}] has no option", own, known),
        ("no command has the option", top, anywhere),
        ("no section is called", set(table) - set(top), set(COMMANDS)),
    ):
        unknown = sorted(set(given) - there)
        if unknown:
            raise UsageError(f"{path}: {what} {unknown[0]!r}; there are: {', '.join(sorted(there))}")
    return {key: value for key, value in (top | own).items() if key in known}


def _checked(option: Option, value: Any, where: str) -> Any:
    if option.kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if option.kind is list and isinstance(value, str):
        value = [value]
    right = isinstance(value, option.kind) and not (option.kind is int and isinstance(value, bool))
    if option.kind is list and right:
        right = all(isinstance(item, str) for item in value)
    if not right:
        raise UsageError(f"{where} must be {_KINDS[option.kind]}, got {value!r}")
    if option.choices and value not in option.choices:
        raise UsageError(f"{where} must be one of {', '.join(option.choices)}, got {value!r}")
    return value


def _from_text(option: Option, text: str, where: str) -> Any:
    if option.kind is bool:
        if text.lower() not in (*_TRUE, *_FALSE):
            raise UsageError(f"{where} must be true or false, got {text!r}")
        return text.lower() in _TRUE
    if option.kind is list:
        return [part.strip() for part in text.split(",") if part.strip()]
    try:
        return _checked(option, option.kind(text), where)
    except ValueError:
        raise UsageError(f"{where} must be {_KINDS[option.kind]}, got {text!r}") from None
