"""Tables that others can add to, through entry points or ``--plugin``: CONTRIBUTING.md lists them and says how.

A plugin costs nothing until a name is asked for that is not built in, or the names are listed.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import threading
import warnings
from collections import UserDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, TypeVar, overload

from stepformer.base.files import no_such
from stepformer.errors import StepFormerError, UsageError, near

VARIABLE = "STEPFORMER_PLUGINS"

T = TypeVar("T")
_imported: set[str] = set()
_importing = threading.RLock()


class UnknownNameError(UsageError, KeyError):
    """A name that is in no registry of its kind; a mapping answers with a KeyError."""

    __str__ = Exception.__str__  # KeyError would print it as a quoted key


class Registry(UserDict[str, T]):
    """Name -> thing. A built-in is given as ``"module:attribute"``, imported when it is asked for, or as itself.

    ``kind`` is what messages call a thing; ``group`` the end of its entry-point group, ``stepformer.<group>``.
    """

    def __init__(self, kind: str, group: str, entries: Mapping[str, T | str]) -> None:
        self.kind, self.group = kind, group
        self.data: dict[str, Any] = dict(entries)  # things, or where they are: a text or an EntryPoint
        self._built_in = frozenset(entries)
        self._complete = False

    @overload
    def register(self, name: str, thing: T) -> T: ...
    @overload
    def register(self, name: str) -> Callable[[T], T]: ...
    def register(self, name: str, thing: T | None = None) -> T | Callable[[T], T]:
        """Adds a thing under a name that is free; without a thing, a decorator that does."""
        if thing is None:
            return lambda made: self.register(name, made)
        there = self.data.get(name)
        if there is not None and there is not thing and not isinstance(there, EntryPoint):
            raise UsageError(f"there is a {self.kind} {name!r} already; give yours another name")
        self.data[name] = thing
        return thing

    def __getitem__(self, name: str) -> T:
        if name not in self:
            raise UnknownNameError(f"no {self.kind} {near(name, self.data)}")
        entry = self.data[name]
        if isinstance(entry, str):
            module, _, attribute = entry.partition(":")
            self.data[name] = getattr(importlib.import_module(module), attribute)
        elif isinstance(entry, EntryPoint):
            try:
                self.data[name] = entry.load()
            except Exception as error:  # whatever a foreign package raises when it is imported
                raise UsageError(
                    f"the {self.kind} {name!r} of the installed package {entry.dist.name if entry.dist else '?'} "
                    f"({entry.value}) cannot be imported: {type(error).__name__}: {error}"
                ) from error
        return self.data[name]  # type: ignore[no-any-return]

    def usable(self) -> list[T]:
        """Every thing that can be imported; one that cannot be imported is skipped with a warning."""
        found = []
        for name in self:
            try:
                found.append(self[name])
            except UsageError as error:
                warnings.warn(str(error), RuntimeWarning, stacklevel=2)
        return found

    def __contains__(self, name: object) -> bool:
        if name not in self.data:
            self._complete_names()
        return name in self.data

    def __iter__(self) -> Iterator[str]:
        self._complete_names()
        return iter(self.data)

    def __len__(self) -> int:
        self._complete_names()
        return len(self.data)

    def _complete_names(self) -> None:
        """Adds what plugins register and what installed packages name."""
        import_plugins(_given())
        if self._complete:
            return
        self._complete = True
        for entry in entry_points(group=f"stepformer.{self.group}"):
            if entry.name in self._built_in:
                warnings.warn(
                    f"{entry.value} names a {self.kind} {entry.name!r}, which already exists: it is left out",
                    RuntimeWarning,
                    stacklevel=3,
                )
            else:  # a plugin module may have registered it already
                self.data.setdefault(entry.name, entry)


def use_plugins(names: Iterable[str]) -> None:
    """Imports plugin modules now, and lets the processes that this one starts import them too."""
    names = [name.strip() for name in names]
    import_plugins(names)
    os.environ[VARIABLE] = ",".join(dict.fromkeys([*_given(), *names]))


def _given() -> list[str]:
    """The plugins that the environment names."""
    return [name.strip() for name in os.environ.get(VARIABLE, "").split(",") if name.strip()]


def import_plugins(names: Iterable[str]) -> None:
    """Imports modules by name, looked for in the working directory too, or by the path of a .py file; each once.

    Raises:
        UsageError: there is no such module, or it fails when it is imported.
    """
    for name in names:
        with _importing:
            if name in _imported:
                continue
            _imported.add(name)  # first, so that a plugin that lists names while it is imported does not begin again
            try:
                _import(name)
            except Exception as error:  # whatever foreign code raises
                _imported.discard(name)
                if isinstance(error, StepFormerError):
                    raise
                raise UsageError(f"the plugin {name} cannot be imported: {type(error).__name__}: {error}") from error


def _import(name: str) -> None:
    if name.endswith(".py"):
        path = Path(name)
        if not path.is_file():
            raise UsageError(str(no_such(name, "plugin file")))
        spec = importlib.util.spec_from_file_location(f"stepformer_plugin_{path.stem}", path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module  # dataclasses and pickling look a class's module up there
        spec.loader.exec_module(module)
        return
    sys.path.append(str(Path.cwd()))
    try:
        importlib.import_module(name)
    finally:
        sys.path.pop()
