"""Several videos of one task to one ordered list of common steps."""

from __future__ import annotations

import functools
import itertools
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from stepformer.app.naming import Name, PhraseBank, tell_apart
from stepformer.app.procedure.clustering import OUTLIER, StepClusters, choose_count, cluster_steps
from stepformer.app.procedure.records import CommonStep, FloatArray, IntArray, Procedure, VideoSteps
from stepformer.base.arrays import softmax, unit
from stepformer.errors import InputError, UsageError
from stepformer.evaluation.hungarian import assign
from stepformer.evaluation.neighbours import runs
from stepformer.timeline import Step, Timeline

Encode = Callable[[Sequence[str]], npt.NDArray[np.float32]]

MIN_SHARE = 0.2
"""A step is common when this share of the videos has it, and at least two videos."""

LOOKS, SEEN_PHRASES, SAID = (0.633, 0.230), (0.624, 0.237), (0.593, 0.104)
"""Mean and standard deviation of the three over pairs of one task."""
_STRETCHES = 48
_BEST_LOOKS, _BEST_PHRASES, _BEST_SAID = 0.1, 0.25, 0.25  # shares of a video that its like has to be looked for
_SHARP = 4.0
FEWEST_PHRASES = 3  # fewer say nothing of the whole
_LEAST, _LEAST_OF_FEW = -0.15, -1.35
_STRANGE, _ALONE = -0.8, 1.2  # of a video's mean likeness with the others, and below theirs with each other
_FEWEST_OTHERS = 3

_NUMBER = re.compile(r" \(\d+\)$")
_EXACT = 10  # steps: the search for the best order takes as many as 2^10 sets of them


def find_procedure(
    videos: Sequence[VideoSteps],
    count: int | None = None,
    *,
    min_share: float = MIN_SHARE,
    seed: int = 0,
    encode: Encode | None = None,
    bank: PhraseBank | None = None,
    meta: Mapping[str, Any] | None = None,
) -> Procedure:
    """The common steps of videos of one task.

    count: how many to look for; by default the number that tells the steps of different videos apart best. Steps
    that fewer than ``min_share`` of the videos (or only one) have are not common and left in the timelines as their
    own. encode, bank: text side and phrases, for names; see :func:`name_steps`.

    Raises:
        InputError: fewer than two videos, or no two of them with steps.
    """
    if len(videos) < 2:
        raise InputError(
            f"a procedure is what several videos of one task have in common; got {len(videos)}. Give at least two, "
            "or use discover for one"
        )
    if sum(len(video.timeline) > 0 for video in videos) < 2:
        raise InputError("fewer than two of the videos have steps; there is nothing in common to find")
    if not 0 <= min_share <= 1:
        raise UsageError(f"min_share is a share of the videos from 0 to 1, got {min_share}")
    vectors, places = [video.vectors for video in videos], [video.places for video in videos]
    scores: dict[int, float] = {}
    if count is None:
        clusters, scores = choose_count(vectors, places, seed)
    else:
        clusters = cluster_steps(vectors, places, count, seed)
    labels, first, both = _common_in_order(clusters, places, max(2, min_share * len(videos)))
    number = len(first)
    about = dict(meta or {})
    if all(video.stretches is not None or video.said is not None for video in videos):
        pairs = likeness(videos, bank)
        about["likeness"] = round(group_likeness(pairs), 4)
        odd = stranger(pairs)
        if about["likeness"] < least_likeness(len(videos)):
            about["doubt"] = "these videos do not seem to show one task: they differ as videos of different tasks do"
        elif odd is not None:
            about["stranger"] = videos[odd].timeline.video
            note = f"{about['stranger']} may not belong here: the other videos are more like each other than like it"
            about["notes"] = [*about.get("notes", ()), note]
    names = name_steps(videos, labels, number, encode, bank)
    with np.errstate(invalid="ignore", divide="ignore"):
        before = np.where(both > 0, first / both, np.nan)
    np.fill_diagonal(before, np.nan)
    return Procedure(
        _steps(videos, labels, places, names),
        before,
        both,
        transitions(labels, number),
        tuple(_told(video.timeline, path, names) for video, path in zip(videos, labels, strict=True)),
        consistency(first),
        scores,
        about,
    )


