"""The simulated world as arrays: texts and pictures with vectors, procedures with timelines, and who may use what.

A world is one safetensors file, made once by :func:`build_world` in the space of one encoder and
read anywhere with torch alone (training runs on bare GPU machines). It holds splits of *videos*, each a step
list with times: ``train`` (procedures to learn from), ``dev`` (held-out tasks, for choosing options) and ``test``
(real CrossTask validation timelines). Further held-out splits stand in ``extra``: ``coin_test`` (half of COIN's
tasks, which choose nothing), ``calibration`` (CrossTask videos that are in no other split) and ``procel``.

Every text and every picture has one *owner* among :data:`OWNERS`, and a video shows and says only what its owner
owns: steps, paraphrases, passing phrases, pictures and backgrounds are disjoint between owners. A step text that two
splits use belongs to the later one of train, dev, coin_test, test, and so does a text closer than ``NEAR`` (cosine of
the sentence encoder) to one of a later split: the earlier split loses it. Passing phrases, and further sentences
that held-out videos are reworded with, are divided by name.

:func:`build_world` takes everything from the package's grammar, split by task, and pictures are imagined. ``stepformer
bench world``, in a checkout of the repository, adds public datasets and real pictures.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import save_file
from torch import Tensor

from stepformer.base.arrays import unit
from stepformer.base.defaults import GRAMMAR_PROCEDURES
from stepformer.base.files import replacing
from stepformer.base.guard import reader
from stepformer.core import losses
from stepformer.core.checkpoint import read_tensors
from stepformer.data.grammar import load_grammar
from stepformer.errors import InputError, UsageError

FORMAT = "stepformer-world-2"
NEIGHBOURS = 8
"""Nearest other sentences kept for each text: how a step may be said instead."""
PARAPHRASES = 3
SHOWN = 12
"""Pictures kept for each text: what it may look like."""
SPLITS = ("train", "dev", "test")
OWNERS = ("train", "dev", "coin_test", "test")
"""Who texts and pictures belong to. ``test`` owns what ``calibration`` says and ``procel`` says and shows too."""


Encode = Callable[[Sequence[str]], npt.NDArray[np.float32]]

NEAR = 0.85
"""A text with a cosine above this to a text of a later split is removed from its own."""
REPORTED = (0.75, 0.8, 0.85, 0.9, 0.95)
"""Thresholds at which the world says how many held-out texts have a near text in training."""
_HELD_OUT_SHARE = 0.12
"""Share of passing phrases, rewordings and pictures that each held-out owner gets."""

SOURCES: dict[str, str] = {
    "grammar": "Apache-2.0, written for this package",
    "youcook2": "YouCook2 annotations as carried by PDVC, MIT",
    "goalstep": "Ego4D GoalStep annotations, MIT",
    "crosstask-related": "CrossTask related tasks, BSD-3-Clause",
    "coin": "COIN, CC BY-NC 4.0",
    "wikihow": "wikiHow, CC BY-NC-SA 3.0",
    "howto100m-phrases": "HowTo100M verb phrases of ProcedureVRL, CC BY-NC-SA 4.0",
}


@dataclass(frozen=True, slots=True)
class Videos:
    """Procedures as padded arrays, P videos of at most S step instances. Times are seconds; NaN = to be sampled."""

    steps: Tensor  # (P, S) int64 text ids in temporal order, -1 = padding
    starts: Tensor  # (P, S) float32
    ends: Tensor  # (P, S) float32
    durations: Tensor  # (P,) float32, NaN = to be sampled
    sources: Tensor  # (P,) int64 index into World.sources, -1 = none of them
    tasks: Tensor  # (P,) int64 task number, for per-task scoring
    kinds: Tensor  # (P, S) int64 step index within the task, -1 = padding

    def __len__(self) -> int:
        return len(self.steps)

    def pick(self, index: Tensor) -> Videos:
        """Some of the videos."""
        return Videos(*(getattr(self, f.name)[index] for f in fields(self)))

    def to(self, device: torch.device | str) -> Videos:
        """The same on another device."""
        return Videos(*(getattr(self, f.name).to(device) for f in fields(self)))


@dataclass(frozen=True, slots=True)
class World:
    """Everything the simulator draws from: V texts, X pictures, F passing phrases, in a space of width D."""

    vectors: Tensor  # (V, D) unit text vectors
    text_owner: Tensor  # (V,) int64 index into OWNERS, -1 = not used
    neighbours: Tensor  # (V, NEIGHBOURS) int64 nearest other texts of the same owner
    paraphrases: Tensor  # (V, PARAPHRASES) int64 other wordings of the same step, -1 = none
    fillers: Tensor  # (F,) int64 texts that are said without being a step
    filler_sources: Tensor  # (F,) int64 index into sources
    pictures: Tensor  # (X, D) unit picture vectors
    picture_owner: Tensor  # (X,) int64 index into OWNERS, -1 = not used
    background: Tensor  # (X,) bool: shown between steps only
    shows: Tensor  # (V, SHOWN) int64 pictures that a step may look like, of its owner, best first
    train: Videos
    dev: Videos
    test: Videos
    texts: tuple[str, ...]
    sources: tuple[str, ...]  # names, e.g. "grammar", "youcook2"
    meta: dict[str, Any]
    extra: Mapping[str, Videos] = field(default_factory=dict)  # further held-out splits by name

    @property
    def dim(self) -> int:
        """D, the width of the space."""
        return int(self.vectors.shape[1])

    @property
    def encoder(self) -> str:
        """The encoder whose space this is."""
        return str(self.meta.get("encoder", ""))

    def source_index(self, names: Sequence[str]) -> list[int]:
        """Numbers of named sources; an error lists what there is."""
        unknown = [name for name in names if name not in self.sources]
        if unknown:
            raise InputError(f"the world has no source {', '.join(unknown)}; it has {', '.join(self.sources)}")
        return [self.sources.index(name) for name in names]

    def split(self, name: str) -> Videos:
        """``train``, ``dev``, ``test`` or one of ``extra``."""
        if name not in self.splits:
            raise InputError(f"the world has the splits {', '.join(self.splits)}, not {name!r}")
        videos: Videos = self.extra[name] if name in self.extra else getattr(self, name)
        return videos

    @property
    def splits(self) -> tuple[str, ...]:
        """Names of all splits."""
        return (*SPLITS, *self.extra)

    def owned_pictures(self, owner: str, background: bool) -> Tensor:
        """Numbers of the pictures that an owner's videos may show in steps, or between them."""
        mine = self.picture_owner == OWNERS.index(owner)
        return torch.nonzero(mine & (self.background == background)).squeeze(1)

    def save(self, path: str | Path) -> None:
        """Writes the world as one safetensors file."""
        tensors = {"vectors": self.vectors.half(), "pictures": self.pictures.half(), "background": self.background}
        tensors |= {name: getattr(self, name).int() for name in _NUMBERS}
        for split in self.splits:
            videos = self.split(split)
            for f in fields(videos):
                value = getattr(videos, f.name)
                tensors[f"{split}.{f.name}"] = value.int() if value.dtype == torch.int64 else value
        info = {"texts": self.texts, "sources": self.sources, "extra": list(self.extra), **self.meta}
        with replacing(path) as temporary:
            save_file(
                {k: v.contiguous() for k, v in tensors.items()},
                temporary,
                {"format": FORMAT, "world": json.dumps(info)},
            )


