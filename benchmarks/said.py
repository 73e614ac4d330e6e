"""``stepformer bench said``: names taken from what is said, on YouCook2's real narration with human steps.

Steps are the marked ones. A name is judged against the sentence of the marked step, by the sentence encoder's cosine
with thresholds calibrated on pairs judged by hand (``benchmarks/data/judged_names.csv``). First no step has a picture;
then those that have one (a frame of CLIP ViT-B/16, ``docs/sight.md``) are named with it, by text towers that were not
trained on the video. Rules, weights and thresholds were made on the dev half of the videos only.
"""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.clip_data import ClipData, load, part_of
from benchmarks.spoken import Spoken, load_youcook2
from stepformer.app.naming import FEATURES, SHOWN_SAID, SURE_SAID, WORTH, Worth, candidates, spoken
from stepformer.base.arrays import unit
from stepformer.cli.options import add

HELP = """Share of spoken names that are right, or right or plausible, and of steps that have one, on videos that chose
nothing (--half test), from several thresholds on; without pictures, and with a picture of each step that has one.
--judged prints what the sentence encoder makes of the pairs judged by hand, and the thresholds that agree best with
them; --pairs prints names beside the marked sentences instead of numbers; --fit prints the weights made on dev."""
EXAMPLES = [
    "stepformer bench said --data DATASETS --towers FOLDER",
    "stepformer bench said --data DATASETS --towers FOLDER --half dev --pairs",
    "stepformer bench said --data DATASETS --towers FOLDER --fit",
    "stepformer bench said --judged",
]
JUDGED = Path(__file__).parent / "data" / "judged_names.csv"
MARKS = ("right", "plausible", "wrong")
THRESHOLDS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
Floats = NDArray[np.float64]


# -- what a person says --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Judged:
    """A name beside a marked sentence, and what a person says of it."""

    name: str
    marked: str
    mark: str


def judged() -> list[Judged]:
    """The pairs judged by hand."""
    with JUDGED.open(encoding="utf-8", newline="") as stream:
        return [Judged(row["name"], row["marked"], row["mark"]) for row in csv.DictReader(stream)]


@dataclass(frozen=True)
class Judge:
    """The sentence encoder in a person's place: calibrated on the judged pairs and their cosines (P,)."""

    sentences: Any

    @cached_property
    def pairs(self) -> list[Judged]:
        """What it is calibrated on."""
        return judged()

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


# -- videos --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Seeing:
    """A text tower beside the statistics of its pictures, as encoders have them."""

    text: Any
    pictures: Any

    def encode_text(self, texts: Sequence[str]) -> Any:
        """Texts to (L, 512)."""
        return self.text.encode_text(texts)


@dataclass(frozen=True, slots=True, eq=False)
class Heard:
    """A video's narration as phrases; ``seen``: number of a step -> a picture of it (512,); ``tower``: a text side that
    was not trained on the video; ``sentences``: the sentence encoder."""

    video: Spoken
    phrases: list[Any]
    seen: dict[int, NDArray[Any]]
    tower: Seeing
    sentences: Any

    def names(self, worth: Worth, sight: bool) -> list[tuple[Any, str]]:
        """(name or None, marked sentence) of every step, or, with ``sight``, of every step that has a picture."""
        numbers = sorted(self.seen) if sight else range(len(self.video.steps))
        spans = [self.video.steps[i][:2] for i in numbers]
        steps = np.stack([self.seen[i] for i in numbers]) if sight and numbers else None
        encode = self.sentences.encode_text
        found = spoken(spans, self.phrases, encode, steps=steps, encoder=self.tower, worth=worth)
        return [(name, self.video.steps[i][2]) for name, i in zip(found, numbers, strict=True)]


def hear(videos: Sequence[Spoken], frames: ClipData, towers: dict[int, Any], sentences: Any) -> list[Heard]:
    """Parses the narration of videos, and finds their pictures."""
    from stepformer.encoders.pictures import clip_pictures
    from stepformer.narration import extract_phrases

    rows = {
        (name, text[0].strip()): i
        for i, (name, text) in enumerate(zip(frames.frames.names, frames.frames.texts, strict=True))
    }
    found = []
    for video in videos:
        steps = enumerate(text.strip() for _, _, text in video.steps)
        seen = {i: frames.frames.pictures[rows[video.video, t]] for i, t in steps if (video.video, t) in rows}
        tower = Seeing(towers[part_of(video.video)], clip_pictures())
        found.append(Heard(video, extract_phrases(video.cues), seen, tower, sentences))
    return found