def _common_in_order(
    clusters: StepClusters, places: Sequence[FloatArray], least: float
) -> tuple[list[IntArray], IntArray, IntArray]:
    """Labels of the clusters that enough videos have, numbered in the order that the videos contradict least, and the
    precedence counts in it."""
    paths = clusters.labels
    having = np.sum([np.isin(np.arange(clusters.count), path) for path in paths], 0)
    common = np.flatnonzero(having >= least)
    if not len(common):
        raise InputError(
            "no step occurs in two of the videos; are they of one task? Use --steps N (steps=N in Python) to look for "
            "a given number of steps"
        )
    flat, where = np.concatenate(paths), np.concatenate(places)
    first, both = (counts[np.ix_(common, common)] for counts in precedence(paths, clusters.count))
    order = best_order(first, np.array([where[flat == c].mean() for c in common]))
    number = np.full(clusters.count + 1, OUTLIER)  # what is left out, -1, takes the last of the list, which is -1 too
    number[common[order]] = np.arange(len(order))
    return [number[path] for path in paths], first[np.ix_(order, order)], both[np.ix_(order, order)]


def _steps(
    videos: Sequence[VideoSteps], labels: Sequence[IntArray], places: Sequence[FloatArray], names: Sequence[Name | None]
) -> tuple[CommonStep, ...]:
    out = []
    for c, name in enumerate(names):
        members = [np.flatnonzero(path == c) for path in labels]
        vectors = np.concatenate([unit(v.vectors[rows]) for v, rows in zip(videos, members, strict=True)])
        having = sum(len(rows) > 0 for rows in members)
        spans = [  # one step that discovery cut in two is one run
            video.timeline[end - 1].end_s - video.timeline[start].start_s
            for video, path in zip(videos, labels, strict=True)
            for step, start, end in zip(*runs(path), strict=True)
            if step == c
        ]
        out.append(
            CommonStep(
                f"step {c + 1}" if name is None else name.text, having, len(spans), having / len(videos),
                float(np.concatenate([p[rows] for p, rows in zip(places, members, strict=True)]).mean()),
                float(np.median(spans)), float((vectors @ unit(vectors.mean(0))).mean()),
                name is not None and not name.sure, None if name is None else name.score,
            )
        )  # fmt: skip
    return tuple(out)


def _told(timeline: Timeline, path: IntArray, names: Sequence[Name | None]) -> Timeline:
    """A video's timeline in terms of the common steps; adjacent occurrences of one step are merged."""
    steps: list[Step] = []
    for step, common in zip(timeline, path.tolist(), strict=True):
        if common == OUTLIER:
            steps.append(replace(step, meta={**step.meta, "common": None}))
            continue
        before = steps[-1] if steps else None
        if before is not None and before.meta.get("common") == common + 1:
            scores = [s for s in (before.score, step.score) if s is not None]
            steps[-1] = replace(before, end_s=step.end_s, score=max(scores) if scores else None)
            continue
        name = names[common]
        meta = {"common": common + 1, **({} if name is None else name.meta())}
        label = None if name is None else name.text
        if step.label and step.label != label:
            meta["own_label"] = step.label
        steps.append(Step(step.start_s, step.end_s, label, step.score, step.slot, meta))
    return Timeline(timeline.video, timeline.duration_s, tuple(steps), {**timeline.meta, "command": "procedure"})


# -- order -------------------------------------------------------------------------------------------------------


def precedence(paths: Sequence[IntArray], count: int) -> tuple[IntArray, IntArray]:
    """``first[i, j]``: videos in which i first happens before j first does; ``both[i, j]``: videos with both.

    paths: per video the common step of each of its steps in temporal order, -1 = none of them.
    """
    first = np.zeros((count, count), np.int64)
    both = np.zeros((count, count), np.int64)
    for path in paths:
        seen = list(dict.fromkeys(int(step) for step in path if step >= 0))
        both[np.ix_(seen, seen)] += 1
        for i, j in itertools.combinations(seen, 2):
            first[i, j] += 1
    return first, both


