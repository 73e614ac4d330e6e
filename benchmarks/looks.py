"""``stepformer bench looks``: what it costs that encoder ``clip`` does not look at every picture, beside what it saves.

On the marked clips that options are chosen on ("dev"), as often as the product looks at each. No picture goes through
the network twice, so a way's time is counted: pictures times the time of one.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.real_clips import clips, measure
from stepformer.cli.log import log
from stepformer.cli.measured import report
from stepformer.core.evidence import looks_hz
from stepformer.encoders.clip import STILL, ClipEncoder
from stepformer.encoders.reading import Features, pictures_per_look
from stepformer.media import VideoReader
from stepformer.media.decode import FrameDecoder

_OPEN = FrameDecoder._open

HELP = """Compares ways of choosing the frames to encode. Means over the dev clips: vectors and processor seconds per
minute of video; cuts found within 1 s (F1); mean IoU of the marked steps' own texts, placed in order; R@5 of a step's
text. A row is named after how often there is a new vector at most; frames that hardly change share one, except in the
row "frame". "product": per frame up to 48 s of video, per second up to 128 s, per two seconds up to 192 s and per three
beyond. The last row decodes all frames at full size, even those that are then made much smaller."""

EXAMPLES = ["stepformer bench looks", "stepformer bench looks --json"]

WAYS: tuple[tuple[str, float, float], ...] = (  # name, seconds per vector (0: the product's, -1: none share), still
    ("frame", -1.0, 0.0), ("second", 1.0, STILL), ("two seconds", 2.0, STILL), ("three seconds", 3.0, STILL),
    ("four seconds", 4.0, STILL), ("three seconds, twice the change ignored", 3.0, 2 * STILL), ("product", 0.0, STILL),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Row:
    """One way of looking."""

    way: str
    vectors_per_minute: float
    processor_s_per_minute: float
    cut_f1: float
    locate_iou: float
    recall_5: float


class _Once:
    """The image tower, which looks at no picture twice, and how long it took for one."""

    def __init__(self, network: Any) -> None:
        self._network, self._known = network, dict[tuple[str, bytes], Tensor]()
        self.spent, self.asked = {"structure": 0.0, "vectors": 0.0}, {"structure": 0, "vectors": 0}

    def _each(self, what: str, pictures: NDArray[np.uint8]) -> Tensor:
        import torch

        new = [picture for picture in pictures if (what, picture.tobytes()) not in self._known]
        for some in (new[i : i + 4] for i in range(0, len(new), 4)):
            worked = time.process_time()
            found = getattr(self._network, what)(np.stack(some))
            self.spent[what] += time.process_time() - worked
            self._known |= {(what, picture.tobytes()): one for picture, one in zip(some, found, strict=True)}
        self.asked[what] += len(pictures)
        return torch.stack([self._known[what, picture.tobytes()] for picture in pictures])

    def structure(self, pictures: NDArray[np.uint8]) -> Tensor:
        return self._each("structure", pictures)

    def vectors(self, pictures: NDArray[np.uint8]) -> Tensor:
        return self._each("vectors", pictures)

    def seconds(self) -> float:
        """Processor seconds of what was asked for since the last time, as if all of it had been computed."""
        number = {what: max(1, sum(kind == what for kind, _ in self._known)) for what in self.spent}
        total = sum(self.asked[what] * self.spent[what] / number[what] for what in self.spent)
        self.asked = dict.fromkeys(self.asked, 0)
        return total


def table(model: Any) -> Iterator[Row]:
    """All ways."""
    network, dev = _Once(model.encoder._network), clips(model)[0]["dev"]
    shown = _shown(dev)
    for way, seconds, still in WAYS:
        yield _row(model, dev, shown, network, way, seconds, still)
    with patch("stepformer.media.decode.FrameDecoder._open", _filtered):
        shown = _shown(dev)
    yield _row(model, dev, shown, network, "product, block edges filtered", 0.0, STILL)


def _shown(dev: list[Any]) -> tuple[list[NDArray[np.uint8]], float]:
    """The pictures of each clip, as often as the product looks, and the processor seconds that took."""
    began = time.process_time()
    readers = (VideoReader(path) for path, _ in dev)
    pictures = [np.concatenate(list(r.clips(ClipEncoder.wants, looks_hz(r.info.duration_s, 1.0), 16))) for r in readers]
    return pictures, time.process_time() - began


def _filtered(decoder: Any, stack: Any) -> None:
    """As FrameDecoder._open, but no picture is decoded roughly."""
    decoder.rough = False
    _OPEN(decoder, stack)


def _row(
    model: Any, dev: list[Any], shown: tuple[list[NDArray[np.uint8]], float], network: _Once, way: str, seconds: float,
    still: float,
) -> Row:  # fmt: skip
    looking = ClipEncoder(still=still, text=model.encoder._text, network=network)
    videos, vectors, minutes = [], 0, 0.0
    for (path, video), pictures in zip(dev, shown[0], strict=True):
        duration_s = VideoReader(path).info.duration_s
        rate = looks_hz(duration_s, 1.0)
        times = max(1, round(seconds * rate)) if seconds else pictures_per_look(duration_s, rate, 1.0)
        encoded = looking._looked_at(pictures, times, still if times > 1 or rate == 1.0 else 0.0)
        vectors += len(np.unique(encoded.vectors, axis=0))
        minutes += duration_s / 60
        features = Features(encoded.vectors, rate, encoded.structure, duration_s, str(path))
        videos.append((path, replace(video, features=features)))
    worked = shown[1] + network.seconds()
    mean = measure({"dev": videos}, model)[-1]
    return Row(way, vectors / minutes, worked / minutes, mean.cut_f1, mean.locate_iou, mean.recall_5)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command has none of its own."""


def run(args: argparse.Namespace) -> int:
    """Measures and prints the table."""
    import torch

    from stepformer.app.discover.loading import load_model

    torch.set_num_threads(1)
    rows = []
    for row in table(load_model("default")):
        log.info("%s: %.2f processor s per minute", row.way, row.processor_s_per_minute)  # each takes long
        rows.append(asdict(row))
    report(args, {}, rows)
    return 0
