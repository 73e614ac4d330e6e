"""Recuts steps by the narration: one more where two actions are spoken of, one fewer where a splinter has no name."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from stepformer.app.naming import Name
from stepformer.base.arrays import unit
from stepformer.core.segments import Segment
from stepformer.encoders.reading import Features

if TYPE_CHECKING:
    from stepformer.narration import Phrase

_SPLINTER_S = 1.5  # a step without a name among named ones is at least so long


def span_s(piece: Segment, features: Features) -> tuple[float, float]:
    """Seconds of a piece; the last ends where the video does, not where the last second would."""
    end_s = features.duration_s if piece.last >= len(features) else piece.last / features.rate_hz
    start_s = min(piece.first / features.rate_hz, features.duration_s)
    return start_s, max(start_s, min(end_s, features.duration_s))


def as_spoken(
    pieces: Sequence[Segment],
    names: list[Name | None],
    named: Callable[[Sequence[Segment]], list[Name | None]],
    seen: Features,
    phrases: Sequence[Phrase],
) -> tuple[Sequence[Segment], list[Name | None]]:
    """Adds a step wherever that yields another name, or as many names of which more are spoken during their own step. A
    clearly spoken action is not background, and two of them are two steps even where the picture hardly changes."""

    def worth(pieces: Sequence[Segment], names: Sequence[Name | None]) -> tuple[int, int]:
        said_s = [None if name is None else name.said_s for name in names]
        spans_s = [span_s(piece, seen) for piece in pieces]
        own = [s is not None and start <= s < end for s, (start, end) in zip(said_s, spans_s, strict=True)]
        return sum(name is not None for name in names), sum(own)

    for gap in _gaps(pieces, seen):
        more = sorted((*pieces, _around(gap, pieces, seen, phrases)), key=lambda piece: piece.first)
        if worth(more, more_names := named(more)) > worth(pieces, names):
            pieces, names = more, more_names
    at = 0
    while at < len(pieces):
        for halves in _cuts_between(pieces[at], seen, _acts(pieces[at], seen, phrases)):
            more = [*pieces[:at], *halves, *pieces[at + 1 :]]
            if worth(more, more_names := named(more)) > worth(pieces, names):
                pieces, names = more, more_names
                break
        else:
            at += 1
    return pieces, names


def _gaps(pieces: Sequence[Segment], seen: Features) -> list[Segment]:
    """The background between steps, where it is long enough to be one."""
    edges = [0, *(edge for piece in pieces for edge in (piece.first, piece.last)), len(seen)]
    gaps = [Segment(first, last, -1) for first, last in zip(edges[::2], edges[1::2], strict=True)]
    return [gap for gap in gaps if gap.last - gap.first >= _SPLINTER_S * seen.rate_hz]


def _around(gap: Segment, pieces: Sequence[Segment], seen: Features, phrases: Sequence[Phrase]) -> Segment:
    """The part of a gap in which actions are spoken of: it is halved, dropping halves in which nothing is said, until
    it is no longer than a usual step."""
    usual = float(np.median([piece.last - piece.first for piece in pieces]))
    while gap.last - gap.first > usual:
        halves = [half for half in _cut(gap, seen) if _acts(half, seen, phrases)]
        if len(halves) != 1:
            break
        gap = halves[0]
    return gap


def _acts(piece: Segment, seen: Features, phrases: Sequence[Phrase]) -> list[float]:
    """The frames of a piece at which actions are spoken of."""
    middles = sorted(p.middle_s * seen.rate_hz for p in phrases if not p.chatter and not p.negated)
    return [middle for middle in middles if piece.first <= middle < piece.last]


def _cuts_between(piece: Segment, seen: Features, acts: Sequence[float]) -> list[tuple[Segment, Segment]]:
    """A piece cut in two between actions: for each pair of neighbours where it changes most, the greatest change first.
    Where it changes most of all may be before the first of them or behind the last."""
    at, between = _changes(piece, seen)
    best = []
    for before, behind in itertools.pairwise(acts):
        inside = np.flatnonzero((at > before - piece.first) & (at <= behind - piece.first))
        if len(inside):
            best.append(inside[between[inside].argmax()])
    return [_halves(piece, at[i]) for i in sorted(best, key=lambda i: -between[i])]


def _cut(piece: Segment, seen: Features) -> tuple[Segment, ...]:
    """A piece cut in two where it changes most; nothing where it is too short."""
    at, between = _changes(piece, seen)
    return _halves(piece, at[between.argmax()]) if len(at) else ()


def _changes(piece: Segment, seen: Features) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Where a piece can be cut, in frames from its first, and how much of its scatter lies between the halves."""
    least, length = math.ceil(_SPLINTER_S * seen.rate_hz), piece.last - piece.first
    at = np.arange(least, length - least + 1)
    sums = unit(seen.cutting[piece.first : piece.last]).cumsum(0)
    left, right = sums[at - 1], sums[-1] - sums[at - 1]
    return at, np.square(left).sum(1) / at + np.square(right).sum(1) / (length - at)


def _halves(piece: Segment, at: int) -> tuple[Segment, Segment]:
    cut = piece.first + int(at)
    return replace(piece, last=cut), replace(piece, first=cut)


def without_splinters(
    pieces: Sequence[Segment], names: Sequence[Name | None], seen: Features
) -> tuple[tuple[Segment, ...], list[Name | None]]:
    """Where steps have spoken names, a very short unnamed step next to them is merged into the neighbour that looks
    more like it."""
    kept, kept_names = list(pieces), list(names)
    named = [p.last - p.first for p, n in zip(pieces, names, strict=True) if n is not None and n.source == "spoken"]
    if len(named) < 2:
        return tuple(kept), kept_names
    least = min(_SPLINTER_S * seen.rate_hz, float(np.median(named)) / 2)
    frames = unit(seen.cutting)

    def look(piece: Segment) -> NDArray[Any]:
        return unit(frames[piece.first : piece.last].mean(0))

    at = 0
    while at < len(kept):
        piece = kept[at]
        beside = [i for i in (at - 1, at + 1) if 0 <= i < len(kept)]
        beside = [i for i in beside if kept[min(i, at)].last == kept[max(i, at)].first]
        if kept_names[at] is not None or piece.last - piece.first > least or not beside:
            at += 1
            continue
        into = max(beside, key=lambda i: float(look(kept[i]) @ look(piece)))
        low, high = min(at, into), max(at, into)
        kept[low : high + 1] = [replace(kept[into], first=kept[low].first, last=kept[high].last)]
        del kept_names[at]
        at = low
    return tuple(kept), kept_names
