"""The records every dataset reader gives: tasks, annotated videos, and what was wrong with the files.

Times are float seconds from the start of the video. A reader reports whatever it skips: what it cannot use
becomes a :class:`Problem` that says what is wrong and where, and the rest is read. :func:`audit` adds what only shows
when files are compared.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from stepformer.base.files import no_such
from stepformer.base.guard import csv_rows, load_array
from stepformer.errors import InputError, StepFormerError
from stepformer.media.finding import SUFFIXES, find_videos

if TYPE_CHECKING:
    from stepformer.narration import Cue

PROBLEM_KINDS = ("missing", "unparsable", "duration", "past_end", "inconsistent")
_EXACT_S, _TOLERANCE_S = 0.01, 2.0  # by how much a video may be shorter than its annotations, and lengths differ
Report = Callable[[str, str, str], None]
"""Takes the three fields of a :class:`Problem`."""
Row = tuple[Any, float, float, str]  # a step as the file calls it, start, end, where that stands


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


class Problems(list[Problem]):
    """Problems as they are met."""

    def report(self, kind: str, where: str, what: str) -> None:
        """One more."""
        self.append(Problem(kind, where, what))


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


def is_stretch(start_s: float, end_s: float) -> bool:
    """Whether two times bound a stretch of a video."""
    return 0 <= start_s <= end_s < math.inf


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
        if not is_stretch(self.start_s, self.end_s):
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


def feature_length(path: Path, rate_hz: float, report: Report) -> float | None:
    """Seconds that a ``.npy`` file of (frames, width) covers, from its header alone; anything else is reported."""
    try:
        shape = load_array(path, mapped=True).shape
        if len(shape) != 2 or not shape[0]:
            raise InputError(f"features must be (frames, width), got {tuple(shape)}")
        return int(shape[0]) / rate_hz
    except InputError as error:
        report("unparsable", str(path), str(error))
        return None


def numbered_rows(text: str, where: str, report: Report) -> Iterator[tuple[int, list[str]]]:
    """The rows of CSV text with their numbers from 1; what the parser gives up on is reported and ends it."""
    number = 0
    try:
        for number, cells in enumerate(csv_rows(text, where), 1):
            yield number, cells
    except InputError as error:
        report("unparsable", f"{where}:{number + 1}", f"{error}; not read from here")


def annotation_rows(text: str, where: str, report: Report, header: str = "step") -> Iterator[Row]:
    """Rows ``step,start,end`` of CSV text; those that make no sense are reported, not given.

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
                report("unparsable", at, f"expected step,start,end, got {','.join(cells)!r}")
            continue
        if step and is_stretch(start_s, end_s):
            yield step, start_s, end_s, at
        else:
            report("inconsistent", at, f"{','.join(cells)!r} is not a step with a valid start and end")


def labelled(rows: Iterable[Row], task: Task, index: Mapping[Any, int], report: Report) -> tuple[Annotation, ...]:
    """Annotations of a task, in the order of the rows; ``index`` is the place of each step as the file calls it.

    Rows with another step, or with times that are none, are reported, not kept.
    """
    kept = []
    for step, start_s, end_s, at in rows:
        if step not in index:
            report("inconsistent", at, f"step {step} is none of the {len(task.steps)} steps of task {task.id}")
        elif not is_stretch(start_s, end_s):
            report("inconsistent", at, f"the times {start_s} to {end_s} are not a valid span")
        else:
            kept.append(Annotation(index[step], start_s, end_s, task.steps[index[step]]))
    return tuple(kept)


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
    problems = Problems(dataset.problems)
    for record in dataset.videos:
        path = found.get(record.key) or found.get(record.video)
        if path is None:
            problems.report("missing", f"video {record.key}", f"no {record.key}.npy or {record.video}.npy")
        elif (length_s := feature_length(path, rate_hz, problems.report)) is not None:
            record = replace(record, features=path, duration_s=record.duration_s or length_s)  # noqa: PLW2901
        videos.append(record)
    return replace(dataset, videos=tuple(videos), problems=tuple(problems))


@dataclass(frozen=True, slots=True)
class Audit:
    """What a dataset holds (``counts``), everything wrong with it (``problems``), and what to know (``notes``)."""

    dataset: str
    counts: Mapping[str, int]
    problems: tuple[Problem, ...]
    notes: tuple[str, ...]

    def by_kind(self) -> dict[str, int]:
        """How many problems there are of each kind."""
        return dict(Counter(problem.kind for problem in self.problems))


