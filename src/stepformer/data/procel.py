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
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from stepformer.base.files import no_such
from stepformer.base.guard import in_process, read_json, reader
from stepformer.data.records import Dataset, Problems, Row, Task, VideoRecord, is_stretch, labelled
from stepformer.errors import InputError, missing_extra

_Raw = tuple[str, float | None, list[Row], list[tuple[float, float, str]]]  # a video: name, seconds, steps, cues
_Parsed = tuple[list[str], list[_Raw], Problems]  # the steps of a task, its videos, what is wrong


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
    return [(float(start), float(end)) for start, end in cell.reshape(-1, 2)]


def _read_mat(path: Path) -> _Parsed:
    """In a process of its own: three changed bytes can make SciPy's compiled reader crash."""
    import importlib.util

    if importlib.util.find_spec("scipy") is None:
        raise missing_extra("SciPy", "procel", "reading a ProceL data.mat")
    return in_process(_parse_mat, path, what=str(path))


def _parse_mat(path: Path) -> _Parsed:
    from scipy.io import loadmat

    try:
        data = loadmat(path)
    except Exception as error:  # SciPy raises many kinds on a broken file
        raise InputError(f"{path} is not a readable MATLAB file: {error}") from None
    missing = [name for name in ("grammar", "key_steps_time") if name not in data]
    if missing:
        raise InputError(f"{path} is not a ProceL data.mat: it lacks {', '.join(missing)}")
    try:
        return _from_cells(path, data)
    except (AttributeError, IndexError, TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{path} is not a ProceL data.mat: its cells are nested differently ({error})") from None


def _from_cells(path: Path, data: dict[str, Any]) -> _Parsed:
    """The cell arrays of a ``data.mat``: a row of videos, each with one cell per step, an n x 2 array of seconds."""
    problems = Problems()
    grammar = [_cell_text(cell) for cell in data["grammar"].ravel()]
    lengths = next((data[n].ravel() for n in ("segment_time", "superframe_time") if n in data), ())
    if not len(lengths):
        problems.report("missing", str(path), "neither segment_time nor superframe_time: no durations")
    narrated = "caption" in data and "caption_time" in data
    if not narrated:
        problems.report("missing", str(path), "no caption and caption_time: no narration")
    videos: list[_Raw] = []
    for v, cells in enumerate(data["key_steps_time"].ravel()):
        name, at, rows = f"{path.parent.name}_{v}", f"{path}, video {v}", cells.ravel()
        if len(rows) != len(grammar):
            problems.report("inconsistent", at, f"key_steps_time has {len(rows)} rows for {len(grammar)} steps")
        steps = [(k, *pair, f"video {name}") for k, cell in enumerate(rows) for pair in _pairs(cell)]
        cues: list[tuple[float, float, str]] = []
        if narrated:
            texts, times = (data[key].ravel()[v].ravel() for key in ("caption", "caption_time"))
            if len(texts) != len(times):
                problems.report("inconsistent", at, f"{len(texts)} captions for {len(times)} times")
            for text, time in zip(texts, times, strict=False):
                pair = _pairs(time)
                if len(pair) == 1:
                    cues.append((*pair[0], _cell_text(text)))
                else:
                    problems.report("unparsable", at, "a caption without a time")
        known = v < len(lengths) and lengths[v].size
        videos.append((name, float(lengths[v].reshape(-1, 2)[:, 1].max()) if known else None, steps, cues))
    return grammar, videos, problems


def _read_json(path: Path, data: Any, task: str) -> _Parsed:
    problems = Problems()
    videos: list[_Raw] = []
    for number, entry in enumerate(data["videos"]):
        try:
            name = f"{task}_{entry.get('index', number)}"
            steps = [(int(row[0]), float(row[1]), float(row[2]), f"video {name}") for row in entry["key_steps"]]
            cues = [(float(row[0]), float(row[1]), str(row[2]).strip()) for row in entry.get("captions", [])]
            duration = entry.get("duration")
            videos.append((name, None if duration is None else float(duration), steps, cues))
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            problems.report("unparsable", f"{path}, video {number}", f"{type(error).__name__}: {error}")
    return [str(name) for name in data["grammar"]], videos, problems


def _record(raw: _Raw, task: Task, problems: Problems) -> VideoRecord:
    from stepformer.narration import Cue

    name, duration, steps, said = raw
    where = f"video {name}"
    if duration is not None and not 0 < duration < math.inf:
        problems.report("duration", where, f"duration {duration} is not a valid length")
        duration = None
    annotations = labelled(steps, task, {k: k for k in range(len(task.steps))}, problems.report)
    cues = []
    for start_s, end_s, text in said:
        if not text:
            problems.report("inconsistent", where, f"the cue at {start_s} s has no words; left out")
        elif is_stretch(start_s, end_s):
            cues.append(Cue(start_s, end_s, text))
        else:
            what = f"cue {text[:30]!r}: the times {start_s} to {end_s} are not a stretch of a video"
            problems.report("inconsistent", where, what)
    # a .mat groups annotations by step, so "last wins" needs them by time, which is also how the JSON has them
    in_time = sorted(annotations, key=lambda a: (a.start_s, a.end_s, a.step))
    return VideoRecord(name, task.id, duration, tuple(in_time), None, tuple(cues))


@reader("ProceL file")
def read_procel(source: Path | str) -> Dataset:
    """ProceL as one dataset, from a folder of tasks, one ``data.mat`` or one JSON; one task per file."""
    root = Path(source)
    if not root.exists():
        raise no_such(root, "dataset", "give a ProceL folder, a data.mat or its JSON")
    paths = [root] if root.is_file() else sorted(root.rglob("data.mat")) or sorted(root.glob("*.json"))
    if not paths:
        raise InputError(f"{root} holds no data.mat (one per task) and no ProceL JSON")
    problems = Problems()
    tasks: dict[str, Task] = {}
    videos: list[VideoRecord] = []
    for path in paths:
        if path.suffix.lower() == ".json":
            data = read_json(path)
            if not isinstance(data, Mapping) or not {"grammar", "videos"} <= set(data):
                raise InputError(f"{path} is not ProceL JSON: it needs grammar and videos")
            name = str(data.get("task") or path.stem)
            grammar, raw, found = _read_json(path, data, name)
        else:
            name = path.resolve().parent.name
            grammar, raw, found = _read_mat(path.resolve())
        problems += found
        if name in tasks:
            problems.report("inconsistent", str(path), f"task {name} is there twice; the first is kept")
            continue
        tasks[name] = Task(name, name.replace("_", " "), tuple(grammar))
        videos += [_record(item, tasks[name], problems) for item in raw]
    return Dataset("procel", tasks, tuple(videos), tuple(problems))
