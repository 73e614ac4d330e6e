"""A folder of subtitles or a HowTo100M caption file to one table of phrases, in many processes, resumable.

While it runs, finished videos lie in parts in ``DST.parts``; a run that was killed goes on from there. At the end
the parts become DST in the order of the source.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from stepformer.base import files
from stepformer.base.cluster import run_anywhere
from stepformer.base.files import no_such
from stepformer.errors import InputError, UsageError
from stepformer.narration.phrases import PhraseOptions

_PART_VIDEOS = 200
_PART_PHRASES = 20_000
_LANGUAGE = re.compile(r"\.(?:[a-z]{2,3}(?:-[A-Za-z0-9]{2,8})*|auto|asr)$")

COLUMNS = (
    "video",
    "start_s",
    "end_s",
    "text",
    "chatter",
    "groundability",
    "verb",
    "particle",
    "object",
    "preposition",
    "negated",
    "sentence",
)


@dataclass(frozen=True, slots=True)
class Source:
    """One video to do: a subtitle file, or the content of a caption file for it."""

    number: int
    video: str
    path: str
    content: object = None


@dataclass(slots=True)
class Report:
    """What a run did. ``failed`` has (video or file, reason)."""

    videos: int = 0
    phrases: int = 0
    words: int = 0
    resumed: int = 0
    failed: list[tuple[str, str]] = field(default_factory=list)


def sources(src: Path) -> Iterator[Source]:
    """Videos of a folder (by name, all folders below it), of a caption file (in its order), or of one subtitle file."""
    from stepformer.media.finding import is_ours
    from stepformer.narration.readers import SUFFIXES
    from stepformer.narration.readers.structured import iter_captions

    if src.is_dir():
        files = (path for path in src.rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file())
        found = sorted(path for path in files if not is_ours(path.relative_to(src)))
        names: dict[str, int] = {}
        for path in found:
            names[_video(path, src)] = names.get(_video(path, src), 0) + 1
        for number, path in enumerate(found):
            name = _video(path, src)
            # two files of one video are two rows of names
            yield Source(number, name if names[name] == 1 else path.relative_to(src).as_posix(), str(path))
    elif src.is_file() and src.suffix.lower() in SUFFIXES and src.suffix.lower() != ".json":
        yield Source(0, _video(src, src.parent), str(src))
    elif src.is_file():
        for number, (video, content) in enumerate(iter_captions(src)):
            yield Source(number, video, str(src), content)
    else:
        raise no_such(src, "file or folder", "give a folder of subtitles or a HowTo100M caption file")


def _video(path: Path, folder: Path) -> str:
    """Name of the video that a subtitle file belongs to: ``cooking/abc.en.vtt`` -> ``cooking/abc``."""
    stem = _LANGUAGE.sub("", path.stem)
    return (path.relative_to(folder).parent / stem).as_posix()


def _do(source: Source) -> tuple[list[dict[str, Any]], int]:
    """Phrases of one video and its number of words; runs in a worker."""
    from stepformer.narration.pipeline import extract_phrases
    from stepformer.narration.readers import read_subtitles, tidy
    from stepformer.narration.readers.structured import cues_of

    if source.content is None:
        cues = read_subtitles(source.path)
    else:
        cues = tidy(cues_of(source.content, f"{source.path}: video {source.video}"))
    phrases = extract_phrases(cues, _OPTIONS[0])
    return [phrase.to_dict() for phrase in phrases], sum(len(cue.text.split()) for cue in cues)


_OPTIONS: list[PhraseOptions] = [PhraseOptions()]


def _start(options: PhraseOptions) -> None:
    _OPTIONS[0] = options


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
    ``Report.failed``, and its part of the work is tried again by the next run. The parser is looked for before
    anything is done, so that what is missing is said once.

    Raises:
        InputError: ``src`` is missing or has no subtitles. UsageError: ``dst`` has another ending, or was begun with
            other options. MissingError: the parser or an extra is not here.
    """
    src, dst, options = Path(src), Path(dst), options or PhraseOptions()
    if dst.suffix not in (".parquet", ".jsonl"):
        raise UsageError(f"{dst}: expected a name that ends in .parquet or .jsonl")
    if not src.exists():
        raise no_such(src, "file or folder", "give a folder of subtitles or a HowTo100M caption file")
    parts = _Parts(dst.with_name(dst.name + ".parts"), {"source": src.name, "options": asdict(options)})
    _check_stages(options)
    report = Report(resumed=len(parts.done))
    seen = 0

    def todo() -> Iterator[Source]:
        nonlocal seen
        for source in sources(src):
            seen += 1
            if source.video not in parts.done:
                yield source

    for outcome in run_anywhere(cluster, _do, todo(), jobs, _start, (options,)):
        source = outcome.item
        if outcome.value is None:
            name = source.path if source.content is None else source.video
            report.failed.append((name, outcome.error or "failed"))
            words = 0
        else:
            phrases, words = outcome.value
            parts.add(source, phrases, words)
            report.words += words
        if advance is not None:
            advance(words, report)
    if not seen:
        raise InputError(f"{src}: has no subtitles; expected files that end in .vtt, .srt, .json3, .ttml, .json, .txt")
    parts.flush()
    report.videos, report.phrases = parts.merge(dst)
    report.failed.sort()
    if not report.failed:
        parts.remove()
    return report


