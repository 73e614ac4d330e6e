"""Names beside marked sentences, judged by hand, and the sentence encoder calibrated on them to judge in a person's
place: ``stepformer bench said --judged`` prints how far it agrees."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepformer.base.arrays import unit

JUDGED = Path(__file__).parent / "data" / "judged_names.csv"
MARKS = ("right", "plausible", "wrong")
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Judged:
    """A name beside a marked sentence, and what a person says of it; ``source``: "spoken", or "seen" for a guess."""

    name: str
    marked: str
    mark: str
    source: str


def judged() -> list[Judged]:
    """The pairs judged by hand."""
    with JUDGED.open(encoding="utf-8", newline="") as stream:
        return [Judged(**row) for row in csv.DictReader(stream)]


@dataclass(frozen=True)
class Judge:
    """The sentence encoder in a person's place, calibrated on the judged pairs of one source: guesses from a bank share
    the topic with what they guess, so that the same cosine says less of them."""

    sentences: Any
    source: str

    @cached_property
    def pairs(self) -> list[Judged]:
        """What it is calibrated on."""
        return [pair for pair in judged() if pair.source == self.source]

    @cached_property
    def hand(self) -> Floats:
        """(P,) the cosines of the judged pairs."""
        return self.cosines([(pair.name, pair.marked) for pair in self.pairs])

    def cosines(self, pairs: Sequence[tuple[str, str]]) -> Floats:
        """(P,) sentence cosines of pairs of texts."""
        if not pairs:
            return np.zeros(0)
        left, right = (unit(self.sentences.encode_text([pair[side] for pair in pairs])) for side in (0, 1))
        return np.asarray((left * right).sum(1), np.float64)

    def thresholds(self) -> tuple[float, float]:
        """From which cosine a name is right, and plausible: where fewest judged pairs fall on the wrong side."""

        def best(good: NDArray[np.bool_]) -> float:
            grid = np.round(np.arange(0.2, 0.9, 0.01), 2)
            wrong = [int(((self.hand >= t) != good).sum()) for t in grid]
            least = np.flatnonzero(np.asarray(wrong) == min(wrong))
            return float(grid[least[len(least) // 2]])

        marks = np.array([pair.mark for pair in self.pairs])
        return best(marks == "right"), best(marks != "wrong")

    def agreement(self) -> tuple[float, float]:
        """The shares of judged pairs on the right side of the two thresholds."""
        marks = np.array([pair.mark for pair in self.pairs])
        right, plausible = self.thresholds()
        sides = (self.hand >= right) == (marks == "right"), (self.hand >= plausible) == (marks != "wrong")
        return float(sides[0].mean()), float(sides[1].mean())

    def __str__(self) -> str:
        right, plausible = self.thresholds()
        agreed = " and ".join(f"{share:.2f}" for share in self.agreement())
        found = f"{self.source} names are right from a sentence cosine of {right}, plausible from {plausible}"
        return f"{found}: {len(self.pairs)} pairs judged by hand agree in {agreed} of them"

    def curve(self) -> list[tuple[float, ...]]:
        """Of pairs from a cosine to 0.1 more: how many, and how many are right, plausible and wrong."""
        rows: list[tuple[float, ...]] = []
        for low in np.round(np.arange(-0.1, 1.0, 0.1), 1):
            inside = [pair.mark for pair, c in zip(self.pairs, self.hand, strict=True) if low <= c < low + 0.1]
            rows.append((float(low), len(inside), *(inside.count(mark) for mark in MARKS)))
        return rows

    def chance(self, cosine: Floats) -> Floats:
        """(N,) the chance that a person calls names with these cosines (N,) right or plausible."""
        good = np.array([pair.mark != "wrong" for pair in self.pairs], np.float64)
        base, slope = logistic(self.hand[:, None], good)
        return np.asarray(1 / (1 + np.exp(-(base + slope * cosine))))


def logistic(x: Floats, y: Floats, ridge: float = 1.0) -> Floats:
    """(F + 1,) base and weights of a logistic model of chances y (N,) by features x (N, F): Newton's method, with a
    penalty on the weights of features of spread 1."""
    middle, spread = x.mean(0), x.std(0) + 1e-9
    z = np.c_[np.ones(len(x)), (x - middle) / spread]
    w, penalty = np.zeros(z.shape[1]), ridge * np.r_[0.0, np.ones(x.shape[1])]
    for _ in range(50):
        p = 1 / (1 + np.exp(-z @ w))
        w = w + np.linalg.solve((z * (p * (1 - p))[:, None]).T @ z + np.diag(penalty), z.T @ (y - p) - penalty * w)
    weights = w[1:] / spread
    return np.asarray(np.r_[w[0] - weights @ middle, weights])
