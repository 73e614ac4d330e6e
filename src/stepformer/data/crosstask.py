"""The CrossTask release: a folder, or the tar(.gz) it comes as (read in memory, never unpacked).

``tasks_primary.txt`` and ``tasks_related.txt`` are blocks of five lines (id, title, url, number of steps,
comma-separated steps) between blank lines; ``videos.csv`` and ``videos_val.csv`` have rows ``task,video,url``;
``annotations/<task>_<video>.csv`` has rows ``step,start,end`` with steps counted from 1. The release says nothing
of durations, so ``duration_s`` is None until features are attached. 89 videos stand under two tasks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path, PurePosixPath

from stepformer.base.files import no_such
from stepformer.base.guard import read_text, reader, tar_files
from stepformer.data.records import (
    Annotation,
    Dataset,
    Problems,
    Report,
    Task,
    VideoRecord,
    annotation_rows,
    labelled,
    numbered_rows,
)
from stepformer.errors import InputError

TASK_FILES = {"tasks_primary.txt": "primary", "tasks_related.txt": "related"}
_MAX_MEMBER_BYTES = 64 << 20


def _files(root: Path) -> dict[str, str]:
    """Name -> text of the release's text files, in a folder or in a tar, whose own leading folder is taken off."""
    if root.is_dir():
        wanted = [*root.glob("*.txt"), *root.glob("*.csv"), *root.glob("annotations/*.csv")]
        return {path.relative_to(root).as_posix(): read_text(path, errors="replace") for path in wanted}
    files = {}
    for member, read in tar_files(root, _MAX_MEMBER_BYTES):
        name = PurePosixPath(member)
        if name.suffix in (".txt", ".csv") and not name.name.startswith("._"):
            short = "/".join(name.parts[-2:]) if name.parent.name == "annotations" else name.name
            files[short] = read().decode("utf-8-sig", errors="replace")
    return files


def _tasks(text: str, where: str, group: str, report: Report) -> Iterator[Task]:
    """The tasks of one task file; a block that does not parse is reported with its line."""
    lines = ((number, line.strip()) for number, line in enumerate(text.splitlines(), 1))
    for there, block in groupby(lines, key=lambda line: bool(line[1])):
        if not there:
            continue
        numbers, texts = zip(*block, strict=True)
        at = f"{where}:{numbers[0]}"
        if len(texts) != 5:
            report("unparsable", at, f"a task has 5 lines, this block has {len(texts)}")
            continue
        steps = tuple(step.strip() for step in texts[4].split(","))
        if texts[3] != str(len(steps)):
            report("inconsistent", at, f"task {texts[0]} says {texts[3]} steps and lists {len(steps)}")
        yield Task(texts[0], texts[1], steps, group=group)


def _video_rows(files: Mapping[str, str], name: str, without: str, report: Report) -> list[tuple[str, str]]:
    """(task, video) of a list; ``without`` says what it means that there is none."""
    if name not in files:
        report("missing", name, without)
    rows = []
    for number, cells in numbered_rows(files.get(name, ""), name, report):
        task, video = (*(cell.strip() for cell in cells[:2]), "", "")[:2]
        if task and video:
            rows.append((task, video))
        elif cells:
            report("unparsable", f"{name}:{number}", f"expected task,video,url, got {','.join(cells)!r}")
    return rows


def parse_annotation(text: str, where: str, task: Task, report: Report) -> tuple[Annotation, ...]:
    """The rows ``step,start,end`` of one video, in file order; rows that make no sense are reported, not kept."""
    index = {str(i + 1): i for i in range(len(task.steps))}
    return labelled(annotation_rows(text, where, report), task, index, report)


@reader("CrossTask release")
def read_crosstask(source: Path | str) -> Dataset:
    """The CrossTask release as one dataset: every listed video, annotated or not.

    ``subset`` is "validation" for the 360 videos of ``videos_val.csv`` and "training" for the others;
    ``annotations`` is None for a video that has no annotation file (the related tasks, and most of training).
    """
    root = Path(source)
    if root.is_dir():
        if not (root / "videos.csv").is_file():
            archives = sorted([*root.glob("*release*.tar.gz"), *root.glob("*release*.tar")])
            nested = sorted(path.parent for path in root.glob("*/videos.csv"))
            if not archives and not nested:
                raise InputError(f"{root} is not a CrossTask release: it has no videos.csv and no release archive")
            root = nested[0] if nested else archives[0]
    elif not root.is_file():
        raise no_such(root, "dataset", "give the CrossTask release folder or its tar.gz")
    files = _files(root)

    problems = Problems()
    report = problems.report
    tasks: dict[str, Task] = {}
    for name, group in TASK_FILES.items():
        if name not in files:
            report("missing", name, "no such task file in the release")
            continue
        for task in _tasks(files[name], name, group, report):
            if task.id in tasks:
                report("inconsistent", name, f"task {task.id} is defined twice; the first is kept")
            else:
                tasks[task.id] = task
    if not tasks:
        raise InputError(f"{root}: neither tasks_primary.txt nor tasks_related.txt gave a task")

    validation = set(_video_rows(files, "videos_val.csv", "no validation list; every video counts as training", report))
    listed = _video_rows(files, "videos.csv", "no list of videos; only the validation list is read", report)
    missing_from_all = sorted(validation - set(listed))
    if "videos.csv" in files:
        for task_id, video in missing_from_all:
            report("inconsistent", "videos_val.csv", f"{task_id},{video} is not in videos.csv")

    videos: list[VideoRecord] = []
    for (task_id, video), times in Counter([*listed, *missing_from_all]).items():
        for _ in range(times - 1):
            report("inconsistent", "videos.csv", f"{task_id},{video} is listed twice")
        if task_id not in tasks:
            report("inconsistent", "videos.csv", f"{task_id},{video}: no task {task_id} is defined")
            continue
        name = f"annotations/{task_id}_{video}.csv"
        text = files.get(name)
        in_validation = (task_id, video) in validation
        if text is None and in_validation:
            report("missing", name, "a validation video without annotation")
        annotations = None if text is None else parse_annotation(text, name, tasks[task_id], report)
        subset = "validation" if in_validation else "training"
        videos.append(VideoRecord(video, task_id, annotations=annotations, subset=subset))

    known = {f"annotations/{record.key}.csv" for record in videos}
    for name in sorted(files):
        if name.startswith("annotations/") and name not in known:
            report("inconsistent", name, "annotates a video that no list names; not read")
    return Dataset("crosstask", tasks, tuple(videos), tuple(problems))
