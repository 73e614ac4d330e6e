"""Names for steps: what the speaker says there, or the nearest phrase of a bank, marked as a guess.

A name never stands three times in a row. A guess is never the one that the step before has: the next best phrase
of the bank tells them apart. What a speaker says twice in a row is numbered.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from stepformer.base.arrays import unit
from stepformer.base.cache import cache_folder, keep_arrays, kept_arrays
from stepformer.errors import InputError, UsageError
from stepformer.narration.lexicon import MEASURES, word_set, words

if TYPE_CHECKING:
    from stepformer.encoders.pictures import PictureStatistics
    from stepformer.narration import Phrase

Floats = NDArray[np.floating[Any]]
Source = Literal["typed", "spoken", "seen"]

EARLY_S, LATE_S = 6.0, 1.0
"""A step may be spoken of this long before it begins and after it ends."""
SHOWN = 0.6
"""A seen name is shown, as a guess, if its agreement is at least this: ``stepformer bench names`` sets it."""
TOPIC_SHARE = 0.5
"""A topic is shown if it has at least this share of a video."""
_SHARP = 2.0  # how fast a phrase becomes unlikely, per standard deviation
_APART = 0.5  # weight of what sets a step apart from its video, beside what it is
_TELLING = 0.6  # what a phrase that says much is worth beside one that says little, in cosine
_CENTRAL = 0.5  # what saying the same as all else that is said around the step is worth, in cosine
_LEAST = 0.6  # what a phrase must be worth to name a step
_NEAR = 0.5  # what being said inside the step is worth, in cosine; it falls to 0 at EARLY_S and LATE_S
_VAGUE = word_set(
    "it them this that these those one ones thing things stuff everything something up down out off on in over away "
    "back around together the a an some to of for and you me here there he she"
)


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
    None where they are not known; without them a guess cannot be told from a bad guess."""

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
        for topic, share in zip(self.topics, _softmax(self.standard(video[None]))[0], strict=True):
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
        return np.asarray(_softmax(standard) @ self.vectors @ self.vectors.T, np.float64)

    def standard(self, vectors: Floats) -> NDArray[np.float32]:
        """(M, P) how many deviations above its usual each phrase is near to vectors (M, D) of pictures."""
        if self.pictures is None or self.scaled is None:
            raise UsageError("this phrase bank has no picture statistics")
        return self.pictures.standard(vectors, self.scaled)


def load_bank(encoder: Any, texts: Sequence[str] | None = None) -> PhraseBank:
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
    try:
        return Path(path).read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"the phrase bank {path} cannot be read: {error}") from None


def topic_of(video: Floats, bank: PhraseBank) -> str | None:
    """What a video, the mean (D,) of its frames' vectors, is about, where that is plain."""
    return next((topic for topic, share in bank.topic_shares(video).items() if share >= TOPIC_SHARE), None)


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


def spoken(
    spans_s: Sequence[tuple[float, float]], steps: Floats, phrases: Sequence[Phrase], vectors: Floats
) -> list[Name | None]:
    """The phrase that names each step, in order, or None where nothing fitting is said.

    spans_s: the steps' seconds; steps: (M, D) their vectors; vectors: (L, D) of ``phrases``. Steps and phrases are
    aligned one to one by Drop-DTW, both droppable, on cosine plus nearness in time; chatter is left out.
    """
    from stepformer.core.align import drop_dtw
    from stepformer.narration.imperative import rank, spoken_names

    said = spoken_names(phrases)
    useful = [i for i, name in enumerate(said) if name is not None and says_enough(phrases[i], name)]
    if not useful or not len(spans_s):
        return [None] * len(spans_s)
    centred = _centred(vectors)[useful]
    cosine = unit(steps) @ centred.T  # (M, L)
    near = np.array([[_nearness(span, phrases[i]) for i in useful] for span in spans_s])
    telling = np.array([rank(phrases[i], said[i]) for i in useful])
    worth = cosine + _NEAR * near + _TELLING * telling + _CENTRAL * _centrality(centred, near)
    worth = np.where(near > 0, worth, -np.inf)
    # a phrase said in the middle of a step names it unless its meaning speaks against it
    costs = np.where(np.isfinite(worth), _LEAST - worth, np.inf)
    assignment = drop_dtw(costs, 0.0, 0.0, matching="one_to_one").assignment
    names: list[Name | None] = [None] * len(spans_s)
    for column, row in enumerate(assignment):
        if row >= 0:
            phrase = phrases[useful[column]]
            text = said[useful[column]] or phrase.text
            names[row] = Name(text, "spoken", True, float(cosine[row, column]), phrase.start_s)
    return names


