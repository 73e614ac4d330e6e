"""``stepformer bench said``: names taken from what is said, on YouCook2's real narration with human steps.

Steps are the marked ones. A name is judged against the sentence of the marked step, by the sentence encoder's cosine
with thresholds calibrated on pairs judged by hand (``benchmarks/data/judged_names.csv``). First no step has a picture;
then those that have one (a frame of CLIP ViT-B/16, ``docs/sight.md``) are named with it, by text towers that were not
trained on the video. Rules, weights and thresholds were made on the dev half of the videos only.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.clip_data import ClipData, load, part_of
from benchmarks.judged import Floats, Judge, absurd_share, logistic
from benchmarks.spoken import Spoken, load_youcook2
from stepformer.app.naming import FEATURES, SHOWN_SAID, SURE_SAID, WORTH, PhraseBank, Worth, candidates, spoken
from stepformer.cli.options import add

HELP = """Prints, at several thresholds, the share of spoken names that are right, or at least plausible, and the share
of steps that have one, on videos on which nothing was chosen (--half test); with --towers, also with a picture of each
step that has one. --judged prints how the sentence encoder scores the pairs judged by hand, and the thresholds that
agree best with them; --pairs prints names beside the marked sentences instead of numbers; --fit prints the weights
fitted on dev."""
EXAMPLES = [
    "stepformer bench said --data DATASETS",
    "stepformer bench said --data DATASETS --half dev --pairs",
    "stepformer bench said --data DATASETS --towers FOLDER --fit",
    "stepformer bench said --judged",
]
THRESHOLDS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


# -- videos --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Heard:
    """A video's narration as phrases; ``seen``: number of a step -> a picture of it (512,); ``tower``: a text side that
    was not trained on the video, and ``bank`` in its space; ``sentences``: the sentence encoder."""

    video: Spoken
    phrases: list[Any]
    seen: dict[int, NDArray[Any]]
    tower: Any
    bank: PhraseBank | None
    sentences: Any

    def names(self, worth: Worth, sight: bool) -> list[tuple[Any, str]]:
        """(name or None, marked sentence) of every step, or, with ``sight``, of every step that has a picture."""
        numbers = sorted(self.seen) if sight else range(len(self.video.steps))
        spans = [self.video.steps[i][:2] for i in numbers]
        looks = np.stack([self.seen[i] for i in numbers]) if sight and numbers else np.zeros((0, 512))

        def fits(names: Sequence[str]) -> Any:
            assert self.bank is not None
            return self.bank.shares_below(self.tower.encode_text(names), looks)

        encode, sense = self.sentences.encode_text, self.sentences.sense
        found = spoken(spans, self.phrases, encode, sight=fits if sight else None, sense=sense, worth=worth)
        return [(name, self.video.steps[i][2]) for name, i in zip(found, numbers, strict=True)]


def hear(videos: Sequence[Spoken], frames: ClipData | None, towers: dict[int, Any], sentences: Any) -> list[Heard]:
    """Parses the narration of videos, and finds their pictures, if ``frames`` are there."""
    from stepformer.data.grammar import phrase_bank
    from stepformer.encoders.clip import clip_pictures
    from stepformer.narration import extract_phrases

    texts = tuple(phrase_bank())
    banks = {part: PhraseBank(texts, one.encode_text(texts), pictures=clip_pictures()) for part, one in towers.items()}
    shown = frames.frames if frames else None
    listed = zip(shown.names, shown.texts, shown.pictures, strict=True) if shown else ()
    pictures = {(name, text[0].strip()): picture for name, text, picture in listed}
    found = []
    for video in videos:
        steps = enumerate(text.strip() for _, _, text in video.steps)
        seen = {i: pictures[video.video, t] for i, t in steps if (video.video, t) in pictures}
        part = part_of(video.video)
        found.append(Heard(video, extract_phrases(video.cues), seen, towers.get(part), banks.get(part), sentences))
    return found


def fit(videos: Sequence[Heard], judge: Judge) -> Worth:
    """The weights: of all phrases near a step, by the chance that a person would call each its name."""
    rows: list[Floats] = []
    pairs: list[tuple[str, str]] = []
    seen: list[float] = []
    for heard in videos:
        found = candidates(heard.phrases, heard.sentences.encode_text)
        if found is None:
            continue
        spans = [step[:2] for step in heard.video.steps]
        features = found.features(spans)
        looks = np.stack([heard.seen.get(i, np.full(512, np.nan)) for i in range(len(spans))])
        assert heard.bank is not None
        shares = heard.bank.shares_below(heard.tower.encode_text(found.names), looks)
        for i, j in np.argwhere(found.near(spans) > 0):
            rows.append(features[i, j])
            pairs.append((found.names[j], heard.video.steps[i][2]))
            seen.append(shares[i, j] if int(i) in heard.seen else np.nan)
    x, y, z = np.stack(rows), judge.chance(judge.cosines(pairs)), np.asarray(seen)
    made = dict(zip(("base", *FEATURES), logistic(x, y), strict=True))
    words = Worth(**made, shared_usually=x[:, FEATURES.index("shared")].mean())
    has = np.isfinite(z)
    odds = words.log_odds(x)
    base, share, sight = logistic(np.c_[odds[has], z[has]], y[has])
    both = replace(words, seen_base=base, seen_words=share, seen=sight)
    return Worth(**{name: round(float(value), 3) for name, value in asdict(both).items()})


# -- the command ---------------------------------------------------------------------------------------------------


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    add(parser, "data", "limit", limit=200)
    parser.add_argument("--half", choices=("dev", "test"), default="test", help="which videos")
    parser.add_argument("--towers", type=Path, metavar="FOLDER", help="keep the five towers here")
    parser.add_argument("--pairs", action="store_true", help="print names beside marked sentences")
    parser.add_argument("--judged", action="store_true", help="the pairs judged by hand instead of videos")
    parser.add_argument("--fit", action="store_true", help="print the constants that it chooses")


def run(args: argparse.Namespace) -> int:
    """Measures and prints."""
    from benchmarks.names import towers_of
    from benchmarks.sight import _Once
    from stepformer.encoders.clip import ClipText
    from stepformer.encoders.sentence import default_sentence_encoder
    from stepformer.errors import UsageError

    sentences = _Once(default_sentence_encoder())
    judge = Judge(sentences, "spoken")
    right, plausible = judge.thresholds()
    if args.judged:
        for one in (judge, Judge(sentences, "seen")):
            columns = "cosine_from, pairs, right, plausible, wrong"
            print(json.dumps({"source": one.source, "pairs": len(one.pairs), "thresholds": one.thresholds(),
                              "agreement": one.agreement(), columns: one.curve()}))  # fmt: skip
        for rules, (names, absurd) in absurd_share().items():
            print(f"{absurd} of {names} names absurd by hand, {rules} (see benchmarks/judged.py)")
        return 0
    if not args.data:
        raise UsageError("give --data, the folder of public datasets, or --judged")
    sighted = args.fit or args.towers
    data = load(Path(args.data)) if sighted else None
    towers = towers_of(data, args.towers, sentences) | {0: ClipText(sentences=sentences)} if data else {}
    half = "dev" if args.fit else args.half
    videos = load_youcook2(Path(args.data) / "youcook2" / "youcook2_asr_steps.json.gz")
    heard = hear([video for video in videos if video.half == half][: args.limit], data, towers, sentences)
    if args.fit:
        print(json.dumps(asdict(fit(heard, judge))))
        return 0
    for sight in (False, True) if sighted else (False,):
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