_NUMBERS = (
    "text_owner", "neighbours", "paraphrases", "fillers", "filler_sources", "picture_owner", "shows",
)  # fmt: skip


@reader("simulated world")
def load_world(path: str | Path) -> World:
    """Reads a world; vectors come back as unit float32."""
    metadata, tensors = read_tensors(path, FORMAT, "simulated world", "stepformer simulate makes one")
    info = json.loads(metadata["world"])

    def videos(split: str) -> Videos:
        values = (tensors[f"{split}.{f.name}"] for f in fields(Videos))
        return Videos(*(v.long() if v.dtype == torch.int32 else v for v in values))

    world = World(
        vectors=losses.unit(tensors["vectors"]),
        pictures=losses.unit(tensors["pictures"]),
        background=tensors["background"],
        **{name: tensors[name].long() for name in _NUMBERS},
        train=videos("train"),
        dev=videos("dev"),
        test=videos("test"),
        texts=tuple(info.pop("texts")),
        sources=tuple(info.pop("sources")),
        extra={name: videos(name) for name in info.pop("extra", ())},
        meta=info,
    )
    _check(world)
    return world


def _check(world: World) -> None:
    """Raises where an array has another shape than its table, or an index in it is out of range."""
    texts, pictures, sources = len(world.texts), len(world.pictures), len(world.sources)
    tables: list[tuple[str, Tensor, tuple[int, ...], int | None]] = [  # name, numbers, shape, one past the highest
        ("vectors", world.vectors, (texts, world.dim), None),
        ("pictures", world.pictures, (pictures, world.dim), None),
        ("background", world.background, (pictures,), 2),
        ("text_owner", world.text_owner, (texts,), len(OWNERS)),
        ("picture_owner", world.picture_owner, (pictures,), len(OWNERS)),
        ("neighbours", world.neighbours, (texts, NEIGHBOURS), texts),
        ("paraphrases", world.paraphrases, (texts, PARAPHRASES), texts),
        ("shows", world.shows, (texts, SHOWN), pictures),
        ("fillers", world.fillers, (len(world.fillers),), texts),
        ("filler_sources", world.filler_sources, (len(world.fillers),), sources),
    ]
    for split in world.splits:
        videos = world.split(split)
        every, each = tuple(videos.steps.shape), (len(videos),)
        times = ((name, getattr(videos, name), every, None) for name in ("starts", "ends"))
        tables += [("steps", videos.steps, (len(videos), every[1]), texts), *times]
        tables += [("durations", videos.durations, each, None), ("sources", videos.sources, each, sources)]
        tables += [("tasks", videos.tasks, each, len(world.meta["task_names"])), ("kinds", videos.kinds, every, texts)]
    none = {"text_owner", "picture_owner", "paraphrases", "steps", "kinds", "sources"}  # of these, -1 is "none"
    for name, numbers, shape, end in tables:
        if tuple(numbers.shape) != shape or numbers.is_floating_point() != (end is None):
            raise ValueError(f"{name} has the shape {tuple(numbers.shape)} or the type of another array")
        lowest = -1 if name in none else 0
        if end is not None and numbers.numel() and not lowest <= int(numbers.min()) <= int(numbers.max()) < end:
            raise ValueError(f"{name} has numbers that lead to nothing")


