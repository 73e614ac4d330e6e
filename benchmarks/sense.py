"""``stepformer bench sense``: trains what tells names that make sense from others (``SentenceEncoder.sense``), ten
minutes on two free cores, and measures it on names read by hand.

The sentence encoder gets a change of low rank in its upper layers, and learns to tell steps as people write them, those
of the recipes that ship, of YouCook2 and of Goal-Step, from the same steps spoiled as captions spoil them: a word
misheard, another verb, thing or place, a word lost, the next sentence run on. Videos with narration are left out, so
that no name that is read here, or measured by ``bench said``, was learned from.
"""

from __future__ import annotations

import argparse
import copy
import csv
import difflib
import functools
import gzip
import itertools
import json
import re
from collections import Counter
from collections.abc import Sequence, Set
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.judged import ABSURD
from benchmarks.spoken import load_youcook2
from benchmarks.tower import LowRank
from stepformer.app.naming import SENSE
from stepformer.base.progress import Progress
from stepformer.cli.options import add
from stepformer.encoders.sentence import SentenceEncoder, default_sentence_encoder
from stepformer.errors import UsageError
from stepformer.narration import lexicon

HELP = """For names of the dev half that were judged by hand: how many are shown at several thresholds, and how many of
those make no sense. With --out, trains again first and writes the result."""
EXAMPLES = ["stepformer bench sense", "stepformer bench sense --data DATASETS --out sense.safetensors"]
READ = "dev half, all"  # see benchmarks/judged.py

_RANK, _LEARNED = 8, ("encoder.layer.3.", "encoder.layer.4.", "encoder.layer.5.")
_STEPS, _BATCH, _RATE, _SCALE = 1000, 128, 2e-3, 20.0
_LEAST, _MOST = 2, 10  # words
_PLACES = ("in", "into", "on", "onto", "with", "from", "to", "through", "over", "around", "for", "at", "between")
_PARTICLES = ("up", "down", "out", "off", "back", "around", "away", "together", "on", "over")
_SMALL = lexicon.PARTICLES.union(
    lexicon.WHERE_WORDS, lexicon.NUMBERS, lexicon.AMOUNTS, lexicon.OBJECT_PRONOUNS,
    lexicon.word_set("of and or until then the a an let"),
)  # fmt: skip
_ONE, _MORE = ("one", "half a", "a", "another", "a quarter"), ("two", "three", "four", "a couple of", "a few")
_SPOONS = ("cup", "teaspoon", "tablespoon", "pound", "piece", "slice", "spoonful")
_TIMES = ("a minute", "a few minutes", "two minutes", "three to four minutes", "five minutes", "ten minutes",
          "fifteen minutes", "thirty seconds", "half an hour", "an hour", "a couple of hours")  # fmt: skip
_LASTING = lexicon.word_set("cook boil simmer fry bake saute soak marinate roast steam grill blend knead stir")
_FIGURES = {
    "1": "one", "2": "two", "3": "three", "4": "four", "5": "five", "6": "six", "7": "seven", "8": "eight", "9": "nine",
    "10": "ten", "15": "fifteen", "20": "twenty", "30": "thirty", "40": "forty", "50": "fifty", "60": "sixty",
}  # fmt: skip
_BEFORE_NOUNS = lexicon.word_set("the a an of to some in into with on for from more this that it's")
_AFTER_VERBS = lexicon.word_set("the a an some it them this up")
_PRONOUNS = ("this", "that", "these", "them", "those", "it")
_PLACE = re.compile(rf" (?:{'|'.join(_PLACES)}) .*$")
_ALIKE = (
    "ph:f ck:k gh: kn:n wr:r wh:w ch:C sh:S th:t qu:kw x:ks c:k z:s v:f b:p d:t g:k ea:i ee:i ou:u oo:u y:i e:i o:u"
)
_SOUNDS = [pair.split(":") for pair in _ALIKE.split()]


# -- what is learned from ------------------------------------------------------------------------------------------


def recipes() -> list[str]:
    """The steps of the recipes that ship, in all their words, with their slots filled in turn."""
    from stepformer.data.grammar import load_grammar

    found = set()
    for task in load_grammar().tasks:
        if task.domain in ("baking", "cooking", "drinks"):
            for procedure in map(task.fill, range(min(task.fillings, 12))):
                found |= {text for step in procedure.steps for text in (step.label, *step.paraphrases)}
    return sorted(found)


