"""How well what is said during a human step matches that step's text: AUC and top-1 on real narration.

For every piece of narration (a sentence or a phrase) whose middle lies within a human step, its similarity to that
step's text is compared with its similarity to the texts of the video's other steps. AUC is the share of other
steps that are less similar (a tie counts half), top-1 whether none is more similar. Steps with the same text are one.
A piece within several steps counts once for each.

Means over pieces favour what says little: a stage that is silent in hard steps looks good. So each step is judged
too: by the mean of its pieces, and by all of its pieces at once (to each of the video's steps the similarity of the
piece that is nearest to it), and two stages are compared on the steps in which both have something to say.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.spoken import Spoken
from stepformer.narration.lexicon import word_set

Embed = Callable[[Sequence[str]], Any]  # texts -> (L, D) unit vectors
Piece = tuple[float, float, str]  # start_s, end_s, text

_SAME = 1e-6  # similarities nearer than this are a tie


@dataclass(frozen=True, slots=True)
class Judged:
    """One human step and how well what is said in it matches it."""

    video: int
    step: int
    aucs: tuple[float, ...]  # of each piece
    firsts: tuple[float, ...]  # of each piece: top-1, shared where there is a tie
    pooled_auc: float  # of all pieces at once
    pooled_first: float

    @property
    def auc(self) -> float:
        """Mean over the step's pieces."""
        return sum(self.aucs) / len(self.aucs)

    @property
    def first(self) -> float:
        """Mean over the step's pieces."""
        return sum(self.firsts) / len(self.firsts)


@dataclass(frozen=True, slots=True)
class Match:
    """Means over pieces, over steps (each step the mean of its pieces) and over steps with all their pieces at once."""

    auc: float
    top1: float
    pieces: int
    covered: float  # share of the human steps in which anything is said
    step_auc: float
    step_top1: float
    pooled_auc: float
    pooled_top1: float


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean difference and the bounds between which 95 % of the bootstrap's means lie."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Difference:
    """One stage less another on the ``steps`` in which both have pieces."""

    steps: int
    auc: Interval  # each step the mean of its pieces
    top1: Interval
    pooled_auc: Interval  # each step with all its pieces at once
    pooled_top1: Interval


def within_steps(video: Spoken, pieces: Sequence[Piece]) -> list[list[str]]:
    """For each human step, the texts of the pieces whose middle lies in it."""
    return [[text for a, b, text in pieces if start_s <= (a + b) / 2 <= end_s] for start_s, end_s, _ in video.steps]


def judge(videos: Sequence[Spoken], pieces: Sequence[Sequence[Piece]], embed: Embed) -> list[Judged]:
    """The steps in which something is said, of videos that have at least two different steps."""
    found: list[Judged] = []
    for at, (video, said) in enumerate(zip(videos, pieces, strict=True)):
        names = sorted({step[2] for step in video.steps})
        if len(names) < 2:
            continue
        insides = within_steps(video, said)
        texts = sorted({text for inside in insides for text in inside} | set(names))
        vectors = np.asarray(embed(texts), dtype=np.float32)  # (L, D)
        row = {text: i for i, text in enumerate(texts)}
        steps = vectors[[row[name] for name in names]]  # (K, D)
        for number, ((_, _, name), inside) in enumerate(zip(video.steps, insides, strict=True)):
            if not inside:
                continue
            own = names.index(name)
            similar = vectors[[row[text] for text in inside]] @ steps.T  # (P, K)
            aucs, firsts = _ranks(similar, own)
            pooled_auc, pooled_first = _ranks(similar.max(axis=0, keepdims=True), own)
            found.append(
                Judged(
                    at,
                    number,
                    tuple(aucs.tolist()),
                    tuple(firsts.tolist()),
                    float(pooled_auc[0]),
                    float(pooled_first[0]),
                )
            )
    return found


def _ranks(similar: NDArray[np.float32], own: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(P, K) similarities -> (P,) share of the other steps that are less similar than step ``own``, (P,) top-1."""
    mine = similar[:, own : own + 1]
    others = np.delete(similar, own, axis=1)
    less = (others < mine - _SAME).mean(axis=1) + 0.5 * (np.abs(others - mine) <= _SAME).mean(axis=1)
    best = (similar >= mine - _SAME).sum(axis=1)
    return less, np.where((others > mine + _SAME).any(axis=1), 0.0, 1.0 / best)


def summary(videos: Sequence[Spoken], judged: Sequence[Judged]) -> Match:
    """Means of what :func:`judge` found; all 0 where nothing is said in any step."""
    if not judged:
        return Match(0.0, 0.0, 0, 0.0, 0.0, 0.0, 0.0, 0.0)
    aucs = [value for step in judged for value in step.aucs]
    firsts = [value for step in judged for value in step.firsts]

    def mean(values: Sequence[float]) -> float:
        return float(np.mean(values))

    return Match(
        auc=mean(aucs),
        top1=mean(firsts),
        pieces=len(aucs),
        covered=len(judged) / sum(len(v.steps) for v in videos if len({step[2] for step in v.steps}) > 1),
        step_auc=mean([step.auc for step in judged]),
        step_top1=mean([step.first for step in judged]),
        pooled_auc=mean([step.pooled_auc for step in judged]),
        pooled_top1=mean([step.pooled_first for step in judged]),
    )


def difference(ours: Sequence[Judged], theirs: Sequence[Judged], draws: int = 2000, seed: int = 0) -> Difference | None:
    """``ours`` less ``theirs`` on the steps that are in both, with a bootstrap over videos; None if there is none."""
    other = {(step.video, step.step): step for step in theirs}
    pairs = [(step, other[step.video, step.step]) for step in ours if (step.video, step.step) in other]
    if not pairs:
        return None
    gaps = np.array(
        [
            (
                a.auc - b.auc,
                a.first - b.first,
                a.pooled_auc - b.pooled_auc,
                a.pooled_first - b.pooled_first,
            )
            for a, b in pairs
        ]
    )  # (S, 4)
    numbers, owner = np.unique([a.video for a, _ in pairs], return_inverse=True)
    sums = np.zeros((len(numbers), gaps.shape[1]))  # (V, 4) of each video
    np.add.at(sums, owner, gaps)
    counts = np.bincount(owner)  # (V,)
    drawn = np.random.default_rng(seed).integers(0, len(numbers), (draws, len(numbers)))  # videos, not steps
    means = sums[drawn].sum(axis=1) / counts[drawn].sum(axis=1)[:, None]  # (draws, 4)
    low, high = np.quantile(means, (0.025, 0.975), axis=0)
    mean = gaps.mean(axis=0)
    return Difference(
        len(pairs), *(Interval(float(m), float(a), float(b)) for m, a, b in zip(mean, low, high, strict=True))
    )


_STOP = word_set(
    "the a an and or to of in on it is with for you i we that this so then now just your my our be are at into"
)


def word_overlap(texts: Sequence[str]) -> Any:
    """Bags of content words as unit vectors: the baseline that knows no meaning."""
    bags = [{_stem(w) for w in re.findall(r"[a-z']+", text.lower())} - _STOP for text in texts]
    column = {word: i for i, word in enumerate(sorted(set().union(*bags)))} if bags else {}
    out = np.zeros((len(texts), max(1, len(column))), dtype=np.float32)
    for i, bag in enumerate(bags):
        for word in bag:
            out[i, column[word]] = 1.0
        out[i] /= max(1.0, float(np.sqrt(len(bag))))
    return out


def _stem(word: str) -> str:
    for ending in ("ing", "ed", "es", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word
