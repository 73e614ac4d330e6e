"""What each row of a table does with the videos of a trial, and the one rule by which its options are chosen.

A :class:`Method` says what is scored; :func:`answer` applies it to a trial and gives an :class:`Answer`: how steps are
localised and discovered under given options, and which options there are to choose from. The rule (docs/evaluation.md)
is the same for every row: the options that score best on the dev videos, by IoU for localisation and by F1 for
discovery, from at most :data:`BUDGET` of them; nothing else is looked at.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, cached_property, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from stepformer.base.arrays import unit
from stepformer.core.inference import no_slots, pooled_slots, random_slots
from stepformer.core.model import Slots, StepDecoder
from stepformer.core.options import DEFAULT_INFERENCE, PAPER_INFERENCE, InferenceConfig
from stepformer.data.simulator import Batch
from stepformer.errors import UsageError
from stepformer.evaluation.baselines import FeatureVideo, baseline, divided
from stepformer.evaluation.kmeans import keep_nearest, kmeans
from stepformer.evaluation.statistics import FloatArray, IntArray, by_task
from stepformer.evaluation.table1 import Table1Options
from stepformer.evaluation.validation import (
    FULL,
    QUICK,
    Segments,
    Trial,
    change_slots,
    discover_all,
    discover_units,
    equal_lengths,
    locate_all,
    locate_units,
    model_slots,
    segments_of,
    smoothed,
    summary,
    task_steps,
)

Options = Mapping[str, Any]

BUDGET = 30
"""Options that each row may try for each of the two tasks."""
UPDATES = 5_000
"""Optimiser steps per model, the same for every published method; they may stop earlier where nothing improves."""
THRESHOLDS: tuple[Options, ...] = (
    {"threshold": "automatic"},
    *({"threshold": "percentile", "keep": share, "locate_keep": share} for share in (0.05, 0.1, 0.2, 0.4)),
)
"""Of Drop-DTW without structure: automatic, or the similarity that a share of all pairs reaches."""
TEXT_SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
"""How much a text itself counts beside the slot that it took."""
DETAILS = (0.3, 0.5, 0.7)
"""Of the engine with structure and penalty: how large the segment penalty is."""
CLUSTER_BY = ("slots", "frames")
CLUSTER_KEEP = (0.6, 0.8, 1.0)
"""Of a cluster's segments: as Table 1 has it, more, or all, which methods that cluster frames may choose too."""
WINDOWS = (1, 3, 5, 9, 15)
"""Frames over which the video is averaged for ground-truth texts on smoothed frames."""
SHARES = (0.6, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 0.8, 0.9, 1.0)
"""Of a cluster's frames that stay, nearest to its centre first, for methods that cluster frames."""
TIME_WEIGHTS = (0.0, 0.5, 1.0)
"""Of the relative time beside the frame's vector, for the same methods."""
_PAPER, _DEFAULT = asdict(PAPER_INFERENCE), asdict(DEFAULT_INFERENCE)


@dataclass(frozen=True, slots=True)
class Method:
    """What is scored. Everything here is part of a run's id.

    kind: ``slots`` (the model's), a control (``uniform``, ``equal cuts``, ``kmeans``, ``random``, ``pooled``,
    ``changes``, ``text``), a published method (``kukleva``, ``elhamifar``, ``shen``) in a ``setting``, or a plugin's
    (``baseline NAME``), whose source has the hash ``code``.
    smoothed: whether texts also choose a window that frames are averaged over.
    rule: ``grid`` (the one rule), ``paper`` (the paper's inference, only its share chosen), ``unordered`` (the grid
    without Drop-DTW), ``own`` and ``own unordered`` (what the model brings, nothing chosen).
    updates: optimiser steps per model of a published method, at most.
    """

    kind: str
    smoothed: bool = False
    setting: str = ""
    rule: str = "grid"
    updates: int = 0
    code: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """A method on the videos of one trial; None where it does not do one of the two tasks.

    The first of the options is what is used where there are no dev videos to choose on.
    """

    locate: Callable[[Options], list[IntArray]] | None = None
    discover: Callable[[Options], Segments] | None = None
    locate_options: Sequence[Options] = ({},)
    discover_options: Sequence[Options] = ({},)
    curve: Sequence[Any] = ()  # of a published method's fit


