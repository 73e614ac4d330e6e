"""``stepformer bench names``: names that are seen, and steps that are absent, on YouCook2's frames.

Thresholds are chosen on parts 1 to 5, each with a text tower that was not trained on it, and reported on part 0 with
the shipped tower. A guessed name is right if the sentence encoder's cosine with the step's own sentence is at least
RIGHT, plausible from PLAUSIBLE; both were fixed before anything was measured. ``--out`` writes the picture statistics
that ship (``encoders/clip_pictures.safetensors``) instead: of the captioned photographs of parts 1 to 5.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.clip_data import PARTS, ClipData, Floats, load
from stepformer.app.discover.presence import above_bank
from stepformer.app.naming import SHOWN, TOPIC_SHARE, PhraseBank
from stepformer.base.arrays import unit
from stepformer.cli.options import add
from stepformer.data.grammar import phrase_bank
from stepformer.encoders.clip import ClipText
from stepformer.encoders.pictures import PictureStatistics, clip_pictures

HELP = """Measures on held-out frames how often a name by sight is right, at each threshold, and how often locate calls
a step absent that is there, or there that is absent. Trains five text towers first, unless --towers has them."""
EXAMPLES = [
    "stepformer bench names --data DATASETS --towers FOLDER",
    "stepformer bench names --data DATASETS --out clip_pictures.safetensors",
]
RIGHT, PLAUSIBLE = 0.6, 0.45
KITCHEN = ("cooking", "baking", "drinks")


@dataclass(frozen=True, slots=True, eq=False)
class Measured:
    """Of frames (n,): the guess's score, and its sentence cosine with the truth; of videos (v,): the first topic's
    share, and whether it is of the kitchen; of sentences: the share of the bank below their own video's (n,) and
    other videos' (m,) best."""

    score: NDArray[Any]
    cosine: NDArray[Any]
    share: NDArray[Any]
    kitchen: NDArray[Any]
    present: NDArray[Any]
    absent: NDArray[Any]


def measure(
    data: ClipData, part: int, text: ClipText, sentences: Any, extended: bool, pictures: PictureStatistics
) -> Measured:
    """One part with one tower; ``extended``: with the step sentences of all other parts in the bank."""
    shipped = phrase_bank()
    topics = dict(shipped)
    if extended:
        others = data.frames.of(*(other for other in range(PARTS) if other != part))
        topics = {data.frames.texts[row][0]: "cooking" for row in others} | topics
    bank = PhraseBank(tuple(topics), text.encode_text(list(topics)), tuple(topics.values()), pictures)
    alone = PhraseBank(tuple(shipped), text.encode_text(list(shipped)), pictures=pictures)
    meaning = unit(sentences.encode_text(list(topics)))
    videos = data.videos(part)
    own = [[data.frames.texts[row][0] for row in video] for video in videos]
    steps = text.encode_text([text for some in own for text in some])
    meant = unit(sentences.encode_text([text for some in own for text in some]))
    rows: list[list[float]] = [[] for _ in range(6)]
    for i, video in enumerate(videos):
        x = data.frames.pictures[video]
        whole = x.mean(0)
        agreement = bank.agreement(x, whole)
        best = agreement.argmax(1)
        topic, share = next(iter(bank.topic_shares(whole).items()))
        at = slice(3 * i, 3 * i + 3)
        away = np.roll(np.arange(len(steps)), -3 * (i + 1))[:9]  # sentences of the next three videos
        values: list[Any] = [
            agreement.max(1), (meaning[best] * meant[at]).sum(1), [share], [topic in KITCHEN],
            *np.split(above_bank(np.concatenate([steps[at], steps[away]]), x, pictures, alone), [3]),
        ]  # fmt: skip
        for column, value in zip(rows, values, strict=True):
            column.extend(value)
    return Measured(*(np.array(column) for column in rows))


def joined(some: Sequence[Measured]) -> Measured:
    """All parts as one."""
    return Measured(*(np.concatenate([getattr(one, name) for one in some]) for name in Measured.__slots__))


