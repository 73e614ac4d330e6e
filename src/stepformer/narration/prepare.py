"""A folder of subtitles or a HowTo100M caption file to one table of phrases, in many processes, resumable.

While it runs, finished videos are lines of ``DST.parts``; a run that was killed goes on from there. At the end they
become DST in the order of the source.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any

from stepformer.base import files
from stepformer.base.cluster import run_anywhere
from stepformer.base.files import no_such
from stepformer.base.guard import reading
from stepformer.errors import InputError, UsageError
from stepformer.media.finding import subtitles_of
from stepformer.narration.cleaning import is_english
from stepformer.narration.listening import Narration
from stepformer.narration.parse import find_pipeline
from stepformer.narration.phrases import PhraseOptions
from stepformer.narration.pipeline import RESOLVERS, SEGMENTERS, make_stage
from stepformer.narration.readers import SUFFIXES, read_subtitles, tidy
from stepformer.narration.readers.structured import cues_of, iter_captions

_GROUP = 50_000  # rows of a table held at once

COLUMNS = (
    "video", "start_s", "end_s", "text", "chatter", "groundability", "verb", "particle", "object", "preposition",
    "negated", "sentence",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Source:
    """One video to do: a subtitle file, or the content of a caption file for it."""

    number: int
    video: str
    path: str
    content: object = None


@dataclass(slots=True)
class Report:
    """What a run did. ``failed`` has (video or file, reason); ``not_english`` are videos without phrases for it."""

    videos: int = 0
    phrases: int = 0
    words: int = 0
    resumed: int = 0
    not_english: int = 0
    failed: list[tuple[str, str]] = field(default_factory=list)


def sources(src: Path) -> Iterator[Source]:
    """Videos of a folder (by name, all folders below it), of a caption file (in its order), or of one subtitle file."""
    if src.is_dir():
        for number, (video, path) in enumerate(subtitles_of(src.rglob("*"), src, also=SUFFIXES).items()):
            yield Source(number, video, str(path))
    elif src.is_file() and src.suffix.lower() in SUFFIXES and src.suffix.lower() != ".json":
        # a file that is given by name is taken, even one of our own
        yield Source(0, next(iter(subtitles_of([src], src.parent, also=SUFFIXES)), src.stem), str(src))
    else:
        for number, (video, content) in enumerate(iter_captions(src)):
            yield Source(number, video, str(src), content)


def _do(options: PhraseOptions, source: Source) -> tuple[list[dict[str, Any]], int, bool]:
    """Phrases of one video, its number of words, and whether it may be English; runs in a worker."""
    if source.content is None:
        cues = read_subtitles(source.path)
    else:
        cues = tidy(cues_of(source.content, f"{source.path}: video {source.video}"))
    phrases = [phrase.to_dict() for phrase in Narration(tuple(cues)).phrases(options)]
    return phrases, sum(len(cue.text.split()) for cue in cues), is_english(cues) is not False


def prepare(
    src: str | os.PathLike[str],
    dst: str | os.PathLike[str],
    options: PhraseOptions | None = None,
    jobs: int = 1,
    advance: Callable[[int, Report], None] | None = None,
    cluster: str | None = None,
) -> Report:
    """Writes the phrases of all videos of ``src`` to ``dst`` (``.parquet`` or ``.jsonl``), one row per phrase.

    ``advance`` is called after each video with the words it had. ``cluster``: a Ray cluster to work on, and then 0
    ``jobs`` are as many as it has processors. One bad video never stops the rest: it is in
    ``Report.failed``, and it is tried again by the next run. The parser is looked for before
    anything is done, so that what is missing is said once.

    Raises:
        InputError: ``src`` is missing or has no subtitles.
        UsageError: ``dst`` has another ending, or was begun with other options.
        MissingError: the parser or an extra is not here.
    """
    src, dst, options = Path(src), Path(dst), options or PhraseOptions()
    if dst.suffix not in (".parquet", ".jsonl"):
        raise UsageError(f"{dst}: expected a name that ends in .parquet or .jsonl")
    if not src.exists():
        raise no_such(src, "file or folder", "give a folder of subtitles or a HowTo100M caption file")
    find_pipeline(options.parser)  # raises now what every video would raise
    make_stage(SEGMENTERS, options.punctuation)
    make_stage(RESOLVERS, options.coreference)
    found = sources(src)
    if (first := next(found, None)) is None:
        raise InputError(f"{src}: has no subtitles; expected files that end in .vtt, .srt, .json3, .ttml, .json, .txt")
    begun = _Done(dst.with_name(dst.name + ".parts"), {"source": src.name, "options": asdict(options)})
    with closing(begun) as done:
        report = Report(resumed=len(done.where))
        todo = (source for source in chain([first], found) if source.video not in done.where)
        for outcome in run_anywhere(cluster, functools.partial(_do, options), todo, jobs):
            source, words = outcome.item, 0
            if outcome.value is None:
                name = source.path if source.content is None else source.video
                report.failed.append((name, outcome.error or "failed"))
            else:
                phrases, words, english = outcome.value
                report.not_english += not english
                done.add({"number": source.number, "video": source.video, "phrases": phrases})
                report.words += words
            if advance is not None:
                advance(words, report)
        with files.replacing(dst) as temporary:
            report.phrases = _write(temporary, done.rows())
        report.videos = len(done.where)
    report.failed.sort()
    if not report.failed:
        done.path.unlink()
    return report


class _Done:
    """Finished videos as lines of JSON behind one of settings; ``where`` has (number of the source, byte) by video."""

    def __init__(self, path: Path, settings: dict[str, Any]) -> None:
        self.path, self.where = path, {}  # type: Path, dict[str, tuple[int, int]]
        with files.writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("a+b")
        self.close = self._file.close
        try:
            with reading(path, "list of finished videos"):
                self._resume(settings)
        except (InputError, UsageError) as error:
            self.close()
            raise type(error)(f"{error}; remove the file to start over") from None

    def _resume(self, settings: dict[str, Any]) -> None:
        self._file.seek(0)
        first = self._file.readline()
        if not first.endswith(b"\n"):
            self._file.truncate(0)
            self._append(settings)
        elif json.loads(first) != json.loads(json.dumps(settings)):
            raise UsageError(f"{self.path}: was begun from another source or with other options")
        at = self._file.tell()
        for line in self._file:
            if not line.endswith(b"\n"):
                self._file.truncate(at)  # a killed run broke it off
                break
            record = json.loads(line)
            self.where[record["video"]] = record["number"], at
            at += len(line)

    def add(self, record: dict[str, Any]) -> None:
        self.where[record["video"]] = record["number"], self._append(record)

    def _append(self, value: dict[str, Any]) -> int:
        at = self._file.seek(0, os.SEEK_END)
        with files.writing(self.path):
            self._file.write(files.json_text(value).encode() + b"\n")
            self._file.flush()
        return at

    def rows(self) -> Iterator[dict[str, Any]]:
        """The phrases of all videos in the order of the source."""
        for _, at in sorted(self.where.values()):
            self._file.seek(at)
            record = json.loads(self._file.readline())
            yield from ({"video": record["video"], **phrase} for phrase in record["phrases"])


def _write(path: Path, rows: Iterable[dict[str, Any]]) -> int:
    """Writes a table, a group of rows at a time; returns how many there were."""
    # a file name that is no UTF-8, half a pair of surrogates in JSON
    plain = ({k: files.utf8(row[k]) if isinstance(row[k], str) else row[k] for k in COLUMNS} for row in rows)
    count = 0
    if path.suffix != ".parquet":
        with path.open("w", encoding="utf-8", newline="\n") as stream:
            for count, row in enumerate(plain, start=1):  # noqa: B007
                stream.write(json.dumps(row, ensure_ascii=False) + "\n")
        return count
    import pyarrow as pa
    from pyarrow.parquet import ParquetWriter

    flags, times = dict.fromkeys(("chatter", "negated"), pa.bool_()), dict.fromkeys(("start_s", "end_s"), pa.float64())
    kinds = flags | times | {"groundability": pa.float32()}
    schema = pa.schema([(name, kinds.get(name, pa.string())) for name in COLUMNS])
    with ParquetWriter(str(path), schema, compression="zstd") as writer:
        while group := list(islice(plain, _GROUP)):
            writer.write_table(pa.Table.from_pylist(group, schema=schema))
            count += len(group)
    return count
