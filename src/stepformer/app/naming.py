"""Names for steps: what the speaker says there, or the nearest phrase of a bank, marked as a guess.

A name never stands three times in a row. A guess is never the one that the step before has: the next best phrase
of the bank tells them apart. What a speaker says twice in a row is numbered.
"""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stepformer.base.arrays import softmax, unit
from stepformer.base.cache import cache_folder, keep_arrays, kept_arrays
from stepformer.base.guard import read_text
from stepformer.errors import InputError, UsageError
from stepformer.narration import lexicon
from stepformer.narration.imperative import MOST_WORDS, spoken_names
from stepformer.narration.lexicon import KITCHEN_HOMOPHONES, MEASURES, PARTICLES, TIME_NOUNS, word_set, words

if TYPE_CHECKING:
    from stepformer.encoders.clip import PictureStatistics
    from stepformer.narration import Phrase

Floats = NDArray[np.floating[Any]]
Source = Literal["typed", "spoken", "seen"]
Encode = Callable[[Sequence[str]], Floats]

EARLY_S, LATE_S = 6.0, 1.0
"""A step may be spoken of this long before it begins and after it ends."""
SHOWN = 0.6
"""A seen name of a bank of one's own is shown, as a guess, if its agreement is at least this. Of the bank that ships
none is shown: ``stepformer bench names`` finds no threshold from which most are even plausible."""
PRESENT = 0.5
"""A given text is taken to be in the video if it fits it better than this share of the phrase bank does."""
PRESENT_SEEN = 1.15
"""Where the space's pictures are known: a text is absent if it fits no look at the video so many standard deviations
better than pictures at large; ``stepformer bench names`` has the error rates."""
TOPIC_SHARE = 0.5
"""A topic is shown if it has at least this share of a video."""
SHOWN_SAID, SURE_SAID = 0.55, 0.8
"""A spoken name is shown if the chance that it is right or plausible is at least the first, and is sure from the
second: ``stepformer bench said`` sets both."""
SENSE = 1.0
"""Log odds (:meth:`SentenceEncoder.sense`) from which a recipe's name makes sense, by ``stepformer bench sense``."""
SHOWN_MARKED, SENSE_MARKED = 0.3, -1.5
"""The same for a talk with marks: people or a newer recogniser wrote it, and mishear far less than the captions that
the other numbers are fitted to. Chosen on invented talks, written down and spoken by a synthesiser."""
_SHARP = 2.0  # how fast a phrase becomes unlikely, per standard deviation
_APART = 0.5  # weight of what sets a step apart from its video, beside what it is
_KITCHEN = ("baking", "cooking", "drinks")
_CERTAIN = 1.0  # log odds of all names that they are a recipe's
_OFTEN = 3  # sentences in which a word is heard rightly, whatever it is
_PHRASE_ENDS = words("phrase_ends")
_EVERYWHERE = words("everywhere")  # things that the phrases which ship do not have in all their topics
_VAGUE = words("says_nothing")
_QUALITIES = words("qualities")
_RESULTS, _DETERMINED = words("results"), _PHRASE_ENDS | word_set("a an the")
_NO_VERBS = word_set("ground flavor half fine hot coarse had touch")  # as captions without marks have them
_NUMBERS = words("amounts")
_PLAIN_ACTS = lexicon.PHYSICAL_VERBS - lexicon.VAGUE_VERBS
_NO_RECIPE = -2.3  # log odds of a verb that only other work has
_NOUNS = frozenset(word.rstrip("s") for word in lexicon.CONCRETE_NOUNS)
_JOINTS = _PHRASE_ENDS - {"of", "or"} | {"together", "down"}  # a name may end before them
_UNENDING = {"of", "or"} | lexicon.OBJECT_PRONOUNS | MEASURES | PARTICLES
_PLACING = word_set("put place set lay throw stick pop dump drop transfer bring keep leave")  # need their place
_SECOND_NOUNS = words("second_nouns")
_LEADING = word_set("spring ground ginger bay cherry button snow fat")  # no noun of a recipe ends in these
_STATES = word_set("make keep leave")
_WHOLE = word_set("paste powder oil juice")  # what ends a noun: "miso paste soup" is two
_SPOONS = word_set("cup cups tablespoon tablespoons teaspoon teaspoons pound pounds ounce ounces bottle bottles")
_GOING_ON = (  # what may stand behind a noun
    _PHRASE_ENDS
    | _VAGUE
    | _NUMBERS
    | PARTICLES
    | lexicon.WHERE_WORDS
    | lexicon.NUMBERS
    | lexicon.OBJECT_PRONOUNS
    | _RESULTS
) | word_set("my your other first as much then")


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
    return read_text(path).splitlines()