# -- the rule ---------------------------------------------------------------------------------------------------


def grids(rule: str) -> tuple[Sequence[Options], Sequence[Options]]:
    """The options of slots for localisation and for discovery under a rule: changes of the engine's options.

    Most in localisation, and two of five in discovery, are Drop-DTW (the paper's inference with other thresholds), the
    others the engine with structure and segment penalty as the default preset has it; localisation also chooses how
    much texts count, discovery what is clustered and how much of a cluster stays.
    """
    if rule == "paper":
        shares = [{**_PAPER, **threshold} for threshold in THRESHOLDS[1:]]
        return shares, [{**share, "cluster_by": "slots"} for share in shares]
    fixed: Options = {"ordered": False} if rule == "unordered" else {}
    full = {**_DEFAULT, **fixed}
    plain = [{**_PAPER, **fixed, **threshold} for threshold in THRESHOLDS]
    located = [{**base, "text_share": text} for base, text in itertools.product([*plain, full], TEXT_SHARES)]
    found = [*plain[2:4], *({**full, "detail": detail} for detail in DETAILS)]
    ways = itertools.product(found, CLUSTER_BY, CLUSTER_KEEP)
    return located, [{**base, "cluster_by": by, "cluster_keep": keep} for base, by, keep in ways]


def choose(answer: Answer, trial: Trial) -> dict[str, Any]:
    """The best options of each task on a dev trial, what they score there, and how many were tried."""
    out: dict[str, Any] = {"tried": {}, "dev": {}}
    for name, measure in (("locate", "zs_iou"), ("discover", "un_f1")):
        if getattr(answer, name) is None:
            continue
        options: Sequence[Options] = getattr(answer, f"{name}_options")
        if len(options) > BUDGET:
            raise UsageError(f"{len(options)} options to choose from are more than the {BUDGET} that a row may try")
        tried = options if len(options) > 1 else ()
        scores = [summary({name: _units(answer, name, o, trial, QUICK)}, trial.tasks)[measure] for o in tried]
        best = int(np.argmax(scores)) if scores else 0
        out[name], out["tried"][name] = dict(options[best]), len(options)
        if scores:
            out["dev"][name] = scores[best]
    return out


def first_options(answer: Answer) -> dict[str, Any]:
    """The options where nothing is chosen."""
    found = {"locate": dict(answer.locate_options[0]), "discover": dict(answer.discover_options[0])}
    return {**found, "tried": {"locate": 1, "discover": 1}, "dev": {}}


def units_of(answer: Answer, chosen: Mapping[str, Any], trial: Trial) -> dict[str, npt.NDArray[Any]]:
    """What is scored, under chosen options."""
    done = [name for name in ("locate", "discover") if getattr(answer, name) is not None]
    return {name: _units(answer, name, chosen[name], trial, FULL) for name in done}


def _units(answer: Answer, name: str, options: Options, trial: Trial, how: Table1Options) -> npt.NDArray[Any]:
    """(V, 4) scores of localisation or (S, V, 5) counts of discovery with some options."""
    found = getattr(answer, name)(options)
    if name == "locate":
        return locate_units(trial, found)
    return discover_units(trial, found, replace(how, keep=options.get("cluster_keep", how.keep)))


# -- methods ----------------------------------------------------------------------------------------------------


@dataclass
class Stage:
    """The videos of one trial as methods see them; the model's slots are made once."""

    trial: Trial
    has_texts: bool
    seed: int
    device: str = "cpu"  # that methods are fitted on
    model: StepDecoder | None = None
    inference: Options | None = None  # that the model brings

    @cached_property
    def outputs(self) -> list[Slots]:
        """The model's slots, batch by batch."""
        if self.model is None:
            raise UsageError("this row needs a model, but none is given")
        return list(map(model_slots(self.model), self.trial.batches))


