"""A plain folder of your own, one task or many.

::

    my_task/                      or   my_data/<task>/...  with the same inside each task
      annotations/<video>.csv          rows step,start,end in seconds; a header line is allowed
      features/<video>.npy             (frames, width), at --rate a second
      videos/<video>.mp4
      steps.txt                        one step per line, in order; or mapping.txt with lines "id name"

A step in an annotation is its name, or its number: a position in ``steps.txt`` counted from 1, or an id of
``mapping.txt``. Without either file the steps are those that occur, numbers in their order, names in the order of
their mean start. A video is whatever has a file in any of the folders. Its duration comes from its features.
"""

from __future__ import annotations

from pathlib import Path

from stepformer.base.files import no_such
from stepformer.base.guard import read_text, reader
from stepformer.data.records import (
    Dataset,
    Problems,
    Report,
    Row,
    Task,
    VideoRecord,
    annotation_rows,
    feature_length,
    labelled,
)
from stepformer.errors import InputError

_FOLDERS = ("annotations", "features", "videos")
_BACKGROUND_NAMES = {"background", "bg", "sil"}

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
            report("unparsable", f"{mapping.name}:{number}", f"expected 'id name', got {line!r}")
        elif parts[1].strip().lower() not in _BACKGROUND_NAMES:
            pairs.append((int(parts[0]), parts[1].strip()))
    pairs.sort()
    index = {str(step_id): i for i, (step_id, _) in enumerate(pairs)}
    return tuple(name for _, name in pairs), index | {name: i for i, (_, name) in enumerate(pairs)}


def _rows(path: Path, report: Report) -> list[Row]:
    try:
        text = read_text(path)
    except InputError as error:
        report("unparsable", str(path), str(error))
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
    wanted = {"annotations": ".csv", "features": ".npy"}.get(name)
    found = (path for path in sorted((folder / name).glob("[!.]*")) if path.is_file())
    return {path.stem: path for path in found if wanted in (None, path.suffix.lower())}


def _read_task(folder: Path, rate_hz: float, report: Report) -> tuple[Task, list[VideoRecord]]:
    files = {name: _files(folder, name) for name in _FOLDERS}
    rows = {video: _rows(path, report) for video, path in files["annotations"].items()}
    steps, index = _declared(folder, report) or _occurring([row for video in rows.values() for row in video])
    task = Task(folder.name, folder.name.replace("_", " "), steps)
    videos: list[VideoRecord] = []
    for video in sorted(set().union(*files.values())):
        annotations = None
        if video in rows:
            annotations = labelled(rows[video], task, index, report)
        else:
            report("missing", f"{folder.name}/annotations/{video}.csv", "not annotated")
        features, duration_s = files["features"].get(video), None
        if features is not None:
            duration_s = feature_length(features, rate_hz, report)
            features = features if duration_s is not None else None
        elif files["features"]:
            report("missing", f"{folder.name}/features/{video}.npy", "no features")
        path = files["videos"].get(video)
        videos.append(VideoRecord(video, task.id, duration_s, annotations, features=features, path=path))
    return task, videos


@reader("folder of timelines")
def read_plain(source: Path | str, rate_hz: float = 1.0) -> Dataset:
    """A plain folder as a dataset; ``rate_hz`` is that of its features and gives the durations."""
    root = Path(source)
    if not root.exists():
        raise no_such(root, "dataset")
    if not root.is_dir():
        raise InputError(f"{root} is not a folder; give one with annotations/, features/ or videos/ inside")

    def is_task(folder: Path) -> bool:
        return any((folder / name).is_dir() for name in _FOLDERS)

    folders = [root] if is_task(root) else sorted(p for p in root.iterdir() if p.is_dir() and is_task(p))
    if not folders:
        raise InputError(f"{root} has no annotations/, features/ or videos/, nor task folders that have")
    problems = Problems()
    tasks: dict[str, Task] = {}
    videos: list[VideoRecord] = []
    for folder in folders:
        task, records = _read_task(folder.resolve(), rate_hz, problems.report)
        tasks[task.id] = task
        videos += records
    return Dataset("plain", tasks, tuple(videos), tuple(problems))
