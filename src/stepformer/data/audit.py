"""An audit of a dataset folder: what is missing, does not parse, disagrees, or lies past the end of its video.

A reader already reports what it could not use; the audit adds what only shows when files are held against each other.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from stepformer.base.files import no_such
from stepformer.data.records import Dataset, Problem, VideoRecord, feature_rows, find_features
from stepformer.errors import InputError, StepFormerError
from stepformer.media.finding import find_videos

_EXACT_S = 0.01
_TOLERANCE_S = 2.0


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
    problems = list(dataset.problems)
    feature_files = _folder(features, "features")
    video_files = _folder(videos, "videos")
    no_length = overlapping = 0
    others: list[Problem] = []
    for record in dataset.videos:
        where = f"video {record.key}"
        missing = problems if needed is None or record.key in needed else others
        from_features = _features_length(record, feature_files, rate_hz, missing)
        from_video = _video_length(record, video_files, missing)
        # a length that was itself taken from the features says nothing more than they do
        own_length = None if record.features is not None and record.duration_s == from_features else record.duration_s
        lengths = [
            (name, value)
            for name, value in (
                ("the dataset", own_length),
                ("the features", from_features),
                ("the video file", from_video),
            )
            if value is not None
        ]
        for i, (name, value) in enumerate(lengths):
            for other, compared in lengths[i + 1 :]:
                if abs(value - compared) > _TOLERANCE_S:
                    what = f"{name} says {value:.1f} s and {other} {compared:.1f} s"
                    problems.append(Problem("duration", where, what))
        stated = own_length if own_length is not None else from_video
        length = stated if stated is not None else from_features
        if record.labels:
            no_length += length is None
            spans = sorted((a.start_s, a.end_s) for a in record.labels)
            overlapping += any(a[1] > b[0] for a, b in itertools.pairwise(spans))
        if length is not None:
            slack = _EXACT_S if stated is not None else 1 / rate_hz
            _past_end(record, length, slack, problems)
        for number, a in enumerate(record.labels):
            if a.end_s <= a.start_s:
                problems.append(Problem("inconsistent", f"{where}, annotation {number}", "covers no time"))
        if record.annotations is not None and not record.annotations:
            problems.append(Problem("missing", where, "its annotation is empty"))

    notes = []
    if without := len({problem.where for problem in others if problem.kind == "missing"}):
        notes.append(f"{without} videos that are not scored have no files either; --subset all asks for them too")
    problems += [problem for problem in others if problem.kind != "missing"]
    if no_length:
        notes.append(f"{no_length} annotated videos have no duration; give --features or --videos to check their ends")
    if overlapping:
        notes.append(f"{overlapping} videos have annotations that overlap; the last one in the file wins")
    twice = Counter(record.video for record in dataset.videos)
    shared = sum(count > 1 for count in twice.values())
    if shared:
        notes.append(f"{shared} videos stand under more than one task")
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


def _folder(folder: Path | str | None, what: str) -> dict[str, Path] | None:
    if folder is None:
        return None
    root = Path(folder)
    if not root.is_dir():
        raise no_such(root, f"{what} folder")
    if what == "features":
        return find_features(root)
    return {path.stem: path for path in find_videos([root])}


def _pick(record: VideoRecord, own: Path | None, files: Mapping[str, Path] | None) -> Path | None:
    if files is None:
        return own
    return files.get(record.key) or files.get(record.video) or own


def _features_length(
    record: VideoRecord, files: Mapping[str, Path] | None, rate_hz: float, problems: list[Problem]
) -> float | None:
    path = _pick(record, record.features, files)
    if path is None:
        if files is not None:
            what = f"no features: neither {record.key}.npy nor {record.video}.npy"
            problems.append(Problem("missing", f"video {record.key}", what))
        return None
    try:
        return feature_rows(path) / rate_hz
    except InputError as error:
        problems.append(Problem("unparsable", str(path), str(error)))
        return None


def _video_length(record: VideoRecord, files: Mapping[str, Path] | None, problems: list[Problem]) -> float | None:
    path = _pick(record, record.path, files)
    if path is None:
        if files is not None:
            problems.append(Problem("missing", f"video {record.key}", "no video file"))
        return None
    from stepformer.media import probe

    try:
        return float(probe(path).duration_s)
    except StepFormerError as error:
        problems.append(Problem("unparsable", str(path), str(error)))
        return None


def _past_end(record: VideoRecord, length_s: float, slack_s: float, problems: list[Problem]) -> None:
    for number, a in enumerate(record.labels):
        if a.end_s > length_s + slack_s:
            what = f"{a.text!r} ends at {a.end_s:.2f} s, {a.end_s - length_s:.2f} s past the end at {length_s:.2f} s"
            problems.append(Problem("past_end", f"video {record.key}, annotation {number}", what))
