"""``stepformer bench names``: names that are seen, and steps that are absent, on YouCook2's frames.

Thresholds are chosen on parts 1 to 5, each with a text tower that was not trained on it, and reported on part 0 with
the shipped tower. Whether a guessed name is right or plausible is judged by the sentence encoder's cosine with the
step's own sentence, calibrated on pairs judged by hand (``benchmarks/judged.py``). For ``search``, the frames of a
part, or of four videos of it, are a library that is asked for its own steps, for other recipes' and for COIN's steps of
tasks that are not of the kitchen. ``--out`` writes the picture statistics that ship
(``encoders/clip_pictures.safetensors``) instead: of the captioned photographs of parts 1 to 5.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.clip_data import PARTS, ClipData, Floats, load
from benchmarks.judged import Judge
from benchmarks.quality import auc
from stepformer.app.naming import PRESENT_SEEN, SHOWN, TOPIC_SHARE, PhraseBank, best_fit
from stepformer.base.arrays import unit
from stepformer.base.files import replacing
from stepformer.cli.options import add
from stepformer.data.grammar import phrase_bank
from stepformer.encoders.clip import ClipText, PictureStatistics, clip_pictures
from stepformer.narration.lexicon import word_set

HELP = """Measures on held-out frames how often a name guessed from a frame is right, at each threshold, how often
locate calls a present step absent or an absent one present, and how often search calls what is there "not here". Trains
five text towers first, unless --towers has them; with --held-out, measures the shipped tower alone."""
EXAMPLES = [
    "stepformer bench names --data DATASETS --towers FOLDER",
    "stepformer bench names --data DATASETS --held-out",
    "stepformer bench names --data DATASETS --out clip_pictures.safetensors",
]
KITCHEN = ("cooking", "baking", "drinks")
COIN_KITCHEN = word_set(
    "BlowSugar BoilNoodles CarvePumpkin CleanFish CleanRustyPot CleanShrimp CookOmelet CutCantaloupe CutGrapeFruit "
    "CutMango MakeBurger MakeChocolate MakeCocktail MakeCoffee MakeCookie MakeFrenchFries MakeHomemadeIceCream "
    "MakeHummus MakeLambKebab MakeMatchaTea MakeOrangeJuice MakePickles MakePizza MakeSalad MakeSalmon MakeSandwich "
    "MakeStrawberrySmoothie MakeSugarCoatedHaws MakeTea MakeYoutiao OpenChampagneBottle RoastChestnut SmashGarlic "
    "UnclogSinkWithBakingSoda UseRiceCookerToCookRice UseSoyMilkMaker UseToaster WashDish WrapZongzi"
)
"""COIN's tasks whose steps may well be seen in a kitchen."""
SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
SMALL = 4  # videos of a small library


@dataclass(frozen=True, slots=True, eq=False)
class Measured:
    """Of frames (n,): the guess's score, and its sentence cosine with the truth; of videos (v,): the first topic's
    share, and whether it is of the kitchen; of sentences: how well they fit their own video's (n,) and other videos'
    (m,) frames at best, and so of foreign steps."""

    score: NDArray[Any]
    cosine: NDArray[Any]
    share: NDArray[Any]
    kitchen: NDArray[Any]
    present: NDArray[Any]
    absent: NDArray[Any]
    foreign: NDArray[Any]


def measure(
    data: ClipData, part: int, text: ClipText, sentences: Any, extended: bool, pictures: PictureStatistics,
    foreign: list[str],
) -> Measured:  # fmt: skip
    """One part with one tower; ``extended``: with the step sentences of all other parts in the bank."""
    shipped = phrase_bank()
    topics = dict(shipped)
    if extended:
        others = data.frames.of(*(other for other in range(PARTS) if other != part))
        topics = {data.frames.texts[row][0]: "cooking" for row in others} | topics
    bank = PhraseBank(tuple(topics), text.encode_text(list(topics)), tuple(topics.values()), pictures)
    meaning = unit(sentences.encode_text(list(topics)))
    videos = data.videos(part)
    own = [[data.frames.texts[row][0] for row in video] for video in videos]
    steps = text.encode_text([text for some in own for text in some])
    meant = unit(sentences.encode_text([text for some in own for text in some]))
    strange = text.encode_text(foreign)
    rows: list[list[float]] = [[] for _ in range(7)]
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
            *(best_fit(texts, x, pictures) for texts in (steps[at], steps[away], strange)),
        ]  # fmt: skip
        for column, value in zip(rows, values, strict=True):
            column.extend(value)
    return Measured(*(np.array(column) for column in rows))


