"""Videos to a feature store: found, decoded, encoded and spooled by many processes; one bad file stops nothing."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from stepformer.base.cluster import run_anywhere
from stepformer.base.files import no_such, utf8
from stepformer.base.guard import read_text
from stepformer.data.store import StoredVideo, StoreInfo
from stepformer.data.store_writer import SHARD_BYTES, StoreWriter, file_stamp, spool
from stepformer.encoders.reading import encode_file
from stepformer.errors import InputError, MissingError, UsageError
from stepformer.media.finding import SUFFIXES, find_videos
from stepformer.media.subtitles import subtitles_beside
from stepformer.narration import Cue, Listening, PhraseOptions, extract_phrases, narration_of
from stepformer.version import __version__

DEFAULT_LISTENING = Listening()
_FRAMES_AT_ONCE = 128  # pictures decoded before they are encoded: 19 MB at 224 x 224


@dataclass(frozen=True, slots=True)
class Source:
    """One video to encode: its name in the store, its file, its subtitles if there are any."""

    name: str
    video: Path
    subtitles: Path | None = None

    def stamp(self) -> dict[str, Any]:
        """What it is made from."""
        out: dict[str, Any] = {"source": file_stamp(self.video)}
        if self.subtitles is not None:
            out["subtitles"] = file_stamp(self.subtitles)
        return out


@dataclass(frozen=True, slots=True)
class Settings:
    """How videos are encoded; the same in every process."""

    store: str
    encoder: str
    threads: int = 0  # of torch and of the decoder in each process; 0: as they like
    phrases: bool = True
    hardware: str | None = None  # decode on this kind of device, for instance "cuda"
    phrase_options: Any = None  # stepformer.narration.PhraseOptions; None: PhraseOptions(detail=True)
    listening: Listening = DEFAULT_LISTENING  # where narration is looked for; a source's own subtitles come first


@dataclass(frozen=True, slots=True)
class Done:
    """One video that was encoded: how long it is, and where the time went."""

    name: str
    seconds: float
    phrases: int
    decode_s: float
    encode_s: float
    text_s: float
    problems: tuple[str, ...] = ()


@dataclass(slots=True)
class Summary:
    """What a run did."""

    done: list[Done] = field(default_factory=list)
    skipped: int = 0  # finished by an earlier run
    failed: list[tuple[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # on the run as a whole
    wall_s: float = 0.0

    @property
    def seconds(self) -> float:
        """Seconds of video encoded."""
        return sum(one.seconds for one in self.done)

    def to_dict(self) -> dict[str, Any]:
        """For ``--json``."""
        spent = {
            name: round(sum(getattr(one, name) for one in self.done), 3) for name in ("decode_s", "encode_s", "text_s")
        }
        return {
            "videos": len(self.done),
            "skipped": self.skipped,
            "seconds": round(self.seconds, 2),
            "phrases": sum(one.phrases for one in self.done),
            "wall_s": round(self.wall_s, 2),
            "x_real_time": round(self.seconds / self.wall_s, 2) if self.wall_s else None,
            **spent,
            "problems": [{"video": one.name, "problem": text} for one in self.done for text in one.problems],
            "failed": [{"video": name, "error": error} for name, error in self.failed],
            "notes": list(self.notes),
        }


def find_sources(src: str | os.PathLike[str], language: str = "en") -> list[Source]:
    """The videos of a folder (and of the folders in it), of a list file, or the one video given.

    A list has one path a line, relative to the list, and may name the subtitles behind a tab. A video's name in the
    store is its path without the suffix; where two would share one, the suffix stays.
    """
    path = Path(src)
    if path.is_dir():
        return _named([(video, subtitles_beside(video, language)) for video in find_videos([path])], path)
    if not path.is_file():
        raise no_such(path, "file or folder")
    if path.suffix.lower() in SUFFIXES:
        return _named([(path, subtitles_beside(path, language))], path.parent)
    pairs: list[tuple[Path, Path | None]] = []
    try:
        text = read_text(path)
        if "\0" in text:
            raise InputError("it is no text")
    except InputError as error:
        raise InputError(f"{path} is neither a video, by its suffix, nor a list of videos: {error}") from None
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        video, _, subtitles = (part.strip() for part in line.partition("\t"))
        given = path.parent / video
        pairs.append((given, path.parent / subtitles if subtitles else subtitles_beside(given, language)))
    if not pairs:
        raise InputError(f"{path} lists no video")
    return _named(pairs, path.parent)


def store_info(encoder: Any, name: str) -> StoreInfo:
    """What a store filled by ``encoder`` says of itself; ``name`` is how it was asked for."""
    return StoreInfo(
        encoder.name,
        encoder.fingerprint,
        int(encoder.dim),
        float(encoder.rate_hz),
        int(getattr(encoder, "structure_dim", 0)),
        {"license": encoder.license, "asked_for": name, "made_by": f"stepformer {__version__}"},
    )


def prepare_features(
    sources: Sequence[Source],
    settings: Settings,
    jobs: int = 1,
    shard_bytes: int = SHARD_BYTES,
    time_limit_s: float | None = None,
    cluster: str | None = None,
    apart: bool = False,
) -> Iterator[tuple[Summary, str]]:
    """Encodes what is not in the store yet; gives the growing summary and a video's name after each video.

    time_limit_s: a video that takes longer is given up and listed as failed. cluster: a Ray cluster to work on, whose
    nodes all see the videos and the store; 0 jobs are then as many as it has GPUs, or processors. apart: a single job,
    too, works in a process of its own.

    Raises before anything is done when the encoder or the phrase parser cannot be had, or the store is another
    encoder's.
    """
    if jobs < (cluster is None):
        raise UsageError(f"jobs is {jobs}; expected at least 1")
    encoder = _start(settings)
    if settings.phrases and any(source.subtitles for source in sources):
        # loads the parser before the work starts: a missing one is one error then, not one for each video
        extract_phrases([Cue(0.0, 1.0, "cut the onion")], settings.phrase_options)
    summary = Summary()
    started = time.monotonic()
    with StoreWriter(settings.store, store_info(encoder, settings.encoder), shard_bytes) as writer:
        todo = []
        for source in sources:
            if source.name in writer and _unchanged(writer.meta(source.name), source):
                summary.skipped += 1
            else:
                todo.append(source)
        jobs = min(jobs, max(1, len(todo)))
        for outcome in run_anywhere(
            cluster, partial(_encode, settings=settings), todo, jobs, _start, (settings,), time_limit_s, gpu=True,
            apart=apart,
        ):  # fmt: skip
            if outcome.value is not None:
                summary.done.append(outcome.value)
            else:
                summary.failed.append((str(outcome.item.video), outcome.error or "unknown error"))
            writer.collect()
            summary.wall_s = time.monotonic() - started
            yield summary, outcome.item.name
    summary.wall_s = time.monotonic() - started
    yield summary, ""


# -- in the worker ----------------------------------------------------------------------------------------------------


@lru_cache(1)
def _start(settings: Settings) -> Any:
    """Loads the encoder, once per process."""
    from stepformer import encoders

    if settings.threads:
        import torch

        torch.set_num_threads(settings.threads)
    return encoders.load(settings.encoder)


def _encode(source: Source, settings: Settings) -> Done:
    encoder = _start(settings)
    seen = encode_file(
        source.video, encoder, rate_hz=encoder.rate_hz, name=source.name,
        batch=max(1, _FRAMES_AT_ONCE // encoder.wants.frames) if encoder.wants is not None else 1,
        hardware=settings.hardware, threads=settings.threads,
    )  # fmt: skip
    began = time.perf_counter()
    phrases, notes = _phrases(source, settings) if settings.phrases else ([], ())
    vectors = encoder.encode_text([phrase.text for phrase in phrases]) if phrases else None
    text_s = time.perf_counter() - began
    meta = source.stamp()
    problems = (*seen.problems, *notes)
    if problems:
        meta["problems"] = list(problems)
    stored = StoredVideo(
        source.name, seen.vectors, encoder.rate_hz, seen.duration_s, seen.structure, tuple(phrases), vectors, meta
    )
    spool(settings.store, stored)
    spent = seen.seconds
    return Done(source.name, seen.duration_s, len(phrases), spent["decode"], spent["encode"], text_s, problems)


def _phrases(source: Source, settings: Settings) -> tuple[list[Any], tuple[str, ...]]:
    """What is said in a video, and what a user should know of it."""
    how = settings.listening if source.subtitles is None else replace(settings.listening, subtitles=source.subtitles)
    narration = narration_of(source.video, how)
    try:
        return narration.phrases(settings.phrase_options or PhraseOptions(detail=True)), narration.notes
    except MissingError as error:
        if source.subtitles is not None:
            raise
        return [], (*narration.notes, f"{narration.where}: its words are not used: {error}")


# -- files ------------------------------------------------------------------------------------------------------------


def _unchanged(meta: dict[str, Any], source: Source) -> bool:
    now = source.stamp()
    return all(meta.get(key) == now.get(key) for key in ("source", "subtitles"))


def _named(pairs: Sequence[tuple[Path, Path | None]], root: Path) -> list[Source]:
    def short(video: Path) -> str:
        place = video.relative_to(root) if video.is_relative_to(root) else video
        return utf8(place.with_suffix("").as_posix())  # the files of a store name their videos in UTF-8

    shared = Counter(short(video) for video, _ in pairs)
    named = []
    for video, subtitles in pairs:
        name = short(video) if shared[short(video)] == 1 else short(video) + video.suffix
        named.append(Source(name, video, subtitles))
    if len({source.name for source in named}) < len(named):
        raise InputError("the list names a video twice")
    return named
