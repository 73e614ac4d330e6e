"""Brings processed videos into a library's index: feature stores, and videos whose features are kept or made."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from stepformer.errors import InputError, StepFormerError
from stepformer.many import sentence
from stepformer.search.index import (
    FOLDER,
    IndexedVideo,
    IndexInfo,
    IndexWriter,
    generation_folder,
    load_array,
    read_info,
    unit,
)

_BATCH = 64
_REBUILD_DEAD = 0.3  # share of keys taken out from which the graphs are made anew
_CENTRE_VIDEOS = 200

Report = Callable[[int, int, str], None]
"""Called with videos done, videos in all, and the name of the last."""


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """A video that may be indexed: its name, where it is, what changes when it does, and how to get its features."""

    video: str
    where: str
    stamp: str
    features: Callable[[Any], Any]  # model -> stepformer.discover.Features


@dataclass(frozen=True, slots=True)
class Update:
    """What an update did."""

    added: int
    replaced: int
    removed: int
    kept: int
    failed: tuple[tuple[str, str], ...]
    info: IndexInfo | None


def find_sources(folder: Path) -> list[Source]:
    """Every processed video of a library: of ``folder`` if it is a feature store, of stores in it, and video files."""
    from stepformer.corpus.store import INFO_FILE
    from stepformer.video import SUFFIXES

    if not folder.is_dir():
        raise InputError(f"there is no folder {folder}")
    places = [folder] if (folder / INFO_FILE).is_file() else sorted(p.parent for p in folder.glob(f"*/{INFO_FILE}"))
    found = [source for place in places for source in _stored(place, folder)]
    if (folder / INFO_FILE).is_file():
        return found
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder).parts
        if path.suffix.lower() in SUFFIXES and path.is_file() and FOLDER not in inside:
            found.append(_file(path, folder))
    if not found:
        raise InputError(
            f"{folder} has no videos and no feature store in it; fill it with: "
            f"stepformer prepare features VIDEOS {folder}"
        )
    return found


def _stored(place: Path, folder: Path) -> Iterator[Source]:
    from stepformer.corpus.store import FeatureStore

    store = FeatureStore(place)
    prefix = "" if place == folder else f"{place.name}/"

    def reader(video: str) -> Callable[[Any], Any]:
        def read(model: Any) -> Any:
            from stepformer.discover import Features

            store.require_encoder(model.encoder.fingerprint, f"encoder {model.encoder.name}")
            stored = store.read(video)
            return Features(stored.features, stored.rate_hz, stored.structure, stored.duration_s, video)

        return read

    for video in store.ids:
        line = store.line(video)
        stamp = hashlib.sha256(
            repr((line["shard"], line["n"], line["duration_s"], line.get("meta"))).encode()
        ).hexdigest()
        source = str(line.get("meta", {}).get("source", "") or "")
        yield Source(prefix + video, source, stamp[:16], reader(video))


def _file(path: Path, folder: Path) -> Source:
    stat = path.stat()
    return Source(
        str(path.relative_to(folder)), str(path), f"{stat.st_size}-{stat.st_mtime_ns}", lambda model: model.read(path)
    )


def index_video(source: Source, model: Any, labels: str = "auto") -> IndexedVideo:
    """Discovers the steps of one video and gives what the index keeps of it."""
    found = model.find(source.features(model), labels=labels)
    timeline = found.timeline
    both = unit(found.step_vectors) + unit(found.segment_vectors) if len(timeline) else found.step_vectors
    return IndexedVideo(
        source.video,
        timeline.duration_s,
        np.array([(step.start_s, step.end_s) for step in timeline], np.float64).reshape(-1, 2),
        tuple(step.label for step in timeline),
        np.asarray(both, np.float32),
        found.features.vectors,
        found.features.rate_hz,
        source.stamp,
        source.where,
    )


def update_index(
    folder: str | os.PathLike[str], model: Any, *, rebuild: bool = False, report: Report | None = None, threads: int = 0
) -> Update:
    """Makes the index of a library, or brings it up to date: new and changed videos in, vanished ones out.

    A video that cannot be read is left out and listed; the rest are done. Two updates of one folder take turns.
    """
    from filelock import FileLock

    library = Path(folder)
    sources = find_sources(library)
    (library / FOLDER).mkdir(exist_ok=True)
    with FileLock(library / FOLDER / ".lock"):
        old = _usable(library, model, rebuild)
        known: dict[str, str] = {}
        writer: IndexWriter | None = None
        if old is not None:
            place = generation_folder(library, old.generation)
            writer = IndexWriter(library, old, load_array(place, "means.npy", {0: 3, 1: old.dim}), old)
            known = writer.stamps()
        todo = [source for source in sources if known.get(source.video) != source.stamp]
        names = {source.video for source in sources}
        gone = [video for video in known if video not in names]
        replaced = sum(source.video in known for source in todo)
        if writer is not None and not todo and not gone:
            return Update(0, 0, 0, len(known), (), old)
        failed: list[tuple[str, str]] = []
        waiting: list[IndexedVideo] = []
        added = 0
        # the first videos give the means; a library that grows keeps them
        first = _CENTRE_VIDEOS if writer is None else _BATCH
        for number, source in enumerate(todo):
            try:
                waiting.append(index_video(source, model))
            except (StepFormerError, OSError) as error:
                failed.append((source.video, sentence(error)))
            if report is not None:
                report(number + 1, len(todo), source.video)
            if len(waiting) >= (first if writer is None else _BATCH):
                writer = writer or _new_writer(library, model, waiting)
                added += _flush(writer, waiting, known, threads)
        if waiting:
            writer = writer or _new_writer(library, model, waiting)
            added += _flush(writer, waiting, known, threads)
        if writer is None:
            return Update(0, 0, 0, 0, tuple(failed), None)
        removed = writer.remove(gone)
        info = writer.commit()
        done = added - sum(source.video in known for source in todo if source.video not in dict(failed))
        return Update(done, replaced, removed, len(known) - replaced - removed, tuple(failed), info)


def _flush(writer: IndexWriter, waiting: list[IndexedVideo], known: dict[str, str], threads: int) -> int:
    writer.remove([video.video for video in waiting if video.video in known])
    writer.add(waiting, threads)
    number = len(waiting)
    waiting.clear()
    return number


def _usable(library: Path, model: Any, rebuild: bool) -> IndexInfo | None:
    """The index to go on with, or None where it is made anew."""
    if rebuild or not (library / FOLDER / "index.json").is_file():
        return None
    old = read_info(library)
    if old.fingerprint != model.encoder.fingerprint or old.model_hash != model.checkpoint.hash:
        return None  # vectors of another encoder or model cannot be compared with new ones
    if old.dead > _REBUILD_DEAD * max(1, old.dead + old.steps + old.moments):
        return None
    return old


def _new_writer(library: Path, model: Any, videos: list[IndexedVideo]) -> IndexWriter:
    dim = videos[0].frames.shape[1]
    info = IndexInfo(
        str(model.encoder.name),
        str(model.encoder.fingerprint),
        dim,
        Path(model.name).name,
        model.checkpoint.hash,
    )
    return IndexWriter(library, info, means_of(videos, model.bank().raw))


def means_of(videos: list[IndexedVideo], texts: Any) -> Any:
    """(3, D): what all steps, all frames and all texts have in common, each as a mean of unit vectors."""
    dim = videos[0].frames.shape[1]
    steps = [unit(video.step_vectors) for video in videos if len(video.step_vectors)]
    return np.stack(
        [
            np.concatenate(steps).mean(0) if steps else np.zeros(dim, np.float32),
            np.concatenate([unit(video.frames) for video in videos]).mean(0),
            unit(texts).mean(0),
        ]
    )
