"""Names of a package that are loaded when they are first used, so that importing it needs none of what they need."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def lazy(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of ``package``; ``homes``: module in it -> the names it has, divided by spaces;
    "." is the module itself, by its last name."""
    home_of = {
        module.rpartition(".")[2] if name == "." else name: (f"{package}.{module}", name)
        for module, names in homes.items()
        for name in names.split()
    }

    def find(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        path, part = home_of[name]
        found: Any = importlib.import_module(path)
        if part != ".":
            found = getattr(found, part)
        setattr(sys.modules[package], name, found)  # the next look finds it without coming here
        return found

    return find, lambda: sorted({*vars(sys.modules[package]), *home_of})
