"""Names for common steps: what people said in the videos, else the nearest phrase of a bank, each only once."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from stepformer.app.naming import Name, PhraseBank
from stepformer.app.procedure.clustering import FloatArray
from stepformer.app.procedure.records import IntArray, VideoSteps
from stepformer.base.arrays import unit
from stepformer.evaluation.hungarian import assign

_NUMBER = re.compile(r" \(\d+\)$")

Encode = Callable[[Sequence[str]], npt.NDArray[np.float32]]


def name_steps(
    videos: Sequence[VideoSteps],
    labels: Sequence[IntArray],
    count: int,
    encode: Encode | None = None,
    bank: PhraseBank | None = None,
) -> list[Name | None]:
    """One name for each of ``count`` common steps; None where nobody said or guessed one.

    Where at least one occurrence has a name that was said or given, those stand for election: the one whose text is
    nearest to all of them (``encode``), or without it the most frequent. Other steps take the phrases of the bank
    that fit the mean of their occurrences best, no phrase twice; without a bank, or where none fits, the most frequent
    guess in the videos.
    """
    said: list[list[str]] = [[] for _ in range(count)]
    guessed: list[list[str]] = [[] for _ in range(count)]
    vectors: list[list[FloatArray]] = [[] for _ in range(count)]
    for video, path in zip(videos, labels, strict=True):
        named_by = video.vectors if video.named_by is None else video.named_by
        for step, vector, cluster in zip(video.timeline, named_by, path, strict=True):
            if cluster < 0:
                continue
            vectors[cluster].append(np.asarray(unit(vector)))
            if step.label:
                text = _NUMBER.sub("", step.label)  # "stir (2)" only tells neighbours apart
                by_sight = step.meta.get("guess") and step.meta.get("source") != "spoken"
                (guessed if by_sight else said)[cluster].append(text)
    names: list[Name | None] = [_elect(texts, encode) if texts else None for texts in said]
    open_steps = [i for i, name in enumerate(names) if name is None]
    if open_steps and bank is not None and bank.pictures is None:  # where pictures are known, no guess is good enough
        means = np.stack([np.mean(vectors[i], 0) for i in open_steps])
        similarity = bank.similarity(means)  # (open, P)
        taken = {name.text for name in names if name is not None}
        free = np.array([text not in taken for text in bank.texts])
        rows, columns = assign(np.where(free, similarity, -2.0))
        for row, column in zip(rows, columns, strict=True):
            names[open_steps[row]] = Name(bank.texts[column], "seen", False, float(similarity[row, column]))
    for i in [i for i, name in enumerate(names) if name is None]:
        if guessed[i]:
            names[i] = Name(Counter(guessed[i]).most_common(1)[0][0], "seen", False, 0.0)
    return _once(names)


def _elect(texts: list[str], encode: Encode | None) -> Name:
    """The text nearest to the mean of all; frequent texts pull the mean towards themselves."""
    distinct = list(dict.fromkeys(texts))
    if encode is None or len(distinct) == 1:
        return Name(Counter(texts).most_common(1)[0][0], "spoken", True, 1.0)
    vectors = dict(zip(distinct, unit(encode(distinct)), strict=True))
    mean = unit(np.mean([vectors[text] for text in texts], 0))
    best = max(distinct, key=lambda text: float(vectors[text] @ mean))
    return Name(best, "spoken", True, float(vectors[best] @ mean))


def _once(names: Sequence[Name | None]) -> list[Name | None]:
    """No name twice: later ones are numbered."""
    seen: Counter[str] = Counter()
    out: list[Name | None] = []
    for name in names:
        if name is None:
            out.append(None)
            continue
        seen[name.text] += 1
        text = name.text if seen[name.text] == 1 else f"{name.text} ({seen[name.text]})"
        out.append(replace(name, text=text))
    return out
