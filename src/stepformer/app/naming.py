"""Names for steps, and the phrase bank that guesses them from pictures; :mod:`spoken` has those that are said.

A name never stands three times in a row. A guess is never the one that the step before has: the next best phrase
of the bank tells them apart. What a speaker says twice in a row is numbered.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from stepformer.base.arrays import softmax, unit
from stepformer.base.cache import cache_folder, keep_arrays, kept_arrays
from stepformer.base.guard import read_text
from stepformer.errors import InputError, UsageError

if TYPE_CHECKING:
    from stepformer.encoders.base import Encoder
    from stepformer.encoders.clip import PictureStatistics

Floats = NDArray[np.floating[Any]]
Source = Literal["typed", "spoken", "seen"]

SHOWN = 0.6
"""A seen name of a user's bank is shown, as a guess, if its agreement is at least this. Of the bank that ships
none is shown: ``stepformer bench names`` finds no threshold from which most are even plausible."""
PRESENT = 0.5
"""A given text is taken to be in the video if it fits it better than this share of the phrase bank does."""
PRESENT_SEEN = 1.15
"""Where the space's pictures are known: a text is absent if it fits no look at the video this many standard deviations
better than pictures at large; ``stepformer bench names`` has the error rates."""
TOPIC_SHARE = 0.5
"""A topic is shown if it has at least this share of a video."""
_SHARP = 2.0  # how fast a phrase becomes unlikely, per standard deviation
_APART = 0.5  # weight of what sets a step apart from its video, beside what it is


@dataclass(frozen=True, slots=True)
class Name:
    """A step's name, where it is from and whether it is sure; one that is not is shown as a guess, or left out.

    score: how well it fits the step, higher is better, comparable within one source. said_s: when it was said.
    """

    text: str
    source: Source
    sure: bool
    score: float
    said_s: float | None = None

    def meta(self) -> dict[str, Any]:
        """What a :class:`Step` carries beside its label."""
        out: dict[str, Any] = {"source": self.source, "guess": not self.sure, "name_score": round(self.score, 4)}
        if self.said_s is not None:
            out["said_s"] = round(self.said_s, 2)
        return out


@dataclass(frozen=True, slots=True, eq=False)
class PhraseBank:
    """Phrases; ``raw`` (P, D) their vectors, and ``vectors`` (P, D) the same less the mean of all, of unit length:
    what all phrases share says nothing. ``topics``: one per phrase, or none. ``pictures``: of the encoder's space,
    None where they are not known; without them bad guesses cannot be recognised."""

    texts: tuple[str, ...]
    raw: NDArray[np.float32]
    topics: tuple[str, ...] = ()
    pictures: PictureStatistics | None = None
    vectors: NDArray[np.float32] = field(init=False)
    scaled: NDArray[np.float32] | None = field(init=False)

    def __post_init__(self) -> None:
        if not self.texts or self.raw.shape[:1] != (len(self.texts),):
            raise InputError(f"a phrase bank needs one vector per phrase, got {len(self.texts)} and {self.raw.shape}")
        object.__setattr__(self, "vectors", unit(self.raw - self.raw.mean(0)).astype(np.float32))
        object.__setattr__(self, "scaled", None if self.pictures is None else self.pictures.scaled(self.raw))

    def similarity(self, steps: Floats) -> NDArray[np.float64]:
        """Cosines (M, P) of step vectors (M, D) with the phrases."""
        return np.asarray(unit(steps) @ self.vectors.T.astype(np.float64))

    def topic_shares(self, video: Floats) -> dict[str, float]:
        """What a video, the mean (D,) of its frames' vectors, is about: topics with their shares, largest first."""
        if self.pictures is None or not self.topics:
            return {}
        shares: dict[str, float] = {}
        for topic, share in zip(self.topics, softmax(_SHARP * self.standard(video[None]))[0], strict=True):
            shares[topic] = shares.get(topic, 0.0) + float(share)
        return dict(sorted(shares.items(), key=lambda item: -item[1]))

    def agreement(self, steps: Floats, video: Floats | None = None) -> NDArray[np.float64]:
        """(M, P) how well each phrase agrees with all that a step may be, 1 at best.

        What a step (M, D) may be is a distribution over phrases: by how far above its usual a phrase is near to the
        step, times the share of its topic in the ``video`` (D,). A phrase that many likely ones resemble is a safe
        name; where the likely ones have nothing in common no name fits.
        """
        standard = self.standard(steps)
        shares = {} if video is None else self.topic_shares(video)
        if shares:
            prior = np.log([shares[topic] + 1e-9 for topic in self.topics]) / _SHARP
            standard = standard + prior.astype(np.float32)
        return np.asarray(softmax(_SHARP * standard) @ self.vectors @ self.vectors.T, np.float64)

    def shares_below(self, texts: Floats, vectors: Floats) -> NDArray[np.float64]:
        """(M, L) the share of the phrases that fit vectors (M, D) of pictures worse than each text (L, D) does."""
        if self.pictures is None:
            raise UsageError("this phrase bank has no picture statistics")
        fits = self.pictures.standard(vectors, self.pictures.scaled(texts))
        below = [np.searchsorted(np.sort(own), row) for own, row in zip(self.standard(vectors), fits, strict=True)]
        return np.asarray(below, np.float64).reshape(fits.shape) / len(self.texts)

    def standard(self, vectors: Floats) -> NDArray[np.float32]:
        """(M, P) how many deviations above its usual each phrase is near to vectors (M, D) of pictures."""
        if self.pictures is None or self.scaled is None:
            raise UsageError("this phrase bank has no picture statistics")
        return self.pictures.standard(vectors, self.scaled)


