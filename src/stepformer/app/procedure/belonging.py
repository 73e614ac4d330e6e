"""Whether videos are of one task: what each pair of them shows and says alike, beside what pairs of one task do.

Three likenesses of a pair, each the mean of its best matches, since most of a video may well be its own: stretches of
pictures less what the two videos share; what the phrases of the bank say of these stretches; what is spoken. Each is
counted in standard deviations from its mean over pairs of one task. The constants are of simulated dev videos, of what
is spoken of the dev half of YouCook2; ``stepformer bench procedure`` has the error rates.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from stepformer.app.naming import PhraseBank
from stepformer.app.procedure.records import FloatArray, VideoSteps
from stepformer.base.arrays import unit

LOOKS, SEEN_PHRASES, SAID = (0.633, 0.230), (0.624, 0.237), (0.593, 0.104)
"""Mean and standard deviation of the three over pairs of one task."""
_STRETCHES = 48
_BEST_LOOKS, _BEST_PHRASES, _BEST_SAID = 0.1, 0.25, 0.25  # shares of a video that its like has to be looked for
_SHARP = 4.0
FEWEST_PHRASES = 3  # fewer say nothing of the whole
_LEAST, _LEAST_OF_FEW = -0.15, -1.35
_STRANGE, _APART = -0.8, 1.2  # of a video's mean likeness with the others, and below theirs with each other
_FEWEST_OTHERS = 3


def stretches_of(vectors: npt.ArrayLike) -> FloatArray:
    """(S, D) means of at most 48 equal stretches of a video's vectors (N, D)."""
    frames = np.asarray(vectors, np.float64)
    return np.stack([part.mean(0) for part in np.array_split(frames, min(_STRETCHES, len(frames)))])


def likeness(videos: Sequence[VideoSteps], bank: PhraseBank | None = None) -> FloatArray:
    """(V, V) how alike each pair of videos is, by what is known of both; 0 for the mean pair of one task.

    bank: in the space of the videos; without its picture statistics phrases say nothing of pictures.
    """
    looks = [None if video.stretches is None else unit(video.stretches) for video in videos]
    known = bank if bank is not None and bank.pictures is not None else None
    seen = [None if look is None or known is None else _phrase_shares(look, known) for look in looks]
    said = [_said(video, bank) for video in videos]
    out = np.zeros((len(videos), len(videos)))
    for i, j in zip(*np.triu_indices(len(videos), 1), strict=True):
        pictures, both = [], []
        if (a := looks[i]) is not None and (b := looks[j]) is not None:
            shared = (a.mean(0) + b.mean(0)) / 2
            pictures.append(_standard(_best(unit(a - shared), unit(b - shared), _BEST_LOOKS), LOOKS))
        if (a := seen[i]) is not None and (b := seen[j]) is not None:
            pictures.append(_standard(_best(a, b, _BEST_PHRASES), SEEN_PHRASES))
        if pictures:
            both.append(float(np.mean(pictures)))
        if (a := said[i]) is not None and (b := said[j]) is not None:
            both.append(_standard(_best(a, b, _BEST_SAID), SAID))
        out[i, j] = out[j, i] = np.mean(both) if both else 0.0
    return out


def group_likeness(pairs: FloatArray) -> float:
    """The mean of the pairs (V, V) of a group."""
    return float(pairs[np.triu_indices(len(pairs), 1)].mean())


def least_likeness(videos: int) -> float:
    """What a group of so many videos of one task reaches; the mean of more pairs scatters less."""
    return float(_LEAST + _LEAST_OF_FEW / np.sqrt(max(1, videos - 1)))


def stranger(pairs: FloatArray) -> int | None:
    """The video that has little in common with others that belong together; None where there is no such one."""
    count = len(pairs)
    if count <= _FEWEST_OTHERS:
        return None
    own = pairs.sum(1) / (count - 1)
    odd = int(own.argmin())
    others = np.delete(np.arange(count), odd)
    apart = group_likeness(pairs[np.ix_(others, others)]) - own[odd]
    return odd if own[odd] < _STRANGE and apart > _APART else None


def _best(a: npt.NDArray[Any], b: npt.NDArray[Any], share: float) -> float:
    """The mean best product of rows (S, D) and (T, D) with those of the other, over the share with the highest."""
    products = a @ b.T
    best = [np.sort(products.max(axis)) for axis in (0, 1)]
    return float(np.mean([row[-max(1, round(share * len(row))) :].mean() for row in best]))


def _standard(value: float, usual: tuple[float, float]) -> float:
    return (value - usual[0]) / usual[1]


def _phrase_shares(look: FloatArray, bank: PhraseBank) -> npt.NDArray[Any]:
    """(S, P) roots of the shares of the bank's phrases in stretches (S, D): rows of unit length."""
    standard = _SHARP * bank.standard(look)
    share = np.exp(standard - standard.max(1, keepdims=True))
    return np.asarray(np.sqrt(share / share.sum(1, keepdims=True)))


def _said(video: VideoSteps, bank: PhraseBank | None) -> FloatArray | None:
    """(L, D) what is said, less what all phrases share."""
    if bank is None or video.said is None or len(video.said) < FEWEST_PHRASES:
        return None
    return np.asarray(unit(video.said - bank.raw.mean(0)), np.float64)
