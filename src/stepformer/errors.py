"""One small tree of errors, each with the exit code the command line gives it.

Library code raises these; only the command line prints or exits. A message says what is wrong, where, and
what to do next.
"""

from __future__ import annotations


class StepFormerError(Exception):
    """Something went wrong that a sentence can explain. Exit code 1."""

    exit_code = 1


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


class NonFiniteError(InputError, ValueError):
    """A NaN where a number must be; the message says where."""


def missing_extra(package: str, extra: str, purpose: str) -> MissingError:
    """The error for an optional dependency that is not installed."""
    return MissingError(f"{purpose} needs {package}; install it with: pip install 'stepformer[{extra}]'")