# -- making one --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Divided:
    """X pictures and whose they are; ``described`` (X,) are the texts that say what they show."""

    vectors: Tensor  # (X, D) unit
    described: Tensor
    owner: Tensor  # (X,) index into OWNERS, -1 none
    background: Tensor  # (X,) bool: shown between steps
    licences: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Planned:
    """A video: of each step the text id, the number within the task, start and end in seconds; and its length."""

    steps: list[tuple[int, int, float, float]]
    duration: float
    source: int
    task: int


def untimed(steps: list[int], source: int, task: int) -> Planned:
    """A procedure without times."""
    return Planned([(step, i, math.nan, math.nan) for i, step in enumerate(steps)], math.nan, source, task)


def share_of(key: str) -> float:
    """A fixed number in [0, 1) of a name, for splits that never move."""
    # not crc32: there the shares of "a x" and "b x" go together for all x
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=6).digest(), "big") / 2**48


def _arrays(videos: Sequence[Planned]) -> Videos:
    S = max((len(v.steps) for v in videos), default=1)
    rows = np.full((len(videos), S, 4), (-1, -1, math.nan, math.nan))
    for row, video in zip(rows, videos, strict=True):
        row[: len(video.steps)] = video.steps
    steps, kinds, starts, ends = torch.from_numpy(rows).unbind(2)
    return Videos(
        steps=steps.long(),
        starts=starts.float(),
        ends=ends.float(),
        durations=torch.tensor([v.duration for v in videos], dtype=torch.float32),
        sources=torch.tensor([v.source for v in videos], dtype=torch.int64),
        tasks=torch.tensor([v.task for v in videos], dtype=torch.int64),
        kinds=kinds.long(),
    )


