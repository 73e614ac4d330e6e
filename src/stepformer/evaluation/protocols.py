"""One set of predictions under any protocol, or under all of them side by side.

A protocol asks for something: Table 1 for clusters, Table 2 for positions in the video's own step list, the others for
one or the other. Predictions that know less are given it in the most obvious way, and the result says so in ``how``:

- segments (with vectors) become clusters by Table 1's clustering, with K = 7 and nothing dropped for the macro score;
- clusters become steps by the one Hungarian matching of their task;
- clusters and segments become positions of Table 2 by an oracle's matching, video by video: an upper bound;
- steps become positions by counting: the i-th segment of a step (run of frames, where there are only frames) is its
  i-th place in the list, further ones are its last.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from stepformer.data.records import Annotation, Dataset, Task, VideoRecord
from stepformer.errors import InputError, UsageError
from stepformer.evaluation import neighbours, table1
from stepformer.evaluation.metrics import (
    LABEL_RATE_HZ,
    IntArray,
    LengthError,
    frame_count,
    matched,
    own_labels,
    rasterise,
    rename_ids,
    score_table2,
    task_labels,
)
from stepformer.evaluation.predictions import Prediction, as_clusters, as_steps, names_steps

Values = Mapping[str, float]
Scored = tuple[Values, Values, str]  # the last three fields of a Result
_SLACK_S = 3.0  # by how much two sources may differ on the length of a video


@dataclass(frozen=True, slots=True)
class Result:
    """What one protocol says: ``values`` by metric in [0, 1], ``spread`` over K-means seeds where there is any."""

    protocol: str
    values: Values
    spread: Values
    how: str


@dataclass(slots=True, eq=False)
class TaskData:
    """One task, ready to score: per video ids and labels at one rate, and what else a protocol may need."""

    task: Task
    records: list[VideoRecord] = field(default_factory=list)
    ids: list[IntArray] = field(default_factory=list)
    labels: list[IntArray] = field(default_factory=list)
    own: list[IntArray] = field(default_factory=list)  # labels as places in the video's own list
    positions: list[IntArray] = field(default_factory=list)  # ids as places there, where the ids are steps
    vectors: list[table1.FloatArray] = field(default_factory=list)  # where the ids are segments
    numbers: dict[str, int] = field(default_factory=dict)  # of names, where they stand for clusters


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """Everything to score: the tasks, what the ids mean, the rate, and what was left out and why."""

    tasks: Mapping[str, TaskData]
    kind: str
    rate_hz: float
    notes: tuple[str, ...] = ()

    @property
    def videos(self) -> int:
        """How many videos are scored."""
        return sum(len(task.records) for task in self.tasks.values())


def prepare(
    dataset: Dataset,
    predictions: Mapping[str, Prediction],
    kind: str = "auto",
    missing: str = "error",
    rate_hz: float = LABEL_RATE_HZ,
) -> Prepared:
    """Annotations and predictions of a dataset as arrays at one rate.

    ``predictions`` are keyed ``<task>_<video>`` or ``<video>``. An annotated video without one is an error, or counts
    as all background (``missing="background"``), or is left out (``"skip"``). The length of a video is the dataset's;
    where that says nothing it is the prediction's, and failing both the end of the last annotation; a note says so.

    Raises:
        InputError: predictions missing, for no video of the dataset, or of the wrong length (the message names it).
    """
    if missing not in ("error", "background", "skip"):
        raise UsageError(f"missing must be error, background or skip, got {missing!r}")
    annotated = [record for record in dataset.videos if record.labels]
    if not annotated:
        raise InputError(f"{dataset.name} has no annotated video to score against")
    chosen = {record.key: predictions.get(record.key, predictions.get(record.video)) for record in annotated}
    without = [key for key, prediction in chosen.items() if prediction is None]
    if len(without) == len(annotated):
        example = next(iter(predictions), "none")
        like = f"{annotated[0].key!r} or {annotated[0].video!r}"
        raise InputError(f"no prediction is for a video of {dataset.name}: one is called {example!r}, a video {like}")
    notes: list[str] = []
    if without:
        what = f"{len(without)} of {len(annotated)} annotated videos have no prediction, for instance {without[0]}"
        if missing == "error":
            raise InputError(f"{what}; use --missing background or --missing skip")
        notes.append(f"{what}; {'they count as all background' if missing == 'background' else 'they are left out'}")
    names = {record.key for record in dataset.videos} | {record.video for record in dataset.videos}
    stray = [name for name in predictions if name not in names]
    if stray:
        notes.append(f"{len(stray)} predictions match no video of {dataset.name}, for instance {stray[0]}")

    pairs = [(p, dataset.tasks[r.task]) for r in annotated if (p := chosen[r.key]) is not None]
    some = [(p, task) for p, task in pairs if not p.is_empty]
    with_vectors = all(p.vectors is not None for p, _ in some)
    if kind == "auto":
        if some and all(names_steps(p, task) for p, task in some):
            kind = "steps"
        else:
            kind = "segments" if some and with_vectors else "clusters"
            notes += _almost_steps(some)
    if kind == "segments" and not with_vectors:
        raise InputError("segments need vectors to be clustered; some predictions have none (or use --ids clusters)")

    tasks: dict[str, TaskData] = {}
    guessed = 0
    width = next((p.vectors.shape[1] for p, _ in pairs if p.vectors is not None), 1)
    for record in annotated:
        prediction = chosen[record.key]
        if prediction is None:
            if missing == "skip":
                continue
            prediction = Prediction(segments=())
        data = tasks.setdefault(record.task, TaskData(dataset.tasks[record.task]))
        length_s = record.duration_s if record.duration_s is not None else prediction.length_s
        if length_s is None:
            guessed += 1
            length_s = max([a.end_s for a in record.labels] + [e for _, _, e in prediction.segments or ()])
        said_s = prediction.duration_s
        if said_s is not None and abs(said_s - length_s) > _SLACK_S:
            what = f"the prediction is of a video of {said_s:.1f} s, this one lasts {length_s:.1f} s"
            raise LengthError(f"video {record.key}: {what}")
        n_frames = frame_count(length_s, rate_hz)
        named = prediction
        if kind == "steps":
            named = as_steps(prediction, data.task)
        elif kind == "clusters":
            named = as_clusters(prediction, data.numbers)
        try:
            data.ids.append(named.at(n_frames, rate_hz))
        except LengthError as error:
            raise LengthError(f"video {record.key}: {error}") from None
        if kind == "steps":
            data.positions.append(_places(named, data.ids[-1], record.ordered_steps, n_frames, rate_hz))
        elif kind == "segments":
            data.vectors.append(prediction.vectors if prediction.vectors is not None else np.zeros((0, width)))
        data.records.append(record)
        data.labels.append(task_labels(record, length_s, rate_hz))
        data.own.append(own_labels(record, length_s, rate_hz))
    if guessed:
        notes.append(f"{guessed} videos have no known length; they end with their last annotation or predicted step")
    return Prepared(tasks, kind, rate_hz, tuple(notes))


def _almost_steps(pairs: Sequence[tuple[Prediction, Task]]) -> list[str]:
    """A note where some names are steps of the task and others are not: likely a slip, and it changes the scores."""
    known = [(name in task.steps, name, task) for prediction, task in pairs for name in set(prediction.names)]
    wrong = [(name, task) for is_step, name, task in known if not is_step]
    if not wrong or len(wrong) == len(known):
        return []
    name, task = min(wrong, key=lambda pair: (pair[1].id, str(pair[0])))
    what = f"{len(wrong)} of {len(known)} names in predictions are no steps of their task, for instance {name!r}"
    return [f"{what} of {task.title}; so no name counts (--ids steps takes those that are)"]


def step_ids(data: TaskData, kind: str, options: table1.Table1Options) -> list[IntArray]:
    """Each video in the task's step indices; ids that match no step become indices past the last."""
    if kind == "steps":
        return data.ids
    if kind == "positions":
        out = []
        for record, ids in zip(data.records, data.ids, strict=True):
            known = dict(enumerate(a.step for a in record.ordered_steps))
            beyond = len(data.task.steps) - len(known)
            out.append(rename_ids(ids, lambda i, known=known, beyond=beyond: known.get(i, i + beyond)))  # type: ignore[misc]
        return out
    return matched(cluster_ids(data, kind, options), data.labels, len(data.task.steps))