def at_threshold(found: Measured, threshold: float) -> tuple[int, float, float]:
    """How many names are shown, and the shares of them that are right, and right or plausible."""
    shown = found.cosine[found.score >= threshold]
    if not len(shown):
        return 0, 0.0, 0.0
    return len(shown), float((shown >= RIGHT).mean()), float((shown >= PLAUSIBLE).mean())


def _report(name: str, found: Measured) -> dict[str, Any]:
    curve = {round(t, 2): at_threshold(found, t) for t in np.arange(0.2, 0.85, 0.05)}
    sure = found.share >= TOPIC_SHARE
    errors = {
        share: (float((found.present < share).mean()), float((found.absent >= share).mean()))
        for share in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
    }
    return {
        "name": name, "frames": len(found.score), "curve": curve, "chosen": at_threshold(found, SHOWN),
        "topics": (int(sure.sum()), len(sure), float(found.kitchen[sure].mean()) if sure.any() else 0.0),
        "absent": errors,
    }  # fmt: skip


def towers_of(data: ClipData, folder: Path | None, vectors: Path | None, sentences: Any) -> dict[int, ClipText]:
    """A tower for each of parts 1 to 5 that was not trained on it; kept in ``folder``."""
    import tempfile

    from benchmarks import tower

    place = folder or Path(tempfile.mkdtemp())
    place.mkdir(parents=True, exist_ok=True)
    paths = {fold: place / f"fold{fold}.safetensors" for fold in range(1, PARTS)}
    if missing := [fold for fold, path in paths.items() if not path.is_file()]:
        known = tower.sentence_vectors(data, vectors)
        for fold in missing:
            source = tower.Source(data, known, [part for part in range(1, PARTS) if part != fold], False)
            tower.save(tower.train(source, tower.Recipe()), paths[fold], {"held_out": fold})
    return {fold: ClipText(path, sentences=sentences) for fold, path in paths.items()}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    add(parser, "data", "out", data={"required": True})
    parser.add_argument("--towers", type=Path, metavar="FOLDER", help="keep the five towers here")
    parser.add_argument("--keep-vectors", type=Path, metavar="FILE", help="keep the sentence vectors here (.npz)")


def run(args: argparse.Namespace) -> int:
    """Measures and prints, or writes the statistics."""
    from benchmarks.sight import _Once
    from stepformer.encoders.sentence import default_sentence_encoder

    data = load(Path(args.data))
    if args.out is not None:
        of: Floats = data.captioned.pictures[data.captioned.of(*range(1, PARTS))]
        PictureStatistics.of(of).save(Path(args.out))
        print(json.dumps({"out": str(args.out), "pictures": len(of)}))
        return 0
    sentences = _Once(default_sentence_encoder())
    towers = towers_of(data, args.towers, args.keep_vectors, sentences)
    reports = []
    for bank in ("shipped bank", "extended bank"):
        extended, pictures = bank == "extended bank", clip_pictures()
        chosen = joined([measure(data, part, text, sentences, extended, pictures) for part, text in towers.items()])
        reports.append(_report(f"parts 1 to 5, {bank}", chosen))
        tested = measure(data, 0, ClipText(sentences=sentences), sentences, extended, pictures)
        reports.append(_report(f"part 0, {bank}", tested))
    if args.json:
        print(json.dumps(reports, indent=2))
        return 0
    for report in reports:
        print(f"{report['name']}: {report['frames']} frames\n  threshold: shown, right, right or plausible")
        for threshold, (shown, right, plausible) in [*report["curve"].items(), (f"{SHOWN} (chosen)", report["chosen"])]:
            print(f"  {threshold}: {shown}, {right:.2f}, {plausible:.2f}")
        shown, videos, right = report["topics"]
        print(f"  topic shown for {shown} of {videos} videos, of the kitchen {right:.2f}")
        for share, (missed, kept) in report["absent"].items():
            print(f"  share {share}: present called absent {missed:.3f}, other recipes called present {kept:.3f}")
    return 0