def topic_of(video: Floats, bank: PhraseBank) -> str | None:
    """What a video, the mean (D,) of its frames' vectors, is about, where that is plain."""
    return next((topic for topic, share in bank.topic_shares(video).items() if share >= TOPIC_SHARE), None)


def present_texts(texts: Floats, slots: Floats, vectors: Floats, bank: PhraseBank) -> NDArray[np.bool_]:
    """(M,) whether the best fit of each text (M, D) anywhere in the video is good enough to be no chance.

    Where the space's pictures are known the fit is with single vectors of the video (N, D), in standard deviations, so
    that texts that are near to everything gain nothing. Else it is a cosine, less the bank's mean, with slots (K, D)
    and the means of as many equal stretches, and at least that of a share of the bank.
    """
    if bank.pictures is not None:
        return best_fit(texts, vectors, bank.pictures) >= PRESENT_SEEN
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
    """(M,) how well each text (M, D) fits the picture (N, D) that it fits best, in standard deviations."""
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


@dataclass(frozen=True, slots=True)
class Worth:
    """The chance that a phrase names a step rightly or plausibly: weights of a logistic model of what is known of both.
    ``stepformer bench said --fit`` made the values, before what makes no sense was left out; fitted anew they are no
    better on the dev half."""

    base: float = -3.898
    early_s: float = -0.151  # seconds that it is said before the step begins
    grounded: float = 2.159  # how likely a camera would see it
    shared: float = 5.906  # its mean cosine with all that is said in the video, which speech that was misheard lacks
    local: float = 0.708  # the same with what is said around the step
    words: float = 0.139
    vague: float = -0.34  # "use", "get", "take"
    referring: float = -0.412  # "it" was replaced by what it stands for
    shared_usually: float = 0.287  # where nothing else is said
    # with pictures, the log odds are seen_base + seen_words times those above + seen times the share of the bank that
    # fits the step's pictures worse than the name does
    seen_base: float = -1.958
    seen_words: float = 0.552
    seen: float = 2.66

    def log_odds(self, features: Floats, shares: Floats | None = None) -> NDArray[np.float64]:
        """(M, L) of features (M, L, 7), in the order of the fields above, and where pictures say their part of shares
        (M, L)."""
        weights = np.array([getattr(self, name) for name in FEATURES])
        said = np.asarray(self.base + np.asarray(features, np.float64) @ weights)
        return said if shares is None else np.asarray(self.seen_base + self.seen_words * said + self.seen * shares)