def cluster_ids(data: TaskData, kind: str, options: table1.Table1Options) -> list[IntArray]:
    """Each video in ids that mean the same across the videos of the task (of the first seed, for segments)."""
    if kind == "segments":
        return table1.cluster_segments(data.ids, data.vectors, len(data.task.steps), options.seeds[0], options)
    return step_ids(data, kind, options) if kind == "positions" else data.ids


def position_ids(data: TaskData, kind: str) -> list[IntArray]:
    """Each video in positions of its own ordered step list; of clusters an oracle's upper bound: the method is asked to
    know which step is which.
    """
    if kind in ("positions", "steps"):
        return data.ids if kind == "positions" else data.positions
    sides = zip(data.ids, data.own, data.records, strict=True)
    return [matched([ids], [own], len(record.labels))[0] for ids, own, record in sides]


def _places(named: Prediction, ids: IntArray, ordered: Sequence[Annotation], n_frames: int, rate_hz: float) -> IntArray:
    """Step ids as places in the video's own list, by counting segments in order of time."""
    if named.segments is None:
        steps, starts, ends = neighbours.runs(ids)
        return np.repeat(_counted(steps.tolist(), ordered), ends - starts)
    in_time = sorted(named.segments, key=lambda segment: segment[1:])
    places = _counted([step for step, _, _ in in_time], ordered).tolist()
    return rasterise(((place, s, e) for place, (_, s, e) in zip(places, in_time, strict=True)), n_frames, rate_hz)


