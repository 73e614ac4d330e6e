"""Real videos to measure discovery on: our own marked clips, and GTEA and Action100M where their files are present."""

from __future__ import annotations

import gzip
import itertools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepformer.encoders.reading import Features
from stepformer.errors import InputError

GTEA_HZ = 15.0


@dataclass(frozen=True, slots=True, eq=False)
class RealVideo:
    """One video with its marks: steps in order as (start_s, end_s, name), and the names' vectors (M, D)."""

    name: str
    features: Features
    steps: tuple[tuple[float, float, str], ...]
    texts: NDArray[np.float32]

    def labels(self, rate_hz: float, count: int) -> NDArray[np.int64]:
        """(count,) step instance in the middle of each interval of 1 / rate_hz seconds, -1 none."""
        middles = (np.arange(count) + 0.5) / rate_hz
        out = np.full(count, -1, np.int64)
        for i, (start, end, _) in enumerate(self.steps):
            out[(middles >= start) & (middles < end)] = i
        return out


def own_clips(model: Any) -> list[RealVideo]:
    """The clips that come with the product, read as the product reads them."""
    from benchmarks.encoders import _own, read_labels

    labels, folder = _own()
    out = []
    for clip in read_labels(labels, folder):
        texts = model.encoder.encode_text([label for _, _, label in clip.steps])
        out.append(RealVideo(clip.path.stem, model.read(clip.path), clip.steps, texts))
    return out


def gtea(folder: Path, text: Any) -> list[RealVideo]:
    """GTEA: class scores times class-name vectors as vectors, the CNN's features as structure."""
    names: list[str] = json.loads((folder / "label_names.json").read_text(encoding="utf-8"))
    vectors = text.encode_text(names)
    vectors = vectors - vectors.mean(0)
    arrays = np.load(folder / "gtea_features.npz", allow_pickle=False)
    out = []
    for video in sorted({key.split("|")[0] for key in arrays.files}):
        scores = arrays[f"{video}|X"].astype(np.float64)
        chance = np.exp(scores - scores.max(1, keepdims=True))
        chance /= chance.sum(1, keepdims=True)
        marks = arrays[f"{video}|Y"].astype(np.int64)
        cuts = [0, *(np.flatnonzero(np.diff(marks)) + 1).tolist(), len(marks)]
        runs = [(a, b) for a, b in itertools.pairwise(cuts) if marks[a] != names.index("background")]
        steps = tuple((a / GTEA_HZ, b / GTEA_HZ, names[marks[a]]) for a, b in runs)
        features = Features(
            (chance @ vectors).astype(np.float32), GTEA_HZ, arrays[f"{video}|A"].astype(np.float32), video=video
        )
        texts = np.asarray([vectors[marks[a]] for a, _ in runs], np.float32)
        out.append(RealVideo(video, features, steps, texts))
    return out


def action100m(folder: Path, text: Any) -> list[RealVideo]:
    """Action100M: what two captioners wrote of the smallest segments as the video, a third model's actions as steps."""
    from stepformer.encoders.captions import CaptionsEncoder
    from stepformer.narration import Cue

    captions = CaptionsEncoder()
    with gzip.open(folder / "videos.json.gz", "rt", encoding="utf-8") as stream:
        videos = json.load(stream)
    out = []
    for video in videos:
        nodes = video["nodes"]
        children: dict[Any, list[Any]] = {}
        for node in nodes:
            children.setdefault(node["parent"], []).append(node)
        leaves = [node for node in nodes if node["id"] not in children]
        said = [
            Cue(node["start"], node["end"], node[key])
            for node in leaves
            for key in ("plm_caption", "llama3_caption")
            if node[key] and node[key].strip()
        ]
        seen = captions.encode_captions(said, float(video["duration"]))
        steps = _finest_actions(nodes, children)
        features = Features(seen.vectors, captions.rate_hz, None, float(video["duration"]), video["video_uid"])
        texts = text.encode_text([name for _, _, name in steps])
        out.append(RealVideo(video["video_uid"], features, steps, texts))
    return out


def _finest_actions(nodes: list[Any], children: dict[Any, list[Any]]) -> tuple[tuple[float, float, str], ...]:
    """Segments with an action none of whose parts has one, in order; neighbours with the same action are one."""

    def named(node: Any) -> bool:
        return node["gpt_action"] not in (None, "", "N/A")

    def below(node: Any) -> bool:
        return any(named(child) or below(child) for child in children.get(node["id"], ()))

    found = sorted((n["start"], n["end"], n["gpt_action"]) for n in nodes if named(n) and not below(n))
    out: list[tuple[float, float, str]] = []
    for start, end, name in found:
        if out and out[-1][2].lower() == name.lower() and start - out[-1][1] < 1.0:
            out[-1] = (out[-1][0], end, name)
        else:
            out.append((start, end, name))
    return tuple(out)


def load(data: Path | None, model: Any) -> dict[str, list[RealVideo]]:
    """Every set that is there, by name."""
    sets = {"own clips": own_clips(model)}
    if data is None:
        return sets
    if not data.is_dir():
        raise InputError(f"there is no folder {data}")
    if (data / "gtea" / "gtea_features.npz").is_file():
        sets["GTEA"] = gtea(data / "gtea", model.encoder)
    if (data / "action100m" / "videos.json.gz").is_file():
        sets["Action100M"] = action100m(data / "action100m", model.encoder)
    return sets
