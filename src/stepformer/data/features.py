"""Filling a feature store; one bad file stops nothing.

Videos are found, decoded, encoded and spooled by many processes. Features people already have, in the released
StepFormer's tars or as folders of arrays, come as (name, video or error) one at a time.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import math
import os
import time
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from stepformer.base.cluster import run_anywhere
from stepformer.base.defaults import LANGUAGE
from stepformer.base.files import utf8
from stepformer.base.guard import read_text, tar_files
from stepformer.base.many import limit_threads
from stepformer.data.records import find_features, video_id
from stepformer.data.store import SHARD_BYTES, StoredPhrase, StoredVideo, StoreInfo, StoreWriter, file_stamp, spool
from stepformer.encoders.reading import Partial, encode_file
from stepformer.errors import InputError, MissingError, StepFormerError, UsageError
from stepformer.media.finding import SUFFIXES, find_videos, subtitles_beside, subtitles_of
from stepformer.narration import Cue, Listening, Narration, PhraseOptions, extract_phrases, narration_of
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
        files = {"source": self.video, "subtitles": self.subtitles}
        return {kind: file_stamp(path) for kind, path in files.items() if path is not None}


@dataclass(frozen=True, slots=True)
class Settings:
    """How videos are encoded; the same in every process."""

    store: str
    encoder: str
    threads: int = 0  # of torch and of the decoder in each process; 0: as they like
    phrases: bool = True
    phrase_options: PhraseOptions | None = None  # None: PhraseOptions(detail=True)
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


def find_sources(src: str | os.PathLike[str], language: str = LANGUAGE) -> list[Source]:
    """The videos of a folder (and of the folders in it), of a pattern or of a list file, or the one video given.

    A list has one path per line, relative to the list, and may name the subtitles after a tab. A video's name in the
    store is its path without the suffix; where two would share one, the suffix stays.
    """
    path = Path(src)
    if not path.is_file() or path.suffix.lower() in SUFFIXES:
        videos = find_videos([path])
        root = path if path.is_dir() else Path(os.path.commonpath([video.parent for video in videos]))
        return _named([(video, subtitles_beside(video, language)) for video in videos], root)
    pairs: list[tuple[Path, Path | None]] = []
    try:
        text = read_text(path)
        if "\0" in text:
            raise InputError("it is not text")
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
    """The description of a store filled by ``encoder``, which was given as ``name``."""
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

    time_limit_s: a video that takes longer is listed as failed. cluster: a Ray cluster to work on, whose
    nodes all see the videos and the store; 0 jobs are then as many as it has GPUs, or processors. apart: a single job,
    too, works in a process of its own.

    Raises before anything is done when the encoder or the phrase parser is missing, or the store is another
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
            before, now = writer.meta(source.name), source.stamp()
            if any(before.get(key) != now.get(key) for key in ("source", "subtitles")):
                todo.append(source)
        summary.skipped = len(sources) - len(todo)
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
        limit_threads(settings.threads)
    return encoders.load(settings.encoder)


def _encode(source: Source, settings: Settings) -> Done:
    encoder = _start(settings)
    # whole batches are what a stop leaves: an encoder that says how many clips it takes at once gets no more
    usual = max(1, _FRAMES_AT_ONCE // encoder.wants.frames) if encoder.wants is not None else 1
    batch = int(getattr(encoder, "batch", usual))
    partial = Partial.of(source.video, encoder, encoder.rate_hz, batch)
    seen = encode_file(
        source.video, encoder, rate_hz=encoder.rate_hz, batch=batch, partial=partial, name=source.name,
        threads=settings.threads,
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
    if partial is not None:
        partial.forget()
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


def _named(pairs: Sequence[tuple[Path, Path | None]], root: Path) -> list[Source]:
    def short(video: Path) -> str:
        place = video.relative_to(root) if video.is_relative_to(root) else video
        return utf8(place.with_suffix("").as_posix())  # the files of a store name their videos in UTF-8

    shared = Counter(short(video) for video, _ in pairs)
    named = [Source(short(video) + video.suffix * (shared[short(video)] > 1), video, said) for video, said in pairs]
    if len({source.name for source in named}) < len(named):
        raise InputError("the list names a video twice")
    return named


# -- features people already have --------------------------------------------------------------------------------------

RELEASED = StoreInfo("univl", "univl-released", 768, 1.0, 0, {"source": "the released StepFormer's tars"})
"""What the tars hold: UniVL's vectors, one per second. The fingerprint is their own: how they were made is unknown."""

