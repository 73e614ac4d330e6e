"""Step and Timeline: what every command produces and every exporter, scorer and page reads.

Times are float seconds from the start of the video. A timeline's steps are ordered by start. What the model finds
never overlaps; what people annotate sometimes does, so overlap is allowed here and dealt with where it matters.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from stepformer.errors import InputError

__all__ = ["Step", "Timeline"]

LONGEST_S = 30 * 24 * 3600.0
"""A time beyond thirty days is a mistake in whatever it was read from, not a video."""
JSON_DEPTH = 200
SCHEMA_VERSION = 1
"""Version of the JSON written by :meth:`Timeline.to_json`; its schema is `show/export/timeline.schema.json`."""


def seconds(value: Any, name: str) -> float:
    """A finite time of at most thirty days, or an error that names the field."""
    try:
        found = float(value)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{name} must be seconds, got {str(value)[:60]!r}") from None
    if not 0 <= found <= LONGEST_S:
        raise InputError(f"{name} must lie between 0 and {LONGEST_S:g} seconds (thirty days), got {found:g}")
    return found


def json_values(text: str | bytes) -> Any:
    """JSON text as Python values, or a ValueError: numbers that fit into a float, at most 200 levels deep."""
    value = json.loads(text, parse_constant=_refuse_constant, parse_int=_whole, parse_float=_finite)
    level: list[Any] = [value]
    for _ in range(JSON_DEPTH):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return value
    raise ValueError(f"it is nested more than {JSON_DEPTH} deep")


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number")


def _whole(digits: str) -> int | float:
    # beyond 64 bits it would overflow every array and float later, far from the file it came from
    return int(digits) if len(digits.lstrip("-")) < 19 else _finite(digits)


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"{digits[:20]}... is too large a number")
    return number


def _object(name: str, value: Any) -> None:
    if not isinstance(value, Mapping):
        raise InputError(f"{name} must be an object of names and values, got {str(value)[:60]!r}")


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a procedure in one video: ``[start_s, end_s)`` seconds, checked when made.

    ``label`` is its name if it has one; ``score`` how sure the alignment is (higher is better, at most 1 for a
    cosine); ``slot`` the index of the step slot it came from. ``meta`` holds what only some sources know, for
    instance ``{"guess": true, "name_score": 0.41}`` for a name that is not sure.
    """

    start_s: float
    end_s: float
    label: str | None = None
    score: float | None = None
    slot: int | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("start_s", "end_s"):
            value = getattr(self, name)
            if isinstance(value, bool) or (not isinstance(value, int | float) and not hasattr(value, "__float__")):
                raise InputError(f"Step.{name} must be seconds, got {value!r}")
            object.__setattr__(self, name, seconds(value, f"Step.{name}"))
        if self.start_s < 0 or self.end_s < self.start_s:
            raise InputError(f"Step needs 0 <= start_s <= end_s, got {self.start_s} and {self.end_s}")
        _object("Step.meta", self.meta)
        if self.label is not None and not isinstance(self.label, str):
            raise InputError(f"Step.label must be a text, got {self.label!r}")
        try:
            if self.score is not None:
                object.__setattr__(self, "score", float(self.score))
            if self.slot is not None:
                object.__setattr__(self, "slot", int(self.slot))
        except (TypeError, ValueError, OverflowError):
            raise InputError(f"Step.score and Step.slot must be numbers, got {self.score!r}, {self.slot!r}") from None
        if self.score is not None and not math.isfinite(self.score):
            raise InputError(f"Step.score must be finite, got {self.score!r}")

    @property
    def duration_s(self) -> float:
        """Length in seconds."""
        return self.end_s - self.start_s

    def to_dict(self) -> dict[str, Any]:
        """The step as plain JSON values; ``meta`` only when there is any."""
        plain = {name: getattr(self, name) for name in ("start_s", "end_s", "label", "score", "slot")}
        return plain | ({"meta": dict(self.meta)} if self.meta else {})


@dataclass(frozen=True, slots=True)
class Timeline:
    """The ordered steps of one video. Iterating gives the steps.

    ``video`` is a path or id, ``duration_s`` its length, ``meta`` provenance: version, model and its hash,
    encoder, options, the command that made it.

    Examples:
        >>> timeline = Timeline("eggs.mp4", 60.0, (Step(5, 20, "crack the eggs"), Step(20, 31.5, "whisk")))
        >>> [step.label for step in timeline if step.duration_s > 12]
        ['crack the eggs']
        >>> Timeline.from_json(timeline.to_json()) == timeline
        True
    """

    video: str
    duration_s: float
    steps: tuple[Step, ...] = ()
    meta: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "video", str(self.video))
        object.__setattr__(self, "duration_s", seconds(self.duration_s, "Timeline.duration_s"))
        _object("Timeline.meta", self.meta)
        steps = tuple(self.steps)
        for i, (before, after) in enumerate(itertools.pairwise(steps)):
            if after.start_s < before.start_s:
                raise InputError(f"Timeline steps must be ordered by start; step {i + 1} starts before step {i}")
        object.__setattr__(self, "steps", steps)

    def __iter__(self) -> Iterator[Step]:
        return iter(self.steps)

    def __len__(self) -> int:
        return len(self.steps)

    def __getitem__(self, index: int) -> Step:
        return self.steps[index]

    def to_dict(self) -> dict[str, Any]:
        """The timeline as plain JSON values, as :meth:`to_json` writes them."""
        return {
            "schema_version": SCHEMA_VERSION,
            "video": self.video,
            "duration_s": self.duration_s,
            "steps": [step.to_dict() for step in self.steps],
            "meta": dict(self.meta),
        }

    def to_json(self, indent: int | None = 2) -> str:
        """JSON text; :meth:`from_json` reads it back equal."""
        return json.dumps(self.to_dict(), indent=indent, ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Timeline:
        """The timeline of :meth:`to_dict`; an :class:`InputError` names the field that is wrong."""
        if not isinstance(data, Mapping):
            raise InputError(f"a timeline is a JSON object, got {type(data).__name__}")
        version = data.get("schema_version", SCHEMA_VERSION)
        if version != SCHEMA_VERSION:
            raise InputError(f"timeline schema version {version!r} is not {SCHEMA_VERSION}, the one this version reads")
        try:
            steps = tuple(
                Step(s["start_s"], s["end_s"], s.get("label"), s.get("score"), s.get("slot"), s.get("meta", {}))
                for s in data["steps"]
            )
            return cls(data["video"], data["duration_s"], steps, data.get("meta", {}))
        except KeyError as missing:
            raise InputError(f"timeline JSON lacks the field {missing}") from None
        except (TypeError, ValueError, AttributeError, OverflowError) as wrong:
            raise InputError(f"timeline JSON has a field of the wrong type: {wrong}") from None

    @classmethod
    def from_json(cls, text: str) -> Timeline:
        """The timeline that :meth:`to_json` wrote."""
        try:
            data = json_values(text)
        except (ValueError, RecursionError) as error:
            raise InputError(f"not JSON: {error}") from None
        return cls.from_dict(data)
