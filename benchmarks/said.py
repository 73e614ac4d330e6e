"""``stepformer bench said``: names taken from what is said; trains their classifier, an hour on two free cores.

What might name a step was labelled (``data/name_labels.csv``; names are kept as hashes, since YouCook2's words are not
ours): in talks that were invented for this, in our own words (``data/talks``), and in YouCook2's real narration, by
language models that read the talk. Each name is read as it stands in its talk, with the marks of its sentences and
without. Talks and videos of the split "test" were written and chosen apart, and labelled without seeing which names
are chosen.

The marked steps of YouCook2's test half are named too, and the names judged against the steps' sentences by the
sentence encoder's cosine, with thresholds calibrated on pairs judged by hand (``data/judged_names.csv``).
"""

from __future__ import annotations

import argparse
import copy
import csv
import hashlib
import json
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file
from torch import Tensor, nn

from benchmarks.judged import Judge
from benchmarks.spoken import Spoken, load_youcook2
from benchmarks.tower import LowRank
from stepformer.app.naming import Name
from stepformer.app.spoken import SHOWN_SAID, candidates
from stepformer.base.progress import Progress
from stepformer.cli.options import add
from stepformer.encoders.name_classifier import (
    LABELS,
    WORDS_BEFORE,
    WORDS_BEHIND,
    NameClassifier,
    as_read,
    default_name_classifier,
)
from stepformer.encoders.sentence import SentenceEncoder, default_sentence_encoder
from stepformer.errors import UsageError
from stepformer.narration import Cue, extract_phrases
from stepformer.narration.cues import words_around
from stepformer.narration.imperative import name_forms

HELP = """Prints, at several thresholds, how many names of what is said are shown, which share of them is right by
their labels (good, or at least acceptable), which is wrong (not merely of another time), and what share of the acts
that have a right name get one: in invented talks and in YouCook2's videos with and without sentence marks, of which
nothing was learned. Then the same of YouCook2's marked steps, by the sentence encoder: named, right, right or
plausible. --leave-out N trains N times, each time without another part of the training talks, and measures on that.
--out trains the classifier anew on all of them. --judged prints how the sentence encoder scores the pairs judged by
hand; --pairs prints names beside the marked sentences instead of numbers."""
EXAMPLES = [
    "stepformer bench said --data DATASETS",
    "stepformer bench said --data DATASETS --leave-out 3",
    "stepformer bench said --data DATASETS --out classifier.safetensors",
    "stepformer bench said --data DATASETS --half dev --pairs",
    "stepformer bench said --judged",
]
DATA = Path(__file__).parent / "data"
_SAME_S = 4.0  # a name said so near to where it was labelled is the same
_RANK, _RATE, _EPOCHS, _BATCH, _SMOOTH, _SCALE = 16, 5e-4, 3, 32, 0.05, 10.0
_TOKENS, _SHORTENED = 160, 0.4
THRESHOLDS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


@dataclass(frozen=True, slots=True)
class Talk:
    """What is said in a video, and whether anything may be learned from it."""

    name: str
    cues: tuple[Cue, ...]
    split: str


@dataclass(frozen=True, slots=True, eq=False)
class Example:
    """A name that may stand for what is said at ``start_s`` of a talk, as it is read there, in one or two ways; votes
    (4,) for its labels."""

    talk: str
    start_s: float
    name: str
    texts: tuple[str, ...]
    votes: NDArray[np.float32]


# -- talks and labels -------------------------------------------------------------------------------------------------


def invented() -> list[Talk]:
    """Our own talks: lines of "## NAME", then seconds and words of each cue."""
    found: dict[str, list[Cue]] = {}
    for path in sorted((DATA / "talks").glob("*.txt")):
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith("## "):
                cues = found.setdefault(line[3:], [])
            elif line.strip():
                start_s, end_s, words = line.split(maxsplit=2)
                cues.append(Cue(float(start_s), float(end_s), words))
    return [Talk(name, tuple(cues), "test" if name.startswith("test") else "train") for name, cues in found.items()]


def without_marks(cues: Iterable[Cue]) -> tuple[Cue, ...]:
    """As automatic captions have it."""
    return tuple(replace(cue, text=" ".join(cue.text.lower().translate(_NO_MARKS).split())) for cue in cues)