def _counted(steps: Sequence[int], ordered: Sequence[Annotation]) -> IntArray:
    places: dict[int, list[int]] = {}
    for position, annotation in enumerate(ordered):
        places.setdefault(annotation.step, []).append(position)
    seen: Counter[int] = Counter()
    out = []
    for step in steps:
        own = places.get(step, [])
        # a step that is not in the list gets an id beyond it, which is wrong wherever it stands
        out.append(-1 if step < 0 else own[min(seen[step], len(own) - 1)] if own else len(ordered) + step)
        seen[step] += 1
    return np.array(out, np.int64)


def table1_inputs(prepared: Prepared, options: table1.Table1Options) -> dict[str, table1.TaskInput]:
    """What :func:`stepformer.evaluation.table1.score_table1` takes."""
    given = prepared.kind == "segments"
    return {
        name: table1.TaskInput(
            data.ids if given else cluster_ids(data, prepared.kind, options),
            data.labels,
            len(data.task.steps),
            data.vectors if given else None,
        )
        for name, data in prepared.tasks.items()
    }


def _table1(prepared: Prepared, options: table1.Table1Options) -> Scored:
    result = table1.score_table1(table1_inputs(prepared, options), options)
    if prepared.kind != "segments":
        return result.mean, {}, "ids are clusters"
    seeds = len(options.seeds)
    return result.mean, result.spread, f"K-means of segments, {seeds} seed{'s' * (seeds > 1)}"


def _table2(prepared: Prepared, options: table1.Table1Options) -> Scored:
    predictions = [ids for data in prepared.tasks.values() for ids in position_ids(data, prepared.kind)]
    labels = [own for data in prepared.tasks.values() for own in data.own]
    known = {"positions": "positions as given", "steps": "steps counted into positions"}
    return score_table2(predictions, labels), {}, known.get(prepared.kind, "matched by an oracle: an upper bound")