def transitions(paths: Sequence[IntArray], count: int) -> IntArray:
    """(C + 1, C + 1) how often a step is next after another: row 0 is the start, the last column the end."""
    follows = np.zeros((count + 1, count + 1), np.int64)
    for path in paths:
        steps = runs(path[path >= 0])[0]
        for a, b in zip([-1, *steps], [*steps, count], strict=True):
            follows[a + 1, b] += 1
    return follows


def best_order(first: IntArray, places: FloatArray) -> IntArray:
    """The order of steps that the fewest pairs of the videos contradict, found from the order of mean places.

    Exact for up to ``_EXACT`` steps. Of more, steps are taken out and put in elsewhere as long as that agrees with more
    pairs; from mean places this search ends at a very good order. Ties keep the order of places.
    """
    order = [int(i) for i in np.argsort(places, kind="stable")]
    if len(order) <= _EXACT:
        return _exact_order(first, order)
    gain = first - first.T  # gain[i, j] > 0: i before j agrees with more videos
    for _ in range(len(order) ** 2):
        best, move = 0, None
        for at, step in enumerate(order):
            rest = order[:at] + order[at + 1 :]
            # worth of standing at each place among the rest, relative to standing first
            worth = np.concatenate(([0], np.cumsum([2 * gain[other, step] for other in rest])))
            change = worth - worth[at]
            to = int(change.argmax())
            if change[to] > best:
                best, move = int(change[to]), (at, to)
        if move is None:
            break
        step = order.pop(move[0])
        order.insert(move[1], step)
    return np.array(order, np.int64)


def _exact_order(first: IntArray, order: list[int]) -> IntArray:
    """The best order by dynamic programming over which steps have come already."""
    agrees = first.tolist()

    @functools.cache
    def best(steps: frozenset[int]) -> tuple[int, tuple[int, ...]]:  # pairs that agree, the order of these steps
        ways = []
        for last in sorted(steps, key=order.index, reverse=True):  # of equals the later place comes last
            value, before = best(steps - {last})
            ways.append((value + sum(agrees[other][last] for other in before), (*before, last)))
        return max(ways, key=lambda way: way[0], default=(0, ()))

    return np.array(best(frozenset(order))[1], np.int64)


def consistency(first: IntArray) -> float:
    """Share of pairs (i, j) of all videos that stand in the order of their numbers; 1 where there are no pairs."""
    right, all_pairs = float(np.triu(first, 1).sum()), float(first.sum())
    return right / all_pairs if all_pairs else 1.0


# -- names -------------------------------------------------------------------------------------------------------


def name_steps(
    videos: Sequence[VideoSteps],
    labels: Sequence[IntArray],
    count: int,
    encode: Encode | None = None,
    bank: PhraseBank | None = None,
) -> list[Name | None]:
    """One name for each of ``count`` common steps; None where none was said or guessed.

    Where at least one occurrence has a name that was said or given, those stand for election: the one whose text is
    nearest to all of them (``encode``), or without it the most frequent. Other steps take the phrases of the bank
    that fit the mean of their occurrences best, no phrase twice; without a bank, or where none fits, the most frequent
    guess in the videos.
    """
    said: list[list[str]] = [[] for _ in range(count)]
    guessed: list[list[str]] = [[] for _ in range(count)]
    vectors: list[list[FloatArray]] = [[] for _ in range(count)]
    for video, path in zip(videos, labels, strict=True):
        for step, vector, cluster in zip(video.timeline, video.vectors, path, strict=True):
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
    return tell_apart(names, everywhere=True)


