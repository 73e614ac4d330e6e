"""HowTo100M: captions, the list of videos, and feature files; a video at a time, because there are 1.2 million.

``raw_caption.json``, ``caption.json`` and the sentencified HTM captions share one layout: ``{video: {"start": [],
"end": [], "text": []}}``. The first is over a gigabyte, so ``iter_captions`` decodes one video at a time and
never holds the file. ``HowTo100M_v1.csv`` has columns ``video_id, category_1, category_2, rank, task_id``;
``task_ids.csv`` names the tasks. Features are one ``.npy`` per video, (seconds, width). Nothing is annotated:
``annotations`` is None.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stepformer.base.files import no_such
from stepformer.base.guard import csv_rows, read_text, reader
from stepformer.data.records import Dataset, Problems, Report, Task, VideoRecord
from stepformer.errors import InputError
from stepformer.narration import Cue
from stepformer.narration.readers.structured import cues_of, iter_captions

CAPTION_FILES = ("raw_caption.json", "caption.json")
UNKNOWN_TASK = "howto100m"


def _cues(video: str, entry: Any, report: Report) -> tuple[Cue, ...]:
    """The cues of one entry; what cannot be read, or has no words or no times, is reported once per video."""
    try:
        cues = tuple(cue for cue in cues_of(entry, f"video {video}") if cue.text.strip())
    except InputError as error:
        report("unparsable", f"video {video}", f"{error}; not read")
        return ()
    if bad := len(entry["text"]) - len(cues):
        said = len(entry["text"])
        report("inconsistent", f"video {video}", f"{bad} of {said} cues have no words or no valid times; left out")
    return cues


def _read_rows(path: Path) -> Iterator[list[str]]:
    text = read_text(path, errors="replace")
    return csv_rows(text, path, "\t" if "\t" in text.split("\n", 1)[0] else ",")


def read_video_list(path: Path, report: Report) -> dict[str, str]:
    """Video -> task id from ``HowTo100M_v1.csv``."""
    rows = _read_rows(path)
    header = [cell.strip() for cell in next(rows, [])]
    if not {"video_id", "task_id"} <= set(header):
        raise InputError(f"{path} needs the columns video_id and task_id, it has: {', '.join(header) or 'none'}")
    tasks: dict[str, str] = {}
    for number, cells in enumerate(rows, 2):
        row = {name: cell.strip() for name, cell in zip(header, cells, strict=False)}
        if row.get("video_id") and "task_id" in row:
            tasks[row["video_id"]] = row["task_id"] or UNKNOWN_TASK
        elif cells:
            report("unparsable", f"{path.name}:{number}", f"expected {len(header)} cells, got {len(cells)}")
    return tasks


def caption_file(folder: Path) -> Path | None:
    """The caption file of a HowTo100M folder."""
    usual = [folder / f"{name}{gz}" for name in CAPTION_FILES for gz in ("", ".gz")]
    others = sorted([*folder.glob("*htm*.json"), *folder.glob("*htm*.json.gz"), *folder.glob("*caption*.json*")])
    return next((path for path in (*usual, *others) if path.is_file()), None)


@reader("HowTo100M folder")
def read_howto100m(source: Path | str) -> Dataset:
    """HowTo100M from a folder, or from one caption file: captions as cues, tasks where the list is there.

    All cues at once need tens of gigabytes; to go through all of HowTo100M use ``iter_captions`` and ``cues_of`` of
    :mod:`stepformer.narration.readers.structured`.
    """
    root = Path(source)
    if not root.exists():
        raise no_such(root, "dataset", "give the HowTo100M folder or a caption file")
    folder = root if root.is_dir() else root.parent
    listing = folder / "HowTo100M_v1.csv"
    captions = caption_file(root) if root.is_dir() else (None if root.suffix == ".csv" else root)
    problems = Problems()
    report = problems.report
    task_of: dict[str, str] = {}
    if listing.is_file():
        task_of = read_video_list(listing, report)
    else:
        report("missing", listing.name, f"no list of videos; all count as task {UNKNOWN_TASK}")
    if captions is None and not task_of:
        raise InputError(f"{root} has neither captions ({', '.join(CAPTION_FILES)}) nor HowTo100M_v1.csv")

    titles = {}
    if (folder / "task_ids.csv").is_file():
        titles = {row[0].strip(): row[1].strip() for row in _read_rows(folder / "task_ids.csv") if len(row) >= 2}
    records: dict[str, VideoRecord] = {}

    def add(video: str, cues: tuple[Cue, ...]) -> None:
        if video in records:
            report("inconsistent", f"video {video}", "there twice; the first is kept")
            return
        if task_of and video not in task_of:
            report("inconsistent", f"video {video}", f"captions, but not in {listing.name}")
        records[video] = VideoRecord(video, task_of.get(video, UNKNOWN_TASK), annotations=None, cues=cues)

    if captions is None:
        report("missing", str(folder), f"no captions: neither {' nor '.join(CAPTION_FILES)}")
        for video in task_of:
            add(video, ())
    else:
        try:
            for video, entry in iter_captions(captions):
                add(video, _cues(video, entry, report))
        except InputError as error:
            if not records:
                raise
            report("unparsable", captions.name, f"{error}; {len(records)} videos came before")
    tasks = {t: Task(t, titles.get(t, t), ()) for t in dict.fromkeys(record.task for record in records.values())}
    return Dataset("howto100m", tasks, tuple(records.values()), tuple(problems))