_NO_MARKS = str.maketrans("", "", '.,!?;:"')


Labels = dict[tuple[str, str], list[tuple[float, NDArray[np.float32]]]]


def labels() -> Labels:
    """(talk, hash of a name) -> when it is said, and the votes (4,) of those who labelled it."""
    found: Labels = defaultdict(list)
    with (DATA / "name_labels.csv").open(encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream):
            votes = np.bincount([int(label) for label in row["labels"]], minlength=len(LABELS))
            found[row["talk"], row["name"]].append((float(row["start_s"]), (votes / votes.sum()).astype(np.float32)))
    return found


def votes_of(known: Labels, talk: str, name: str, start_s: float) -> tuple[float, NDArray[np.float32]] | None:
    """When the name that is said there was labelled, and its votes."""
    key = talk, hashlib.sha256(name.encode()).hexdigest()[:8]
    near = [at for at in known.get(key, ()) if abs(at[0] - start_s) < _SAME_S]
    return min(near, key=lambda at: abs(at[0] - start_s), default=None)


def examples_of(talks: Sequence[Talk]) -> list[Example]:
    """The labelled names of talks, read with the marks of their sentences and without."""
    known = labels()
    found: dict[tuple[str, str, float], Example] = {}
    for talk in talks:
        for cues in dict.fromkeys((talk.cues, without_marks(talk.cues))):
            phrases = extract_phrases(cues)
            around = words_around(cues, [(p.start_s, p.end_s) for p in phrases], WORDS_BEFORE, WORDS_BEHIND)
            for phrase, forms, said in zip(phrases, name_forms(phrases), around, strict=True):
                for name in forms:
                    if (given := votes_of(known, talk.name, name, phrase.start_s)) is None:
                        continue
                    key, text = (talk.name, name, given[0]), as_read(name, said)
                    one = found.get(key) or Example(talk.name, given[0], name, (), given[1])
                    found[key] = replace(one, texts=tuple(dict.fromkeys((*one.texts, text))))
    return list(found.values())


# -- training ---------------------------------------------------------------------------------------------------------


def shortened(text: str, random: np.random.Generator) -> str:
    """With fewer words around the name, at random, as where little is said: a clip, a beginning, a pause."""
    name, before, said, behind = text.split(" [SEP] ")
    last, first = (int(random.integers(len(words) + 1)) for words in (before.split(), behind.split()))
    return as_read(name, (" ".join(before.split()[last:]), said, " ".join(behind.split()[:first])))


