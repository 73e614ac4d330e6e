"""What the model sees of one video: vectors, structure, rate and duration, read once and kept.

Reading a video and encoding it is all but a hundredth of the work, so what came out is kept in the cache folder under a
name made of the file's content and the encoder's fingerprint: a second look is instant, at a renamed copy too, and a
run that was stopped goes on where it was.
"""

from __future__ import annotations

import functools
import itertools
import os
import shutil
import sys
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

from stepformer import media
from stepformer.base.arrays import matrix
from stepformer.base.cache import keep_arrays, kept_arrays, kept_file, stamped_file
from stepformer.core.devices import one_thread
from stepformer.core.evidence import looks_hz
from stepformer.encoders.base import Encoded, Encoder, Vectors
from stepformer.errors import InputError, UsageError
from stepformer.media.container import opened, video_stream

T = TypeVar("T")
Report = Callable[[float, float], None]
"""Called while a video is read, with seconds done and seconds in all."""

CACHE_BYTES = 2 << 30
"""The kept features are pruned to this size, the longest unused first."""
MOST_VECTORS = 3_600
"""Of a video with more of them (longer than an hour) each is the mean of 2, 4, 8, ... neighbours: memory does not grow
with length."""
_BATCH = 4  # clips decoded ahead of the encoder
_ENOUGH_LOOKS = 64  # two per slot of the model
_INTERVALS = 3  # that share a vector at most; bench looks has what that costs
_SHORT_S = 48.0  # what is shorter has few looks, and each is worth a vector of its own
_VERSION = "8"
_CHUNK_S = 30.0  # work that a kill loses at most; Ctrl-C loses none


@dataclass(frozen=True, slots=True, eq=False)
class Features:
    """One video as the model sees it; arrays are checked and made float32.

    Attributes:
        vectors: (N, D) in the encoder's text space.
        rate_hz: How many there are per second.
        structure: (N, S) other features, to place boundaries by.
        duration_s: The video's length; N / rate_hz where it is not known.
        video: Its name.
        problems: Sentences on what was wrong while reading.
        seconds: How long decoding and encoding took; empty when the features were kept from before.
    """

    vectors: Vectors
    rate_hz: float = 1.0
    structure: Vectors | None = None
    duration_s: float = 0.0
    video: str = ""
    problems: tuple[str, ...] = ()
    seconds: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not (np.isfinite(self.rate_hz) and self.rate_hz > 0):
            raise UsageError(f"rate_hz must be positive vectors per second, got {self.rate_hz}")
        where = f"{self.video}: " if self.video else ""
        vectors = matrix(self.vectors, f"{where}vectors")
        if len(vectors) == 0:
            raise InputError(f"{self.video or 'the features'}: there are no frame vectors")
        object.__setattr__(self, "vectors", vectors)
        if self.structure is not None:
            structure = matrix(self.structure, f"{where}structure")
            if len(structure) != len(vectors):
                raise InputError(f"{len(structure)} structure vectors do not match {len(vectors)} vectors")
            object.__setattr__(self, "structure", structure)
        if not self.duration_s > 0:
            object.__setattr__(self, "duration_s", len(vectors) / self.rate_hz)

    def __len__(self) -> int:
        return len(self.vectors)

    @property
    def cutting(self) -> Vectors:
        """What boundaries are placed by: structure where the encoder has it, else the vectors."""
        return self.vectors if self.structure is None else self.structure

    def pooled(self, factor: int) -> Features:
        """Every ``factor`` frames as their mean, at the rate divided by it."""
        if factor <= 1:
            return self
        starts = np.arange(0, len(self), factor)
        counts = np.diff(np.append(starts, len(self)))[:, None]

        def mean(x: Vectors) -> Vectors:
            return np.asarray(np.add.reduceat(x, starts, axis=0) / counts, np.float32)

        structure = None if self.structure is None else mean(self.structure)
        return replace(self, vectors=mean(self.vectors), rate_hz=self.rate_hz / factor, structure=structure)


