"""How well what is said during a human step matches that step's text: AUC and top-1 on real narration.

For every piece of narration (a sentence or a phrase) whose middle lies within a human step, its similarity to that
step's text is compared with its similarity to the texts of the video's other steps. AUC is the share of other
steps that are less similar (a tie counts half), top-1 whether none is more similar; both are means over pieces.
Steps with the same text are one. A piece within several steps counts once for each.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from stepformer.errors import InputError
from stepformer.narration.cues import Cue, cue_at
from stepformer.narration.lexicon import word_set

Embed = Callable[[Sequence[str]], Any]  # texts -> (L, D) unit vectors


@dataclass(frozen=True, slots=True)
class Spoken:
    """A real video's narration and its human steps: (start_s, end_s, text)."""

    video: str
    cues: tuple[Cue, ...]
    steps: tuple[tuple[float, float, str], ...]

    @property
    def half(self) -> str:
        """ "dev" or "test", by the hash of the name: rules were looked at on "dev" only."""
        return "test" if hashlib.sha256(self.video.encode()).digest()[0] % 2 else "dev"


@dataclass(frozen=True, slots=True)
class Match:
    """Means over ``pieces`` and the share of steps that any piece was said in."""

    auc: float
    top1: float
    pieces: int
    covered: float


def load_youcook2(path: str | os.PathLike[str], marks: bool = False) -> list[Spoken]:
    """The videos with narration and timed steps. Sentence marks and capitals are taken away unless ``marks``."""
    videos = _load(path)
    found: list[Spoken] = []
    for name, video in videos.items():
        steps = tuple((float(a), float(b), str(text)) for a, b, text in video.get("segments") or ())
        said = video.get("asr") or ()
        if not steps or not said:
            continue
        cues: list[Cue] = []
        for i, line in enumerate(said):
            start_s = float(line["start"])
            end_s = float(said[i + 1]["start"]) if i + 1 < len(said) else start_s + 5.0
            # the file writes "i 'm" and "today ," with spaces
            text = re.sub(r"\s+(?=n't\b|'|[,.!?])", "", str(line["text"]))
            if not marks:
                text = re.sub(r"[.,!?;:\"]+(?=\s|$)", "", text).lower()
            cues.append(cue_at(start_s, end_s, " ".join(text.split())))
        found.append(Spoken(str(name), tuple(cues), steps))
    return found


def load_procel(path: str | os.PathLike[str]) -> list[Spoken]:
    """The videos of one ProceL task as JSON, captions as they are."""
    task = _load(path)
    found: list[Spoken] = []
    for video in task.get("videos", ()):
        cues = tuple(cue_at(a, b, str(text)) for a, b, text in video["captions"])
        steps = tuple((float(a), float(b), str(text).lower()) for _, a, b, text in video["key_steps"])
        if cues and steps:
            found.append(Spoken(f"{task['task']}/{video['index']}", cues, steps))
    return found


def _load(path: str | os.PathLike[str]) -> Any:
    path = Path(path)
    try:
        data = path.read_bytes()
        return json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)
    except (OSError, EOFError, json.JSONDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read as JSON: {error}") from error


def score(videos: Sequence[Spoken], pieces: Sequence[Sequence[tuple[float, float, str]]], embed: Embed) -> Match:
    """Scores the pieces (start_s, end_s, text) of each video."""
    within = [
        [[text for a, b, text in spoken if start_s <= (a + b) / 2 <= end_s] for start_s, end_s, _ in video.steps]
        for video, spoken in zip(videos, pieces, strict=True)
    ]
    said = {text for video in within for step in video for text in step}
    texts = sorted(said | {step[2] for video in videos for step in video.steps})
    vectors = np.asarray(embed(texts), dtype=np.float32)  # (L, D)
    row = {text: i for i, text in enumerate(texts)}
    aucs: list[float] = []
    firsts: list[float] = []
    covered = total = 0
    for video, insides in zip(videos, within, strict=True):
        names = sorted({step[2] for step in video.steps})
        steps = vectors[[row[name] for name in names]]  # (K, D)
        for (_, _, name), inside in zip(video.steps, insides, strict=True):
            total += 1
            covered += bool(inside)
            if not inside or len(names) < 2:
                continue
            own = names.index(name)
            similar = vectors[[row[text] for text in inside]] @ steps.T  # (P, K)
            mine = similar[:, own : own + 1]
            others = np.delete(similar, own, axis=1)
            less = (others < mine - 1e-6).mean(axis=1) + 0.5 * (np.abs(others - mine) <= 1e-6).mean(axis=1)
            aucs.extend(less.tolist())
            # a tie for the first place is shared
            best = (similar >= mine - 1e-6).sum(axis=1)
            firsts.extend(np.where((others > mine + 1e-6).any(axis=1), 0.0, 1.0 / best).tolist())
    if not aucs:
        return Match(0.0, 0.0, 0, covered / total if total else 0.0)
    return Match(float(np.mean(aucs)), float(np.mean(firsts)), len(aucs), covered / total)


_STOP = word_set(
    "the a an and or to of in on it is with for you i we that this so then now just your my our be are at into"
)


def word_overlap(texts: Sequence[str]) -> Any:
    """Bags of content words as unit vectors: the baseline that knows no meaning."""
    bags = [{_stem(w) for w in re.findall(r"[a-z']+", text.lower())} - _STOP for text in texts]
    column = {word: i for i, word in enumerate(sorted(set().union(*bags)))} if bags else {}
    out = np.zeros((len(texts), max(1, len(column))), dtype=np.float32)
    for i, bag in enumerate(bags):
        for word in bag:
            out[i, column[word]] = 1.0
        out[i] /= max(1.0, float(np.sqrt(len(bag))))
    return out


def _stem(word: str) -> str:
    for ending in ("ing", "ed", "es", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word
