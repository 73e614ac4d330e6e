"""Progress on stderr: a bar with time left on a terminal, plain lines where there is none."""

from __future__ import annotations

import sys
import time
from typing import Any, ClassVar, Self, TextIO

_PLAIN_EVERY_S = 10.0


def clock(seconds: float, tenths: bool = False) -> str:
    """Seconds as ``1:02:03`` or ``2:03``, or with ``tenths`` as ``2:03.4``."""
    whole, part = divmod(max(0, round(seconds * 10)), 10) if tenths else (max(0, round(seconds)), 0)
    hours, rest = divmod(whole, 3600)
    minutes, secs = divmod(rest, 60)
    text = f"{hours}:{minutes:02d}:{secs:02d}" if hours else f"{minutes}:{secs:02d}"
    return f"{text}.{part}" if tenths else text


class Progress:
    """Counts work done out of ``total`` (None if unknown) and shows rate and time left.

    Use as a context manager; call :meth:`advance`. ``note`` is free text shown behind the numbers, for instance the
    loss. Units of "s of ..." are shown as speed relative to real time. ``quiet`` shows nothing; ``Progress.silent``
    silences all of them.
    """

    silent: ClassVar[bool] = False

    def __init__(
        self, label: str, total: float | None, unit: str = "", *, quiet: bool = False, stream: TextIO | None = None
    ) -> None:
        self.label, self.total, self.unit = label, total, unit
        self.done = self._before = 0.0
        self.note = ""
        self._stream = stream if stream is not None else sys.stderr
        self._quiet = quiet or Progress.silent
        self._started = self._last_line = time.monotonic()
        self._shown = 0.0  # done, when it was last shown
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Self:
        if not self._quiet and self._stream.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as RichProgress

            self._bar = RichProgress(
                TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f}%"),
                TimeRemainingColumn(), TextColumn("{task.fields[rate]}"), TextColumn("{task.fields[note]}"),
                console=Console(file=self._stream), transient=True,
            )  # fmt: skip
            self._bar.start()
            self._task = self._bar.add_task(self.label, total=self.total, note="", rate="")
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.stop()
        elif not self._quiet and self.done > self._shown:
            self._print_line()

    def advance(self, amount: float = 1.0, note: str | None = None) -> None:
        """Adds to what is done."""
        self.done += amount
        if note is not None:
            self.note = note
        if self._quiet:
            return
        if self._bar is not None:
            self._bar.update(self._task, total=self.total, completed=self.done, note=self.note, rate=self._rate())
        elif (self.done or self.total) and time.monotonic() - self._last_line >= _PLAIN_EVERY_S:
            self._print_line()

    def restart(self, done: float = 0.0) -> None:
        """The rate counts from here: what took time before was no work (a model was loaded), and what is ``done`` was
        done by an earlier run."""
        self._started, self._before = time.monotonic(), done
        self.done = done

    def _per_second(self) -> float:
        elapsed = time.monotonic() - self._started
        return (self.done - self._before) / elapsed if elapsed > 0.1 else 0.0

    def _rate(self) -> str:
        unit = "x real time" if self.unit.startswith("s of ") else f"{self.unit}/s"
        return f"{self._per_second():.3g} {unit}" if self.unit and self._per_second() else ""

    def _print_line(self) -> None:
        self._last_line, self._shown = time.monotonic(), self.done
        parts = [f"{self.label}: {round(self.done, 1):g}"]
        if self.total:
            parts[0] += f"/{round(self.total, 1):g}{' s' if self.unit.startswith('s of ') else ''}"
            if rate := self._per_second():
                parts.append(f"{clock((self.total - self.done) / rate)} left")
        print(", ".join(filter(None, [*parts, self._rate(), self.note])), file=self._stream, flush=True)