def answer(method: Method, stage: Stage) -> Answer:
    """A method on the videos of a stage."""
    with torch.inference_mode(not is_published(method)):
        made = _METHODS.get(method.kind, _registered)(method, stage)
    return made if stage.has_texts else replace(made, locate=None)


def slot_answer(trial: Trial, outputs: Sequence[Slots], rule: str, own: Options | None = None) -> Answer:
    """Slots, a model's or a control's: aligned with texts and frames by the one engine."""

    def find(options: Options) -> list[IntArray]:
        return locate_all(trial, outputs, InferenceConfig(**options))

    @lru_cache(1)  # ways to cluster follow each other
    def assigned(config: InferenceConfig) -> list[Tensor]:
        return discover_all(trial, outputs, config)

    def cut(options: Options) -> Segments:
        config = InferenceConfig(**{k: v for k, v in options.items() if not k.startswith("cluster_")})
        return segments_of(trial, outputs, assigned(config), options.get("cluster_by", "slots"))

    if rule.startswith("own"):
        given = {**(own or _DEFAULT), **({"ordered": False} if rule == "own unordered" else {})}
        return Answer(find, cut, [given], [given])
    return Answer(find, cut, *grids(rule))


def _slots(method: Method, stage: Stage) -> Answer:
    return slot_answer(stage.trial, stage.outputs, method.rule, stage.inference)


def _control_slots(method: Method, stage: Stage) -> Answer:
    outputs = []
    for number, batch in enumerate(stage.trial.batches):
        if method.kind == "random":
            generator = torch.Generator(device=batch.video.device).manual_seed(1_000 * stage.seed + number)
            outputs.append(random_slots(batch.video, batch.video_mask, generator=generator))
        elif method.kind == "pooled":
            outputs.append(pooled_slots(batch.video, batch.video_mask))
        else:  # cut by what the model's steps are cut by
            cutting = None if stage.trial.cutting is None else stage.trial.cutting[number]
            outputs.append(change_slots(batch.video, batch.video_mask, cutting=cutting))
    return slot_answer(stage.trial, outputs, method.rule, stage.inference)


def _text(method: Method, stage: Stage) -> Answer:
    trial = stage.trial
    windows = WINDOWS if method.smoothed else (1,)

    def find(options: Options) -> list[IntArray]:
        config, window = dict(options), int(options.get("window", 1))
        config.pop("window", None)
        alone = [no_slots(smoothed(batch.video, batch.video_mask, window)) for batch in trial.batches]
        return locate_all(trial, alone, InferenceConfig(**config))

    if method.rule == "own":
        return Answer(find, None, [dict(stage.inference or _DEFAULT)])
    plain = [{**_PAPER, **threshold} for threshold in THRESHOLDS]
    kinds = plain[1:] if method.rule == "paper" else [_DEFAULT, *plain]
    return Answer(find, None, [{**kind, "window": w} for kind, w in itertools.product(kinds, windows)])