Sample = tuple[str, StoredVideo | StepFormerError]


def import_features(
    src: Path,
    dst: Path,
    encoder: str | None = None,
    captions: Path | None = None,
    phrase_options: PhraseOptions | None = None,
    advance: Callable[[], None] = lambda: None,
) -> Summary:
    """Puts features that exist into a store: a folder of arrays of the ``encoder`` named (:func:`array_samples` says
    what of ``captions``), or the released tars where none is named. ``advance`` is called after each video."""
    from stepformer import encoders

    seen: set[str] = set()
    notes: list[str] = []
    summary, started = Summary(), time.monotonic()

    def have(name: str, source: Any) -> bool:
        return name in writer and writer.meta(name).get("source") == source

    samples: Iterator[Sample | tuple[str, None]]
    if encoder is None:
        info, samples = RELEASED, itertools.chain.from_iterable(map(released_samples, find_tars(src)))
    else:
        loaded = encoders.load(encoder)
        info = store_info(loaded, encoder)
        info = replace(info, structure_dim=_structure_dim(src, info.structure_dim))
        samples = array_samples(src, loaded, captions, phrase_options, have, notes)
    with StoreWriter(dst, info) as writer:
        for name, sample in samples:
            if isinstance(sample, StepFormerError):
                summary.failed.append((name, str(sample)))
            elif sample is None or have(name, sample.meta.get("source")):
                summary.skipped += 1
            elif name in seen:
                twice = f"{sample.meta['source']['file']}: another sample is called {name!r} too"
                summary.failed.append((name, twice))
            else:
                try:
                    writer.append(sample, replace=True)
                    summary.done.append(Done(name, sample.duration_s, len(sample.phrases), 0.0, 0.0, 0.0))
                except InputError as error:  # values that are not finite, a width that is not the store's
                    summary.failed.append((name, str(error)))
            seen.add(name)
            advance()
    summary.wall_s = time.monotonic() - started
    summary.notes += notes if summary.done else []
    return summary


_NUMPY_MAGIC = b"\x93NUMPY"
_SAMPLE_KEYS = ("npy", "pyd", "pickle", "pkl", "pth", "pt", "")
"""A WebDataset member's key is what follows the dot of its name; a sample's other members (json, txt) are not read."""


def find_tars(src: str | Path) -> list[Path]:
    """The tars of a folder and the folders in it, or the one given."""
    path = Path(src)
    endings = ("*.tar", "*.tar.gz", "*.tgz")
    found = sorted(one for ending in endings for one in path.rglob(ending)) if path.is_dir() else [path]
    if not found or not found[0].is_file():
        raise InputError(f"{path} is not a tar of the released code, nor a folder of them")
    return found


def released_samples(tar: Path) -> Iterator[Sample]:
    """The samples of one tar, read through the restricted unpickler: no code in them runs."""
    try:
        for member, read in tar_files(tar):
            name = member.rpartition("/")[2]
            if name.startswith(".") or name.rpartition(".")[2] not in (*_SAMPLE_KEYS, name):
                continue
            try:
                video = released_sample(read(), f"{tar.name}:{member}")
                yield video.video, video
            except StepFormerError as error:
                yield f"{tar.name}:{member}", error
    except StepFormerError as error:
        yield tar.name, error