def joined(some: Sequence[Measured]) -> Measured:
    """All parts as one."""
    return Measured(*(np.concatenate([getattr(one, name) for one in some]) for name in Measured.__slots__))


def at_threshold(found: Measured, threshold: float, marks: tuple[float, float]) -> tuple[int, float, float]:
    """How many names are shown, and the shares of them that are right, and right or plausible; both by cosine."""
    shown = found.cosine[found.score >= threshold]
    if not len(shown):
        return 0, 0.0, 0.0
    return len(shown), float((shown >= marks[0]).mean()), float((shown >= marks[1]).mean())


def foreign_steps(folder: Path, data: ClipData, part: int) -> list[str]:
    """COIN's steps of one part that no task of the kitchen has."""
    videos = json.loads(gzip.decompress((folder / "coin" / "coin_annotations.json.gz").read_bytes())).values()
    kitchen = {row[3] for v in videos if v["class"] in COIN_KITCHEN or v["class"] is None for row in v["annotation"]}
    return sorted({text for i in data.coin if data.true.parts[i] == part for text in data.true.texts[i]} - kitchen)


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """Shares of the bank below what a library's own steps, other recipes' steps and foreign steps have at best."""

    own: NDArray[Any]
    others: NDArray[Any]
    foreign: NDArray[Any]


def ask(data: ClipData, part: int, text: ClipText, foreign: list[str], pictures: PictureStatistics, size: int) -> Asked:
    """Asks libraries of ``size`` videos of a part, each for its own steps, the next library's, and foreign ones."""
    bank = PhraseBank(tuple(phrase_bank()), text.encode_text(list(phrase_bank())), pictures=pictures)
    videos = data.videos(part)
    libraries = [videos[at : at + size].reshape(-1) for at in range(0, max(1, len(videos) - size + 1), size)]
    away = text.encode_text(foreign)
    steps = [text.encode_text([data.frames.texts[row][0] for row in rows]) for rows in libraries]
    columns: list[list[float]] = [[], [], []]
    for i, rows in enumerate(libraries):
        others = steps[(i + 1) % len(steps)] if len(steps) > 1 else steps[i][:0]
        for column, texts in zip(columns, (steps[i], others, away), strict=True):
            if len(texts):
                column.extend(above_bank(texts, data.frames.pictures[rows], pictures, bank))
    return Asked(*(np.array(column) for column in columns))


def above_bank(
    texts: NDArray[Any], stretches: NDArray[Any], pictures: PictureStatistics, bank: PhraseBank
) -> NDArray[np.float64]:
    """(M,) the share of the bank that fits its best stretch (K, D) worse than each text (M, D) does."""
    others = np.sort(bank.standard(stretches).max(0))
    return np.asarray(np.searchsorted(others, best_fit(texts, stretches, pictures)) / len(others))


def _searched(name: str, found: Asked) -> dict[str, Any]:
    others = auc(found.own, found.others) if len(found.others) else None
    errors = {
        share: tuple(float((x < share).mean()) if len(x) else None for x in (found.own, found.others, found.foreign))
        for share in SHARES
    }
    return {"name": name, "area_foreign": auc(found.own, found.foreign), "area_others": others, "not_here": errors}


def _report(name: str, found: Measured, marks: tuple[float, float]) -> dict[str, Any]:
    curve = {round(t, 2): at_threshold(found, t, marks) for t in np.arange(0.2, 0.85, 0.05)}
    sure = found.share >= TOPIC_SHARE
    errors = {
        deviations: tuple(float((x < deviations).mean()) for x in (found.present, found.absent, found.foreign))
        for deviations in (0.0, 0.5, 1.0, PRESENT_SEEN, 1.5, 2.0, 2.5)
    }
    return {
        "name": name, "frames": len(found.score), "curve": curve, "chosen": at_threshold(found, SHOWN, marks),
        "topics": (int(sure.sum()), len(sure), float(found.kitchen[sure].mean()) if sure.any() else 0.0),
        "absent": errors,
    }  # fmt: skip