def read_video(
    video: str | os.PathLike[str], encoder: Encoder, report: Report | None = None, cache: bool = True
) -> Features:
    """Decodes and encodes a video file, or takes what was kept.

    An encoder without ``wants`` has features of its own (captions, precomputed) and is asked for them.

    Args:
        video: The file.
        encoder: What :func:`stepformer.encoders.load` gave.
        report: Called with seconds done and seconds in all.
        cache: Keep the features for the next time.

    Raises:
        InputError: the file cannot be read as video.
    """
    path = Path(video)
    kept: Path | None = None
    if cache and encoder.wants is not None:
        with opened(path) as container:  # a large file that is no video is not read through for its hash
            video_stream(container, path)
        with suppress(OSError):  # what is wrong with the file is said when it is opened
            kept = kept_file("features", path, _VERSION, encoder.fingerprint, suffix=".safetensors")
    if kept is not None and (found := _load(kept, str(video))) is not None:
        if report is not None:
            report(found.duration_s, found.duration_s)
        return found
    partial = None if kept is None else Partial(kept)
    features = encode_file(path, encoder, report=report, partial=partial, name=str(video))
    if kept is not None and partial is not None:
        _keep(kept, features)
        partial.forget()
    return features


def encode_file(
    path: Path,
    encoder: Any,
    *,
    rate_hz: float | None = None,
    batch: int | None = None,
    report: Report | None = None,
    partial: Partial | None = None,
    name: str = "",
    threads: int = 0,
) -> Features:
    """Decodes and encodes a video file: the one loop that does.

    rate_hz: vectors per second (default: the encoder's, more for a short video, fewer beyond ``MOST_VECTORS``).
    batch: clips encoded at once (default: what suits the encoder).
    threads: as :class:`stepformer.media.VideoReader` takes them.
    """
    spent = {"decode": 0.0, "encode": 0.0}
    if encoder.wants is None:  # its features lie in files of its own
        with _timed(spent, "encode"):
            encoded = encoder.features(path)
        return Features(encoded.vectors, float(encoder.rate_hz), encoded.structure, video=name, seconds=spent)
    reader = media.VideoReader(path, threads=threads)
    rate = looks_hz(reader.info.duration_s, float(encoder.rate_hz)) if rate_hz is None else rate_hz
    total_s = max(reader.info.duration_s, 1.0 / rate)
    batch = batch or int(getattr(encoder, "batch", _BATCH))
    encode, times = encoder.encode_video, pictures_per_look(total_s, rate, float(encoder.rate_hz))
    if (times > 1 or rate > encoder.rate_hz) and hasattr(encoder, "encode_often"):
        encode, batch = functools.partial(encoder.encode_often, times=times), batch * times
    kept = Kept(sys.maxsize if rate_hz else MOST_VECTORS)
    if partial is not None:
        reader.longest_gap_s = partial.load(kept)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", media.VideoWarning)  # reader.problems has them, shown with the result
            batches = _ahead(reader.clips(encoder.wants, rate, batch, start=kept.seen), spent)
            for part in _encoded(batches, encode, spent, getattr(encoder, "at_once", 1)):
                kept.add(part)
                if report is not None:
                    report(min(kept.seen / rate, total_s), total_s)
                if partial is not None:
                    partial.add(part, reader)
    except BaseException:  # Ctrl-C, a time limit: what was read so far is there for the next run
        if partial is not None:
            partial.write(reader)
        raise
    with _timed(spent, "encode"):  # UniVL's transformer looks over the whole video after its clips
        whole = getattr(encoder, "finish", lambda clips: clips)(kept.taken())
    structure = whole.structure
    if structure is not None:
        # rounded as it is kept, so that a second look gives the very same steps
        structure = structure.astype(np.float16).astype(np.float32)
    end_s = reader.end_s if reader.end_s is not None else reader.info.duration_s
    return Features(
        whole.vectors, rate / kept.neighbours, structure, float(end_s or 0.0), name,
        tuple(problem.text for problem in reader.problems), spent,
    )  # fmt: skip


