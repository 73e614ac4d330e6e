"""When given steps happen: texts to slots to frames, or texts to frames where the slots do not help.

The paper's zero-shot localisation, with three additions. *Which rows*: texts are compared once with the model's slots
and once with the means of as many equal stretches of the video, in the same way; where the untrained stretches explain
the texts better than the slots do, the texts are aligned with the frames themselves. *Absent*: a text that fits the
video no better than most phrases of a bank fit it is not forced into it. *Boundaries* are placed by
:mod:`stepformer.discover.segmental`, with the encoder's structure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from stepformer.discover.cutting import dividing_line, gains_of, joined, price_of, unit
from stepformer.discover.knobs import Knobs
from stepformer.discover.segmental import Piece, Segmenter
from stepformer.inference import pooled_slots, slots_of_texts

Floats = NDArray[np.floating[Any]]
Method = Literal["slots", "text"]

TEXT_LINE = 0.5
"""A frame may show a text if it fits it this many spreads better than the video does on average."""
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
) -> Located:
    """Where texts (M, D) happen.

    slots (K, D) and model_frames (N, D) are the model's; vectors (N, D) the encoder's; structure (N, S) what
    boundaries are placed by; bank (P, D) vectors of phrases to judge presence by (None: every text is present).
    method forces "slots" or "text".
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
    direct = t @ centred(vectors, video_mean).T  # (M, N)
    # a step that fills much of the video is much of its mean: each text is measured by its own spread over the video
    direct = (direct - direct.mean(1, keepdims=True)) / np.maximum(direct.std(1, keepdims=True), 1e-9)
    if chosen == "slots":
        rows = unit(slots) @ unit(model_frames).T  # (K, N)
        # a text without a slot (more texts than slots) speaks for itself, brought to the slots' scale
        spoken = direct * rows.std() + rows.mean()
        similarity = np.where((taken >= 0)[:, None], rows[np.maximum(taken, 0)], spoken)
        table, matched = by_slots, taken
    else:
        similarity, table, matched = direct, by_chunks, stretch
    fit = np.where(matched >= 0, table[np.arange(len(t)), np.maximum(matched, 0)], table.max(1))
    # presence is a matter of the whole video's topic, so nothing is taken from its vectors here
    absent = _absent(t, unit(slots), unit(chunks), bank, text_mean, present)
    here = np.array([i for i in range(len(t)) if i not in absent], np.int64)
    pieces: list[Piece] = []
    if len(here):
        line = dividing_line(similarity[here], rate_hz, K) if chosen == "slots" else TEXT_LINE
        pieces = _place(similarity[here], structure, rate_hz, line, ordered)
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


def _place(similarity: Floats, structure: Floats, rate_hz: float, line: float, ordered: bool) -> list[Piece]:
    """Pieces for rows (M, N) that are all in the video."""
    gains = gains_of(similarity, line)
    segmenter = Segmenter(structure, gains, ordered=ordered)
    price = price_of(similarity.shape[1], rate_hz, Knobs())
    return joined(segmenter.solve(price, every_slot=True), slots=True)
