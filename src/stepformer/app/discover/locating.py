"""When given steps happen: texts to slots to frames, or texts to frames where the slots do not help.

The paper's zero-shot localisation, with three additions. *Which rows*: texts are compared once with the model's slots
and once with the means of as many equal stretches of the video, in the same way; where the untrained stretches explain
the texts better than the slots do, the texts alone are aligned with the frames, otherwise slot and text half each: a
slot knows how its step looks, its text which of them it is. *Absent*: a text that fits the video no better than most
phrases of a bank fit it is not forced into it. *Boundaries* are placed by `segmental`, with
the encoder's structure, and background is told by all slots together, as in discovery.

What is fixed here was chosen on the simulated dev split, as it is and with its background taken out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from stepformer.app.discover.cutting import dividing_line, evidence, joined, price_of, unit
from stepformer.app.discover.segmental import Piece, Segmenter
from stepformer.core.inference import pooled_slots, slots_of_texts

Floats = NDArray[np.floating[Any]]
Method = Literal["slots", "text"]

TEXT = 0.5
"""Share of the text beside the slot it took, when both are aligned with the frames."""
FITS = 0.25
"""A frame that may be a step or not shows a text if it fits it this many spreads better than the average frame does."""
PRICE = 0.25
"""Of a piece, as a share of what it costs in discovery: here it is known which steps there are."""
PRESENT = 0.5
"""A text is taken to be in the video if it fits it better than this share of the phrase bank does."""


@dataclass(frozen=True, slots=True, eq=False)
class Located:
    """Pieces whose ``slot`` is the number of the text, the texts that are absent, and how it was done."""

    pieces: tuple[Piece, ...]
    absent: tuple[int, ...]
    method: Method
    scores: dict[str, float]  # how well slots and stretches of the video explain the texts
    fit: NDArray[np.float64]  # (M,) similarity of each text with what it was matched with
    similarity: NDArray[np.float64]  # (M, N) what was aligned
    slots: NDArray[np.int64]  # (M,) the slot each text took, -1 none


def centred(vectors: Floats, mean: Floats) -> NDArray[np.float64]:
    """Unit vectors less a mean, of unit length again."""
    return unit(unit(vectors) - mean)


def locate_vectors(
    texts: Floats,
    slots: Floats,
    model_frames: Floats,
    vectors: Floats,
    structure: Floats,
    rate_hz: float,
    *,
    ordered: bool = True,
    bank: Floats | None = None,
    method: Method | None = None,
    present: float = PRESENT,
    shown: Floats | None = None,
) -> Located:
    """Where texts (M, D) happen.

    slots (K, D) and model_frames (N, D) are the model's; vectors (N, D) the encoder's; structure (N, S) what
    boundaries are placed by; bank (P, D) vectors of phrases to judge presence by (None: every text is present).
    method forces "slots" or "text". shown (K, N): similarities of slots and frames to tell background by, those that
    discovery uses; by default their cosines.
    """
    K = len(slots)
    chunks = _stretches(vectors, K)
    # each side less its own mean: what all of a video, or all of its texts, share tells none of them apart
    video_mean = unit(vectors).mean(0)
    text_mean = unit(bank).mean(0) if bank is not None else np.zeros(texts.shape[1])
    t = centred(texts, text_mean)
    by_slots = t @ centred(slots, unit(slots).mean(0)).T  # (M, K)
    by_chunks = t @ centred(chunks, video_mean).T  # (M, K)
    taken, slot_score = _match(by_slots, ordered)
    stretch, text_score = _match(by_chunks, ordered)
    scores = {"slots": slot_score, "text": text_score}
    chosen: Method = method or ("slots" if slot_score >= text_score else "text")
    # a step that fills much of the video is much of its mean: each row is measured by its own spread over the video
    similarity = _spreads(t @ centred(vectors, video_mean).T)  # (M, N)
    rows = unit(slots) @ unit(model_frames).T  # (K, N)
    if chosen == "slots":
        with_slot = TEXT * similarity + (1 - TEXT) * _spreads(rows)[np.maximum(taken, 0)]
        # a text without a slot (more texts than slots) speaks for itself
        similarity = np.where((taken >= 0)[:, None], with_slot, similarity)
        table, matched = by_slots, taken
    else:
        table, matched = by_chunks, stretch
    fit = np.where(matched >= 0, table[np.arange(len(t)), np.maximum(matched, 0)], table.max(1))
    # presence is a matter of the whole video's topic, so nothing is taken from its vectors here
    absent = _absent(t, unit(slots), unit(chunks), bank, text_mean, present)
    here = np.array([i for i in range(len(t)) if i not in absent], np.int64)
    pieces: list[Piece] = []
    if len(here):
        gains = similarity[here] - FITS + _is_step(rows if shown is None else shown, rate_hz)
        segmenter = Segmenter(structure, gains, ordered=ordered)
        pieces = joined(segmenter.solve(PRICE * price_of(structure, rate_hz), every_slot=True), slots=True)
    return Located(
        tuple(Piece(p.first, p.last, int(here[p.slot])) for p in pieces), tuple(absent), chosen, scores, fit,
        similarity, taken if chosen == "slots" else np.full(len(t), -1),
    )  # fmt: skip


def _stretches(vectors: Floats, count: int) -> NDArray[np.float64]:
    video = torch.as_tensor(unit(vectors))[None]
    slots = pooled_slots(video, torch.ones(video.shape[:2], dtype=torch.bool), count).slots
    return np.asarray(slots[0].numpy())


def _match(table: NDArray[np.float64], ordered: bool) -> tuple[NDArray[np.int64], float]:
    """What each text takes of a table (M, K), and how far above the rest of the table that is, in its spread."""
    M = len(table)
    if ordered:
        similarity = torch.as_tensor(table)[None]
        taken = slots_of_texts(similarity, torch.tensor([M]))[0].numpy()
    else:
        taken = table.argmax(1)
    found = taken >= 0
    spread = float(table.std())
    if not found.any() or spread < 1e-9:
        return taken.astype(np.int64), 0.0
    return taken.astype(np.int64), float((table[found, taken[found]].mean() - table.mean()) / spread)


def _absent(
    texts: Floats, slots: Floats, chunks: Floats, bank: Floats | None, bank_mean: Floats, present: float
) -> list[int]:
    """Texts whose best fit anywhere in the video is below that of a ``present`` share of the bank."""
    if bank is None:
        return []

    def best(x: Floats) -> NDArray[np.float64]:
        return np.asarray((x @ slots.T).max(1) + (x @ chunks.T).max(1))

    line = np.quantile(best(centred(bank, bank_mean)), present)
    return [int(i) for i in np.flatnonzero(best(texts) < line)]


def _spreads(rows: Floats) -> NDArray[np.float64]:
    """Each row less its mean, in units of its own spread."""
    rows = np.asarray(rows, np.float64)
    return np.asarray((rows - rows.mean(1, keepdims=True)) / np.maximum(rows.std(1, keepdims=True), 1e-9))


def _is_step(rows: Floats, rate_hz: float) -> NDArray[np.float64]:
    """(N,) how far above the drop line each frame is, of slots' similarities (K, N), in spreads of it."""
    shows = evidence(rows)
    line = dividing_line(rows, rate_hz, shows)
    return np.asarray((shows - line) / max(float(shows.std()), 1e-6))