def _check_stages(options: PhraseOptions) -> None:
    """Raises now what every video would raise."""
    from stepformer.narration.parse import find_pipeline
    from stepformer.narration.pipeline import make_resolver, make_segmenter

    find_pipeline(options.parser)
    make_segmenter(options.punctuation)
    make_resolver(options.coreference)


class _Parts:
    """Finished videos on disk: JSON lines of {number, video, words, phrases}, in files of a few hundred."""

    def __init__(self, folder: Path, settings: dict[str, Any]) -> None:
        self.folder = folder
        self.done: set[str] = set()
        self._where: list[tuple[int, str, int]] = []  # number of the source, part, byte offset
        self._waiting: list[str] = []
        self._waiting_phrases = 0
        self._next = 0
        note = folder / "settings.json"
        if note.is_file():
            if json.loads(note.read_text(encoding="utf-8")) != json.loads(json.dumps(settings)):
                raise UsageError(
                    f"{folder}: was begun from another source or with other options; remove the folder to start over"
                )
            for part in sorted(folder.glob("part-*.jsonl")):
                self._index(part)
        else:
            folder.mkdir(parents=True, exist_ok=True)
            files.write_json(note, settings)

    def _index(self, part: Path) -> None:
        self._next = max(self._next, int(part.stem.split("-")[1]) + 1)
        offset = 0
        with part.open("rb") as stream:
            for line in stream:
                record = json.loads(line)
                self.done.add(record["video"])
                self._where.append((record["number"], part.name, offset))
                offset += len(line)

    def add(self, source: Source, phrases: list[dict[str, Any]], words: int) -> None:
        record = {"number": source.number, "video": source.video, "words": words, "phrases": phrases}
        self._waiting.append(files.json_text(record))
        self._waiting_phrases += len(phrases)
        if len(self._waiting) >= _PART_VIDEOS or self._waiting_phrases >= _PART_PHRASES:
            self.flush()

    def flush(self) -> None:
        if not self._waiting:
            return
        part = self.folder / f"part-{self._next:06d}.jsonl"
        files.write_text(part, "\n".join(self._waiting) + "\n")
        self._waiting, self._waiting_phrases = [], 0
        self._index(part)

    def _records(self) -> Iterator[dict[str, Any]]:
        """Records in the order of the source."""
        name, stream = "", None
        try:
            for _, part, offset in sorted(self._where):
                if part != name:
                    if stream is not None:
                        stream.close()
                    name, stream = part, (self.folder / part).open("rb")
                assert stream is not None
                stream.seek(offset)
                yield json.loads(stream.readline())
        finally:
            if stream is not None:
                stream.close()

    def merge(self, dst: Path) -> tuple[int, int]:
        """Writes DST; returns its numbers of videos and phrases."""
        videos = phrases = 0
        with files.replacing(dst) as temporary:
            writer = _ParquetRows(temporary) if dst.suffix == ".parquet" else _JsonRows(temporary)
            with writer:
                for record in self._records():
                    videos += 1
                    phrases += len(record["phrases"])
                    writer.write([{"video": record["video"], **phrase} for phrase in record["phrases"]])
        return videos, phrases

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


class _JsonRows:
    def __init__(self, path: Path) -> None:
        self._stream = path.open("w", encoding="utf-8", newline="\n")

    def __enter__(self) -> _JsonRows:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    def write(self, rows: list[dict[str, Any]]) -> None:
        for row in rows:
            self._stream.write(files.json_text({name: row[name] for name in COLUMNS}) + "\n")


class _ParquetRows:
    """Rows to Parquet in groups, so that memory does not grow with the table."""

    def __init__(self, path: Path, group: int = 50_000) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        kinds = {
            "start_s": pa.float64(),
            "end_s": pa.float64(),
            "groundability": pa.float32(),
            "chatter": pa.bool_(),
            "negated": pa.bool_(),
        }
        self._pa = pa
        self._schema = pa.schema([(name, kinds.get(name, pa.string())) for name in COLUMNS])
        self._writer = pq.ParquetWriter(str(path), self._schema, compression="zstd")
        self._rows: list[dict[str, Any]] = []
        self._group = group

    def __enter__(self) -> _ParquetRows:
        return self

    def __exit__(self, *_: object) -> None:
        self._flush()
        self._writer.close()

    def write(self, rows: list[dict[str, Any]]) -> None:
        for row in rows:  # a file name that is no UTF-8, half a pair of surrogates in somebody's JSON
            odd = {name: value for name, value in row.items() if isinstance(value, str) and not value.isascii()}
            self._rows.append(row | {name: files.utf8(value) for name, value in odd.items()})
        if len(self._rows) >= self._group:
            self._flush()

    def _flush(self) -> None:
        if self._rows:
            self._writer.write_table(self._pa.Table.from_pylist(self._rows, schema=self._schema))
            self._rows = []
