"""Phrases with times as evidence for steps: what is said near a frame speaks for a step there, chatter against one.

Speakers are early more often than late: on real narration with human steps (YouCook2, dev half) the middle of a step
lies about two seconds behind the phrase that is nearest to its text, and steps reach further behind the phrase than
before it.

Narration that is not about the pictures must do little harm, so evidence weighs by agreement: how much nearer the
phrases are to the frames around the time they are said than to those of the rest of the video.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepformer.base.arrays import unit
from stepformer.narration.phrases import Phrase

Floats = NDArray[np.floating[Any]]

LATER_S = 2.0
"""A step's middle comes this long after the middle of the phrase about it."""
SPREAD_S = 8.0
"""How widely steps scatter around it: the evidence of a phrase falls off like a Gaussian of this width."""
STEP, CHATTER = 1.0, 0.5  # what a phrase and chatter are worth to a frame, in spreads of the frame's own evidence
_WINDOW_S = 12.0  # frames so near to a phrase are those it may be about
_LEAST_PHRASES = 3  # fewer say nothing about agreement
_SHIFTS = 48
_FULL_AT = 2.0  # spreads above chance at which narration counts in full
_DOUBT = 0.4  # weight of narration whose agreement is not known, or that agrees no better than chance


def frame_evidence(
    phrases: Sequence[Phrase],
    frames: int,
    rate_hz: float,
    *,
    phrase_vectors: Floats | None = None,
    frame_vectors: Floats | None = None,
) -> NDArray[np.float64]:
    """(N,) what is said as evidence that a frame shows a step, to be added to what the frame itself shows.

    phrase_vectors: (L, D) and frame_vectors: (N, D), of one space, by which narration is believed.
    """
    times_s = (np.arange(frames) + 0.5) / rate_hz  # (N,)
    for_it, against = np.zeros(frames), np.zeros(frames)
    for phrase in phrases:
        if phrase.negated:
            continue
        bump = _bump(phrase, times_s)
        if phrase.chatter:
            against = np.maximum(against, bump)
        else:
            for_it = np.maximum(for_it, bump * phrase.groundability)
    if not for_it.any():
        return np.zeros(frames)
    trust = agreement(phrases, phrase_vectors, frame_vectors, rate_hz)
    # a frame that is spoken of in both ways is a step
    return np.asarray(trust * (STEP * for_it - CHATTER * np.maximum(against - for_it, 0.0)))


def text_evidence(
    phrases: Sequence[Phrase], similarity: Floats, frames: int, rate_hz: float, trust: float = 1.0
) -> NDArray[np.float64]:
    """(M, N) evidence that each of M texts is shown in a frame, from ``similarity`` (M, L) of texts with phrases.

    A text gains around phrases that say it better than the narration does on average.
    """
    similarity = np.asarray(similarity, np.float64)
    out = np.zeros((len(similarity), frames))
    useful = [i for i, phrase in enumerate(phrases) if not phrase.chatter and not phrase.negated]
    if len(useful) < 2:
        return out
    times_s = (np.arange(frames) + 0.5) / rate_hz
    rows = similarity[:, useful]
    above = np.clip((rows - rows.mean(1, keepdims=True)) / np.maximum(rows.std(1, keepdims=True), 1e-9), 0.0, 3.0)
    for column, i in enumerate(useful):
        out = np.maximum(out, above[:, [column]] * _bump(phrases[i], times_s)[None])
    return np.asarray(trust * STEP / 2 * out)


def agreement(
    phrases: Sequence[Phrase], phrase_vectors: Floats | None, frame_vectors: Floats | None, rate_hz: float
) -> float:
    """How far narration is believed, from 0 to 1: by how much nearer phrases are to the frames they are said at."""
    useful = [i for i, phrase in enumerate(phrases) if not phrase.chatter and not phrase.negated]
    if phrase_vectors is None or frame_vectors is None or len(useful) < _LEAST_PHRASES or len(frame_vectors) < 2:
        return _DOUBT
    said = unit(np.asarray(phrase_vectors, np.float64)[useful])
    seen = unit(np.asarray(frame_vectors, np.float64))
    cosine = unit(said - said.mean(0)) @ unit(seen - seen.mean(0)).T  # (L, N)
    half = max(1, round(_WINDOW_S / 2 * rate_hz))
    total = np.cumsum(np.pad(cosine, ((0, 0), (half + 1, half)), mode="wrap"), axis=1)
    around = (total[:, 2 * half + 1 :] - total[:, : -2 * half - 1]) / (2 * half + 1)  # (L, N) means of a window
    middles = np.array([(phrases[i].start_s + phrases[i].end_s) / 2 + LATER_S for i in useful])
    at = (middles * rate_hz).astype(np.int64)
    rows, frames = np.arange(len(useful)), cosine.shape[1]
    # the same phrases at all other times, in their order: what chance would give
    shifts = np.unique(np.linspace(0, frames, _SHIFTS, endpoint=False).astype(np.int64))
    scores = np.array([around[rows, (at + shift) % frames].mean() for shift in shifts])
    spread = float(scores[1:].std()) if len(scores) > 2 else 0.0
    if spread < 1e-9:
        return _DOUBT
    above = float((scores[0] - scores[1:].mean()) / spread)
    return float(np.clip(_DOUBT + (1 - _DOUBT) * above / _FULL_AT, 0.0, 1.0))


def _bump(phrase: Phrase, times_s: Floats) -> NDArray[np.float64]:
    """(N,) 1 while a phrase is said, shifted by ``LATER_S``, falling off on both sides as steps scatter."""
    start_s, end_s = phrase.start_s + LATER_S, phrase.end_s + LATER_S
    away = np.maximum(0.0, np.maximum(start_s - times_s, times_s - end_s))
    return np.asarray(np.exp(-0.5 * (away / SPREAD_S) ** 2))
