"""``stepformer bench sight``: does the text tower of encoder ``clip`` find the picture that a sentence is about?

Three questions on parts of the data that no shipped tower was trained or chosen on, beside controls: which of a video's
frames a step sentence belongs to, which picture a caption belongs to, and how near texts come to their true vectors.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.clip_data import ClipData, Floats, load
from stepformer.base.arrays import unit
from stepformer.cli.options import add

HELP = """Takes three frames and three step sentences per held-out YouCook2 video. "greedy" is the share of sentences
whose nearest frame is their own, "matched" the share that the best one-to-one matching of the three gets right; chance
is a third for both. Held-out Flickr8k captions: how often the own picture is first, or among the first five. Held-out
COIN steps: cosine to the true vector, how often the own vector is first among all 778, and how similarly the two rank
pictures (correlation over held-out pictures).
Intervals: 95%, bootstrap over videos, pictures or texts."""

EXAMPLES = ["stepformer bench sight --data DATASETS", "stepformer bench sight --data DATASETS --tower mine.safetensors"]

Encode = Callable[[Sequence[str]], Floats]
Interval = tuple[float, float, float]
_ORDERS = np.array(list(itertools.permutations(range(3))))
_RESAMPLES = 2000


@dataclass(frozen=True, slots=True)
class Sight:
    """One row; each number with its interval: (value, low, high). None: not asked."""

    name: str
    greedy: Interval
    matched: Interval
    recall_1: Interval | None = None
    recall_5: Interval | None = None
    cosine: Interval | None = None
    own_first: Interval | None = None
    correlation: Interval | None = None


def interval(values: NDArray[np.float64], seed: int = 0) -> Interval:
    """Mean and 95% bootstrap interval of per-item values."""
    draws = np.random.default_rng(seed).integers(0, len(values), (_RESAMPLES, len(values)))
    low, high = np.percentile(values[draws].mean(1), [2.5, 97.5])
    return float(values.mean()), float(low), float(high)


def frames_of_sentences(similarity: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(V, 3, 3) similarities, sentence by frame, to the share right per video: greedy (V,) and matched (V,)."""
    own = np.arange(3)
    greedy = (similarity.argmax(2) == own).mean(1)
    totals = similarity[:, own, _ORDERS].sum(-1)  # (V, 6)
    return greedy, (_ORDERS[totals.argmax(1)] == own).mean(1)


def on_frames(data: ClipData, rows: NDArray[np.int64], texts: Floats, pictures: Floats) -> tuple[Interval, Interval]:
    """greedy and matched over videos ``rows`` (V, 3); ``texts`` and ``pictures`` are (V * 3, D) in their order."""
    shape = (*rows.shape, -1)
    similarity = np.einsum("vid,vjd->vij", texts.reshape(shape), pictures.reshape(shape), dtype=np.float64)
    greedy, matched = frames_of_sentences(similarity)
    return interval(greedy), interval(matched)


def _sentences(data: ClipData, rows: NDArray[np.int64]) -> list[str]:
    return [data.frames.texts[row][0] for row in rows.ravel()]


def tower_row(name: str, encode: Encode, data: ClipData, parts: Sequence[int] = (0,)) -> Sight:
    """All questions for one text tower."""
    rows = data.videos(*parts)
    greedy, matched = on_frames(data, rows, encode(_sentences(data, rows)), data.frames.pictures[rows.ravel()])
    shown = np.array([row for row in data.captioned.of(*parts) if data.captioned.names[row].startswith("f8k/")])
    pictures = data.captioned.pictures[shown]
    captions = encode([text for row in shown for text in data.captioned.texts[row]])
    own = np.repeat(np.arange(len(shown)), [len(data.captioned.texts[row]) for row in shown])
    similarity = captions @ pictures.T
    rank = (similarity > similarity[np.arange(len(own)), own][:, None]).sum(1)
    steps = np.intersect1d(data.coin, data.true.of(*parts))
    ours, true = encode([data.true.texts[row][0] for row in steps]), data.true.pictures
    first = (ours @ true[data.coin].T).argmax(1) == np.searchsorted(data.coin, steps)
    looks = [_centred(vectors @ pictures.T) for vectors in (ours, true[steps])]
    alike = (looks[0] * looks[1]).sum(1)
    values = [rank < 1, rank < 5, (ours * true[steps]).sum(1), first, alike]
    return Sight(name, greedy, matched, *(interval(np.asarray(value, np.float64)) for value in values))


def _centred(x: Floats) -> NDArray[np.float64]:
    return unit(np.asarray(x, np.float64) - x.mean(1, keepdims=True))


class _Once:
    """A sentence encoder that encodes no text twice: all rows ask for the same ones."""

    def __init__(self, encoder: Any) -> None:
        self._encoder, self._known = encoder, dict[str, Floats]()

    def encode_text(self, texts: Sequence[str]) -> Floats:
        """Texts to (L, 384)."""
        missing = [text for text in dict.fromkeys(texts) if text not in self._known]
        if missing:
            self._known.update(zip(missing, self._encoder.encode_text(missing), strict=True))
        return np.stack([self._known[text] for text in texts])

    def tuned(self, changes: Any) -> _Once:
        """Likewise, of the encoder with these changes."""
        return _Once(self._encoder.tuned(changes))


def measure(data: ClipData, tower: Path | None = None, parts: Sequence[int] = (0,)) -> list[Sight]:
    """The table's rows."""
    import torch

    from stepformer.encoders.clip import ClipText, TextTower
    from stepformer.encoders.sentence import default_sentence_encoder

    sentences = _Once(default_sentence_encoder())
    torch.manual_seed(0)
    untrained = TextTower()
    torch.nn.init.xavier_uniform_(untrained.narrow.weight)

    @torch.inference_mode()
    def nothing_learned(texts: Sequence[str]) -> Floats:
        return np.asarray(untrained(torch.from_numpy(sentences.encode_text(texts))).numpy())

    third = (1 / 3, 1 / 3, 1 / 3)
    return [
        tower_row("clip", ClipText(tower, sentences=sentences).encode_text, data, parts),
        tower_row("untrained tower", nothing_learned, data, parts),
        Sight("chance", third, third),
    ]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    add(parser, "data", data={"required": True})
    parser.add_argument("--tower", type=Path, metavar="FILE", help="another text tower (default: the shipped one)")


def run(args: argparse.Namespace) -> int:
    """Measures and prints the table."""
    data = load(Path(args.data))
    rows = measure(data, args.tower)
    counts = {
        "videos": len(data.videos(0)),
        "pictures": int(sum(data.captioned.names[row].startswith("f8k/") for row in data.captioned.of(0))),
        "steps": len(np.intersect1d(data.coin, data.true.of(0))),
    }
    if args.json:
        print(json.dumps({**counts, "rows": [asdict(row) for row in rows]}, indent=2))
        return 0
    print(
        f"held out: {counts['videos']} YouCook2 videos, {counts['pictures']} Flickr8k pictures with five captions, "
        f"{counts['steps']} COIN steps\n"
    )
    print(
        "| | frames: greedy | matched | captions: R@1 | R@5 | COIN: cosine | own first of 778 | ranks pictures alike |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for row in rows:
        cells = [row.greedy, row.matched, row.recall_1, row.recall_5, row.cosine, row.own_first, row.correlation]
        print(f"| {row.name} | " + " | ".join(map(_cell, cells)) + " |")
    return 0


def _cell(value: Interval | None) -> str:
    if value is None:
        return "–"
    middle, low, high = value
    return f"{middle:.3f}" if low == high else f"{middle:.3f} ({low:.3f}–{high:.3f})"
