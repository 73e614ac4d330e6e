"""``stepformer bench looks``: what it costs that encoder ``clip`` does not look at every picture to the end.

On the two marked clips, four pictures a second: every picture with a vector of its own, and one vector for two, four
(a second, as short videos have) and eight (two seconds, as long ones have), and for pictures that hardly change.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks import quality
from benchmarks.encoders import _labels_at, _own, _phased_clips, read_labels
from stepformer.encoders.clip import STILL, ClipEncoder

HELP = """Per way of looking: pictures looked at and processor seconds per second of video; the cosine of the vector
that a picture gets with its own; R@5 of its step among 94 texts; ordered MoF (centred) of its clip's own texts.
Steps of these clips last two seconds: a harsh test for two seconds that share a vector."""

EXAMPLES = ["stepformer bench looks", "stepformer bench looks --json"]

RATE_HZ = 4.0
WAYS = ((1, 0.0), (2, 0.0), (4, 0.0), (8, 0.0), (1, STILL), (1, 2 * STILL), (4, STILL))


@dataclass(frozen=True, slots=True)
class Row:
    """``times`` pictures share a vector; below ``still`` the last vector is kept. Means over clips and phases."""

    times: int
    still: float
    looks_per_s: float
    processor_s_per_s: float
    cosine: float
    recall_at_5: float
    ordered_mof: float


class _Once:
    """The image tower, which looks at no picture twice, and how long it took for one."""

    def __init__(self, network: Any) -> None:
        self._network, self._known = network, dict[tuple[str, bytes], Tensor]()
        self.spent = {"structure": 0.0, "vectors": 0.0}

    def _each(self, what: str, pictures: NDArray[np.uint8]) -> Tensor:
        for picture in pictures:
            if (what, picture.tobytes()) not in self._known:
                worked = time.process_time()
                self._known[what, picture.tobytes()] = getattr(self._network, what)(picture[None])[0]
                self.spent[what] += time.process_time() - worked
        return torch.stack([self._known[what, picture.tobytes()] for picture in pictures])

    def structure(self, pictures: NDArray[np.uint8]) -> Tensor:
        return self._each("structure", pictures)

    def vectors(self, pictures: NDArray[np.uint8]) -> Tensor:
        return self._each("vectors", pictures)

    def seconds(self, what: str) -> float:
        """Mean processor seconds per picture."""
        return self.spent[what] / sum(kind == what for kind, _ in self._known)


def measure(phases: int = 2) -> list[Row]:
    """All ways on the product's own clips."""
    labels, folder = _own()
    clips = read_labels(labels, folder)
    others = (Path(__file__).parent / "data" / "other_steps.txt").read_text(encoding="utf-8").splitlines()
    texts = list(dict.fromkeys([label for clip in clips for _, _, label in clip.steps] + others))
    encoder = ClipEncoder(rate_hz=RATE_HZ)
    pool = encoder.encode_text(texts)
    network = _Once(encoder._network)
    found: dict[tuple[int, float], list[tuple[float, ...]]] = {way: [] for way in WAYS}
    for clip in clips:
        column_of = np.array([texts.index(label) for _, _, label in clip.steps])
        for phase in np.arange(phases) / phases / RATE_HZ:
            pictures = np.concatenate(list(_phased_clips(clip.path, encoder, float(phase))))
            steps = _labels_at(clip, len(pictures), RATE_HZ, float(phase))
            seconds = len(pictures) / RATE_HZ
            own: NDArray[np.float32] | None = None
            for times, still in WAYS:
                looking = ClipEncoder(rate_hz=RATE_HZ, still=still, text=encoder, network=network)
                encoded = looking.encode_video(pictures) if times == 1 else looking.encode_often(pictures, times)
                vectors = encoded.vectors
                own = vectors if own is None else own
                recall = quality.recall_at(5, quality.similarity(vectors, pool), steps, column_of)
                mof = quality.ordered_mof(quality.similarity(vectors, pool[column_of], centred=True), steps)
                looks = len(np.unique(vectors, axis=0))
                cosine = float((vectors * own).sum(1).mean())
                found[times, still].append((looks / seconds, cosine, recall[0] / recall[1], mof[0] / mof[1]))
    rows = []
    for way, numbers in found.items():
        looks_per_s, *rest = np.mean(numbers, 0).tolist()
        spent = RATE_HZ * network.seconds("structure") + looks_per_s * network.seconds("vectors")
        rows.append(Row(*way, looks_per_s, spent, *rest))
    return rows


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command has none of its own."""


def run(args: argparse.Namespace) -> int:
    """Measures and prints the table."""
    rows = measure()
    if args.json:
        print(json.dumps([asdict(row) for row in rows], indent=2))
        return 0
    print("| pictures per vector | kept below | looks per s | processor s per s | cosine | R@5 | ordered MoF |")
    print("|---|---|---|---|---|---|---|")
    for row in rows:
        kept = f"{row.still:g}" if row.still else "–"
        print(
            f"| {row.times} | {kept} | {row.looks_per_s:.2f} | {row.processor_s_per_s:.3f} | {row.cosine:.3f} | "
            f"{row.recall_at_5:.2f} | {row.ordered_mof:.2f} |"
        )
    return 0
