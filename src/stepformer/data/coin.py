"""COIN: the official ``COIN.json``, and the flatter layout in which the annotations are also passed on.

Official: ``{"database": {video: {duration, class, recipe_type, subset, start, end, video_url, annotation: [{id,
segment: [start, end], label}]}}}``. Flat: ``{video: {class, duration, subset, official_subset, annotation: [[step
id, start, end, text]]}}``; there ``official_subset`` is the split of the paper and ``subset`` another. Both
may be gzipped. A task's steps are all steps seen with its class, ordered by step id, which is the order of COIN's
own taxonomy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from stepformer.base.files import no_such
from stepformer.base.guard import read_json, reader
from stepformer.data.records import Dataset, Problems, Row, Task, VideoRecord, labelled
from stepformer.errors import InputError
from stepformer.narration.readers.timed import number

_NAMES = ("COIN.json", "COIN.json.gz", "coin_annotations.json", "coin_annotations.json.gz")


def _entries(entry: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
    """(step id, start, end, text) of both layouts; what has neither shape comes as four Nones."""
    annotation = entry.get("annotation")
    for item in annotation if isinstance(annotation, list) else []:
        if isinstance(item, Mapping):
            segment = item.get("segment")
            start, end = segment if isinstance(segment, list) and len(segment) == 2 else (None, None)
            yield item.get("id"), start, end, item.get("label")
        else:
            yield tuple(item) if isinstance(item, list) and len(item) == 4 else (None,) * 4


@reader("COIN file")
def read_coin(source: Path | str) -> Dataset:
    """COIN as one dataset, from a JSON file or the folder that holds it; ``subset`` is "training" or "testing"."""
    path = Path(source)
    if path.is_dir():
        found = [path / name for name in _NAMES if (path / name).is_file()]
        if not found:
            raise InputError(f"{path} holds none of {', '.join(_NAMES)}")
        path = found[0]
    elif not path.is_file():
        raise no_such(path, "dataset", "give COIN.json or the folder that holds it")
    data = read_json(path)
    if not isinstance(data, Mapping):
        raise InputError(f"{path} is not COIN: expected a JSON object, got {type(data).__name__}")
    database = data.get("database", data)
    if not isinstance(database, Mapping) or not database:
        raise InputError(f"{path} is not COIN: it names no videos")

    problems = Problems()
    report = problems.report
    texts: dict[str, dict[str, str]] = {}  # class -> step id -> text
    kept: list[tuple[str, str, float | None, str | None, list[Row]]] = []
    for video, entry in database.items():
        where = f"video {video}"
        if not isinstance(entry, Mapping):
            report("unparsable", where, "the entry is not a JSON object; not read")
            continue
        task, kind = entry.get("class"), entry.get("recipe_type")
        if not isinstance(task, str) or not task:
            if kind is None:
                report("unparsable", where, "neither class nor recipe_type; not read")
                continue
            # some copies of the file lack the names of two tasks; their number still tells which task it is
            task = f"recipe_type_{kind}"
            if task not in texts:
                report("missing", f"recipe type {kind}", f"no class name; called {task}")
        steps = texts.setdefault(task, {})
        duration = number(entry.get("duration"))
        if duration is None or duration <= 0:
            report("duration", where, f"duration {entry.get('duration')!r} is not a valid length")
            duration = None
        if not isinstance(entry.get("annotation"), list):
            report("unparsable", where, "the entry has no list of annotations")
        rows: list[Row] = []
        for place, (step_id, start, end, text) in enumerate(_entries(entry)):
            at = f"{where}, annotation {place}"
            start_s, end_s = number(start), number(end)
            if step_id is None or start_s is None or end_s is None or not isinstance(text, str):
                report("unparsable", at, "expected a step id, start, end and a text")
                continue
            first = steps.setdefault(str(step_id), text.strip())
            if first != text.strip():
                what = f"step {step_id} is {text.strip()!r} here and {first!r} elsewhere; the first is kept"
                report("inconsistent", at, what)
            rows.append((str(step_id), start_s, end_s, at))
        subset = entry.get("official_subset", entry.get("subset"))
        kept.append((str(video), task, duration, None if subset is None else str(subset), rows))

    # numbers by their size, then names
    ids = {task: sorted(steps, key=lambda i: (number(i) is None, number(i), i)) for task, steps in texts.items()}
    tasks = {task: Task(task, task, tuple(texts[task][i] for i in ids[task])) for task in sorted(texts)}
    videos = []
    for video, task, duration, subset, rows in kept:
        index = {step_id: place for place, step_id in enumerate(ids[task])}
        videos.append(VideoRecord(video, task, duration, labelled(rows, tasks[task], index, report), subset))
    return Dataset("coin", tasks, tuple(videos), tuple(problems))