def tell_apart(names: Sequence[Name | None]) -> list[Name | None]:
    """Equal names of neighbours get numbers: "stir the sauce", "stir the sauce (2)"."""
    out: list[Name | None] = []
    before, count = None, 1
    for name in names:
        count = count + 1 if name is not None and name.text == before else 1
        before = None if name is None else name.text
        numbered = name if name is None or count == 1 else replace(name, text=f"{name.text} ({count})")
        out.append(numbered)
    return out


def _softmax(standard: NDArray[np.float32]) -> NDArray[np.float32]:
    """(M, P) deviations to shares of 1."""
    share = np.exp(_SHARP * (standard - standard.max(1, keepdims=True)))
    return np.asarray(share / share.sum(1, keepdims=True))


def _nearness(span: tuple[float, float], phrase: Phrase) -> float:
    """1 inside the step, falling to 0 where the phrase is too early or too late to be about it."""
    middle = (phrase.start_s + phrase.end_s) / 2
    if middle < span[0]:
        return max(0.0, 1.0 - (span[0] - middle) / EARLY_S)
    if middle > span[1]:
        return max(0.0, 1.0 - (middle - span[1]) / LATE_S)
    return 1.0


def _centrality(vectors: Floats, near: Floats) -> NDArray[np.float64]:
    """(M, L) how much each phrase says what the others around the step say: its mean cosine with them, by nearness."""
    alike = vectors @ vectors.T
    np.fill_diagonal(alike, 0.0)
    weight = near.sum(1, keepdims=True) - near
    return np.asarray(near @ alike / np.maximum(weight, 1.0))


@lru_cache(maxsize=1)
def _known_words() -> frozenset[str]:
    """Words of hand work: of the phrases that ship and of the narration's own lists."""
    from stepformer.data.grammar import phrase_bank
    from stepformer.narration.groundability import CONCRETE_NOUNS, PHYSICAL_VERBS, VAGUE_VERBS

    bank = {word for text in phrase_bank() for word in text.lower().replace("'s", "").split()}
    lists = ("common_english", "measures", "containers", "particles", "object_pronouns", "time_nouns", "empty_preps")
    return frozenset(bank | CONCRETE_NOUNS | PHYSICAL_VERBS | VAGUE_VERBS).union(*(words(name) for name in lists))


def says_enough(phrase: Phrase, name: str) -> bool:
    """Whether what was heard can be a name at all: all its words are words of hand work (speech that was misheard has
    others), and it says what is done ("whisk") or acted on ("make it" does neither)."""
    from stepformer.narration.groundability import PHYSICAL_VERBS, VAGUE_VERBS

    if not phrase.verb:  # of somebody else's making
        return True
    parts = name.lower().replace("'s", "").split()
    known = _known_words()
    if not all(part in known or part.rstrip("s") in known or part[:1].isdigit() for part in parts):
        return False
    if len(parts) == 1:
        return name in PHYSICAL_VERBS and name not in VAGUE_VERBS
    return any(part not in _VAGUE and part not in MEASURES and not part[:1].isdigit() for part in parts[1:])


def _centred(vectors: Floats) -> NDArray[np.float64]:
    x = np.asarray(vectors, np.float64)
    return unit(x - x.mean(0)) if len(x) > 2 else unit(x)
