"""The simulated world as arrays: texts and pictures with vectors, procedures with timelines, and who may use what.

A world is one safetensors file, made once by :mod:`stepformer.data.worldbuilder` in the space of one encoder and
read anywhere with torch alone (training runs on bare GPU machines). It holds splits of *videos*, each a step
list with times: ``train`` (procedures to learn from), ``dev`` (held-out tasks, for choosing options) and ``test``
(real CrossTask validation timelines). Further held-out splits stand in ``extra``: ``coin_test`` (half of COIN's
tasks, which choose nothing), ``calibration`` (CrossTask videos that are in no other split) and ``procel``.

Every text and every picture has one *owner* among :data:`OWNERS`, and a video shows and says only what its owner
owns: steps, paraphrases, passing phrases, pictures and backgrounds are disjoint between owners.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from stepformer.base.files import replacing
from stepformer.base.guard import reader
from stepformer.core.checkpoint import read_tensors
from stepformer.errors import InputError

FORMAT = "stepformer-world-2"
NEIGHBOURS = 8
"""Nearest other sentences kept for each text: how a step may be said instead."""
PARAPHRASES = 3
SHOWN = 12
"""Pictures kept for each text: what it may look like."""
SPLITS = ("train", "dev", "test")
OWNERS = ("train", "dev", "coin_test", "test")
"""Who texts and pictures belong to. ``test`` owns what ``calibration`` says and ``procel`` says and shows too."""


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
    text_owner: Tensor  # (V,) int64 index into OWNERS, -1 = nobody may use it
    neighbours: Tensor  # (V, NEIGHBOURS) int64 nearest other texts of the same owner
    paraphrases: Tensor  # (V, PARAPHRASES) int64 other wordings of the same step, -1 = none
    fillers: Tensor  # (F,) int64 texts that are said without being a step
    filler_sources: Tensor  # (F,) int64 index into sources
    pictures: Tensor  # (X, D) unit picture vectors
    picture_owner: Tensor  # (X,) int64 index into OWNERS, -1 = nobody may use it
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

    def unit(name: str) -> Tensor:
        return torch.nn.functional.normalize(tensors[name].float(), dim=-1)

    def videos(split: str) -> Videos:
        values = (tensors[f"{split}.{f.name}"] for f in fields(Videos))
        return Videos(*(v.long() if v.dtype == torch.int32 else v for v in values))

    world = World(
        vectors=unit("vectors"),
        pictures=unit("pictures"),
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
    """Raises where an array has another shape than its table, or a number in it leads to nothing."""
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