def fit(videos: Sequence[Heard], judge: Judge) -> Worth:
    """The weights: of all phrases near a step, by the chance that a person would call each its name."""
    rows: list[Floats] = []
    pairs: list[tuple[str, str]] = []
    standard: list[float] = []
    for heard in videos:
        found = candidates(heard.phrases, heard.sentences.encode_text)
        if found is None:
            continue
        spans = [step[:2] for step in heard.video.steps]
        features, pictures = found.features(spans), heard.tower.pictures
        scaled = pictures.scaled(heard.tower.encode_text(found.names))
        for i, j in np.argwhere(found.near(spans) > 0):
            rows.append(features[i, j])
            pairs.append((found.names[j], heard.video.steps[i][2]))
            look = heard.seen.get(int(i))
            standard.append(np.nan if look is None else float(pictures.standard(look[None], scaled[[j]])[0, 0]))
    x, y, z = np.stack(rows), judge.chance(judge.cosines(pairs)), np.asarray(standard)
    made = dict(zip(("base", *FEATURES), logistic(x, y), strict=True))
    words = Worth(**made, shared_usually=x[:, FEATURES.index("shared")].mean())
    has = np.isfinite(z)
    odds = words.log_odds(x)
    seen = logistic(np.c_[odds[has], z[has]], y[has])
    both = replace(words, seen_base=seen[0], seen_words=seen[1], seen=seen[2])
    return Worth(**{name: round(float(value), 3) for name, value in asdict(both).items()})


# -- the command ---------------------------------------------------------------------------------------------------


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    add(parser, "data", "limit", limit=200)
    parser.add_argument("--half", choices=("dev", "test"), default="test", help="which videos")
    parser.add_argument("--towers", type=Path, metavar="FOLDER", help="the five towers of bench names are kept here")
    parser.add_argument("--pairs", action="store_true", help="print names beside marked sentences")
    parser.add_argument("--judged", action="store_true", help="the pairs judged by hand instead of videos")
    parser.add_argument("--fit", action="store_true", help="print the weights that dev gives")


def run(args: argparse.Namespace) -> int:
    """Measures and prints."""
    from benchmarks.names import towers_of
    from benchmarks.sight import _Once
    from stepformer.encoders.clip import ClipText
    from stepformer.encoders.sentence import default_sentence_encoder
    from stepformer.errors import UsageError

    sentences = _Once(default_sentence_encoder())
    judge = Judge(sentences)
    right, plausible = judge.thresholds()
    if args.judged:
        print(json.dumps({"pairs": len(judge.pairs), "right": right, "plausible": plausible,
                          "agreement": judge.agreement(), "cosine_from, pairs, right, plausible, wrong": judge.curve(),
                          }))  # fmt: skip
        return 0
    if not args.data:
        raise UsageError("give --data, the folder of public datasets, or --judged")
    data = load(Path(args.data))
    towers = towers_of(data, args.towers, None, sentences) | {0: ClipText(sentences=sentences)}
    half = "dev" if args.fit else args.half
    videos = load_youcook2(Path(args.data) / "youcook2" / "youcook2_asr_steps.json.gz")
    heard = hear([video for video in videos if video.half == half][: args.limit], data, towers, sentences)
    if args.fit:
        print(json.dumps(asdict(fit(heard, judge))))
        return 0
    for sight in (False, True):
        found = [row for video in heard for row in video.names(WORTH, sight)]
        shown = [(name, text) for name, text in found if name is not None]
        cosine = judge.cosines([(name.text, text) for name, text in shown])
        score = np.array([name.score for name, _ in shown])
        if args.pairs:
            for (name, text), c in zip(shown, cosine, strict=True):
                print(f"{'seen' if sight else 'said'}\t{name.score:.2f}\t{c:.2f}\t{name.text}\t{text}")
            continue
        curve = {}
        for threshold in (SHOWN_SAID, SURE_SAID, *THRESHOLDS):
            c = cosine[score >= threshold]
            if threshold >= SHOWN_SAID and len(c):
                good = float((c >= right).mean()), float((c >= plausible).mean())
                curve[threshold] = (len(c), *(round(share, 3) for share in good))
        print(json.dumps({
            "half": half, "pictures": sight, "videos": len(heard), "steps": len(found),
            "thresholds": (right, plausible), "from chance: named, right, right or plausible": curve,
        }))  # fmt: skip
    return 0
