"""The simulated world as arrays: texts with vectors, procedures with timelines, and who may be used for what.

A world is one safetensors file, made once by :mod:`stepformer.data.worldbuilder` with the sentence encoder and
read anywhere with torch alone (training runs on bare GPU machines). It holds three splits of *videos*, each a step
list with times: ``train`` (procedures to learn from), ``dev`` (held-out tasks, for choosing options) and ``test``
(real CrossTask validation timelines, texts unseen in training). A world may have further held-out splits, such
as ``procel``, in ``extra``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from stepformer.base.files import replacing
from stepformer.base.guard import reader
from stepformer.errors import InputError

FORMAT = "stepformer-world-1"
NEIGHBOURS = 8
"""Nearest other sentences kept for each text: what a step may look like or be said like instead."""
PARAPHRASES = 3
SPLITS = ("train", "dev", "test")


@dataclass(frozen=True, slots=True)
class Videos:
    """Procedures as padded arrays, P videos of at most S step instances. Times are seconds; NaN = to be sampled."""

    steps: Tensor  # (P, S) int64 text ids in temporal order, -1 = padding
    starts: Tensor  # (P, S) float32
    ends: Tensor  # (P, S) float32
    durations: Tensor  # (P,) float32, NaN = to be sampled
    sources: Tensor  # (P,) int64 index into World.sources
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
    """Everything the simulator draws from."""

    vectors: Tensor  # (V, D) unit text vectors of the sentence encoder
    neighbours: Tensor  # (V, NEIGHBOURS) int64 nearest other texts that may stand for it
    paraphrases: Tensor  # (V, PARAPHRASES) int64 other wordings of the same step, -1 = none
    concepts: Tensor  # (C, D) unit vectors of the class names that a classifier-based encoder sees through
    stock: Tensor  # (B0, D) unit vectors of what background looks like in any video
    fillers: Tensor  # (F,) int64 texts that are said without being a step
    filler_sources: Tensor  # (F,) int64 index into sources
    train: Videos
    dev: Videos
    test: Videos
    texts: tuple[str, ...]
    sources: tuple[str, ...]  # names, e.g. "grammar", "youcook2"
    meta: dict[str, Any]
    extra: Mapping[str, Videos] = field(default_factory=dict)  # further held-out splits by name

    @property
    def dim(self) -> int:
        """D, the width of the text space."""
        return int(self.vectors.shape[1])

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

    def save(self, path: str | Path) -> None:
        """Writes the world as one safetensors file."""
        tensors = {
            "vectors": self.vectors.half(),
            "concepts": self.concepts.half(),
            "neighbours": self.neighbours.int(),
            "paraphrases": self.paraphrases.int(),
            "stock": self.stock.half(),
            "fillers": self.fillers.int(),
            "filler_sources": self.filler_sources.int(),
        }
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


@reader("simulated world")
def load_world(path: str | Path) -> World:
    """Reads a world; vectors come back as unit float32."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != FORMAT:
                raise InputError(f"{path} is not a simulated world (format {metadata.get('format')!r})")
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (not a dict)
    except (OSError, SafetensorError) as error:
        raise InputError(f"cannot read the simulated world {path}: {error}") from None
    info = json.loads(metadata["world"])

    def unit(name: str) -> Tensor:
        return torch.nn.functional.normalize(tensors[name].float(), dim=-1)

    def videos(split: str) -> Videos:
        values = (tensors[f"{split}.{f.name}"] for f in fields(Videos))
        return Videos(*(v.long() if v.dtype == torch.int32 else v for v in values))

    return World(
        vectors=unit("vectors"),
        neighbours=tensors["neighbours"].long(),
        paraphrases=tensors["paraphrases"].long(),
        concepts=unit("concepts"),
        stock=unit("stock"),
        fillers=tensors["fillers"].long(),
        filler_sources=tensors["filler_sources"].long(),
        train=videos("train"),
        dev=videos("dev"),
        test=videos("test"),
        texts=tuple(info.pop("texts")),
        sources=tuple(info.pop("sources")),
        extra={name: videos(name) for name in info.pop("extra", ())},
        meta=info,
    )