def pictures_per_look(duration_s: float, rate_hz: float, encoder_hz: float) -> int:
    """How many neighbouring pictures, ``rate_hz`` per second, may share a vector: none of a short video, else as many
    as come in one of the encoder's intervals, or in two or three that leave the video ``_ENOUGH_LOOKS`` vectors."""
    if duration_s < _SHORT_S:
        return 1
    intervals = max(1, min(_INTERVALS, int(duration_s * encoder_hz / _ENOUGH_LOOKS)))
    return max(1, round(intervals * rate_hz / encoder_hz))


@contextmanager
def _timed(spent: dict[str, float], part: str) -> Iterator[None]:
    began = time.perf_counter()
    try:
        yield
    finally:
        spent[part] += time.perf_counter() - began


def _in_order(futures: Iterator[Future[T]], at_once: int, spent: dict[str, float], part: str) -> Iterator[T]:
    """The results in order, of which ``at_once`` are worked on; time spent waiting for them is ``part``."""
    running = deque(itertools.islice(futures, at_once))
    while running:
        with _timed(spent, part):
            result = running.popleft().result()
        yield result
        running.extend(itertools.islice(futures, 1))


def _ahead(batches: Iterator[Any], spent: dict[str, float]) -> Iterator[Any]:
    """The batches, each decoded by a thread while the one before is encoded."""
    with ThreadPoolExecutor(1, "decode") as thread:
        coming = (thread.submit(next, batches, None) for _ in itertools.repeat(None))
        yield from itertools.takewhile(lambda batch: batch is not None, _in_order(coming, 2, spent, "decode"))


def _encoded(
    batches: Iterator[Any], encode: Callable[[Any], Encoded], spent: dict[str, float], at_once: int
) -> Iterator[Encoded]:
    """The batches encoded, in order, ``at_once`` at a time.

    One thread per batch instead of all threads on each operation: those wait for each other a thousand times per
    batch, and on a machine with other work every wait is long.
    """
    if at_once <= 1:
        for clips in batches:
            with _timed(spent, "encode"):
                part = encode(clips)
            yield part
        return
    with (
        one_thread(),
        ThreadPoolExecutor(at_once, "encode", initializer=torch.set_num_threads, initargs=(1,)) as threads,
    ):
        yield from _in_order((threads.submit(encode, clips) for clips in batches), at_once, spent, "encode")


# -- what is kept -----------------------------------------------------------------------------------------------


