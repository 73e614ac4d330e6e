"""``stepformer bench said``: names taken from what is said, on YouCook2's real narration with human steps.

Steps are the marked ones, named without any picture; a name is judged against the sentence of the marked step, by the
sentence encoder's cosine with thresholds calibrated on pairs judged by hand (``benchmarks/data/judged_names.csv``).
Rules were looked at on the dev half of the videos only.
"""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.spoken import load_youcook2
from stepformer.app.naming import spoken
from stepformer.base.arrays import unit
from stepformer.cli.options import add

HELP = """Share of spoken names that are right, or right or plausible, and of steps that have one, on videos that chose
nothing (--half test). --judged prints what the sentence encoder makes of the pairs judged by hand, and the thresholds
that agree best with them; --pairs prints names beside the marked sentences instead of numbers."""
EXAMPLES = [
    "stepformer bench said --data DATASETS",
    "stepformer bench said --data DATASETS --half dev --pairs",
    "stepformer bench said --judged",
]
JUDGED = Path(__file__).parent / "data" / "judged_names.csv"
MARKS = ("right", "plausible", "wrong")


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


def cosines(pairs: list[tuple[str, str]], sentences: Any) -> NDArray[np.float64]:
    """(P,) sentence cosines of pairs of texts."""
    if not pairs:
        return np.zeros(0)
    left, right = (unit(sentences.encode_text([pair[side] for pair in pairs])) for side in (0, 1))
    return np.asarray((left * right).sum(1), np.float64)


def thresholds(pairs: list[Judged], cosine: NDArray[np.float64]) -> tuple[float, float]:
    """From which cosine a name is right, and plausible: where fewest judged pairs fall on the wrong side."""

    def best(good: NDArray[np.bool_]) -> float:
        grid = np.round(np.arange(0.2, 0.9, 0.01), 2)
        wrong = [int(((cosine >= t) != good).sum()) for t in grid]
        least = np.flatnonzero(np.asarray(wrong) == min(wrong))
        return float(grid[least[len(least) // 2]])

    marks = np.array([pair.mark for pair in pairs])
    return best(marks == "right"), best(marks != "wrong")


def named(path: Path, half: str, limit: int, sentences: Any) -> Iterator[tuple[str, str | None, str]]:
    """(video, name or None, marked sentence) of every marked step."""
    from stepformer.narration import extract_phrases

    for video in [v for v in load_youcook2(path) if v.half == half][:limit]:
        phrases = extract_phrases(video.cues)
        vectors = sentences.encode_text([phrase.text for phrase in phrases]) if phrases else np.zeros((0, 384))
        spans = [(start, end) for start, end, _ in video.steps]
        names = spoken(spans, np.zeros((len(spans), vectors.shape[1])), phrases, vectors)
        for name, (_, _, text) in zip(names, video.steps, strict=True):
            yield video.video, None if name is None else name.text, text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    add(parser, "data", "limit", limit=40)
    parser.add_argument("--half", choices=("dev", "test"), default="test", help="which videos")
    parser.add_argument("--pairs", action="store_true", help="print names beside marked sentences")
    parser.add_argument("--judged", action="store_true", help="the pairs judged by hand instead of videos")


def run(args: argparse.Namespace) -> int:
    """Measures and prints."""
    from stepformer.encoders.sentence import default_sentence_encoder
    from stepformer.errors import UsageError

    sentences = default_sentence_encoder()
    pairs = judged() if JUDGED.is_file() else []
    hand = cosines([(pair.name, pair.marked) for pair in pairs], sentences)
    right, plausible = thresholds(pairs, hand) if pairs else (0.6, 0.45)
    if args.judged:
        curve = []
        for low in np.arange(0.1, 0.9, 0.1):
            inside = [pair.mark for pair, c in zip(pairs, hand, strict=True) if low <= c < low + 0.1]
            curve.append((round(float(low), 1), len(inside), *(inside.count(mark) for mark in MARKS)))
        print(json.dumps({"pairs": len(pairs), "right": right, "plausible": plausible,
                          "cosine_from, pairs, right, plausible, wrong": curve}))  # fmt: skip
        return 0
    if not args.data:
        raise UsageError("give --data, the folder of public datasets, or --judged")
    rows = list(named(Path(args.data) / "youcook2" / "youcook2_asr_steps.json.gz", args.half, args.limit, sentences))
    shown = [(name, text) for _, name, text in rows if name is not None]
    cosine = cosines(shown, sentences)
    if args.pairs:
        for (name, text), c in zip(shown, cosine, strict=True):
            print(f"{c:.2f}\t{name}\t{text}")
        return 0
    result = {
        "half": args.half, "videos": len({video for video, _, _ in rows}), "steps": len(rows), "named": len(shown),
        "right": round(float((cosine >= right).mean()), 4),
        "right or plausible": round(float((cosine >= plausible).mean()), 4),
        "thresholds": (right, plausible),
    }  # fmt: skip
    print(json.dumps(result))
    return 0