def _mapped(kind: str) -> str:
    return "steps as given" if kind in ("steps", "positions") else "clusters mapped by the task's matching"


def _crosstask(prepared: Prepared, options: table1.Table1Options) -> Scored:
    tasks = {
        name: (
            [neighbours.moments(ids, prepared.rate_hz) for ids in step_ids(data, prepared.kind, options)],
            [record.labels for record in data.records],
        )
        for name, data in prepared.tasks.items()
    }
    return neighbours.score_crosstask_recall(tasks), {}, _mapped(prepared.kind)


def _per_video(prepared: Prepared, options: table1.Table1Options) -> Scored:
    predictions = [ids for data in prepared.tasks.values() for ids in data.ids]
    labels = [ids for data in prepared.tasks.values() for ids in data.labels]
    return neighbours.score_per_video(predictions, labels), {}, "one matching per video"


def _macro(prepared: Prepared, options: table1.Table1Options) -> Scored:
    if prepared.kind != "segments":
        tasks = {n: (cluster_ids(d, prepared.kind, options), d.labels) for n, d in prepared.tasks.items()}
        return neighbours.score_macro(tasks), {}, "ids are clusters, not K = 7"
    runs = []
    for seed in options.seeds:
        tasks = {
            name: (
                table1.cluster_segments(d.ids, d.vectors, neighbours.FIXED_K, seed, replace(options, keep=1.0)),
                d.labels,
            )
            for name, d in prepared.tasks.items()
        }
        runs.append(neighbours.score_macro(tasks))
    columns = {metric: np.array([run[metric] for run in runs]) for metric in neighbours.MACRO}
    spread = {m: float(v.std(ddof=1)) if len(runs) > 1 else 0.0 for m, v in columns.items()}
    return {m: float(v.mean()) for m, v in columns.items()}, spread, "segments clustered, K = 7"


def _segmental(prepared: Prepared, options: table1.Table1Options) -> Scored:
    predictions = [ids for data in prepared.tasks.values() for ids in step_ids(data, prepared.kind, options)]
    labels = [ids for data in prepared.tasks.values() for ids in data.labels]
    return neighbours.score_segmental(predictions, labels), {}, _mapped(prepared.kind)


def video_scores(prepared: Prepared) -> list[dict[str, Any]]:
    """Every video on its own: Table 2's scores, and those of the best matching of its ids to its steps."""
    rows: list[dict[str, Any]] = []
    for data in prepared.tasks.values():
        for i, positions in enumerate(position_ids(data, prepared.kind)):
            located = score_table2([positions], [data.own[i]])
            alone = neighbours.score_per_video([data.ids[i]], [data.labels[i]])
            record = data.records[i]
            row = {"task": record.task, "video": record.video, "seconds": len(data.labels[i]) / prepared.rate_hz}
            rows.append({**row, "table2": located, "per-video": alone})
    return rows


PROTOCOLS: dict[str, tuple[str, Callable[[Prepared, table1.Table1Options], Scored]]] = {
    "table1": ("unsupervised discovery, one matching per task", _table1),
    "table2": ("zero-shot localisation, the video's own step list", _table2),
    "crosstask-recall": ("one moment per step, recall over tasks", _crosstask),
    "per-video": ("one matching per video (TW-FINCH)", _per_video),
    "macro": ("every key-step the same, K = 7 (CnC, EgoProceL)", _macro),
    "segmental": ("F1@10/25/50 and edit", _segmental),
}


def score(prepared: Prepared, protocol: str, options: table1.Table1Options | None = None) -> Result:
    """One protocol."""
    if protocol not in PROTOCOLS:
        raise UsageError(f"no protocol {protocol!r}; there are: {', '.join(PROTOCOLS)}")
    return Result(protocol, *PROTOCOLS[protocol][1](prepared, options or table1.Table1Options()))


def score_all(prepared: Prepared, options: table1.Table1Options | None = None) -> list[Result]:
    """Every protocol, in the order of the list."""
    return [score(prepared, name, options) for name in PROTOCOLS]