def towers_of(data: ClipData, folder: Path | None, sentences: Any) -> dict[int, ClipText]:
    """A tower for each of parts 1 to 5 that was not trained on it; kept in ``folder``."""
    import tempfile

    from benchmarks import tower
    from stepformer.encoders.sentence import default_sentence_encoder

    place = folder or Path(tempfile.mkdtemp())
    place.mkdir(parents=True, exist_ok=True)
    paths = {fold: tower.fold_file(place, fold) for fold in range(1, PARTS)}
    for fold, path in paths.items():
        if not path.is_file():
            tower.train_to(path, data, tower.Recipe(), fold, False, default_sentence_encoder())
    return {fold: ClipText(path, sentences=sentences) for fold, path in paths.items()}


def save_statistics(statistics: PictureStatistics, path: Path) -> None:
    """Writes the safetensors file that ships, in 16 bits."""
    from safetensors.numpy import save_file

    # scaled up, for the smallest of the rest would vanish in 16 bits
    state = {"mean": statistics.mean, "factors": statistics.factors, "rest": statistics.rest * 1e3}
    with replacing(path) as temporary:
        save_file({name: part.astype(np.float16) for name, part in state.items()}, temporary)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    add(parser, "data", "out", data={"required": True})
    parser.add_argument("--towers", type=Path, metavar="FOLDER", help="keep the five towers here")
    parser.add_argument("--held-out", action="store_true", help="part 0 alone: no tower has to be trained")


def run(args: argparse.Namespace) -> int:
    """Measures and prints, or writes the statistics."""
    from benchmarks.sight import _Once
    from stepformer.encoders.sentence import default_sentence_encoder

    data = load(Path(args.data))
    if args.out is not None:
        of: Floats = data.captioned.pictures[data.captioned.of(*range(1, PARTS))]
        save_statistics(PictureStatistics.of(of), Path(args.out))
        print(json.dumps({"out": str(args.out), "pictures": len(of)}))
        return 0
    sentences = _Once(default_sentence_encoder())
    judge, shipped, pictures = Judge(sentences, "seen"), ClipText(sentences=sentences), clip_pictures()
    marks = judge.thresholds()
    foreign = {part: foreign_steps(Path(args.data), data, part) for part in range(PARTS)}
    groups = {} if args.held_out else {"parts 1 to 5": towers_of(data, args.towers, sentences)}
    groups["part 0"] = {0: shipped}
    reports = []
    for bank in ("shipped bank", "extended bank"):
        extended = bank == "extended bank"
        for name, parts in groups.items():
            each = [measure(data, i, text, sentences, extended, pictures, foreign[i]) for i, text in parts.items()]
            reports.append(_report(f"{name}, {bank}", joined(each), marks))
    searched = []
    for size, kind in ((SMALL, f"libraries of {SMALL} videos"), (len(data.frames.names), "one library")):
        for name, parts in groups.items():
            asked = [ask(data, i, t, foreign[i], pictures, size) for i, t in parts.items()]
            columns = (np.concatenate([getattr(one, column) for one in asked]) for column in Asked.__slots__)
            searched.append(_searched(f"search, {name}, {kind}", Asked(*columns)))
    if args.json:
        print(json.dumps({"names": reports, "search": searched}, indent=2))
        return 0
    print(judge)
    for low, pairs, *inside in judge.curve():
        print(f"  cosine {low:.1f} to {low + 0.1:.1f}: {pairs:.0f} pairs, right, plausible, wrong: {inside}")
    for report in reports:
        print(f"{report['name']}: {report['frames']} frames\n  threshold: shown, right, right or plausible")
        for threshold, (shown, right, plausible) in [*report["curve"].items(), (f"{SHOWN} (chosen)", report["chosen"])]:
            print(f"  {threshold}: {shown}, {right:.2f}, {plausible:.2f}")
        shown, videos, right = report["topics"]
        print(f"  topic shown for {shown} of {videos} videos, of the kitchen {right:.2f}")
        for deviations, (own, other, away) in report["absent"].items():
            print(f"  below {deviations} sd called absent: {own:.3f}, other recipes {other:.3f}, foreign {away:.3f}")
    for report in searched:
        others = "" if report["area_others"] is None else f", other recipes' {report['area_others']:.3f}"
        print(f"{report['name']}: area under the ROC curve against foreign steps {report['area_foreign']:.3f}{others}")
        for share, (own, other, foreign) in report["not_here"].items():
            recipes = "" if other is None else f", of other recipes {other:.3f}"
            print(f"  share {share}: called not here of its own {own:.3f}{recipes}, of foreign {foreign:.3f}")
    return 0
