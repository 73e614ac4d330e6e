"""The records every dataset reader gives: tasks, annotated videos, and what was wrong with the files.

Times are float seconds from the start of the video. A reader reports whatever it skips: what it cannot use
becomes a :class:`Problem` that says what is wrong and where, and the rest is read.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from stepformer.base.files import no_such
from stepformer.base.guard import csv_rows, load_array
from stepformer.errors import InputError
from stepformer.media.finding import SUFFIXES

if TYPE_CHECKING:
    from stepformer.narration import Cue

PROBLEM_KINDS = ("missing", "unparsable", "duration", "past_end", "inconsistent")


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """Something a reader or an audit found: ``kind`` is one of ``PROBLEM_KINDS``, ``where`` a file, line or video."""

    kind: str
    where: str
    what: str

    def __post_init__(self) -> None:
        if self.kind not in PROBLEM_KINDS:
            raise InputError(f"Problem.kind must be one of {', '.join(PROBLEM_KINDS)}, got {self.kind!r}")

    def __str__(self) -> str:
        return f"{self.kind}: {self.where}: {self.what}"


@dataclass(frozen=True, slots=True)
class Task:
    """One procedure: its ordered steps as texts.

    ``group`` is a division of the tasks that the dataset makes ("primary" and "related" in CrossTask).
    """

    id: str
    title: str
    steps: tuple[str, ...]
    group: str | None = None

    def __post_init__(self) -> None:
        if not self.id:
            raise InputError("Task.id must not be empty")


@dataclass(frozen=True, slots=True)
class Annotation:
    """One labelled stretch of a video: ``step`` is the 0-based index into the task's steps, ``text`` its name."""

    step: int
    start_s: float
    end_s: float
    text: str

    def __post_init__(self) -> None:
        if self.step < 0:
            raise InputError(f"Annotation.step is a 0-based index, got {self.step}")
        if not (math.isfinite(self.start_s) and math.isfinite(self.end_s) and 0 <= self.start_s <= self.end_s):
            raise InputError(f"Annotation needs 0 <= start_s <= end_s, got {self.start_s} and {self.end_s}")


@dataclass(frozen=True, slots=True)
class VideoRecord:
    """One video of one task. The same video may stand under two tasks, as in CrossTask; ``key`` tells them apart.

    ``annotations`` keep the order of the file, because the last one wins where two overlap. ``None`` means not
    annotated; an empty tuple means annotated with nothing. ``duration_s`` is None where the dataset does not say
    (CrossTask): callers take it from features or predictions (see :func:`with_features`), and must not guess it
    from the last annotation without saying so. ``subset`` is the dataset's own split name.
    """

    video: str
    task: str
    duration_s: float | None = None
    annotations: tuple[Annotation, ...] | None = ()
    subset: str | None = None
    cues: tuple[Cue, ...] = ()
    features: Path | None = None
    path: Path | None = None

    def __post_init__(self) -> None:
        if not self.video or not self.task:
            raise InputError(f"VideoRecord needs a video and a task, got {self.video!r} and {self.task!r}")
        if self.duration_s is not None and not (math.isfinite(self.duration_s) and self.duration_s > 0):
            raise InputError(f"video {self.video}: duration_s must be positive or None, got {self.duration_s}")

    @property
    def key(self) -> str:
        """``<task>_<video>``: unique in a dataset, and CrossTask's own file name; just the video if it starts so."""
        return self.video if self.video.startswith(f"{self.task}_") else f"{self.task}_{self.video}"

    @property
    def labels(self) -> tuple[Annotation, ...]:
        """The annotations, empty where there are none."""
        return self.annotations or ()

    @property
    def ordered_steps(self) -> tuple[Annotation, ...]:
        """The annotations by time: the video's own ordered step list, repeats included."""
        return tuple(sorted(self.labels, key=lambda a: (a.start_s, a.end_s)))


@dataclass(frozen=True, slots=True)
class Dataset:
    """Tasks by id, videos in file order, and every problem met on the way."""

    name: str
    tasks: Mapping[str, Task]
    videos: tuple[VideoRecord, ...]
    problems: tuple[Problem, ...] = field(default=())

    def __post_init__(self) -> None:
        object.__setattr__(self, "tasks", MappingProxyType(dict(self.tasks)))
        seen: set[str] = set()
        for record in self.videos:
            if record.key in seen:
                raise InputError(f"{self.name}: video {record.video} appears twice under task {record.task}")
            seen.add(record.key)
            task = self.tasks.get(record.task)
            if task is None:
                raise InputError(f"{self.name}: video {record.video} belongs to the unknown task {record.task}")
            for annotation in record.labels:
                if annotation.step >= len(task.steps):
                    raise InputError(
                        f"{self.name}: video {record.video} has step {annotation.step} of task {task.id}, "
                        f"which has {len(task.steps)} steps"
                    )

    def __iter__(self) -> Iterator[VideoRecord]:
        return iter(self.videos)

    def __len__(self) -> int:
        return len(self.videos)

    @property
    def test_subset(self) -> str | None:
        """The subset that is scored where none is named: the one the paper tests on; None: there is none here."""
        usual = {"crosstask": "validation", "coin": "testing"}.get(self.name)
        return usual if usual in {record.subset for record in self.videos} else None

    def select(self, subset: str | None = None, *, annotated: bool | None = None) -> Dataset:
        """The same dataset with only the videos of a subset, annotated or not."""
        known = sorted({r.subset for r in self.videos if r.subset is not None})
        if subset is not None and subset not in known:
            raise InputError(f"{self.name} has no subset {subset!r}; it has: {', '.join(known) or 'none'}")
        kept = tuple(
            r
            for r in self.videos
            if (subset is None or r.subset == subset) and (annotated is None or bool(r.labels) == annotated)
        )
        used = {r.task for r in kept}
        return replace(self, videos=kept, tasks={k: t for k, t in self.tasks.items() if k in used})