def audit(
    dataset: Dataset,
    features: Path | str | None = None,
    videos: Path | str | None = None,
    rate_hz: float = 1.0,
    needed: Collection[str] | None = None,
) -> Audit:
    """Holds annotations, features and video files of a dataset against each other.

    ``features`` is a folder of ``.npy`` at ``rate_hz``, ``videos`` a folder of video files, both optional and searched
    for ``<task>_<video>`` and ``<video>``. Durations that differ by more than two seconds disagree. An annotation
    lies past the end if it ends after the video: beyond 0.01 s where the dataset gives the length, beyond one feature
    where only features do. ``needed`` are the keys of the videos whose files must be there (default: all); of the
    others a note says how many have none.
    """
    problems, others = Problems(dataset.problems), Problems()
    feature_files = None if features is None else find_features(_folder(features, "features"))
    video_files = None if videos is None else {path.stem: path for path in find_videos([_folder(videos, "videos")])}
    no_length = overlapping = 0
    for record in dataset.videos:
        where = f"video {record.key}"
        report = (problems if needed is None or record.key in needed else others).report
        array = _pick(record, feature_files, record.features, "features", report)
        file = _pick(record, video_files, record.path, "video file", report)
        from_features = None if array is None else feature_length(array, rate_hz, report)
        from_video = None if file is None else _video_length(file, report)
        # a length that was itself taken from the features says nothing more than they do
        own_length = None if record.features is not None and record.duration_s == from_features else record.duration_s
        lengths = {"the dataset": own_length, "the features": from_features, "the video file": from_video}
        for (name, one), (other, two) in itertools.combinations(lengths.items(), 2):
            if one is not None and two is not None and abs(one - two) > _TOLERANCE_S:
                problems.report("duration", where, f"{name} says {one:.1f} s and {other} {two:.1f} s")
        stated = own_length if own_length is not None else from_video
        length = stated if stated is not None else from_features
        if record.labels:
            no_length += length is None
            spans = sorted((a.start_s, a.end_s) for a in record.labels)
            overlapping += any(a[1] > b[0] for a, b in itertools.pairwise(spans))
        slack = _EXACT_S if stated is not None else 1 / rate_hz
        for number, a in enumerate(record.labels):
            at = f"{where}, annotation {number}"
            if length is not None and a.end_s > length + slack:
                past = f"{a.end_s - length:.2f} s past the end at {length:.2f} s"
                problems.report("past_end", at, f"{a.text!r} ends at {a.end_s:.2f} s, {past}")
            if a.end_s <= a.start_s:
                problems.report("inconsistent", at, "covers no time")
        if record.annotations is not None and not record.annotations:
            problems.report("missing", where, "its annotation is empty")

    notes = []
    if without := len({problem.where for problem in others if problem.kind == "missing"}):
        notes.append(f"{without} videos that are not scored have no files either; --subset all checks them too")
    problems += [problem for problem in others if problem.kind != "missing"]
    if no_length:
        notes.append(f"{no_length} annotated videos have no duration; give --features or --videos to check their ends")
    if overlapping:
        notes.append(f"{overlapping} videos have annotations that overlap; the last one in the file wins")
    if shared := sum(count > 1 for count in Counter(record.video for record in dataset.videos).values()):
        notes.append(f"{shared} videos belong to more than one task")
    return Audit(dataset.name, _counts(dataset), tuple(problems), tuple(notes))


def _counts(dataset: Dataset) -> dict[str, int]:
    counts = {
        "tasks": len(dataset.tasks),
        "videos": len(dataset.videos),
        "annotated": sum(bool(r.labels) for r in dataset.videos),
        "annotations": sum(len(r.labels) for r in dataset.videos),
        "cues": sum(len(r.cues) for r in dataset.videos),
    }
    for subset, count in sorted(Counter(r.subset for r in dataset.videos if r.subset).items()):
        counts[f"subset {subset}"] = count
    return counts


def _folder(folder: Path | str, what: str) -> Path:
    if not Path(folder).is_dir():
        raise no_such(folder, f"{what} folder")
    return Path(folder)


def _pick(
    record: VideoRecord, files: Mapping[str, Path] | None, own: Path | None, what: str, report: Report
) -> Path | None:
    path = None if files is None else files.get(record.key) or files.get(record.video)
    if path is None and own is None and files is not None:
        report("missing", f"video {record.key}", f"no {what} called {record.key} or {record.video}")
    return path or own


def _video_length(path: Path, report: Report) -> float | None:
    from stepformer.media import probe

    try:
        return float(probe(path).duration_s)
    except StepFormerError as error:
        report("unparsable", str(path), str(error))
        return None