def owner_of(key: str) -> str:
    """Who gets a passing phrase, a rewording or a picture, by its name."""
    place = int(share_of(f"owner {key}") / _HELD_OUT_SHARE)
    return OWNERS[place + 1] if place < len(OWNERS) - 1 else OWNERS[0]


def _owner(split: str) -> int:
    """Who owns the steps of a split."""
    return OWNERS.index(split if split in OWNERS else "test")


class Builder:
    """Texts, and videos by split, as they are gathered; :meth:`finish` divides them."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.ids: dict[str, int] = {}  # of texts
        self.paraphrases: dict[int, list[int]] = {}
        self.names = list(SOURCES)
        self.videos: dict[str, list[Planned]] = {name: [] for name in (*OWNERS, "calibration", "procel", "timelines")}
        self.fillers: list[tuple[int, int]] = []  # text, source
        self.spare: list[int] = []  # sentences that only reword others
        self.tasks: dict[str, int] = {}

    def add(self, text: str) -> int:
        """The id of a text."""
        key = " ".join(text.split())
        number = self.ids.setdefault(key, len(self.texts))
        if number == len(self.texts):
            self.texts.append(key)
        return number

    def task(self, name: str) -> int:
        """The number of a task."""
        return self.tasks.setdefault(name, len(self.tasks))

    def from_grammar(self, count: int, seed: int, held_out: Sequence[str]) -> None:
        """``count`` procedures; a tenth of the tasks to each split that no dataset serves."""
        source = self.names.index("grammar")
        grammar = load_grammar()
        for procedure in grammar.procedures(count, seed):
            steps = []
            for step in procedure.steps:
                number = self.add(step.label)
                self.paraphrases[number] = [self.add(text) for text in step.paraphrases[:PARAPHRASES]]
                steps.append(number)
            place = int(share_of(procedure.task) * 10)
            split = held_out[place] if place < len(held_out) else "train"
            self.videos[split].append(untimed(steps, source, self.task(f"grammar:{procedure.task}")))
        self.fillers += [(self.add(text), source) for text in grammar.chatter]

    def owners(self, sentences: Tensor) -> tuple[Tensor, Tensor]:
        """Who owns each text (V,), -1 none; and which texts (V,) are steps of their owner."""
        owner = torch.full((len(self.texts),), -1)
        is_step = torch.zeros(len(owner), dtype=torch.bool)
        closeness = torch.full((len(owner),), -1.0)
        for number in reversed(range(len(OWNERS))):
            steps = [
                step
                for split, videos in self.videos.items()
                if _owner(split) == number
                for video in videos
                for step, *_ in video.steps
            ]
            own = torch.unique(torch.tensor(steps, dtype=torch.int64))
            own = own[(owner[own] < 0) & (closeness[own] <= NEAR)]
            owner[own], is_step[own] = number, True
            if number and len(own):
                closeness = torch.maximum(closeness, closeness_to(sentences, sentences[own]))
        # what is no step goes by its name, unless it is near to a held-out step of another owner
        for text, others in self.paraphrases.items():
            for other in others:
                if owner[other] < 0 and closeness[other] <= NEAR:
                    owner[other] = owner[text]
        for text in (*(text for text, _ in self.fillers), *self.spare):
            if owner[text] < 0 and closeness[text] <= NEAR:
                owner[text] = OWNERS.index(owner_of(self.texts[text]))
        return owner, is_step

    def pictures(self, vectors: Tensor, owner: Tensor, is_step: Tensor) -> Divided:
        """What steps look like: three imagined pictures of each step, of vectors (V, D), owner (V,), is_step (V,)."""
        steps = torch.nonzero(is_step).squeeze(1)
        seen = to_unit(imagined(vectors[steps].numpy()))
        described = steps.repeat_interleave(len(seen) // len(steps))
        background = torch.arange(len(seen)) % 3 == 2  # the last of each step's three
        return Divided(seen, described, owner[described], background, {"imagined": "made from the texts"})

    def finish(self, encode: Encode, sentences: Encode | None, meta: dict[str, Any]) -> World:
        """The world of what was gathered."""
        vectors = to_unit(encode(self.texts))
        meaning = vectors if sentences is None else to_unit(sentences(self.texts))
        owner, is_step = self.owners(meaning)
        seen = self.pictures(vectors, owner, is_step)
        paraphrases = torch.full((len(self.texts), PARAPHRASES), -1, dtype=torch.int64)
        for number, others in self.paraphrases.items():
            allowed = [o for o in others if owner[o] == owner[number] >= 0]
            if allowed:
                paraphrases[number] = torch.tensor([allowed[i % len(allowed)] for i in range(PARAPHRASES)])
        fillers = [(text, source) for text, source in self.fillers if owner[text] >= 0 and not is_step[text]]
        kept = {
            split: _kept(videos, owner, _owner(split), 2 if split == "train" else 1)
            for split, videos in self.videos.items()
        }
        removed = {
            split: sum(len(v.steps) for v in videos) - sum(len(v.steps) for v in kept[split])
            for split, videos in self.videos.items()
        }
        names = {number: name for name, number in self.tasks.items()}
        return World(
            vectors=vectors,
            text_owner=owner,
            neighbours=_nearest(meaning, owner),
            paraphrases=paraphrases,
            fillers=torch.tensor([text for text, _ in fillers], dtype=torch.int64),
            filler_sources=torch.tensor([source for _, source in fillers], dtype=torch.int64),
            pictures=seen.vectors,
            picture_owner=seen.owner,
            background=seen.background,
            shows=_shown(is_step, owner, meaning, vectors, seen),
            **{split: _arrays(kept.pop(split)) for split in ("train", "dev", "test")},
            extra={split: _arrays(videos) for split, videos in kept.items() if videos},
            texts=tuple(self.texts),
            sources=tuple(self.names),
            meta={
                **meta,
                "licences": {**SOURCES, **seen.licences},
                "removed_step_instances": removed,
                "near_texts": _near_texts(owner, is_step, meaning),
                "near_vectors": _near_texts(owner, is_step, vectors),
                "task_names": [names[i] for i in range(len(names))],
            },
        )


def closeness_to(vectors: Tensor, targets: Tensor) -> Tensor:
    """(V,) cosine of each vector to the nearest target."""
    return torch.cat([(part @ targets.T).amax(1) for part in torch.split(vectors, 4096)])


def _nearest(vectors: Tensor, owner: Tensor) -> Tensor:
    """(V, NEIGHBOURS) nearest other texts of the same owner, no copies."""
    out = torch.zeros(len(vectors), NEIGHBOURS, dtype=torch.int64)
    for number in range(len(OWNERS)):
        pool = torch.nonzero(owner == number).squeeze(1)
        if not len(pool):
            continue
        targets = vectors[pool]
        for part in torch.split(pool, 2048):
            similarity = vectors[part] @ targets.T
            similarity[similarity > 0.97] = -1.0
            picked = pool[similarity.topk(min(NEIGHBOURS, len(pool)), dim=1).indices]
            out[part] = picked[:, torch.arange(NEIGHBOURS) % picked.shape[1]]
    return out


def _shown(steps: Tensor, owner: Tensor, sentences: Tensor, vectors: Tensor, pictures: Divided) -> Tensor:
    """(V, SHOWN) pictures of each step text: those whose description is nearest in meaning, the picture itself
    deciding between equal descriptions ("sliced food" is said of a thousand pictures)."""
    out = torch.zeros(len(owner), SHOWN, dtype=torch.int64)
    centred = losses.unit(pictures.vectors - pictures.vectors.mean(0))
    centred_texts = losses.unit(vectors - vectors.mean(0))
    for number in range(len(OWNERS)):
        pool = torch.nonzero((pictures.owner == number) & ~pictures.background).squeeze(1)
        if not len(pool):
            raise UsageError(f"with so few procedures {OWNERS[number]} videos have no picture; draw more of them")
        said, seen = sentences[pictures.described[pool]], centred[pool]
        for part in torch.split(torch.nonzero(steps & (owner == number)).squeeze(1), 2048):
            score = sentences[part] @ said.T + TIE_BREAK * (centred_texts[part] @ seen.T)
            best = pool[score.topk(min(SHOWN, len(pool)), dim=1).indices]
            out[part] = best[:, torch.arange(SHOWN) % best.shape[1]]
    return out


TIE_BREAK = 0.1
"""Weight of the encoder's own similarity of step and picture, beside that of step and description. Were it large,
pictures would be chosen by the very measure that they are then found with, and nothing were left to learn."""


def build_world(
    encode: Encode,
    grammar_procedures: int = GRAMMAR_PROCEDURES,
    seed: int = 0,
    sentences: Encode | None = None,
    encoder: str = "",
    fingerprint: str = "",
) -> World:
    """A world of the grammar's tasks alone: texts embedded with ``encode`` (list of str -> unit (L, D)).

    sentences: the encoder that says which texts mean the same, by default ``encode``; encoder, fingerprint: whose space
    ``encode`` leads to.
    """
    builder = Builder()
    builder.from_grammar(grammar_procedures, seed, ("test", "dev", "coin_test"))
    return builder.finish(encode, sentences, {"seed": seed, "encoder": encoder, "fingerprint": fingerprint})


def _kept(videos: Sequence[Planned], owner: Tensor, number: int, least: int) -> list[Planned]:
    """The videos without the steps that another split owns; those with fewer than ``least`` left are gone."""
    kept = []
    for video in videos:
        steps = [step for step in video.steps if owner[step[0]] == number]
        if len(steps) >= least:
            kept.append(replace(video, steps=steps))
    return kept


def to_unit(vectors: npt.NDArray[np.float32]) -> Tensor:
    """(L, D) as a tensor of unit vectors."""
    return losses.unit(torch.from_numpy(np.ascontiguousarray(vectors, np.float32)))


def imagined(texts: npt.NDArray[np.float32], per_text: int = 3) -> npt.NDArray[np.float32]:
    """(L per_text, D) vectors of imagined pictures, ``per_text`` of each text (L, D), in the order of the texts.

    As in CLIP's space, all pictures share a direction that texts do not have (cosine of two pictures about .65), and
    what a picture adds to it agrees with its own text only in part (cosine about .35); the rest is other texts'
    meaning, so that it cannot be averaged away.
    """
    random = np.random.default_rng(0)
    rest = unit(texts - texts.mean(0))
    gap = unit(random.standard_normal((1, texts.shape[1])))
    own = np.repeat(rest, per_text, axis=0)
    other = unit(rest[random.integers(len(rest), size=(4, len(own)))].sum(0))
    return unit(0.8 * gap + 0.6 * (0.35 * own + 0.94 * other)).astype(np.float32)


def _near_texts(owner: Tensor, is_step: Tensor, vectors: Tensor) -> dict[str, dict[str, float]]:
    """Per held-out owner: the share of its step texts with a training text closer than each reported threshold, by
    unit vectors (V, D)."""
    train = vectors[owner == 0]
    report = {}
    for number, name in enumerate(OWNERS[1:], 1):
        own = vectors[is_step & (owner == number)]
        if len(own) and len(train):
            closeness = closeness_to(own, train)
            report[name] = {str(limit): round(float((closeness > limit).float().mean()), 4) for limit in REPORTED}
    return report
