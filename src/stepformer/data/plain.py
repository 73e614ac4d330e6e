"""A plain folder of your own, one task or many.

::

    my_task/                      or   my_data/<task>/...  with the same inside each task
      annotations/<video>.csv          rows step,start,end in seconds; a header line is allowed
      features/<video>.npy             (frames, width), at --rate a second
      videos/<video>.mp4
      subtitles/<video>.srt            or .vtt and the other formats of narration
      steps.txt                        one step per line, in order; or mapping.txt with lines "id name"

A step in an annotation is its name, or its number: a position in ``steps.txt`` counted from 1, or an id of
``mapping.txt``. Without either file the steps are those that occur, numbers in their order, names in the order of
their mean start. A video is whatever has a file in any of the folders. Its duration comes from its features.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from stepformer.base.files import no_such
from stepformer.base.guard import read_text, reader
from stepformer.data.records import Annotation, Dataset, Problem, Task, VideoRecord, annotation_rows, feature_rows
from stepformer.errors import InputError

if TYPE_CHECKING:
    from stepformer.narration import Cue

_FOLDERS = ("annotations", "features", "videos", "subtitles")
_BACKGROUND_NAMES = {"background", "bg", "sil"}

Report = Callable[[Problem], None]
Row = tuple[str, float, float, str]  # step as written, start, end, where
_StepNames = tuple[tuple[str, ...], dict[str, int]]  # the steps of a task in order, and how annotations may call each


def _declared(folder: Path, report: Report) -> _StepNames | None:
    listing, mapping = folder / "steps.txt", folder / "mapping.txt"
    if listing.is_file():
        names = [line.strip() for line in read_text(listing).splitlines() if line.strip()]
        return tuple(names), {str(i + 1): i for i in range(len(names))} | {name: i for i, name in enumerate(names)}
    if not mapping.is_file():
        return None
    pairs: list[tuple[int, str]] = []
    for number, line in enumerate(read_text(mapping).splitlines(), 1):
        parts = line.split(maxsplit=1)
        if not parts:
            continue
        if len(parts) != 2 or not parts[0].lstrip("-").isdigit():
            report(Problem("unparsable", f"{mapping.name}:{number}", f"expected 'id name', got {line!r}"))
        elif parts[1].strip().lower() not in _BACKGROUND_NAMES:
            pairs.append((int(parts[0]), parts[1].strip()))
    pairs.sort()
    index = {str(step_id): i for i, (step_id, _) in enumerate(pairs)}
    return tuple(name for _, name in pairs), index | {name: i for i, (_, name) in enumerate(pairs)}


def _rows(path: Path, report: Report) -> list[Row]:
    try:
        text = read_text(path)
    except InputError as error:
        report(Problem("unparsable", str(path), str(error)))
        return []
    return list(annotation_rows(text, f"{path.parent.name}/{path.name}", report))


def _occurring(rows: list[Row]) -> _StepNames:
    """Steps from the annotations alone."""
    starts: dict[str, list[float]] = {}
    for step, start_s, _, _ in rows:
        starts.setdefault(step, []).append(start_s)
    numbers = all(step.isdigit() for step in starts)
    names = sorted(starts, key=int if numbers else lambda step: sum(starts[step]) / len(starts[step]))
    shown = tuple(f"step {name}" if numbers else name for name in names)
    return shown, {name: i for i, name in enumerate(names)}


def _files(folder: Path, name: str) -> dict[str, Path]:
    inside = folder / name
    if not inside.is_dir():
        return {}
    wanted = {"annotations": {".csv"}, "features": {".npy"}}.get(name)
    return {
        path.stem: path
        for path in sorted(inside.iterdir())
        if path.is_file() and not path.name.startswith(".") and (wanted is None or path.suffix.lower() in wanted)
    }


def _read_task(folder: Path, rate_hz: float, report: Report) -> tuple[Task, list[VideoRecord]]:
    files = {name: _files(folder, name) for name in _FOLDERS}
    rows = {video: _rows(path, report) for video, path in files["annotations"].items()}
    steps, index = _declared(folder, report) or _occurring([row for video in rows.values() for row in video])
    task = Task(folder.name, folder.name.replace("_", " "), steps)
    videos: list[VideoRecord] = []
    names = sorted(set().union(*(files[name] for name in ("annotations", "features", "videos"))))
    for video in names:
        annotations: list[Annotation] | None = None
        if video in rows:
            annotations = []
            for step, start_s, end_s, at in rows[video]:
                found = index.get(step)
                if found is None:
                    report(Problem("inconsistent", at, f"step {step!r} is none of the task's {len(steps)} steps"))
                else:
                    annotations.append(Annotation(found, start_s, end_s, steps[found]))
        else:
            report(Problem("missing", f"{folder.name}/annotations/{video}.csv", "not annotated"))
        features = files["features"].get(video)
        duration_s = None
        if features is not None:
            try:
                duration_s = feature_rows(features) / rate_hz
            except InputError as error:
                report(Problem("unparsable", f"{folder.name}/features/{features.name}", str(error)))
                features = None
        elif files["features"]:
            report(Problem("missing", f"{folder.name}/features/{video}.npy", "no features"))
        cues, path = _cues(files["subtitles"].get(video), report), files["videos"].get(video)
        labels = None if annotations is None else tuple(annotations)
        videos.append(VideoRecord(video, task.id, duration_s, labels, None, cues, features, path))
    return task, videos


def _cues(path: Path | None, report: Report) -> tuple[Cue, ...]:
    if path is None:
        return ()
    from stepformer.narration import read_subtitles

    try:
        return tuple(read_subtitles(path))
    except InputError as error:
        report(Problem("unparsable", f"subtitles/{path.name}", str(error)))
        return ()


@reader("folder of timelines")
def read_plain(source: Path | str, rate_hz: float = 1.0) -> Dataset:
    """A plain folder as a dataset; ``rate_hz`` is that of its features and gives the durations.

    Raises:
        InputError: the folder does not exist or has nothing of the layout.
    """
    root = Path(source)
    if not root.exists():
        raise no_such(root, "dataset")
    if not root.is_dir():
        raise InputError(f"{root} is not a folder; give one with annotations/, features/ or videos/ inside")

    def is_task(folder: Path) -> bool:
        return any((folder / name).is_dir() for name in ("annotations", "features", "videos"))

    folders = [root] if is_task(root) else sorted(p for p in root.iterdir() if p.is_dir() and is_task(p))
    if not folders:
        raise InputError(f"{root} has no annotations/, features/ or videos/, nor task folders that have")
    problems: list[Problem] = []
    tasks: dict[str, Task] = {}
    videos: list[VideoRecord] = []
    for folder in folders:
        task, records = _read_task(folder.resolve(), rate_hz, problems.append)
        tasks[task.id] = task
        videos += records
    return Dataset("plain", tasks, tuple(videos), tuple(problems))
