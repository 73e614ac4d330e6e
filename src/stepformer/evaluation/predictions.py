"""Anybody's predictions from a folder, one file per video, named ``<task>_<video>`` or ``<video>``.

docs/evaluation.md lists what a file may hold, and what its ids may mean (``--ids``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from stepformer.base.files import no_such
from stepformer.base.guard import load_array, load_arrays, read_text, reader
from stepformer.data.records import Task, annotation_rows
from stepformer.errors import InputError
from stepformer.evaluation.metrics import MAX_ID, IntArray, check_ids, rasterise, rename_ids, resample
from stepformer.timeline import Timeline

ID_KINDS = ("auto", "segments", "clusters", "steps", "positions")
SUFFIXES = (".json", ".npy", ".npz", ".txt", ".csv")
_VECTORS = ".vectors.npy"


@dataclass(frozen=True, slots=True, eq=False)
class Prediction:
    """One video's prediction: either ``segments`` (id, start_s, end_s) or ``ids`` (N,) at ``rate_hz``.

    ``names[i]`` is what the file calls id i, where it has names; ``slots[i]`` the slot of id i, for timelines.
    """

    segments: tuple[tuple[int, float, float], ...] | None = None
    ids: IntArray | None = None
    rate_hz: float = 1.0
    vectors: npt.NDArray[np.floating[Any]] | None = None
    duration_s: float | None = None
    names: tuple[str | None, ...] = ()
    slots: tuple[int | None, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether nothing is predicted: the whole video is background."""
        return not self.segments if self.ids is None else not (self.ids >= 0).any()

    @property
    def length_s(self) -> float | None:
        """How long the video is as far as the prediction knows."""
        if self.duration_s is not None:
            return self.duration_s
        return None if self.ids is None else len(self.ids) / self.rate_hz

    def at(self, n_frames: int, rate_hz: float) -> IntArray:
        """Ids (n_frames,) at a rate."""
        if self.ids is not None:
            return resample(self.ids, self.rate_hz, n_frames, rate_hz)
        return rasterise(self.segments or (), n_frames, rate_hz)

    def renamed(self, rename: Callable[[int], int]) -> Prediction:
        """The same with every id but background replaced; names, slots and vectors no longer apply."""
        plain = replace(self, names=(), slots=(), vectors=None)
        if self.ids is not None:
            return replace(plain, ids=rename_ids(self.ids, rename))
        return replace(plain, segments=tuple((rename(i), s, e) for i, s, e in self.segments or ()))


def prediction_from_timeline(timeline: Timeline, vectors: npt.ArrayLike | None = None) -> Prediction:
    """The prediction in a timeline: step i is segment i; ``vectors`` (S, D) has one row per step."""
    rows = None if vectors is None else _check_vectors(vectors)
    if rows is not None and len(rows) != len(timeline):
        raise InputError(f"the timeline has {len(timeline)} steps and vectors of shape {rows.shape}; one row per step")
    if any(step.slot is not None and step.slot > MAX_ID for step in timeline):
        raise InputError(f"the timeline has a slot above {MAX_ID}")
    return Prediction(
        segments=tuple((i, step.start_s, step.end_s) for i, step in enumerate(timeline)),
        vectors=rows,
        duration_s=timeline.duration_s or None,
        names=tuple(step.label for step in timeline),
        slots=tuple(step.slot for step in timeline),
    )


def _check_vectors(vectors: npt.ArrayLike) -> npt.NDArray[np.floating[Any]]:
    """(S, D) numbers."""
    rows = np.asarray(vectors)
    if rows.ndim != 2 or rows.dtype.kind not in "fiu":
        raise InputError(f"vectors must be numbers (segments, width), got {rows.dtype} of shape {rows.shape}")
    if not np.isfinite(rows).all():
        bad = int(np.argwhere(~np.isfinite(rows))[0][0])
        raise InputError(f"the vector of segment {bad} has NaN or infinity in it")
    return rows


def _from_csv(path: Path) -> Prediction:
    def refuse(kind: str, where: str, what: str) -> None:
        raise InputError(f"{where}: {what}")

    rows = list(annotation_rows(read_text(path), str(path), refuse, header=""))
    names = tuple(dict.fromkeys(step for step, *_ in rows))
    index = {name: i for i, name in enumerate(names)}
    if names and all(name.isdigit() for name in names):
        if "0" in names:
            raise InputError(f"{path}: steps are counted from 1 in a .csv, this one has a step 0")
        index, names = {name: int(name) - 1 for name in names}, ()
        if max(index.values()) > MAX_ID:
            raise InputError(f"{path}: step {max(index.values()) + 1} is too large a number for a step")
    return Prediction(segments=tuple((index[step], start_s, end_s) for step, start_s, end_s, _ in rows), names=names)


