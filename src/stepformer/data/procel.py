"""ProceL: one ``data.mat`` per task, and the same as JSON.

``data.mat`` (MATLAB 5) holds, for V videos and S steps: ``grammar`` (S step names), ``key_steps_time`` (V cells of S
cells of n x 2 seconds), ``caption`` and ``caption_time`` (V cells of the spoken cues), ``framerate``, and
``segment_time`` or ``superframe_time`` (V cells of m x 2 seconds) whose end is the length of the video. The file
names neither its task nor its videos: the task is the folder's name, and video i (from 0) is ``<task>_<i>``.
Reading it needs SciPy (the ``procel`` extra). JSON: ``{"task", "grammar", "videos": [{index, duration, captions:
[[start, end, text]], key_steps: [[step, start, end, text]]}]}``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from stepformer.base.files import no_such
from stepformer.base.guard import in_process, read_json, reader
from stepformer.data.records import Annotation, Dataset, Problem, Task, VideoRecord
from stepformer.errors import InputError, missing_extra


@dataclass(frozen=True, slots=True)
class _RawVideo:
    """One video before it is checked: times as the file has them."""

    name: str
    duration_s: float | None
    steps: list[tuple[int, float, float]]
    cues: list[tuple[float, float, str]]


def _cell_text(cell: Any) -> str:
    """A MATLAB char cell as text, however deep SciPy nests it; a number in its place is refused."""
    while not isinstance(cell, str):
        if getattr(cell, "size", 0) == 0:
            return ""
        if not isinstance(cell, np.ndarray) or cell.dtype.kind not in "OU":
            raise TypeError(f"a text is a {type(cell).__name__}")
        cell = cell.ravel()[0]
    return cell.strip()


def _pairs(cell: Any) -> list[tuple[float, float]]:
    """An n x 2 cell of seconds as pairs; empty cells give none."""
    if cell.size == 0:
        return []
    return [(float(start), float(end)) for start, end in cell.reshape(-1, 2)]


def _read_mat(path: Path) -> tuple[list[str], list[_RawVideo], list[Problem]]:
    """In a process of its own: three changed bytes can make SciPy's compiled reader crash."""
    import importlib.util

    if importlib.util.find_spec("scipy") is None:
        raise missing_extra("SciPy", "procel", "reading a ProceL data.mat")
    return in_process(_parse_mat, path, what=str(path))