def marked(folder: Path) -> list[str]:
    """The clauses of the marked sentences of YouCook2's videos of which no narration is there: a sentence may hold
    several acts without a mark between them, which no name has."""
    heard = {video.video for video in load_youcook2(folder / "youcook2_asr_steps.json.gz")}
    videos = json.loads((folder / "yc2_train.json").read_text("utf-8"))
    verbs = {text.split()[0] for text in recipes()}
    nouns = lexicon.CONCRETE_NOUNS | lexicon.words("foods")  # "and butter the pan", but "salt and butter"
    texts = [text for name, video in videos.items() if name.removeprefix("v_") not in heard
             for text in video["sentences"]]  # fmt: skip
    found: set[str] = set()
    for text in texts:
        clause: list[str] = []
        said = _in_words(text)
        for before, word, after in zip(["", *said], said, [*said[1:], ""], strict=False):
            if word in verbs and before not in _BEFORE_NOUNS and (word not in nouns or after in _AFTER_VERBS):
                found.add(" ".join(clause))
                clause = []
            clause.append(word)
        found.add(" ".join(clause))
    clauses = (re.sub("( ?,| and| then| now)+$", "", clause) for clause in found)
    return sorted(clause for clause in clauses if clause.partition(" ")[0] in verbs)


def labelled(path: Path, verbs: Set[str]) -> list[str]:
    """What is done in Ego4D Goal-Step's kitchens, "kneads the dough", as imperatives."""
    with gzip.open(path, "rt", encoding="utf-8") as stream:
        videos = [video for video in json.load(stream) if video["category"].startswith("COOKING")]
    steps = [step for video in videos for step in video["steps"]]
    texts = [text for step in steps for text in (step[2], *(part[2] for part in step[4]))]
    found = set()
    for verb, *rest in filter(None, map(_in_words, texts)):
        forms = (verb, verb.removesuffix("s"), verb.removesuffix("es"))  # "adds", "mashes"
        found |= {" ".join((form, *rest)) for form in forms if form in verbs}
    return sorted(found)


def _in_words(text: str) -> list[str]:
    text = re.sub(r"\d+", lambda found: f" {_FIGURES.get(found.group(), 'some')} ", text.lower())
    return re.sub("[^a-z' ,]", " ", text).split()


def as_said(text: str, random: np.random.Generator) -> str:
    """A written step as speakers have it: with a particle, an amount, a time, or a pronoun in place of a thing."""
    verb, _, rest = text.partition(" ")
    fitting = [particle for particle in ("in", "up", "down") if verb in lexicon.PHRASAL[particle]]
    way, about = random.integers(4), "about " if random.random() < 0.3 else ""
    if way == 0 and fitting and rest.startswith("the ") and not _PLACE.search(rest):
        return f"{verb} {random.choice(fitting)} {rest}"
    if way == 1 and verb in lexicon.ADDING | {"put", "measure", "mix"} and rest.split()[0] not in _SMALL - {"the"}:
        spoon = str(random.choice(_SPOONS))
        some = f"{about}{random.choice(_ONE)} {spoon}" if random.integers(2) else f"{random.choice(_MORE)} {spoon}s"
        return f"{verb} {some} of {rest.removeprefix('the ')}"
    if way == 2 and verb in _LASTING and " for " not in text:
        what = _PLACE.sub("", f" {rest}") if random.integers(2) else ""
        return f"{verb}{what} for {about}{random.choice(_TIMES)}"
    return re.sub(r"\bit\b", str(random.choice(_PRONOUNS)), text)