FEATURES = ("early_s", "grounded", "shared", "local", "words", "vague", "referring")
WORTH = Worth()


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """What may name the steps of a video: ``names`` (L) of ``phrases`` (L), and ``meanings`` (L, D), vectors of the
    sentence encoder. ``shown``: from which chance on."""

    names: tuple[str, ...]
    phrases: tuple[Phrase, ...]
    meanings: NDArray[np.float32]
    shown: float = SHOWN_SAID

    def apart_s(self, spans_s: Sequence[tuple[float, float]]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(M, L) seconds that each phrase is said before each step begins, and after it ends; 0 inside."""
        starts, ends = np.asarray(spans_s, np.float64).T[..., None]
        middles = np.array([phrase.middle_s for phrase in self.phrases])
        return np.maximum(starts - middles, 0.0), np.maximum(middles - ends, 0.0)

    def near(self, spans_s: Sequence[tuple[float, float]]) -> NDArray[np.float64]:
        """(M, L) 1 where a phrase is said inside a step, falling to 0 where it cannot be about it."""
        early_s, late_s = self.apart_s(spans_s)
        return np.maximum(1.0 - early_s / EARLY_S - late_s / LATE_S, 0.0)

    def features(self, spans_s: Sequence[tuple[float, float]]) -> NDArray[np.float64]:
        """(M, L, 7) what :class:`Worth` weighs."""
        near, count = self.near(spans_s), len(self.names)
        x = unit(self.meanings)
        alike = np.asarray(x @ x.T, np.float64)
        np.fill_diagonal(alike, 0.0)
        local = near @ alike / np.maximum(near.sum(1, keepdims=True) - near, 1.0)
        shared = alike.sum(1) / max(1, count - 1)
        if count == 1:  # there is nothing to compare with
            local, shared = np.full(near.shape, WORTH.shared_usually), np.full(1, WORTH.shared_usually)
        columns = (
            self.apart_s(spans_s)[0],
            [phrase.groundability for phrase in self.phrases],
            shared,
            local,
            [len(name.split()) for name in self.names],
            [
                p.verb in lexicon.VAGUE_VERBS or name.endswith((" it", " them"))
                for p, name in zip(self.phrases, self.names, strict=True)
            ],
            [phrase.said_object is not None for phrase in self.phrases],
        )
        return np.stack([np.broadcast_to(np.asarray(column, np.float64), near.shape) for column in columns], axis=-1)


def candidates(phrases: Sequence[Phrase], encode: Encode, sense: Encode | None = None) -> Candidates | None:
    """What of a video's phrases may name a step; ``encode``: texts (L) to vectors (L, D) of the sentence encoder;
    ``sense``: names (L) of a recipe to how far they make sense (L,), see :meth:`SentenceEncoder.sense`."""
    said = spoken_names(phrases)
    talk = {phrase.sentence for phrase in phrases}
    sentences = [_stems(text) for text in talk]
    often = Counter(word for text in sentences for word in text)
    marked = 2 * sum(text.endswith((".", "?", "!")) for text in talk) > len(talk)
    shown, least = (SHOWN_MARKED, SENSE_MARKED) if marked else (SHOWN_SAID, SENSE)
    sure = frozenset(word for word, times in often.items() if times >= _OFTEN)
    if kitchen := in_kitchen([name for name in said if name is not None]):
        said = [name and " ".join(KITCHEN_HOMOPHONES.get(word, word) for word in name.split()) for name in said]
    heard = None if marked else sure
    useful = [i for i, name in enumerate(said) if name is not None and says_enough(phrases[i], name, heard)]
    if kitchen:
        pairs = Counter(pair for text in sentences for pair in set(itertools.pairwise(text)))
        twice = frozenset(pair for pair, times in pairs.items() if times > 1)
        said = [name and as_in_kitchen(name, twice) for name in said]
        forms = [(i, form) for i in useful for form in _forms(said[i]) if says_enough(phrases[i], form, heard)]
        made = np.full(len(forms), SENSE) if sense is None or not forms else sense(tuple(form for _, form in forms))
        # with marks, a word that is not of hand work may be a rare one, if the rest makes sense with it
        needed = [least if says_enough(phrases[i], form, sure) else SENSE for i, form in forms]
        longest = {i: form for (i, form), odds, low in zip(forms, made, needed, strict=True) if odds >= low}
        said, useful = [longest.get(i) for i in range(len(said))], sorted(longest)
    if not useful:
        return None
    names = tuple(said[i] or "" for i in useful)
    return Candidates(names, tuple(phrases[i] for i in useful), np.asarray(encode(names), np.float32), shown)


def _forms(name: str | None) -> list[str]:
    """A name up to each of its places and things in turn, the whole name last."""
    parts = (name or "").split()
    ends = [at for at in range(2, len(parts)) if parts[at] in _JOINTS and parts[at - 1] not in _JOINTS | _UNENDING]
    shorter = [" ".join(parts[:at]).rstrip(",") for at in ends if parts[0] not in _PLACING]
    return [*shorter, name] if name else []


def spoken(
    spans_s: Sequence[tuple[float, float]],
    phrases: Sequence[Phrase],
    encode: Encode,
    *,
    sight: Encode | None = None,
    sense: Encode | None = None,
    worth: Worth | None = None,
) -> list[Name | None]:
    """The phrase that names each step, in order, or None where nothing that is said is likely to.

    spans_s: the steps' seconds. encode: the sentence encoder's. sight: names (L) to how well they fit the steps'
    pictures, (M, L) of :meth:`PhraseBank.shares_below`. sense: as of :func:`candidates`. Steps and phrases are aligned
    one to one by Drop-DTW, both droppable; a name's score is the chance that it is right or plausible.
    """
    from stepformer.core.align import drop_dtw

    worth = worth or WORTH
    found = candidates(phrases, encode, sense) if len(spans_s) else None
    if found is None:
        return [None] * len(spans_s)
    log_odds = worth.log_odds(found.features(spans_s), None if sight is None else sight(found.names))
    chance = 1 / (1 + np.exp(-log_odds))
    near = found.near(spans_s)
    # the model knows how early a phrase is, not how late: people seldom speak of what is over
    late = found.apart_s(spans_s)[1] > 0
    costs = np.where(near > 0, found.shown - chance * np.where(late, near, 1.0), np.inf)
    assignment = drop_dtw(costs, 0.0, 0.0, matching="one_to_one").assignment
    names: list[Name | None] = [None] * len(spans_s)
    for column, row in enumerate(assignment):
        if row >= 0:
            score, said_s = float(chance[row, column]), found.phrases[column].start_s
            names[row] = Name(found.names[column], "spoken", score >= SURE_SAID, score, said_s)
    return names


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


class _Shipped(NamedTuple):
    """What the procedures that ship and the narration's own lists say of words; all but verbs without a plural s."""

    known: frozenset[str]  # words of hand work
    verbs: frozenset[str]  # of hand work
    things: frozenset[str]  # what a noun phrase can be about
    odds: dict[str, float]  # log odds that a step which has the word is a recipe's; a food is foreign to none
    kitchen_verbs: frozenset[str]  # that recipes have, or that at least no other work has for its own
    pairs: frozenset[tuple[str, str]]  # neighbours in the texts


@lru_cache(maxsize=1)
def _shipped() -> _Shipped:
    from stepformer.data.grammar import load_grammar, phrase_bank

    texts: dict[bool, list[list[str]]] = {True: [], False: []}  # of recipes, of other work
    for task in load_grammar().tasks:
        found = [text for step in task.steps for text in (step.label, *step.paraphrases)]
        found += [word for _, listed in task.slots for word in listed]
        texts[task.domain in _KITCHEN] += map(_stems, found)

    def odds_of(part: Callable[[list[str]], list[str]]) -> dict[str, float]:
        kitchen, others = (Counter(word for text in texts[own] for word in set(part(text))) for own in (True, False))
        usual = np.log((kitchen.total() + 1) / (others.total() + 1))
        return {word: float(np.log((kitchen[word] + 0.5) / (others[word] + 0.5)) - usual) for word in kitchen | others}

    odds, first = odds_of(list), odds_of(lambda text: text[: len(text) > 1])  # a word alone is a thing
    odds |= {food: max(0.0, odds.get(food, 0.0)) for food in (word.rstrip("s") for word in words("foods"))}
    lists = map(words, ("step_words", "common_english", "particles", "object_pronouns", "empty_preps"))
    own = lexicon.CONCRETE_NOUNS.union(lexicon.PHYSICAL_VERBS, lexicon.VAGUE_VERBS, MEASURES, TIME_NOUNS, *lists)
    bank = {text.lower().split(maxsplit=1)[0] for text in phrase_bank()}
    verbs = frozenset(bank | lexicon.PHYSICAL_VERBS | lexicon.VAGUE_VERBS) - _NO_VERBS
    kitchen = {v for v in verbs if first.get(v, 0.0) > (_NO_RECIPE if v in lexicon.PHYSICAL_VERBS else 0.0)}
    listed = lexicon.CONCRETE_NOUNS | words("step_words") | MEASURES | TIME_NOUNS | _VAGUE | PARTICLES | _NUMBERS
    # "until it stops bubbling" ends in no thing
    ends = {word for text in phrase_bank() for word in _things(text) if not word.endswith("ing")}
    return _Shipped(
        frozenset(odds).union(word.rstrip("s") for word in own),
        verbs,
        frozenset({word.rstrip("s") for word in listed} | ends | _EVERYWHERE) - _QUALITIES,
        odds,
        frozenset(kitchen - {"paste"} | {"make", "keep"}),
        frozenset(pair for both in texts.values() for text in both for pair in itertools.pairwise(text)),
    )


def as_in_kitchen(name: str, twice: Set[tuple[str, str]] = frozenset()) -> str | None:
    """A recipe's name up to where the next sentence begins: "mix it with the salad air smells". Pairs of words that are
    said ``twice`` belong together. None if its verb is none that recipes have."""
    parts = name.split()
    if parts[0] not in _shipped().kitchen_verbs:
        return None
    kept = parts[:2]
    for at in range(2, len(parts)):
        before, word = parts[at - 1], parts[at]
        pair = before.rstrip("s"), word.strip(",").rstrip("s")
        state = parts[0] == "let" or (parts[0] in _STATES and at + 1 == len(parts))  # "make the rice sticky"
        if before == "overnight":
            break
        if not (state or pair in _shipped().pairs or pair in twice):
            several = parts[at - 2] in lexicon.NUMBERS - {"a", "an", "one", "half", "quarter"} and not before.endswith(
                "s"
            )
            if before in _SPOONS and word not in _GOING_ON and len(parts) < MOST_WORDS and not several:
                kept.append("of")  # "one tablespoon cumin seeds", but "three ounce balls"
            elif _runs_on(before, word):
                ends = next((part for part in parts[at:] if part in _PHRASE_ENDS), "")
                if ends != "and" or _shipped().odds.get(pair[1], 0.0) <= 0.0:
                    break
                kept[-1] += ","  # "add sugar cinnamon and lemon juice"
        kept.append(word)
    return " ".join(kept)


def _runs_on(before: str, word: str) -> bool:
    """Whether a word behind a noun is not of the same noun phrase, if the two are no pair that is known."""
    noun, second = before.rstrip("s"), word.strip(",").rstrip("s")
    if noun not in _NOUNS or before in MEASURES | _QUALITIES | _LEADING:
        return False
    if word in _GOING_ON:
        return word in lexicon.NUMBERS - {"about", "another"}  # "into the oven four twenty five"
    several = before.endswith("s") and not before.endswith(("ss", "us"))
    whole = noun in _WHOLE and second != "mixture"
    return several or whole or second not in _SECOND_NOUNS


def in_kitchen(names: Sequence[str]) -> bool:
    """Whether names are those of a recipe, by all their words."""
    odds = _shipped().odds
    return sum(odds.get(word, 0.0) for word in {word for name in names for word in _stems(name)}) > _CERTAIN


def _stems(text: str) -> list[str]:
    return [word.strip(".,!?{}").rstrip("s") for word in text.lower().replace("'s", "").split()]


def _things(name: str) -> list[str]:
    """The last words of the noun phrases of a name."""
    parts = name.lower().replace(",", " ,").split()[1:]
    made = [at for at, (b, w) in enumerate(itertools.pairwise(parts), 1) if w in _RESULTS and b not in _DETERMINED]
    ends = itertools.pairwise([*(part for at, part in enumerate(parts) if at not in made), ","])
    return [word.rstrip("s") for word, after in ends if after in _PHRASE_ENDS and word not in _PHRASE_ENDS]


def says_enough(phrase: Phrase, name: str, often: frozenset[str] | None = frozenset()) -> bool:
    """Whether what was heard can be a name at all: all its words are words of hand work, or said ``often`` (without a
    plural s; None: any word will do), since speech that was misheard has others; and it says what is done ("whisk") or
    acted on ("make it" does neither)."""
    if not phrase.verb:  # of somebody else's making
        return True
    parts = name.lower().replace("'s", "").replace(",", "").split()
    shipped = _shipped()
    if any(len(part) == 1 and part.isalpha() and part != "a" for part in parts):
        return False  # "sesame e seeds"
    if parts[0] not in shipped.verbs:
        return False  # "salad the pasta"
    if any(part in TIME_NOUNS and "and" in parts[max(0, i - 2) : i] for i, part in enumerate(parts)):
        return False  # "put glue and two minutes on"
    ends = [] if phrase.text.startswith("let ") else _things(name.replace("'s", ""))
    if often is None:
        if not _QUALITIES.isdisjoint(ends):
            return False
    else:
        if not all(part.rstrip("s") in shipped.known | often or part[:1].isdigit() for part in parts):
            return False
        if not all(word in shipped.things | (often - _QUALITIES) or word[:1].isdigit() for word in ends):
            return False  # "mix the soy sauce and a spicy"
    if len(parts) == 1 or (often is None and parts[0] in _PLAIN_ACTS and parts[1] in ("it", "them")):
        return parts[0] in _PLAIN_ACTS  # "whisk", "flip it over"
    empty = _VAGUE | MEASURES | PARTICLES | _NUMBERS
    return any(part not in empty and not part[:1].isdigit() for part in parts[1:])