def _elect(texts: list[str], encode: Encode | None) -> Name:
    """The text nearest to the mean of all; frequent texts pull the mean towards themselves."""
    distinct = list(dict.fromkeys(texts))
    if encode is None or len(distinct) == 1:
        return Name(Counter(texts).most_common(1)[0][0], "spoken", True, 1.0)
    vectors = dict(zip(distinct, unit(encode(distinct)), strict=True))
    mean = unit(np.mean([vectors[text] for text in texts], 0))
    best = max(distinct, key=lambda text: float(vectors[text] @ mean))
    return Name(best, "spoken", True, float(vectors[best] @ mean))


# -- do they belong together --------------------------------------------------------------------------------------

# Three likenesses of a pair of videos, each the mean of its best matches, since most of a video may well be its own:
# stretches of pictures less what the two videos share; what the phrases of the bank say of these stretches; what is
# spoken. Each is counted in standard deviations from its mean over pairs of one task. The constants are of simulated
# dev videos, of what is spoken of the dev half of YouCook2; `stepformer bench procedure` has the error rates.


def stretches_of(vectors: npt.ArrayLike) -> FloatArray:
    """(S, D) means of at most 48 equal stretches of a video's vectors (N, D)."""
    frames = np.asarray(vectors, np.float64)
    return np.stack([part.mean(0) for part in np.array_split(frames, min(_STRETCHES, len(frames)))])


def likeness(videos: Sequence[VideoSteps], bank: PhraseBank | None = None) -> FloatArray:
    """(V, V) how alike each pair of videos is, by what is known of both; 0 for the mean pair of one task.

    bank: in the space of the videos; without its picture statistics phrases say nothing of pictures.
    """
    looks = [None if video.stretches is None else unit(video.stretches) for video in videos]
    seen: list[FloatArray | None] = [None] * len(videos)
    if bank is not None and bank.pictures is not None:
        # (S, P) roots of the shares of the bank's phrases in stretches: rows of unit length
        seen = [None if look is None else np.sqrt(softmax(_SHARP * bank.standard(look))) for look in looks]
    said = [_said(video, bank) for video in videos]
    out = np.zeros((len(videos), len(videos)))
    for i, j in zip(*np.triu_indices(len(videos), 1), strict=True):
        pictures, both = [], []
        if (a := looks[i]) is not None and (b := looks[j]) is not None:
            shared = (a.mean(0) + b.mean(0)) / 2
            pictures.append((_best(unit(a - shared), unit(b - shared), _BEST_LOOKS) - LOOKS[0]) / LOOKS[1])
        if (a := seen[i]) is not None and (b := seen[j]) is not None:
            pictures.append((_best(a, b, _BEST_PHRASES) - SEEN_PHRASES[0]) / SEEN_PHRASES[1])
        if pictures:
            both.append(float(np.mean(pictures)))
        if (a := said[i]) is not None and (b := said[j]) is not None:
            both.append((_best(a, b, _BEST_SAID) - SAID[0]) / SAID[1])
        out[i, j] = out[j, i] = np.mean(both) if both else 0.0
    return out


def group_likeness(pairs: FloatArray) -> float:
    """The mean of the pairs (V, V) of a group."""
    return float(pairs[np.triu_indices(len(pairs), 1)].mean())


def least_likeness(videos: int) -> float:
    """What a group of ``videos`` of one task reaches; the mean of more pairs scatters less."""
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
    return odd if own[odd] < _STRANGE and apart > _ALONE else None


def _best(a: npt.NDArray[Any], b: npt.NDArray[Any], share: float) -> float:
    """The mean best product of rows (S, D) and (T, D) with those of the other, over the share with the highest."""
    products = a @ b.T
    best = [np.sort(products.max(axis)) for axis in (0, 1)]
    return float(np.mean([row[-max(1, round(share * len(row))) :].mean() for row in best]))


def _said(video: VideoSteps, bank: PhraseBank | None) -> FloatArray | None:
    """(L, D) what is said, less what all phrases share."""
    if bank is None or video.said is None or len(video.said) < FEWEST_PHRASES:
        return None
    return np.asarray(unit(video.said - bank.raw.mean(0)), np.float64)