class Spoiler:
    """Makes steps senseless. ``said``: words that speakers say, to be misheard for others."""

    def __init__(self, texts: Sequence[str], said: Sequence[str], seed: int = 0) -> None:
        self.texts, self.said, self.random = texts, sorted(said), np.random.default_rng(seed)
        self._sounds = {word: _sound(word) for word in self.said}
        self._things = [text.split()[i].strip(",") for text in texts for i in _content(text.split())[1:]]
        known = {thing.rstrip("s") for thing in self._things}
        self._odd = [word for word in self.said if word.rstrip("s") not in known]
        self._verbs = {text.split()[0] for text in texts}
        self._places = [place.group().strip() for place in map(_PLACE.search, texts) if place]
        self._known = {(text.split()[0], word.strip(",").rstrip("s")) for text in texts for word in text.split()[1:]}
        self._whole = set(texts)
        self._alike = functools.cache(self._misheard_as)
        ways = {
            self._sound: 5.0, self._thing: 3.0, self._verb: 2.0, self._run_on: 2.0, self._other: 2.0,
            self._joined: 2.0, self._place: 2.0, self._lost: 1.5, self._nothing: 1.5, self._and: 1.0,
        }  # fmt: skip
        self._ways, self._shares = list(ways), np.array([*ways.values()]) / sum(ways.values())

    def __call__(self, text: str) -> str | None:
        """A text spoiled in one way; None if that made a step of it again."""
        words = self._ways[self.random.choice(len(self._ways), p=self._shares)](text.split())
        spoiled = " ".join(words or ())
        return spoiled if len(spoiled.split()) >= _LEAST and spoiled not in self._whole else None

    def _any(self, listed: Sequence[str]) -> str:
        return listed[int(self.random.integers(len(listed)))]

    def _fits(self, verb: str, thing: str) -> bool:
        return (verb, thing.strip(",").rstrip("s")) in self._known

    def _misheard_as(self, word: str) -> list[str]:
        own = _sound(word)
        near = [other for other, sound in self._sounds.items() if abs(len(sound) - len(own)) < 3]
        apart = sorted((_apart(own, self._sounds[other]), other) for other in near if other[:4] != word[:4])
        return [other for far, other in apart[:12] if far <= 0.6]

    def _sound(self, words: list[str]) -> list[str] | None:
        at = int(self.random.choice(_content(words) or [0]))
        heard = self._alike(words[at].strip(","))
        word = self._any(heard) if heard else words[at]
        if word == words[at] or self._fits(words[0], word) or (at == 0 and word in self._verbs):
            return None
        return [*words[:at], word, *words[at + 1 :]]

    def _thing(self, words: list[str]) -> list[str] | None:
        places = _content(words)[1:]
        thing = self._any(self._things if self.random.random() < 0.6 else self.said)
        if not places or self._fits(words[0], thing):
            return None
        at = int(self.random.choice(places))
        return [*words[:at], thing, *words[at + 1 :]]

    def _verb(self, words: list[str]) -> list[str] | None:
        verb, things = self._any(self.texts).split()[0], _content(words)[1:]
        if not things or any(self._fits(verb, words[i]) for i in things):
            return None
        return [verb, *words[1:]]

    def _run_on(self, words: list[str]) -> list[str] | None:
        other = self._any(self.texts).split()
        first, count = self.random.integers(1, max(2, len(other))), self.random.integers(1, 4)
        at = len(words) if self.random.random() < 0.6 else int(self.random.integers(min(2, len(words)), len(words) + 1))
        more = other[first : first + count]
        rest = words[at:] if self.random.random() < 0.5 else []
        return [*words[:at], *more, *rest] if _content(more) else None

    def _other(self, words: list[str]) -> list[str] | None:
        """Another preposition, or a particle."""
        places = [i for i, word in enumerate(words) if word in _PLACES]
        if not places or self.random.random() < 0.3:
            at, particle = 1 if self.random.random() < 0.5 else len(words), self._any(_PARTICLES)
            if words[0] in lexicon.PHRASAL.get(particle, ()):
                return None
            return [*words[:at], particle, *words[at:]]
        at, other = int(self.random.choice(places)), self._any([*_PLACES, "of", "and"])
        if other in ("in", "on", "into", "onto", "to", "over") or other == words[at]:
            return None  # too often as good
        return [*words[:at], other, *words[at + 1 :]]

    def _joined(self, words: list[str]) -> list[str] | None:
        """The beginning of one and the end of another."""
        other = self._any(self.texts).split()
        made = [
            *words[: self.random.integers(1, max(2, len(words)))],
            *other[self.random.integers(1, max(2, len(other))) :],
        ]
        return None if self._fits(made[0], made[-1]) else made

    def _place(self, words: list[str]) -> list[str] | None:
        place = self._any(self._places).split()
        if self._fits(words[0], place[-1]):
            return None
        return [*_PLACE.sub("", " ".join(words)).split(), *place]

    def _lost(self, words: list[str]) -> list[str] | None:
        """Without a preposition, or without the noun before one."""
        joints = [at for at, word in enumerate(words) if at > 1 and word in (*_PLACES, "of", "and")]
        if not joints:
            return None
        at = int(self.random.choice(joints)) - int(self.random.integers(2))
        return [*words[:at], *words[at + 1 :]]

    def _nothing(self, words: list[str]) -> list[str] | None:
        return [words[0], self._any(("the", "it", "a", "to the", "in the", "some")), self._any(self._odd)]

    def _and(self, words: list[str]) -> list[str] | None:
        thing = self._any(self._things if self.random.random() < 0.5 else self._odd)
        return None if self._fits(words[0], thing) else [*words, "and", thing]