def _uniform(method: Method, stage: Stage) -> Answer:
    """As many equal parts as the video (localisation) or its task (discovery) has steps."""
    trial, labels = stage.trial, stage.trial.labels()
    steps = {trial.tasks[group[0]]: task_steps(trial, group) for group in by_task(trial.tasks)}

    def find(_: Options) -> list[IntArray]:
        return [np.arange(len(y)) * int((k >= 0).sum()) // len(y) for y, k in zip(labels, trial.kinds, strict=True)]

    def cut(_: Options) -> Segments:
        return [np.arange(len(y)) * steps[t] // len(y) for y, t in zip(labels, trial.tasks, strict=True)], None

    return Answer(find, cut)


def _equal_cuts(method: Method, stage: Stage) -> Answer:
    """As many equal parts as the model has segments, gaps included, under the options of the model's own row.

    Localisation: the model's own sequence of steps and gaps, all of one length. Discovery: parts known by their mean
    frame, clustered as slots are.
    """
    slots = _slots(method, stage)
    assert slots.locate is not None and slots.discover is not None
    locate, discover = slots.locate, slots.discover
    frames = [video for batch in stage.trial.batches for video in _rows(batch)]

    def find(options: Options) -> list[IntArray]:
        return [equal_lengths(ids) for ids in locate(options)]

    def cut(options: Options) -> Segments:
        parts, vectors = [], []
        for ids, video in zip(discover(options)[0], frames, strict=True):
            count = 1 + int((np.diff(ids) != 0).sum())
            part = np.arange(len(ids)) * count // len(ids)
            parts.append(part)
            vectors.append(np.stack([video[part == p].mean(0) for p in range(count)]))
        return parts, vectors

    return replace(slots, locate=find, discover=cut)


def _rows(batch: Batch) -> list[npt.NDArray[np.float32]]:
    """The frames of each video, (n, D)."""
    lengths = batch.video_mask.sum(1).tolist()
    return [video[:n].float().cpu().numpy() for video, n in zip(batch.video, lengths, strict=True)]


def _kmeans(method: Method, stage: Stage) -> Answer:
    videos, steps = feature_videos(stage)
    return frame_clusters(videos, [unit(v.features) for v in videos], steps, stage.seed)


def frame_clusters(
    videos: Sequence[FeatureVideo], points: Sequence[npt.NDArray[Any]], steps: Mapping[str, int], seed: int
) -> Answer:
    """K-means of frames, with their relative time or without, task by task; the nearest of each cluster stay."""
    groups = by_task([v.task for v in videos])

    @cache
    def clusters(weight: float) -> list[tuple[IntArray, FloatArray]]:
        out = []
        for group in groups:
            timed = [np.c_[points[i], weight * videos[i].relative_time] if weight else points[i] for i in group]
            joined = np.concatenate(timed)
            found = kmeans(joined, steps[videos[group[0]].task], seed=seed, restarts=5)
            out.append((found.labels, ((joined - found.centers[found.labels]) ** 2).sum(1)))
        return out

    def cut(options: Options) -> Segments:
        out = [np.empty(0, np.int64)] * len(videos)
        for group, (labels, distances) in zip(groups, clusters(options["time_weight"]), strict=True):
            kept = keep_nearest(labels, distances, options["keep"])
            for i, part in zip(group, divided(kept, [points[i] for i in group]), strict=True):
                out[i] = part
        return out, None

    pairs = itertools.product(SHARES, TIME_WEIGHTS)
    return Answer(None, cut, discover_options=[{"keep": keep, "time_weight": w} for keep, w in pairs])


# -- published methods ------------------------------------------------------------------------------------------


def feature_videos(stage: Stage) -> tuple[list[FeatureVideo], dict[str, int]]:
    """The videos of a trial as baselines take them, and the number of steps of each task."""
    trial = stage.trial
    videos: list[FeatureVideo] = []
    for batch in trial.batches:
        for i, seen_as in enumerate(_rows(batch)):
            said, at = batch.phrase_mask[i], len(videos)
            times = batch.phrase_times[i][said].float().cpu().numpy() / trial.rate_hz
            videos.append(
                FeatureVideo(
                    f"video{at}",
                    str(trial.tasks[at]),
                    seen_as,
                    trial.rate_hz,
                    phrase_vectors=batch.phrases[i][said].float().cpu().numpy(),
                    phrase_times_s=np.stack([times - 1, times + 1], 1),
                )
            )
    steps = {str(trial.tasks[g[0]]): task_steps(trial, g) for g in by_task(trial.tasks)}
    return videos, steps


def _fit(method: Method, stage: Stage, **options: Any) -> tuple[Any, list[FeatureVideo], dict[str, int]]:
    """A baseline fitted on the videos of a stage, those videos, and the number of steps of each task."""
    videos, steps = feature_videos(stage)
    setting: Any = method.setting or "weak"
    fit = baseline(method.kind.removeprefix(REGISTERED), **options).fit
    return fit(videos, steps, setting=setting, seed=stage.seed, device=stage.device), videos, steps


def _retuned(fitted: Any, videos: Sequence[FeatureVideo], tried: Sequence[Options]) -> Answer:
    """What a fitted baseline finds with other options that only segmenting looks at."""

    def cut(options: Options) -> Segments:
        return replace(fitted, options=replace(fitted.options, **options)).segment(videos), None

    return Answer(None, cut, discover_options=tried, curve=fitted.curve)


def _kukleva(method: Method, stage: Stage) -> Answer:
    fitted, videos, _ = _fit(method, stage, epochs=0, min_updates=method.updates)  # exactly the budget
    shares = [0.4, *(round(0.05 * i, 2) for i in range(15) if i != 8)]
    pairs = itertools.product(shares, (True, False))
    return _retuned(fitted, videos, [{"background": share, "decode": decode} for share, decode in pairs])


def _elhamifar(method: Method, stage: Stage) -> Answer:
    fitted, videos, _ = _fit(method, stage, max_updates=method.updates)
    pairs = itertools.product(SHARES[::-1], (1, 3, 5))  # all segments stay in the published method
    return _retuned(fitted, videos, [{"keep": keep, "smooth": window} for keep, window in pairs])


def _shen(method: Method, stage: Stage) -> Answer:
    fitted, videos, steps = _fit(method, stage, max_updates=method.updates)
    trial, outputs = prototypes(stage.trial, fitted, videos)
    localised = slot_answer(trial, outputs, method.rule, stage.inference)
    found = frame_clusters(videos, [fitted.frames(v) for v in videos], steps, stage.seed)
    return replace(found, locate=localised.locate, locate_options=localised.locate_options, curve=fitted.curve)


def prototypes(trial: Trial, fitted: Any, videos: Sequence[FeatureVideo]) -> tuple[Trial, list[Slots]]:
    """A method's ordered prototypes as slots, and the trial with texts in the space that it learned."""
    out: list[Slots] = []
    texts = []
    at = 0
    for batch, given in zip(trial.batches, trial.texts, strict=True):
        members = videos[at : at + len(batch.video)]
        at += len(members)
        found = [torch.from_numpy(np.asarray(fitted.slots(v), np.float32)) for v in members]
        most = max(len(slots) for slots in found)
        # a video shorter than the number of prototypes has fewer: its last one repeats
        slots = torch.stack([torch.cat([s, s[-1:].expand(most - len(s), -1)]) for s in found])
        frames = batch.video.new_zeros(batch.video.shape)
        learned = given.clone()
        for i, video in enumerate(members):
            frames[i, : len(video.features)] = torch.from_numpy(fitted.frames(video)).to(frames)
            learned[i] = torch.from_numpy(fitted.texts(given[i].float().cpu().numpy(), video.task)).to(learned)
        out.append(Slots(slots.to(batch.video), frames, None))
        texts.append(learned)
    return replace(trial, texts=texts), out


def _registered(method: Method, stage: Stage) -> Answer:
    """A baseline that a plugin registered: its clusters as they come."""
    fitted, videos, _ = _fit(method, stage)
    return Answer(None, lambda _: (fitted.segment(videos), None), curve=getattr(fitted, "curve", ()))


_METHODS: dict[str, Callable[[Method, Stage], Answer]] = {
    "slots": _slots, "random": _control_slots, "pooled": _control_slots, "changes": _control_slots, "text": _text,
    "uniform": _uniform, "equal cuts": _equal_cuts, "kmeans": _kmeans, "kukleva": _kukleva, "elhamifar": _elhamifar,
    "shen": _shen,
}  # fmt: skip
PUBLISHED = ("kukleva", "elhamifar", "shen")
LEARNED = ("shen",)
"""Those that learn where models do; the perceptron of Kukleva is so small that a GPU only waits for it."""
REGISTERED = "baseline "


def is_published(method: Method) -> bool:
    """Whether it is a method that is fitted: one of the paper's rows, or a plugin's."""
    return method.kind in PUBLISHED or method.kind.startswith(REGISTERED)
