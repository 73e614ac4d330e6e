"""Pictures and texts as vectors of CLIP ViT-B/16, and who may see which: one split for training, choosing and testing.

Read from a folder ``clip/`` of four files (``docs/sight.md`` says where they come from). Every video, captioned picture
and COIN step has a part from 0 to 5, a hash of its name. Part 0 is for the final test alone: no tower that is shipped
was trained or chosen on it. Parts 1 to 5 are the folds on which options are chosen.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepformer.base.arrays import unit
from stepformer.errors import InputError

PARTS = 6
Floats = NDArray[np.float32]
Ints = NDArray[np.int64]


def part_of(name: str) -> int:
    """The part, 0 to 5, of a video, a picture or a text."""
    return int(hashlib.sha256(name.encode()).hexdigest()[:8], 16) % PARTS


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """Pictures (N, 512) of unit length, the texts of each, and the part of each (N,)."""

    pictures: Floats
    texts: tuple[tuple[str, ...], ...]
    names: tuple[str, ...]
    parts: Ints

    def of(self, *parts: int) -> Ints:
        """The rows that belong to these parts."""
        return np.flatnonzero(np.isin(self.parts, parts))


@dataclass(frozen=True, slots=True, eq=False)
class ClipData:
    """``frames``: YouCook2, one sentence each, three frames per video, names are videos. ``captioned``: Flickr8k and
    COCO. ``labelled``: food in states, groceries, ImageNet. ``true``: texts with their true vectors; names are
    sources, and only COIN's steps have parts other than 1."""

    frames: Pairs
    captioned: Pairs
    labelled: Pairs
    true: Pairs

    def videos(self, *parts: int) -> Ints:
        """Rows (V, 3) of the frames of each video of these parts."""
        rows: dict[str, list[int]] = {}
        for row in self.frames.of(*parts):
            rows.setdefault(self.frames.names[row], []).append(int(row))
        return np.array([value for value in rows.values() if len(value) == 3], np.int64).reshape(-1, 3)

    @property
    def coin(self) -> Ints:
        """Rows of ``true`` that are COIN's steps."""
        return np.flatnonzero(np.array(self.true.names) == "coin_steps")


def load(folder: Path) -> ClipData:
    """Reads the folder ``clip`` in ``folder``."""
    place = folder / "clip"
    try:
        frames, captioned, labelled, true = (
            dict(np.load(place / f"{name}.npz", allow_pickle=False))
            for name in ("youcook2_frames", "captioned_images", "labelled_images", "text_vectors")
        )
        captions: dict[str, list[str]] = json.loads(gzip.decompress((place / "captions.json.gz").read_bytes()))
    except OSError as error:
        raise InputError(f"{place} does not have the vectors of docs/sight.md: {error}") from error
    sources = true["source"].tolist()
    steps = [part_of(text) if source == "coin_steps" else 1 for text, source in zip(true["text"], sources, strict=True)]
    return ClipData(
        _pairs(frames, frames["video"].tolist(), [(text,) for text in frames["text"].tolist()]),
        _pairs(captioned, captioned["name"].tolist(), [tuple(captions[n]) for n in captioned["name"].tolist()]),
        _pairs(labelled, labelled["name"].tolist(), [(text,) for text in labelled["label"].tolist()]),
        _pairs(true, sources, [(text,) for text in true["text"].tolist()], np.array(steps)),
    )


def _pairs(arrays: dict[str, Any], names: list[str], texts: list[tuple[str, ...]], parts: Any = None) -> Pairs:
    vectors = unit(arrays["vec"].astype(np.float32) * arrays["scale"][:, None])
    if parts is None:
        parts = np.array([part_of(name) for name in names])
    return Pairs(vectors, tuple(texts), tuple(names), parts)