def _content(words: Sequence[str]) -> list[int]:
    return [i for i, word in enumerate(words) if word.strip(",") not in _SMALL]


def _sound(word: str) -> str:
    """A word as letters that sound alike are one."""
    word = re.sub(r"(.)\1", r"\1", word)
    for letters, sound in _SOUNDS:
        word = word.replace(letters, sound)
    return word


def _apart(one: str, other: str) -> float:
    """Edit distance, by the longer one's length."""
    row = list(range(len(other) + 1))
    for i, letter in enumerate(one, 1):
        above, row = row, [i]
        for j, second in enumerate(other, 1):
            row.append(min(above[j] + 1, row[-1] + 1, above[j - 1] + (letter != second)))
    return row[-1] / max(len(one), len(other), 1)


# -- training ------------------------------------------------------------------------------------------------------


def spoiled_words(text: str, spoiled: str) -> frozenset[int]:
    """Which words of a spoiled step are not as in the step, or stand where one was lost."""
    words = spoiled.split()
    found: set[int] = set()
    for way, _, _, first, end in difflib.SequenceMatcher(None, text.split(), words, False).get_opcodes():
        if way != "equal":
            found |= {min(at, len(words) - 1) for at in range(first, max(end, first + 1))}
    return frozenset(found)


def train(
    encoder: SentenceEncoder, good: Sequence[str], bad: Sequence[tuple[str, frozenset[int]]], seed: int = 0
) -> dict[str, Tensor]:
    """What ships: the changes of the sentence encoder, and the logistic model on its vector. ``bad``: spoiled steps,
    and which of their words are. A second model, which does not ship, learns to find those words."""
    torch.manual_seed(seed)
    random = np.random.default_rng(seed)
    bert = copy.deepcopy(encoder._bert).requires_grad_(False)
    changed = {name: layer for name, layer in bert.named_modules()
               if isinstance(layer, nn.Linear) and name.startswith(_LEARNED)}  # fmt: skip
    ranks = {name: LowRank(layer.weight, _RANK) for name, layer in changed.items()}
    for name, layer in changed.items():
        nn.utils.parametrize.register_parametrization(layer, "weight", ranks[name])
    head, finder = nn.Linear(encoder.dim, 1), nn.Linear(encoder.dim, 1)
    learned = [
        *head.parameters(),
        *finder.parameters(),
        *itertools.chain(*(rank.parameters() for rank in ranks.values())),
    ]
    optimiser = torch.optim.AdamW(learned, lr=_RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, _RATE, _STEPS, pct_start=0.1, cycle_momentum=False)
    steps = [[(text, frozenset[int]()) for text in good], bad]
    kinds = [(kind, np.array([len(text.split()) for text, _ in kind])) for kind in steps]
    right = torch.cat([torch.ones(_BATCH // 2), torch.zeros(_BATCH // 2)])
    with Progress("training", _STEPS, "steps", quiet=False) as progress:
        for _ in range(_STEPS):
            length = len(good[int(random.integers(len(good)))].split())  # alike in length: little padding, and no hint
            batch = [kind[i] for kind, lengths in kinds
                     for i in random.choice(np.flatnonzero(abs(lengths - length) <= 1), _BATCH // 2)]  # fmt: skip
            rows, ids, mask = next(encoder._tokenize.batches([text for text, _ in batch], 48, len(batch)))
            wrong = torch.full(ids.shape, -1.0)  # 1 at a spoiled word, 0 at another
            for at, row in enumerate(rows):
                text, words = batch[row]
                for token, (start, end) in enumerate(encoder._tokenize._tokenizer.encode(text).offsets):
                    if end > start:
                        wrong[at, token] = float(text.count(" ", 0, start) in words)
            with torch.autocast("cpu", torch.bfloat16):
                hidden = bert(ids, mask).float()
            weight = mask.unsqueeze(-1).float()
            mean = nn.functional.normalize((hidden * weight).sum(1) / weight.sum(1), dim=-1)
            odds = head(_SCALE * mean)[:, 0]
            loss = nn.functional.binary_cross_entropy_with_logits(odds, right[rows])
            found = finder(hidden)[..., 0]
            loss += nn.functional.binary_cross_entropy_with_logits(found[wrong >= 0], wrong[wrong >= 0])
            whole = (nn.functional.logsigmoid(-found) * (wrong >= 0)).sum(1).clamp(max=-1e-4)
            loss -= torch.where(right[rows] > 0, whole, torch.log1p(-whole.exp())).mean() / 2
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            schedule.step()
            progress.advance()
    state = {f"{name}.{key}": value.detach() for name, rank in ranks.items() for key, value in rank.named_parameters()}
    state |= {"weight": _SCALE * head.weight.detach()[0], "base": head.bias.detach()[0]}
    return {key: value.half().contiguous() for key, value in state.items()}


def learn(folder: Path, out: Path) -> None:
    """Trains and writes."""
    from safetensors.torch import save_file

    dev = [video for video in load_youcook2(folder / "youcook2" / "youcook2_asr_steps.json.gz") if video.half == "dev"]
    said = Counter(word for video in dev for cue in video.cues for word in cue.text.split() if word.isalpha())
    own, clauses = recipes(), marked(folder / "youcook2")
    seen = labelled(folder / "goalstep" / "goalstep_valid.json.gz", {text.split()[0] for text in (*own, *clauses)})
    texts = [text for text in (*own, *clauses, *seen) if _LEAST <= len(text.split()) <= _MOST]
    random = np.random.default_rng(0)
    texts = [*dict.fromkeys((*texts, *(as_said(text, random) for text in texts)))]
    spoil = Spoiler(texts, [word for word, times in said.items() if times > 2 and len(word) > 2])
    made = ((text, spoil(text)) for text in texts for _ in range(6))
    spoiled = [(bad, spoiled_words(text, bad)) for text, bad in made if bad is not None]
    shown = [bad for bad, _ in spoiled[:: len(spoiled) // 12]]
    print(json.dumps({"steps": len(texts), "spoiled": len(spoiled), "such as": shown}))
    save_file(train(default_sentence_encoder(), texts, spoiled), out)


# -- the command ---------------------------------------------------------------------------------------------------


def read_names() -> list[tuple[str, bool]]:
    """Names of the dev half that were read by hand, and whether each makes no sense or is no English."""
    with ABSURD.open(encoding="utf-8", newline="") as stream:
        return [(row["name"], row["absurd"] == "yes") for row in csv.DictReader(stream) if row["rules"] == READ]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    add(parser, "data", "out")


def run(args: argparse.Namespace) -> int:
    """Trains, if asked to, and measures what ships."""
    if args.out:
        if not args.data:
            raise UsageError("give --data, the folder of public datasets")
        learn(Path(args.data), Path(args.out))
    read = read_names()
    odds, absurd = default_sentence_encoder().sense([name for name, _ in read]), np.array([mark for _, mark in read])
    for least in sorted({-np.inf, -1.0, 0.0, 0.5, SENSE, 1.5, 2.0}):
        shown = odds >= least
        print(f"from {least:5.1f}: {shown.sum()} of {len(read)} names read, {(shown & absurd).sum()} senseless")
    print(f"AUC {(odds[~absurd][:, None] > odds[absurd]).mean():.3f}")
    return 0