@reader("prediction")
def read_prediction(path: Path | str, rate_hz: float = 1.0) -> Prediction:
    """One prediction file; ``rate_hz`` is that of arrays that do not say.

    Raises:
        InputError: the file does not parse (the message names it).
    """
    source = Path(path)
    try:
        if source.suffix == ".json":
            beside = source.with_name(source.name.removesuffix(".json") + _VECTORS)
            timeline = Timeline.from_json(read_text(source))
            return prediction_from_timeline(timeline, load_array(beside) if beside.is_file() else None)
        if source.suffix == ".csv":
            return _from_csv(source)
        if source.suffix == ".npz":
            data = load_arrays(source)
            if "ids" not in data:
                raise InputError(f"an .npz prediction needs the array ids; it has: {', '.join(data) or 'none'}")
            rate = float(data["rate_hz"]) if "rate_hz" in data else rate_hz
            vectors = None if "vectors" not in data else _check_vectors(data["vectors"])
            return Prediction(ids=check_ids(data["ids"], "ids"), rate_hz=rate, vectors=vectors)
        if source.suffix == ".txt":
            words = read_text(source).split()
            return Prediction(ids=check_ids(np.array(words, np.float64), "ids"), rate_hz=rate_hz)
        if source.suffix == ".npy":
            return Prediction(ids=check_ids(load_array(source), "ids"), rate_hz=rate_hz)
    except InputError as error:
        raise type(error)(str(error) if str(source) in str(error) else f"{source}: {error}") from None
    raise InputError(f"{source} is not a prediction; known endings are {', '.join(SUFFIXES)}")


def find_predictions(folder: Path | str, suffixes: Sequence[str] = SUFFIXES) -> dict[str, Path]:
    """Prediction files under a folder, at any depth, by name; two of one name are an error.

    What ``stepformer discover`` writes is called ``<name>.steps.json``; of a video's several files the one whose ending
    comes first in ``suffixes`` is taken. The options it keeps beside them are no prediction.
    """
    root = Path(folder)
    if not root.is_dir():
        raise no_such(root, "folder")
    found: dict[str, tuple[int, Path]] = {}
    for path in sorted(root.rglob("*")):
        name, ours, rest = path.name.rpartition(".steps.")
        ending = f".{rest}" if ours else next((s for s in suffixes if path.name.endswith(s)), "")
        if ending not in suffixes or path.name.endswith(_VECTORS) or path.name == "stepformer.options.json":
            continue
        name = name or path.name.removesuffix(ending)
        rank, other = found.get(name, (len(suffixes), path))
        if other != path and not (ours and other.name.startswith(f"{name}.steps.") and other.parent == path.parent):
            raise InputError(f"two predictions are called {name}: {other} and {path}")
        if suffixes.index(ending) < rank:
            found[name] = (suffixes.index(ending), path)
    if not found:
        known = ", ".join(suffixes)
        raise InputError(f"{root} holds no predictions; files are called <task>_<video> or <video>, with {known}")
    return {name: path for name, (_, path) in found.items()}


def names_steps(prediction: Prediction, task: Task) -> bool:
    """Whether a prediction has names and all are steps of its task."""
    return bool(prediction.names) and all(name in task.steps for name in prediction.names)


def as_steps(prediction: Prediction, task: Task) -> Prediction:
    """Ids as indices of the task's steps; a name that is none of them becomes an id no step has."""
    if not prediction.names:
        return prediction
    index = {name: i for i, name in reversed(list(enumerate(task.steps)))}
    names = prediction.names
    return prediction.renamed(lambda i: index.get(names[i] or "", len(task.steps) + i))


def as_clusters(prediction: Prediction, numbers: dict[str, int]) -> Prediction:
    """Ids that mean the same across videos: slots where every step has one, else names, else the ids as they are.

    ``numbers`` is the number of each name in the task so far; new names are added.
    """
    slots = prediction.slots
    if slots and all(slot is not None and slot >= 0 for slot in slots):
        return prediction.renamed(lambda i: slots[i] or 0)
    names = [name for name in prediction.names if name]
    if names and len(names) == len(prediction.names):
        return prediction.renamed(lambda i: numbers.setdefault(names[i], len(numbers)))
    return prediction