def load_bank(encoder: Encoder, texts: Sequence[str] | None = None) -> PhraseBank:
    """The bank in an encoder's space; ``texts`` replaces the one that ships. Vectors are kept on disk."""
    topics: tuple[str, ...] = ()
    if texts is None:
        from stepformer.data.grammar import phrase_bank

        texts, topics = list(phrase_bank()), tuple(phrase_bank().values())
    texts = tuple(dict.fromkeys(text.strip() for text in texts if text.strip()))
    if not texts:
        raise UsageError("the phrase bank is empty; give it one phrase per line")
    key = hashlib.sha256("\n".join((encoder.fingerprint, *texts)).encode()).hexdigest()[:24]
    path = cache_folder("derived") / f"bank-{key}.safetensors"
    kept = kept_arrays(path)
    raw = None if kept is None else kept[0].get("vectors")
    if raw is None:
        raw = encoder.encode_text(texts)
        keep_arrays(path, {"vectors": raw})
    return PhraseBank(texts, raw, topics, getattr(encoder, "pictures", None))


def read_bank(path: str | Path) -> list[str]:
    """Phrases of a text file, one per line."""
    return read_text(path).splitlines()


def topic_of(video: Floats, bank: PhraseBank) -> str | None:
    """What a video, the mean (D,) of its frames' vectors, is about, where that is plain."""
    return next((topic for topic, share in bank.topic_shares(video).items() if share >= TOPIC_SHARE), None)


def present_texts(texts: Floats, slots: Floats, vectors: Floats, bank: PhraseBank) -> NDArray[np.bool_]:
    """(M,) whether the best fit of each text (M, D) anywhere in the video is good enough to be no chance, where nothing
    is known of the space's pictures: a cosine, less the bank's mean, with slots (K, D) and the means of as many equal
    stretches of vectors (N, D), and at least that of a share of the bank."""
    import torch

    from stepformer.core.inference import pooled_slots

    video = torch.as_tensor(unit(vectors))[None]
    stretches = pooled_slots(video, torch.ones(video.shape[:2], dtype=torch.bool), len(slots)).slots[0].numpy()
    seen = unit(slots), unit(stretches)
    mean = unit(bank.raw).mean(0)

    def best(x: Floats) -> Floats:
        centred = unit(unit(x) - mean)
        return np.asarray(sum((centred @ rows.T).max(1) for rows in seen))

    return np.asarray(best(texts) >= np.quantile(best(bank.raw), PRESENT))


def best_fit(texts: Floats, vectors: Floats, pictures: PictureStatistics) -> NDArray[np.float32]:
    """(M,) how well each text (M, D) fits the picture (N, D) that it fits best, in standard deviations, so that texts
    that are near to everything gain nothing."""
    return np.asarray(pictures.standard(vectors, pictures.scaled(texts)).max(0))


def guess(steps: Floats, bank: PhraseBank, video: Floats | None = None) -> list[Name | None]:
    """A phrase for each of the steps (M, D) in order, None where none fits; the one that the step before has is not
    taken again. ``video`` (D,) is the mean of all frames' vectors, for the topic.

    Without picture statistics no fit can be called bad, and the phrase is the nearest to the step itself and to what
    sets the step apart from the rest of its video: the first alone names every step of a video by its topic.
    """
    least = -np.inf
    if bank.pictures is not None:
        similarity = worth = bank.agreement(steps, video)
        least = SHOWN
    else:
        similarity = bank.similarity(steps)
        x = unit(steps)
        worth = similarity + _APART * (bank.similarity(x - x.mean(0)) if len(x) > 1 else 0.0)
    taken: list[int] = []
    for row in worth:
        best = np.argsort(-row, kind="stable")[:2].tolist()
        taken.append(next((at for at in best if at not in taken[-1:]), best[0]))
    scores = [float(row[at]) for at, row in zip(taken, similarity, strict=True)]
    return [
        Name(bank.texts[at], "seen", False, score) if score >= least else None
        for at, score in zip(taken, scores, strict=True)
    ]


def tell_apart(names: Sequence[Name | None], everywhere: bool = False) -> list[Name | None]:
    """Equal names of neighbours, or of any steps, get numbers: "stir the sauce", "stir the sauce (2)"."""
    out: list[Name | None] = []
    times: Counter[str] = Counter()
    for before, name in zip([None, *names], names, strict=False):
        if name is None:
            out.append(None)
            continue
        if not everywhere and (before is None or before.text != name.text):
            times.clear()
        times[name.text] += 1
        number = times[name.text]
        out.append(name if number == 1 else replace(name, text=f"{name.text} ({number})"))
    return out
