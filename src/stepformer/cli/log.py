"""Messages of the commands: progress and notes on stderr, all of it in ``--log-file``, as much as -v and -q ask for.

``log.debug`` is for -v, ``log.info`` for notes, ``log.warning`` for what a user should act on (shown under -q too),
``log.error`` for what failed. Results are printed on stdout and are no messages.
"""

from __future__ import annotations

import argparse
import json
import logging
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from stepformer.base.progress import Progress
from stepformer.errors import UsageError

log = logging.getLogger("stepformer")


def printable(text: str) -> str:
    """``text`` with control characters spelled out: a file name must not steer the terminal it is printed on."""
    return re.sub(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", lambda found: f"\\x{ord(found[0]):02x}", text)


def answer(args: argparse.Namespace, result: Any, text: str) -> None:
    """Prints the result of a command on stdout: the text, or with ``--json`` the result itself."""
    print(json.dumps(result, ensure_ascii=False, indent=2) if args.json else text, flush=True)


class _Plain(logging.Formatter):
    """The sentence alone; "stepformer: " before what went wrong, so that it is found among other programs' lines."""

    def format(self, record: logging.LogRecord) -> str:
        """One line for a person."""
        text = printable(record.getMessage())
        return f"stepformer: {text}" if record.levelno >= logging.WARNING else text


class _Kept(logging.FileHandler):
    """The file of messages: when it can no longer be written, a warning says so, not a traceback."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 (logging's name)
        """Called inside the block that caught the error."""
        from stepformer.base.guard import reason

        log.removeHandler(self)
        error = sys.exc_info()[1] or OSError()
        log.warning(f"{self.baseFilename}: no more messages are added: {reason(error)}")


def of(name: str, error: str) -> str:
    """The error of one of many inputs, with its name unless it has it."""
    return error if name in error else f"{name}: {error}"


@contextmanager
def messages(verbose: bool = False, quiet: bool = False, file: str | None = None) -> Iterator[None]:
    """Sends messages to stderr and to ``file`` while the block runs."""
    level = logging.DEBUG if verbose else logging.WARNING if quiet else logging.INFO
    shown = logging.StreamHandler(sys.stderr)
    shown.setFormatter(_Plain())
    shown.setLevel(level)
    handlers: list[logging.Handler] = [shown]
    if file is not None:
        try:
            kept = _Kept(file, encoding="utf-8")
        except (OSError, ValueError) as error:  # the latter for a name that no file can have
            raise UsageError(f"--log-file {file!r} cannot be written: {getattr(error, 'strerror', error)}") from None
        kept.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        handlers.append(kept)
    before = log.handlers, log.level, log.propagate, Progress.silent
    log.handlers, log.propagate = handlers, False
    log.setLevel(logging.DEBUG if file is not None else level)
    Progress.silent = quiet
    try:
        yield
    finally:
        for handler in handlers:
            with suppress(OSError):  # what a full disk did not take has been said
                handler.close()
        log.handlers, log.propagate, Progress.silent = before[0], before[2], before[3]
        log.setLevel(before[1])
