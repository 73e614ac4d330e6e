"""Real pictures as an encoder sees them: vectors, what each shows in words, and which belong together.

Read from a folder of vectors of CLIP ViT-B/16 (``data/clip``: frames of cooking videos with the sentence of their
step, captioned pictures, food in eleven states, groceries, ImageNet samples). Without such a folder,
:func:`imagined` makes vectors that have the measured gap between pictures and texts and nothing else of real ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from stepformer.base.guard import load_arrays, read_json, reading
from stepformer.errors import InputError

Vectors = npt.NDArray[np.float32]

STATES = {
    "creamy_paste": "a creamy paste", "diced": "diced food", "floured": "food coated with flour",
    "grated": "grated food", "juiced": "juice in a glass", "jullienne": "food cut into thin strips",
    "mixed": "mixed food in a bowl", "other": "food in a kitchen", "peeled": "peeled food", "sliced": "sliced food",
    "whole": "whole food before it is cut",
}  # fmt: skip
SOURCES = {
    "youcook2": "frames of YouCook2 videos (YouCook2-Demo, no licence stated)",
    "f8k": "Flickr8k, for non-commercial research",
    "coco": "COCO, Creative Commons, by picture",
    "cooking-states": "Cooking State Recognition, no licence stated",
    "grocery": "GroceryStoreDataset, MIT",
    "imagenet": "ImageNet samples, for non-commercial research",
}


@dataclass(frozen=True, slots=True)
class Pictures:
    """X pictures. ``group`` keeps together what must not be divided between splits (a video, a grocery class)."""

    vectors: Vectors  # (X, D) unit
    texts: tuple[str, ...]  # what each shows
    groups: tuple[str, ...]
    sources: tuple[str, ...]  # a key of SOURCES each

    def __post_init__(self) -> None:
        if not len(self.vectors) == len(self.texts) == len(self.groups) == len(self.sources):
            raise InputError("pictures need a vector, a text, a group and a source each")


def _unit(archive: Any) -> Vectors:
    """Vectors stored as int8 with one scale each, as unit float32."""
    values = archive["vec"].astype(np.float32) * archive["scale"][:, None]
    return np.asarray(values / np.linalg.norm(values, axis=1, keepdims=True), np.float32)


def read_pictures(folder: str | Path) -> Pictures:
    """The pictures of a folder laid out as ``data/clip``."""
    folder = Path(folder)
    vectors: list[Vectors] = []
    rows: list[tuple[str, str, str]] = []  # text, group, source
    with reading(folder, "folder of pictures"):
        frames = load_arrays(folder / "youcook2_frames.npz")
        vectors.append(_unit(frames))
        rows += [(str(t), f"youcook2:{v}", "youcook2") for t, v in zip(frames["text"], frames["video"], strict=True)]
        captions = read_json(folder / "captions.json.gz")
        captioned = load_arrays(folder / "captioned_images.npz")
        vectors.append(_unit(captioned))
        rows += [(captions[name][0], name, name.partition("/")[0]) for name in map(str, captioned["name"])]
        labelled = load_arrays(folder / "labelled_images.npz")
        vectors.append(_unit(labelled))
        for name, label in zip(map(str, labelled["name"]), map(str, labelled["label"]), strict=True):
            source = name.partition("/")[0]
            source = source if source in SOURCES else "imagenet"
            # a product is photographed many times over: its class goes to one split whole
            rows.append((STATES.get(label, label), f"grocery:{label}" if source == "grocery" else name, source))
    texts, groups, sources = zip(*rows, strict=True)
    return Pictures(np.concatenate(vectors), texts, groups, sources)


def imagined(texts: Vectors, seed: int = 0, per_text: int = 3) -> Vectors:
    """(L per_text, D) vectors of pictures that never were, ``per_text`` of each text (L, D), in the order of the texts.

    As in CLIP's space, all pictures share a direction that texts do not have (cosine of two pictures about .65), and
    what a picture adds to it agrees with its own text only in part (cosine about .35); the rest is other texts'
    meaning, so that it cannot be averaged away.
    """
    random = np.random.default_rng(seed)
    rest = texts - texts.mean(0)
    rest /= np.maximum(np.linalg.norm(rest, axis=1, keepdims=True), 1e-9)
    gap = random.standard_normal((1, texts.shape[1]))
    gap = gap / np.linalg.norm(gap)
    own = np.repeat(rest, per_text, axis=0)
    other = rest[random.integers(len(rest), size=(4, len(own)))].sum(0)
    other /= np.maximum(np.linalg.norm(other, axis=1, keepdims=True), 1e-9)
    out = 0.8 * gap + 0.6 * (0.35 * own + 0.94 * other)
    return np.asarray(out / np.linalg.norm(out, axis=1, keepdims=True), np.float32)