def _parse_mat(path: Path) -> tuple[list[str], list[_RawVideo], list[Problem]]:
    from scipy.io import loadmat

    try:
        data = loadmat(path)
    except Exception as error:  # SciPy raises many kinds on a broken file
        raise InputError(f"{path} is not a readable MATLAB file: {error}") from None
    missing = [name for name in ("grammar", "key_steps_time") if name not in data]
    if missing:
        raise InputError(f"{path} is no ProceL data.mat: it lacks {', '.join(missing)}")
    try:
        return _from_cells(path, data)
    except (AttributeError, IndexError, TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{path} is no ProceL data.mat: its cells are nested otherwise ({error})") from None


def _from_cells(path: Path, data: dict[str, Any]) -> tuple[list[str], list[_RawVideo], list[Problem]]:
    """The cell arrays of a ``data.mat``: a row of videos, each with one cell per step, an n x 2 array of seconds."""
    problems: list[Problem] = []
    grammar = [_cell_text(cell) for cell in data["grammar"].ravel()]
    lengths = next((data[n].ravel() for n in ("segment_time", "superframe_time") if n in data), None)
    if lengths is None:
        problems.append(Problem("missing", str(path), "neither segment_time nor superframe_time: no durations"))
    captions = data["caption"].ravel() if "caption" in data else None
    caption_times = data["caption_time"].ravel() if "caption_time" in data else None
    if captions is None or caption_times is None:
        problems.append(Problem("missing", str(path), "no caption and caption_time: no narration"))
    task = path.parent.name
    videos: list[_RawVideo] = []
    for v, cells in enumerate(data["key_steps_time"].ravel()):
        name = f"{task}_{v}"
        rows = cells.ravel()
        if len(rows) != len(grammar):
            what = f"key_steps_time has {len(rows)} rows for {len(grammar)} steps"
            problems.append(Problem("inconsistent", f"{path}, video {v}", what))
        steps = [(k, start, end) for k, cell in enumerate(rows[: len(grammar)]) for start, end in _pairs(cell)]
        cues: list[tuple[float, float, str]] = []
        if captions is not None and caption_times is not None:
            texts, times = captions[v].ravel(), caption_times[v].ravel()
            if len(texts) != len(times):
                what = f"{len(texts)} captions for {len(times)} times"
                problems.append(Problem("inconsistent", f"{path}, video {v}", what))
            for text, time in zip(texts, times, strict=False):
                pair = _pairs(time)
                if len(pair) == 1:
                    cues.append((*pair[0], _cell_text(text)))
                else:
                    problems.append(Problem("unparsable", f"{path}, video {v}", "a caption without a time"))
        duration = None
        if lengths is not None and v < len(lengths) and lengths[v].size:
            duration = float(lengths[v].reshape(-1, 2)[:, 1].max())
        videos.append(_RawVideo(name, duration, steps, cues))
    return grammar, videos, problems


def _read_json(path: Path) -> tuple[str, list[str], list[_RawVideo], list[Problem]]:
    data = read_json(path)
    if not isinstance(data, Mapping) or not {"grammar", "videos"} <= set(data):
        raise InputError(f"{path} is no ProceL JSON: it needs grammar and videos")
    task = str(data.get("task") or path.stem)
    problems: list[Problem] = []
    videos: list[_RawVideo] = []
    for number, entry in enumerate(data["videos"]):
        try:
            name = f"{task}_{entry.get('index', number)}"
            steps = [(int(row[0]), float(row[1]), float(row[2])) for row in entry["key_steps"]]
            cues = [(float(row[0]), float(row[1]), str(row[2]).strip()) for row in entry.get("captions", [])]
            duration = entry.get("duration")
            videos.append(_RawVideo(name, None if duration is None else float(duration), steps, cues))
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            problems.append(Problem("unparsable", f"{path}, video {number}", f"{type(error).__name__}: {error}"))
    return task, [str(name) for name in data["grammar"]], videos, problems


def _record(raw: _RawVideo, task: Task, problems: list[Problem]) -> VideoRecord:
    from stepformer.narration import Cue

    duration = raw.duration_s
    if duration is not None and not (math.isfinite(duration) and duration > 0):
        problems.append(Problem("duration", f"video {raw.name}", f"duration {duration} is not a length"))
        duration = None
    annotations: list[Annotation] = []
    for step, start_s, end_s in raw.steps:
        if not 0 <= step < len(task.steps):
            what = f"step {step} of task {task.id}, which has {len(task.steps)} steps"
            problems.append(Problem("inconsistent", f"video {raw.name}", what))
        elif not (math.isfinite(start_s) and math.isfinite(end_s) and 0 <= start_s <= end_s):
            what = f"step {step}: the times {start_s} to {end_s} are not a stretch of a video"
            problems.append(Problem("inconsistent", f"video {raw.name}", what))
        else:
            annotations.append(Annotation(step, start_s, end_s, task.steps[step]))
    cues = []
    for start_s, end_s, text in raw.cues:
        if not text:
            what = f"the cue at {start_s} s has no words; left out"
            problems.append(Problem("inconsistent", f"video {raw.name}", what))
        elif math.isfinite(start_s) and math.isfinite(end_s) and 0 <= start_s <= end_s:
            cues.append(Cue(start_s, end_s, text))
        else:
            what = f"cue {text[:30]!r}: the times {start_s} to {end_s} are not a stretch of a video"
            problems.append(Problem("inconsistent", f"video {raw.name}", what))
    # a .mat groups annotations by step, so "last wins" needs them by time, which is also how the JSON has them
    annotations.sort(key=lambda a: (a.start_s, a.end_s, a.step))
    return VideoRecord(raw.name, task.id, duration, tuple(annotations), None, tuple(cues))


def _sources(source: Path) -> Iterable[Path]:
    if source.is_dir():
        mats = sorted(source.rglob("data.mat"))
        found = mats or sorted(source.glob("*.json"))
        if not found:
            raise InputError(f"{source} holds no data.mat (one per task) and no ProceL JSON")
        return found
    if not source.is_file():
        raise no_such(source, "dataset", "give a ProceL folder, a data.mat or its JSON")
    return [source]


@reader("ProceL file")
def read_procel(source: Path | str) -> Dataset:
    """ProceL as one dataset, from a folder of tasks, one ``data.mat`` or one JSON; one task per file.

    Raises:
        InputError: nothing there, or a file that is neither.
        MissingError: a ``data.mat`` and no SciPy.
    """
    problems: list[Problem] = []
    tasks: dict[str, Task] = {}
    videos: list[VideoRecord] = []
    for path in _sources(Path(source)):
        if path.suffix.lower() == ".json":
            name, grammar, raw, found = _read_json(path)
        else:
            name = path.resolve().parent.name
            grammar, raw, found = _read_mat(path.resolve())
        problems += found
        if name in tasks:
            problems.append(Problem("inconsistent", str(path), f"task {name} is there twice; the first is kept"))
            continue
        tasks[name] = Task(name, name.replace("_", " "), tuple(grammar))
        videos += [_record(item, tasks[name], problems) for item in raw]
    return Dataset("procel", tasks, tuple(videos), tuple(problems))