def released_sample(data: bytes, where: str) -> StoredVideo:
    """One sample: ``{name, json: {phrases, start, end}, text_features [L, D], video_features [N, D]}``.

    ``data`` is a NumPy file whose zero-dimensional object array holds that dictionary, as the released code's loader
    reads it, or the dictionary pickled as it is. A phrase without a start time is left out with its vector.
    """
    from stepformer.base.safe_pickle import load_restricted, load_restricted_npy

    sample = load_restricted_npy(data, where) if data.startswith(_NUMPY_MAGIC) else load_restricted(data)
    if not isinstance(sample, Mapping):
        raise InputError(f"{where} is not a sample: it holds {type(sample).__name__}, not a dictionary")
    try:
        said = sample["json"]
        said = json.loads(said) if isinstance(said, str | bytes) else said
        texts, starts, ends = (list(said[key]) for key in ("phrases", "start", "end"))
        name, video, text = str(sample["name"]), _array(sample["video_features"]), _array(sample["text_features"])
        if not len(texts) == len(starts) == len(ends) == len(text):
            raise InputError(
                f"{where}: {len(texts)} phrases, {len(starts)} starts, {len(ends)} ends, {len(text)} vectors "
                "do not match"
            )
        timed = [i for i, start in enumerate(starts) if start is not None and not math.isnan(float(start))]
        phrases = []
        for i in timed:  # an end may be missing, or lie before its start
            start_s, end_s = float(starts[i]), float("nan" if ends[i] is None else ends[i])
            phrases.append(StoredPhrase(str(texts[i]), start_s, np.fmax(start_s, end_s)))
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{where} is not a sample of the released code: {type(error).__name__}: {error}") from None
    for what, array, rows in (("video", video, "N"), ("text", text, "L")):
        if array.shape[1] != RELEASED.dim:
            raise InputError(f"{where}: {what} features have the shape {array.shape}, not ({rows}, {RELEASED.dim})")
    rate_hz, meta = RELEASED.rate_hz, {"source": {"file": where}}
    return StoredVideo(name, video, rate_hz, len(video) / rate_hz, None, tuple(phrases), text[timed], meta)


def array_samples(
    folder: Path,
    encoder: Any,
    captions: Path | None = None,
    phrase_options: PhraseOptions | None = None,
    have: Callable[[str, Mapping[str, Any]], bool] = lambda name, source: False,
    notes: list[str] | None = None,
) -> Iterator[Sample | tuple[str, None]]:
    """Feature files of a folder and its folders (.npy, .npz, safetensors), one per video, with phrases from captions.

    ``encoder`` says whose features they are: rows of its ``dim`` are taken as they are; S3D's 1024-d ones go through
    UniVL's transformer when it is UniVL. Its text side embeds the phrases. ``captions`` is a HowTo100M caption file, or
    a folder of subtitle files, one per video: any format, CSV too. ``have(name, source)`` says which are done already,
    made from the same file and captions: those come as None, and cost nothing. ``notes`` gets, at the end,
    what is worth a warning.

    Raises:
        InputError: there are no feature files, or captions that go with none of them.
        UsageError: captions were given and the encoder has no text side.
    """
    from stepformer.data.precomputed import SUFFIXES

    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder of feature files")
    files = find_features(folder, SUFFIXES)
    if not files:
        raise InputError(f"{folder} holds no feature file ({', '.join(SUFFIXES)})")
    said: dict[str, list[Cue]] = {}
    unreadable: list[str] = []
    if captions is not None:
        if not getattr(encoder, "has_text", True):
            encoder.encode_text(["a phrase"])  # raises, with the encoder's own words
        said, unreadable = _captions(captions, files)
    read = phrases = without_vector = 0
    example = ""
    for name, path in files.items():
        cues = said.get(name, [])
        source = _source(path, cues)
        if have(name, source):
            yield name, None
            continue
        try:
            video, unknown = _array_sample(name, path, encoder, cues, phrase_options, source)
        except StepFormerError as error:
            yield name, error
            continue
        read, phrases = read + bool(cues), phrases + len(video.phrases) + len(unknown)
        without_vector, example = without_vector + len(unknown), example or next(iter(unknown), "")
        yield name, video
    if captions is None or notes is None:
        return
    if len(said) < len(files):
        notes.append(f"{len(files) - len(said)} of {len(files)} feature files have no captions, and so no phrases")
    if without_vector:
        left_out = f"{without_vector} of {phrases} phrases have no vector and are left out"
        notes.append(f"{left_out}, for instance {example!r}")
    if unreadable:
        notes.append(f"{len(unreadable)} subtitle files cannot be read, for instance {unreadable[0]}")
    if read and not phrases:
        notes.append(f"no phrase was found in the captions of {read} videos: there is nothing to train on")


def _structure_dim(folder: Path, own: int) -> int:
    """S of a store of arrays: the encoder's ``own``, or 0 where the first file that can be read has no structure, as
    those of other people's extractors have none."""
    from stepformer.data.precomputed import SUFFIXES, read_features

    for path in find_features(folder, SUFFIXES).values() if own else ():
        with contextlib.suppress(StepFormerError):  # listed as failed when its turn comes
            return 0 if read_features(path).structure is None else own
    return own


