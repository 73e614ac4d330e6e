"""One small tree of errors, each with the exit code the command line gives it.

Library code raises these; only the command line prints or exits. A message says what is wrong, where, and
what to do next.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = [
    "InputError", "MissingError", "NonFiniteError", "PartialError", "StepFormerError", "UsageError", "WriteError",
]  # fmt: skip

_LONG = 1500  # letters of a message


class StepFormerError(Exception):
    """Something went wrong that a sentence can explain. Exit code 1."""

    exit_code = 1

    def __str__(self) -> str:
        """The sentence, on one line; where it quotes much of a file, its beginning and its end."""
        said = " ".join(Exception.__str__(self).splitlines())
        return said if len(said) <= _LONG else f"{said[: _LONG // 2]} ... {said[-_LONG // 3 :]}"


class UsageError(StepFormerError):
    """The caller asked for something that makes no sense (an option, a shape, a name). Exit code 2."""

    exit_code = 2


class InputError(StepFormerError):
    """A file or value given as input cannot be read or is invalid. Exit code 3."""

    exit_code = 3


class MissingError(StepFormerError):
    """Weights or an optional dependency are not here; the message says how to get them. Exit code 4."""

    exit_code = 4


class PartialError(StepFormerError):
    """Some of many inputs failed; the others were done. Exit code 5."""

    exit_code = 5


class WriteError(StepFormerError, OSError):
    """A file cannot be written: the disk is full, the folder is read-only. Exit code 1."""


class NonFiniteError(InputError, ValueError):
    """A NaN where a number must be; the message says where."""


def near(given: str, known: Iterable[str]) -> str:
    """For a message on an unknown name: the name, and the one that was likely meant, or else all there are."""
    names = sorted(known)
    meant = difflib.get_close_matches(given, names, n=1, cutoff=0.6)
    return f"{given!r}; " + (f"did you mean {meant[0]}?" if meant else f"there are: {', '.join(names)}")


def missing_extra(package: str, extra: str, purpose: str) -> MissingError:
    """The error for an optional dependency that is not installed."""
    return MissingError(f"{purpose} needs {package}; install it with: pip install 'stepformer[{extra}]'")
