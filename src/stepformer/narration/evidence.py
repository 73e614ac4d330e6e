"""Phrases with times as evidence for steps: what is said near a frame speaks for a step there, chatter against one, and
where the talk turns to something else a step may end.

Speakers are early more often than late (YouCook2, dev half). Narration that is not about the pictures must do little
harm, so evidence weighs by agreement: how much nearer the phrases are to the frames around the time they are said than
to those of the rest of the video.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from stepformer.base.arrays import unit
from stepformer.narration.phrases import Phrase

Floats = NDArray[np.floating[Any]]

_WINDOW_S = 12.0  # frames so near to a phrase are those it may be about
_SMOOTH_S = 5.0  # pictures are compared with a phrase over so long
_MOST_FIT = 2.0
_LEAST_PHRASES = 3  # fewer say nothing about agreement
_SHIFTS = 48


@dataclass(frozen=True, slots=True)
class EvidenceOptions:
    """What narration is worth. ``stepformer bench narrated --fit`` makes the values, but for the last four, which were
    chosen on simulated dev videos and a narrated dev clip (``stepformer bench real``)."""

    later_s: float = 6.0  # a step is shown this long after it is spoken of
    spread_s: float = 3.0  # how widely steps scatter around it: a phrase's evidence falls off like such a Gaussian
    step: float = 1.0  # what a phrase is worth to a frame, in spreads of the frame's own evidence
    chatter: float = 0.5  # what chatter is worth against one
    unsaid: float = 0.0  # what it is worth against one that nothing is said of it
    fit: float = 0.5  # share of a phrase's worth that goes by how well it fits the pictures then
    full_at: float = 2.0  # spreads above chance at which narration counts in full
    doubt: float = 0.4  # weight of narration whose agreement is not known, or that agrees no better than chance
    text: float = 1.5  # what a sentence is worth to a given text, for each spread that it says it better than others do
    text_later_s: float = 3.0  # whole sentences are said nearer to the step than its verb phrase alone
    topic: float = 0.75  # share of what is said in the structure of a video whose pictures tell nothing
    topic_s: float = 5.0  # width by which what is said is blurred


OPTIONS = EvidenceOptions()


def frame_evidence(
    phrases: Sequence[Phrase],
    frames: int,
    rate_hz: float,
    *,
    phrase_vectors: Floats | None = None,
    frame_vectors: Floats | None = None,
    options: EvidenceOptions = OPTIONS,
) -> NDArray[np.float64]:
    """(N,) what is said as evidence that a frame shows a step, to be added to what the frame itself shows.

    phrase_vectors: (L, D) and frame_vectors: (N, D), of one space, by which narration is believed.
    """
    times_s = (np.arange(frames) + 0.5) / rate_hz  # (N,)
    for_it, against = np.zeros(frames), np.zeros(frames)
    fit = _fit(phrase_vectors, frame_vectors, rate_hz)
    for i, phrase in enumerate(phrases):
        if phrase.negated:
            continue
        bump = _bump((phrase.start_s, phrase.end_s), options.later_s, times_s, options)
        if phrase.chatter:
            against = np.maximum(against, bump)
        else:
            worth = 1.0 if fit is None else 1.0 - options.fit + options.fit * fit[i]
            for_it = np.maximum(for_it, bump * phrase.groundability * worth)
    if not for_it.any():
        return np.zeros(frames)
    trust = agreement(phrases, phrase_vectors, frame_vectors, rate_hz, options)
    # a frame that is spoken of in both ways is a step
    against = options.chatter * np.maximum(against - for_it, 0.0) + options.unsaid * np.maximum(1.0 - for_it, 0.0)
    return np.asarray(trust * (options.step * for_it - against))


def topics(
    phrases: Sequence[Phrase], vectors: Floats, frames: int, rate_hz: float, options: EvidenceOptions = OPTIONS
) -> NDArray[np.float64] | None:
    """(N, D) what is being talked about at each frame: the blurred mean of the phrases' vectors (L, D) around it, less
    what all of them share, small where nothing is said; None where too little is said."""
    useful = [i for i, phrase in enumerate(phrases) if not phrase.chatter and not phrase.negated]
    if len(useful) <= _LEAST_PHRASES:
        return None
    said = np.asarray(vectors, np.float64)[useful]
    middles = np.array([phrases[i].middle_s + options.text_later_s for i in useful])
    away = ((np.arange(frames) + 0.5) / rate_hz)[:, None] - middles
    weight = np.exp(-0.5 * (away / options.topic_s) ** 2)  # (N, L)
    total = weight.sum(1, keepdims=True)
    return np.asarray(weight @ unit(said - said.mean(0)) / np.maximum(total, 1.0))


def text_evidence(
    spans_s: Sequence[tuple[float, float]], similarity: Floats, frames: int, rate_hz: float, trust: float = 1.0
) -> NDArray[np.float64]:
    """(M, N) evidence that each of M given texts is shown in a frame, from ``similarity`` (M, L) of texts with
    sentences said at ``spans_s``.

    A text gains around sentences that say it better than the narration does on average.
    """
    similarity = np.asarray(similarity, np.float64)
    out = np.zeros((len(similarity), frames))
    if len(spans_s) < 2:
        return out
    times_s = (np.arange(frames) + 0.5) / rate_hz
    above = similarity - similarity.mean(1, keepdims=True)
    above = np.clip(above / np.maximum(similarity.std(1, keepdims=True), 1e-9), 0.0, 3.0)
    for column, span_s in enumerate(spans_s):
        out = np.maximum(out, above[:, [column]] * _bump(span_s, OPTIONS.text_later_s, times_s, OPTIONS)[None])
    return np.asarray(trust * OPTIONS.text * out)


def agreement(
    phrases: Sequence[Phrase],
    phrase_vectors: Floats | None,
    frame_vectors: Floats | None,
    rate_hz: float,
    options: EvidenceOptions = OPTIONS,
) -> float:
    """How far narration is believed, from 0 to 1: by how much nearer phrases are to the frames they are said at."""
    useful = [i for i, phrase in enumerate(phrases) if not phrase.chatter and not phrase.negated]
    if phrase_vectors is None or frame_vectors is None or len(useful) < _LEAST_PHRASES or len(frame_vectors) < 2:
        return options.doubt
    half = max(1, round(_WINDOW_S / 2 * rate_hz))
    around = _near(np.asarray(phrase_vectors)[useful], frame_vectors, half, "wrap")
    middles = np.array([phrases[i].middle_s + options.later_s for i in useful])
    at = (middles * rate_hz).astype(np.int64)
    rows, frames = np.arange(len(useful)), around.shape[1]
    # the same phrases at all other times, in their order: what chance would give
    shifts = np.unique(np.linspace(0, frames, _SHIFTS, endpoint=False).astype(np.int64))
    scores = np.array([around[rows, (at + shift) % frames].mean() for shift in shifts])
    spread = float(scores[1:].std()) if len(scores) > 2 else 0.0
    if spread < 1e-9:
        return options.doubt
    above = float((scores[0] - scores[1:].mean()) / spread)
    return float(np.clip(options.doubt + (1 - options.doubt) * above / options.full_at, 0.0, 1.0))


def _fit(phrase_vectors: Floats | None, frame_vectors: Floats | None, rate_hz: float) -> NDArray[np.float64] | None:
    """(L, N) how far above its own mean over the video each phrase is near to the pictures around a frame, in spreads,
    from 0 to 2; None where there is nothing to compare."""
    if phrase_vectors is None or frame_vectors is None or len(phrase_vectors) < 2 or len(frame_vectors) < 2:
        return None
    half = min(max(1, round(_SMOOTH_S / 2 * rate_hz)), len(frame_vectors) - 1)
    near = _near(phrase_vectors, frame_vectors, half, "edge")
    spread = np.maximum(near.std(1, keepdims=True), 1e-9)
    return np.asarray(np.clip((near - near.mean(1, keepdims=True)) / spread, 0.0, _MOST_FIT))


def _near(phrases: Floats, frames: Floats, half: int, beyond: Literal["wrap", "edge"]) -> NDArray[np.float64]:
    """(L, N) cosines of phrases (L, D) with frames (N, D), both less their mean, over ``half`` a window to each side;
    ``beyond``: what stands in for frames outside the video."""
    said, seen = unit(np.asarray(phrases, np.float64)), unit(np.asarray(frames, np.float64))
    cosine = unit(said - said.mean(0)) @ unit(seen - seen.mean(0)).T
    total = np.cumsum(np.pad(cosine, ((0, 0), (half + 1, half)), mode=beyond), axis=1)
    return np.asarray((total[:, 2 * half + 1 :] - total[:, : -2 * half - 1]) / (2 * half + 1))


def _bump(
    span_s: tuple[float, float], later_s: float, times_s: Floats, options: EvidenceOptions
) -> NDArray[np.float64]:
    """(N,) 1 while something is said, shifted by ``later_s``, falling off on both sides as steps scatter."""
    start_s, end_s = span_s[0] + later_s, span_s[1] + later_s
    away = np.maximum(0.0, np.maximum(start_s - times_s, times_s - end_s))
    return np.asarray(np.exp(-0.5 * (away / options.spread_s) ** 2))