def _captions(captions: Path, files: Mapping[str, Path]) -> tuple[dict[str, list[Cue]], list[str]]:
    """Cues by the name of the feature file, from a caption file that may be larger than memory, or a folder; and why
    some cannot be read."""
    wanted: dict[str, list[str]] = {}
    for name, path in files.items():
        own = video_id(path.stem)
        # CrossTask's features are called <task>_<video>; the captions know the video alone
        task, _, video = own.partition("_")
        for key in dict.fromkeys((name, own, video if task.isdecimal() and video else own)):
            wanted.setdefault(key, []).append(name)
    found: dict[str, list[Cue]] = {}
    unreadable, captioned, other = [], 0, ""
    for video, read in _caption_entries(captions, wanted):
        captioned, other = captioned + 1, other or video
        names = wanted.get(own := video_id(video)) or wanted.get(own.rpartition("/")[2])
        if names:
            try:
                cues = read()
            except StepFormerError as error:
                unreadable.append(str(error))
                cues = []
            for name in names:
                found.setdefault(name, cues)
    if not found:
        raise InputError(
            f"{captions} has captions of {captioned} videos{f', for instance {other!r},' if other else ''} but "
            f"of none of the {len(files)} feature files, for instance {next(iter(files))!r}: the names must be the same"
        )
    return found, unreadable


def _caption_entries(captions: Path, known: Container[str] = ()) -> Iterator[tuple[str, Callable[[], list[Cue]]]]:
    """(video, how to read its cues) of a HowTo100M caption file, or of a folder of subtitle files."""
    from stepformer.data.howto100m import caption_file
    from stepformer.narration.readers import SUFFIXES, read_subtitles, tidy
    from stepformer.narration.readers.structured import cues_of, iter_captions

    one = caption_file(captions) if captions.is_dir() else captions
    if one is not None:
        for video, entry in iter_captions(one):
            yield video, lambda video=video, entry=entry: tidy(cues_of(entry, f"video {video}"))  # type: ignore[misc]
        return
    for video, path in subtitles_of(captions.rglob("*"), captions, also=SUFFIXES, known=known).items():
        yield video, lambda path=path: read_subtitles(path)  # type: ignore[misc]


def _source(path: Path, cues: list[Cue]) -> dict[str, Any]:
    """What a sample is made from: another file, or other captions, make another sample."""
    source = file_stamp(path)
    if cues:
        words = json.dumps([(cue.start_s, cue.end_s, cue.text) for cue in cues])
        source["captions"] = hashlib.sha256(words.encode()).hexdigest()[:16]
    return source


def _array_sample(
    name: str, path: Path, encoder: Any, cues: list[Cue], phrase_options: Any, source: dict[str, Any]
) -> tuple[StoredVideo, list[str]]:
    """A video, and the phrases that are left out because the text side has no vector of them."""
    from stepformer.data.precomputed import read_features

    encoded = read_features(path)
    finish = getattr(encoder, "finish", None)
    if encoded.vectors.shape[1] != encoder.dim and finish is not None:
        encoded = finish(encoded)
    if encoded.vectors.shape[1] != encoder.dim:
        raise InputError(
            f"{path} has {encoded.vectors.shape[1]} columns, but encoder {encoder.name!r} makes {encoder.dim}"
        )
    heard = Narration(tuple(cues)).phrases(phrase_options or PhraseOptions(detail=True))
    knows = getattr(encoder, "knows", lambda texts: [True] * len(texts))
    known = knows([phrase.text for phrase in heard])
    phrases = list(itertools.compress(heard, known))
    stored = StoredVideo(
        name, encoded.vectors, encoder.rate_hz, len(encoded.vectors) / encoder.rate_hz,
        encoded.structure if getattr(encoder, "structure_dim", 0) else None, tuple(phrases),
        encoder.encode_text([phrase.text for phrase in phrases]) if phrases else None,
        {"source": source},
    )  # fmt: skip
    return stored, [phrase.text for phrase, there in zip(heard, known, strict=True) if not there]


def _array(value: Any) -> np.ndarray[Any, np.dtype[np.float32]]:
    """A NumPy array or torch tensor as float32 NumPy."""
    if hasattr(value, "detach"):
        value = value.detach().cpu().float().numpy()
    array = np.asarray(value, np.float32)
    if array.ndim == 1 and not len(array):  # no phrases: its writer knew no number of columns
        array = array.reshape(0, RELEASED.dim)
    if array.ndim != 2:
        raise ValueError(f"features must be (rows, columns), got {array.shape}")
    return array
