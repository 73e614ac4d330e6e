"""What is said in one video, as the engine takes it: evidence for steps and for given texts, changes of topic, acts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from stepformer.app.spoken import Candidates, candidates
from stepformer.base.arrays import unit
from stepformer.core.evidence import noise_share
from stepformer.core.inference import Spread
from stepformer.core.segments import spread_out
from stepformer.encoders.base import Encoder, Vectors
from stepformer.encoders.reading import Features
from stepformer.errors import MissingError
from stepformer.narration import Cue, Narration, Phrase
from stepformer.narration.evidence import (
    OPTIONS,
    EvidenceOptions,
    agreement,
    frame_evidence,
    text_evidence,
    topics,
)


def as_batch(vectors: NDArray[Any]) -> torch.Tensor:
    """One video's numbers (...) as a batch (1, ...)."""
    return torch.from_numpy(np.asarray(vectors, np.float32))[None]


@dataclass(frozen=True, slots=True, eq=False)
class Heard:
    """A narration: its cues, the phrases in them, and the phrases' vectors (L, D) in the space of the frames."""

    cues: tuple[Cue, ...]
    phrases: list[Phrase]
    vectors: Vectors

    @classmethod
    def of(cls, narration: Narration, encoder: Encoder, notes: list[str]) -> Heard | None:
        """None where no action is named. What a user should know of it goes to ``notes``."""
        notes += narration.notes
        try:
            phrases = narration.phrases()
        except MissingError as error:
            if narration.source == "file":
                raise
            notes.append(f"{narration.where}: its words are not used: {error}")
            return None
        if phrases:
            vectors = np.asarray(encoder.encode_text([phrase.text for phrase in phrases]), np.float32)
            return cls(narration.cues, phrases, vectors)
        if narration.cues:
            notes.append(f"{narration.where} names no action, so no step has a name")
        return None

    def evidence(self, seen: Features, options: EvidenceOptions = OPTIONS) -> torch.Tensor:
        """(1, N) what is said as evidence that a frame shows a step."""
        return as_batch(
            frame_evidence(
                self.phrases, len(seen), seen.rate_hz, phrase_vectors=self.vectors, frame_vectors=seen.vectors,
                options=options,
            )
        )  # fmt: skip

    def structure(self, seen: Features, options: EvidenceOptions = OPTIONS) -> torch.Tensor | Spread:
        """(1, N, S) the video's structure with what is talked about in it: where the topic changes, a step may end. The
        weight of the talk grows with the pictures' noise."""
        count, rate_hz = len(seen), seen.rate_hz
        track = topics(self.phrases, self.vectors, count, rate_hz, options)
        if track is None:
            return as_batch(seen.cutting)
        mask = torch.ones(1, count, dtype=torch.bool)
        pictures, talk = (spread_out(as_batch(x), mask) for x in (seen.cutting, track))
        share = options.topic * agreement(self.phrases, self.vectors, seen.vectors, rate_hz, options)
        share *= min(1.0, float(noise_share(pictures, mask, rate_hz)[0]))
        return Spread(torch.cat((pictures * (1 - share) ** 0.5, talk * share**0.5), 2))

    def of_texts(self, texts: Sequence[str], encoder: Encoder, seen: Features) -> torch.Tensor:
        """(1, M, N) what is said as evidence for single texts.

        Whole sentences are compared, since what is done to a thing is often said without a verb; by their meaning,
        where the encoder tells it apart from what it looks like.
        """
        meaning = getattr(encoder, "encode_sentences", encoder.encode_text)
        similarity = unit(meaning(list(texts))) @ unit(meaning([cue.text for cue in self.cues])).T
        spans_s = [(cue.start_s, cue.end_s) for cue in self.cues]
        trust = agreement(self.phrases, self.vectors, seen.vectors, seen.rate_hz)
        return as_batch(text_evidence(spans_s, similarity, len(seen), seen.rate_hz, trust))

    def names(self, notes: list[str]) -> Candidates | None:
        """What may name steps; None where nothing can, or, with a note, without the sentence encoder that reads it."""
        from stepformer.encoders.name_classifier import default_name_classifier

        try:
            return candidates(self.phrases, self.cues, default_name_classifier())
        except MissingError as error:
            notes.append(f"the narration names no steps: {error}")
            return None