def train(encoder: SentenceEncoder, examples: Sequence[Example], seed: int = 0) -> dict[str, Tensor]:
    """What ships: the changes of the sentence encoder, and the weights of the classes on its vector."""
    torch.manual_seed(seed)
    random = np.random.default_rng(seed)
    bert = copy.deepcopy(encoder._bert).requires_grad_(False)
    changed = {name: layer for name, layer in bert.named_modules() if isinstance(layer, nn.Linear)}
    ranks = {name: LowRank(layer.weight, _RANK) for name, layer in changed.items()}
    for name, layer in changed.items():
        nn.utils.parametrize.register_parametrization(layer, "weight", ranks[name])
    head = nn.Linear(encoder.dim, len(LABELS))
    learned = [*head.parameters(), *(p for rank in ranks.values() for p in rank.parameters())]
    optimiser = torch.optim.AdamW(learned, lr=_RATE, weight_decay=0.01)
    steps = _EPOCHS * -(-len(examples) // _BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, _RATE, steps, pct_start=0.1, cycle_momentum=False)
    targets = torch.from_numpy(np.stack([example.votes for example in examples]))
    targets = (1 - _SMOOTH) * targets + _SMOOTH / len(LABELS)
    with Progress("training", steps, "steps", quiet=False) as progress:
        for _ in range(_EPOCHS):
            texts = [example.texts[int(random.integers(len(example.texts)))] for example in examples]
            texts = [shortened(text, random) if random.random() < _SHORTENED else text for text in texts]
            lengths = np.array([len(text) for text in texts])
            order = random.permutation(len(texts))
            # alike in length within a batch, for little padding
            pools = [part[np.argsort(lengths[part])] for part in np.array_split(order, -(-len(order) // (16 * _BATCH)))]
            batches = np.array_split(np.concatenate(pools), steps // _EPOCHS)
            for at in random.permutation(len(batches)):
                batch = batches[at]
                rows, ids, mask = next(encoder._tokenize.batches([texts[i] for i in batch], _TOKENS, len(batch)))
                weight = mask.unsqueeze(-1).float()
                mean = nn.functional.normalize((bert(ids, mask) * weight).sum(1) / weight.sum(1), dim=-1)
                loss = nn.functional.cross_entropy(head(_SCALE * mean), targets[batch[rows]])
                optimiser.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimiser.step()
                schedule.step()
                progress.advance()
    state = {f"{name}.{key}": value.detach() for name, rank in ranks.items() for key, value in rank.named_parameters()}
    state |= {"weight": _SCALE * head.weight.detach(), "bias": head.bias.detach()}
    return {key: value.half().contiguous() for key, value in state.items()}


# -- measuring --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of the acts of some talks: scores of the names that were chosen, whether they are right, whether
    they are wrong (not merely of another time), and how many acts could have had a right name."""

    scores: NDArray[np.float64]
    right: NDArray[np.bool_]
    wrong: NDArray[np.bool_]
    acts: int

    def row(self, least: float) -> tuple[int, float, float, float]:
        """Names shown from a score on; shares that are right, and wrong, of them; share of acts with a right name."""
        shown = self.scores >= least
        count = int(shown.sum())
        right, wrong = (float(x[shown].mean()) if count else 0.0 for x in (self.right, self.wrong))
        return count, right, wrong, float(self.right[shown].sum() / max(1, self.acts))


def measure(talks: Iterable[Talk], classify: Any) -> Outcome:
    """Names as the product chooses them; those that nobody labelled do not count."""
    known, rows, acts = labels(), [], 0  # type: Labels, list[tuple[float, bool, bool]], int
    for talk in talks:
        phrases = extract_phrases(talk.cues)
        forms = name_forms(phrases)
        for phrase, own in zip(phrases, forms, strict=True):
            given = [votes_of(known, talk.name, name, phrase.start_s) for name in own]
            acts += any(one is not None and one[1][2:].sum() > 0.5 for one in given)
        found = candidates(phrases, talk.cues, classify)
        if found is None:
            continue
        for name, phrase, score in zip(found.names, found.phrases, found.scores, strict=True):
            one = votes_of(known, talk.name, name, phrase.start_s)
            if one is not None:
                rows.append((float(score), bool(one[1][2:].sum() > 0.5), bool(one[1][0] > 0.5)))
    scores, right, wrong = np.array(rows or np.zeros((0, 3))).T
    return Outcome(scores, right > 0, wrong > 0, acts)


def step_names(videos: Sequence[Spoken], classify: Any) -> list[tuple[Name | None, str]]:
    """The name of every marked step, and its sentence."""
    rows: list[tuple[Name | None, str]] = []
    for video in videos:
        found = candidates(extract_phrases(video.cues), video.cues, classify)
        spans = [(start, end) for start, end, _ in video.steps]
        names = [None] * len(spans) if found is None else found.of_steps(spans)
        rows += [(name, text) for name, (_, _, text) in zip(names, video.steps, strict=True)]
    return rows


# -- the command ------------------------------------------------------------------------------------------------------


def youcook2(path: Path, split: str) -> list[Talk]:
    """Its talks whose names were labelled, as people or a recogniser put the marks."""
    named = {talk for talk, _ in labels()}
    found = []
    for video in load_youcook2(path, marks=True, untimed=True):
        # nothing is measured on videos without timed steps
        own = "test" if video.steps and video.half == "test" else "train"
        if video.video in named and own == split:
            found.append(Talk(video.video, video.cues, split))
    return found


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    add(parser, "data", "out", "limit", limit=200)
    parser.add_argument("--half", choices=("dev", "test"), default="test", help="which videos")
    parser.add_argument("--leave-out", type=int, metavar="N", help="train on all but one of N parts")
    parser.add_argument("--pairs", action="store_true", help="print names beside marked sentences")
    parser.add_argument("--judged", action="store_true", help="the pairs judged by hand instead of videos")


def run(args: argparse.Namespace) -> int:
    """Trains, if asked to, and measures."""
    judge = Judge(default_sentence_encoder(), "spoken")
    if args.judged:
        for one in (judge, Judge(judge.sentences, "seen")):
            columns = "cosine_from, pairs, right, plausible, wrong"
            print(json.dumps({"source": one.source, "pairs": len(one.pairs), "thresholds": one.thresholds(),
                              "agreement": one.agreement(), columns: one.curve()}))  # fmt: skip
        return 0
    if not args.data:
        raise UsageError("give --data, the folder of public datasets, or --judged")
    path = Path(args.data) / "youcook2" / "youcook2_asr_steps.json.gz"
    if args.leave_out or args.out:
        talks = [talk for talk in invented() if talk.split == "train"] + youcook2(path, "train")
        if args.out:
            save_file(train(judge.sentences, examples_of(talks)), args.out)
            return 0
        for kind, outcome in left_out(talks, args.leave_out).items():
            show(f"{kind}, left out of training", outcome)
        return 0
    classify = default_name_classifier()
    videos = [video for video in load_youcook2(path) if video.half == args.half][: args.limit]
    if not args.pairs:
        real = youcook2(path, "test")
        show("invented talks, test", measure([talk for talk in invented() if talk.split == "test"], classify))
        show("YouCook2 test videos with marks", measure(real, classify))
        bare = [replace(talk, cues=without_marks(talk.cues)) for talk in real]
        show("YouCook2 test videos without marks", measure(bare, classify))
    found = step_names(videos, classify)
    shown = [(name, text) for name, text in found if name is not None]
    cosine = judge.cosines([(name.text, text) for name, text in shown])
    if args.pairs:
        for (name, text), c in zip(shown, cosine, strict=True):
            print(f"{name.score:.2f}\t{c:.2f}\t{name.text}\t{text}")
        return 0
    right, plausible = judge.thresholds()
    score = np.array([name.score for name, _ in shown])
    print(f"marked steps of YouCook2, {args.half} half: {len(videos)} videos, {len(found)} steps")
    for least in (SHOWN_SAID, *(t for t in THRESHOLDS if t > SHOWN_SAID)):
        c = cosine[score >= least]
        shares = (c >= right).mean(), (c >= plausible).mean()
        print(f"  from {least:.2f}: {len(c)} named, {shares[0]:.3f} right, {shares[1]:.3f} right or plausible")
    return 0


def show(title: str, outcome: Outcome) -> None:
    """Prints a curve."""
    print(f"{title}: {outcome.acts} acts with a right name")
    for least in THRESHOLDS:
        count, right, wrong, reached = outcome.row(least)
        print(f"  from {least:.1f}: {count} shown, {right:.3f} right, {wrong:.3f} wrong; {reached:.3f} of the acts")


def left_out(talks: Sequence[Talk], count: int) -> dict[str, Outcome]:
    """What is measured on the parts that were left out of training, of invented and of real talks."""
    part = {talk.name: int(hashlib.sha256(talk.name.encode()).hexdigest(), 16) % count for talk in talks}
    examples, found = examples_of(talks), {}  # type: Any, dict[str, list[Outcome]]
    with tempfile.TemporaryDirectory() as folder:
        for fold in range(count):
            path = Path(folder) / f"{fold}.safetensors"
            save_file(train(default_sentence_encoder(), [x for x in examples if part[x.talk] != fold], fold), path)
            classify = NameClassifier(default_sentence_encoder(), path)
            own = [talk for talk in talks if part[talk.name] == fold]
            for kind, chosen in (("invented talks", True), ("YouCook2 with marks", False)):
                mine = [talk for talk in own if ("-" in talk.name and talk.name[-2:].isdigit()) is chosen]
                found.setdefault(kind, []).append(measure(mine, classify))
    return {kind: joined(outcomes) for kind, outcomes in found.items()}


def joined(outcomes: Sequence[Outcome]) -> Outcome:
    """Several as one."""
    return Outcome(
        np.concatenate([one.scores for one in outcomes]),
        np.concatenate([one.right for one in outcomes]),
        np.concatenate([one.wrong for one in outcomes]),
        sum(one.acts for one in outcomes),
    )