def feature_rows(path: Path) -> int:
    """How many features a ``.npy`` file of (frames, width) holds, from its header alone; anything else is refused."""
    shape = load_array(path, mapped=True).shape
    if len(shape) != 2 or not shape[0]:
        raise InputError(f"features must be (frames, width), got {tuple(shape)}")
    return int(shape[0])


def numbered_rows(text: str, where: str, report: Callable[[Problem], None]) -> Iterator[tuple[int, list[str]]]:
    """The rows of CSV text with their numbers from 1; what the parser gives up on is reported and ends it."""
    number = 0
    try:
        for number, cells in enumerate(csv_rows(text, where), 1):
            yield number, cells
    except InputError as error:
        report(Problem("unparsable", f"{where}:{number + 1}", f"{error}; not read from here"))


def annotation_rows(
    text: str, where: str, report: Callable[[Problem], None], header: str = "step"
) -> Iterator[tuple[str, float, float, str]]:
    """Rows ``step,start,end`` of CSV text and where each stands; those that make no sense are reported, not given.

    The first line may be a header that begins with ``header``.
    """
    for number, cells in numbered_rows(text, where, report):
        if not any(cell.strip() for cell in cells):
            continue
        at = f"{where}:{number}"
        try:
            step, start_s, end_s = cells[0].strip(), float(cells[1]), float(cells[2])
        except (ValueError, IndexError):
            if number > 1 or not cells[0].strip().lower().startswith(header):
                report(Problem("unparsable", at, f"expected step,start,end, got {','.join(cells)!r}"))
            continue
        if step and 0 <= start_s <= end_s < math.inf:
            yield step, start_s, end_s, at
        else:
            report(Problem("inconsistent", at, f"{','.join(cells)!r} is not a step and a stretch of a video"))


def video_id(name: str) -> str:
    """A video's name without the endings of video files: extractors leave ``abc.mp4`` of ``abc.mp4.npy``."""
    while (stem := Path(name)).suffix.lower() in SUFFIXES:
        name = name[: -len(stem.suffix)]
    return name


def find_features(folder: Path, suffixes: Sequence[str] = (".npy",)) -> dict[str, Path]:
    """Feature files under a folder, at any depth, by the id of their video.

    Where two files are of one id, both go by their path under the folder.
    """
    root = Path(folder)
    files = [
        path
        for path in sorted(root.rglob("*"))
        if path.suffix.lower() in suffixes and not path.name.startswith(".") and path.is_file()
    ]
    count = Counter(video_id(path.stem) for path in files)
    found: dict[str, Path] = {}
    for path in files:
        name, inside = video_id(path.stem), path.relative_to(root)
        if count[name] > 1:
            name = video_id(inside.with_suffix("").as_posix())
        found[name if name not in found else inside.as_posix()] = path
    return found


def with_features(dataset: Dataset, folder: Path | str, rate_hz: float = 1.0) -> Dataset:
    """The dataset with each video's feature file, named ``<task>_<video>.npy`` or ``<video>.npy``.

    Where the dataset does not say how long a video is, its duration becomes rows / ``rate_hz``. A video without a
    file, or with one that does not parse, becomes a problem.
    """
    root = Path(folder)
    if not root.is_dir():
        raise no_such(root, "features folder", "give a folder of .npy files")
    if not rate_hz > 0:
        raise InputError(f"rate_hz must be positive, got {rate_hz}")
    found = find_features(root)
    videos: list[VideoRecord] = []
    problems = list(dataset.problems)
    for record in dataset.videos:
        path = found.get(record.key) or found.get(record.video)
        if path is None:
            problems.append(Problem("missing", f"video {record.key}", f"no {record.key}.npy or {record.video}.npy"))
            videos.append(record)
            continue
        try:
            length_s = feature_rows(path) / rate_hz
            videos.append(replace(record, features=path, duration_s=record.duration_s or length_s))
        except InputError as error:
            problems.append(Problem("unparsable", str(path), str(error)))
            videos.append(record)
    return replace(dataset, videos=tuple(videos), problems=tuple(problems))