class Kept:
    """What has been encoded of a video so far, as at most ``most`` vectors (an even number): of more, each is the mean
    of 2, 4, 8, ... ``neighbours``. Which go into a mean does not depend on the parts that they come in. ``seen``: how
    many came."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._whole: list[Vectors] = []  # rows of vector and structure, side by side
        self._rest: Vectors | None = None  # fewer than make a mean
        self._count = self._dim = self.seen = 0
        self.neighbours = 1

    def add(self, part: Encoded) -> None:
        """One more part."""
        rows = part.vectors if part.structure is None else np.hstack([part.vectors, part.structure])
        self._dim = part.vectors.shape[1]
        self.seen += len(rows)
        rows = rows if self._rest is None else np.concatenate([self._rest, rows])
        while len(rows):
            if self._count == self._most:
                self._whole = [np.concatenate(self._whole)]  # apart, so that the blocks are let go of first
                self._whole = [_means(self._whole[0], 2)]
                self._count, self.neighbours = self._count // 2, 2 * self.neighbours
            number = min(len(rows) // self.neighbours, self._most - self._count)
            if not number:
                break
            at = number * self.neighbours
            self._whole.append(_means(rows[:at], self.neighbours))
            rows, self._count = rows[at:], self._count + number
        self._rest = rows

    def taken(self) -> Encoded:
        """All of it; it is held no longer."""
        if not self.seen:
            raise InputError("nothing was encoded: the video gave no frames")
        if self._rest is not None and len(self._rest):
            self._whole.append(_means(self._rest, len(self._rest)))
        rows = np.concatenate(self._whole)
        self._whole, self._rest = [], None
        return Encoded(rows[:, : self._dim], rows[:, self._dim :] if rows.shape[1] > self._dim else None)


def _means(rows: Vectors, of: int) -> Vectors:
    """The means of every ``of`` rows."""
    return rows if of == 1 else rows.reshape(-1, of, rows.shape[1]).mean(1)


class Partial:
    """What has been encoded of a video that is not finished, in chunks, so that a stopped run goes on where it was.

    Chunks hold whole batches, so that the batches that follow, and with them every number, are those of a run that was
    never stopped. A video with damage is read from the start: what is said of damage counts all of it.
    """

    @classmethod
    def of(cls, video: Path, encoder: Encoder, rate_hz: float, batch: int) -> Partial | None:
        """Of a video whose features are kept elsewhere once they are whole; None where it can have none."""
        with suppress(OSError):  # what is wrong with the file is said when it is opened
            how = f"{rate_hz:g} {batch}"
            return cls(stamped_file("features", video, _VERSION, encoder.fingerprint, how)) if encoder.wants else None
        return None

    def __init__(self, kept: Path) -> None:
        self.folder = kept.with_suffix(".partial")
        self._new = Kept(sys.maxsize)
        self._done, self._failed = 0, False
        self._written = time.monotonic()

    def load(self, kept: Kept) -> float:
        """Adds the batches there are; the longest gap between pictures in them (seconds)."""
        gap_s = 0.0
        for path in sorted(self.folder.glob("*.safetensors")):
            found = kept_arrays(path)
            if found is None or int(path.stem) != self._done:
                break  # a chunk is damaged or missing: on from there
            arrays, info = found
            kept.add(Encoded(arrays["vectors"], arrays.get("structure")))
            self._done += len(arrays["vectors"])
            gap_s = info["longest_gap_s"]
        return gap_s

    def add(self, part: Encoded, reader: Any) -> None:
        """One more batch; written with others before it once in a while."""
        self._new.add(part)
        if time.monotonic() - self._written > _CHUNK_S:
            self.write(reader)

    def forget(self) -> None:
        """The whole video is kept now."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def write(self, reader: Any) -> None:
        """The batches since the last chunk as a chunk."""
        self._written = time.monotonic()
        new, self._new = self._new, Kept(sys.maxsize)
        if not new.seen or reader.problems or self._failed:
            return
        whole = new.taken()
        arrays = {"vectors": whole.vectors} | ({} if whole.structure is None else {"structure": whole.structure})
        chunk = self.folder / f"{self._done:08d}.safetensors"
        if keep_arrays(chunk, arrays, {"longest_gap_s": reader.longest_gap_s}):
            self._done += len(whole.vectors)
        else:
            self._failed = True  # what comes after a gap is of no use


def _load(kept: Path, name: str) -> Features | None:
    found = kept_arrays(kept)
    if found is None:
        return None
    arrays, info = found
    with suppress(OSError):
        os.utime(kept)
    info["problems"] = tuple(info["problems"])
    return Features(arrays["vectors"], structure=arrays.get("structure"), video=name, **info)


def _keep(kept: Path, features: Features) -> None:
    arrays = {"vectors": features.vectors}
    if features.structure is not None:
        arrays["structure"] = features.structure.astype(np.float16)  # for distances alone
    info = {"rate_hz": features.rate_hz, "duration_s": features.duration_s, "problems": list(features.problems)}
    keep_arrays(kept, arrays, info)  # a full or read-only disk costs the second look its speed, nothing else
    with suppress(OSError):
        _prune(kept.parent)


def _prune(folder: Path) -> None:
    files = sorted(((p.stat().st_mtime, p.stat().st_size, p) for p in folder.rglob("*.safetensors")), reverse=True)
    total = 0
    for _, size, path in files:
        total += size
        if total > CACHE_BYTES:
            path.unlink(missing_ok=True)
