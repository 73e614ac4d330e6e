"""Brings processed videos into a library's index: feature stores, videos whose features are kept or made, and timelines
(what ``discover --format json`` writes) whose videos are not there, by the names of their steps."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from stepformer.app.search.index import (
    FOLDER,
    IndexedVideo,
    IndexInfo,
    IndexWriter,
    generation_folder,
    load_array,
    read_info,
    unit,
)
from stepformer.base.files import no_such
from stepformer.base.guard import read_text
from stepformer.base.many import Outcome, run_many
from stepformer.errors import InputError, StepFormerError
from stepformer.narration import Listening, narration_of
from stepformer.timeline import Timeline

_BATCH = 64
_REBUILD_DEAD = 0.3  # share of keys taken out from which the graphs are rebuilt
_CENTRE_VIDEOS = 200

Report = Callable[[int, int, str], None]
"""Called with videos done, videos in all, and the name of the last."""
Progress = Callable[[float, float], None]
Each = Callable[[Sequence["Source"]], Iterator[Outcome["Source", IndexedVideo]]]
"""What becomes of video files, one after the other, as :func:`index_video` makes it of each."""


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """A video that may be indexed: its name, where it is, what changes when it does, and how to get its features."""

    video: str
    where: str
    stamp: str
    features: Callable[[Any], Any] | None = None  # of a store: model -> stepformer.app.discover.Features
    timeline: Timeline | None = None  # instead of features
    file: Path | None = None  # the video itself, where it is here to be looked at and listened to


@dataclass(frozen=True, slots=True)
class Update:
    """What an update did."""

    added: int
    replaced: int
    removed: int
    kept: int
    failed: tuple[tuple[str, str], ...]
    info: IndexInfo | None
    left_out: tuple[tuple[str, str], ...] = ()  # timelines that are not indexed, and why


def find_sources(folder: Path) -> tuple[list[Source], list[tuple[str, str]]]:
    """Every processed video of a library: of ``folder`` if it is a feature store, of stores in it, video files, and
    timelines of videos that are not there. And the timelines that are left out, each with the reason."""
    from stepformer.data.store import INFO_FILE
    from stepformer.media import is_video

    if not folder.is_dir():
        raise no_such(folder, "folder")
    places = [folder] if (folder / INFO_FILE).is_file() else sorted(p.parent for p in folder.glob(f"*/{INFO_FILE}"))
    found = [source for place in places for source in _stored(place, folder)]
    if (folder / INFO_FILE).is_file():
        return found, []
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and FOLDER not in path.parts]
    found += [_file(path, folder) for path in files if is_video(path.relative_to(folder))]
    # a shard folder's own JSON files are the store's business
    texts = [path for path in files if path.suffix.lower() == ".json" and not any(p in path.parents for p in places)]
    named, left_out = _timelines(texts, folder, found)
    found += named
    if not found:
        why = "".join(f"; {name}: {reason}" for name, reason in left_out[:3])
        raise InputError(
            f"{folder} has no videos, no feature store and no timeline with named steps in it{why}. Fill it with: "
            f"stepformer prepare features VIDEOS {folder}"
        )
    return found, left_out


def _timelines(files: list[Path], folder: Path, known: list[Source]) -> tuple[list[Source], list[tuple[str, str]]]:
    """Timeline files of videos that are not among the ``known`` ones, and why the others are left out."""
    have = {Path(source.video).stem for source in known} | {Path(source.where).stem for source in known}
    found: dict[str, Source] = {}
    left_out: list[tuple[str, str]] = []
    for path in files:
        name = str(path.relative_to(folder))
        try:
            timeline = Timeline.from_json(read_text(path))
        except StepFormerError:
            left_out.append((name, "it is not a timeline of stepformer"))
            continue
        video = timeline.video or name
        if Path(video).stem in have:
            left_out.append((name, "its video is indexed itself"))
        elif not any(step.label and step.label.strip() for step in timeline):
            left_out.append((name, "its steps have no names, and without the video there is nothing to compare"))
        elif video in found:
            left_out.append((name, f"another file has the same video ({found[video].where})"))
        else:
            stat = path.stat()
            found[video] = Source(video, str(path), f"{stat.st_size}-{stat.st_mtime_ns}", timeline=timeline)
    return list(found.values()), left_out


def _stored(place: Path, folder: Path) -> Iterator[Source]:
    from stepformer.data.store import FeatureStore

    store = FeatureStore(place)
    prefix = "" if place == folder else f"{place.name}/"

    def reader(video: str) -> Callable[[Any], Any]:
        def read(model: Any) -> Any:
            from stepformer.encoders.reading import Features

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
    return Source(str(path.relative_to(folder)), str(path), f"{stat.st_size}-{stat.st_mtime_ns}", file=path)


def index_video(
    source: Source, model: Any, listening: Listening | None = None, progress: Progress | None = None
) -> IndexedVideo:
    """Discovers the steps of one video, or takes those of its timeline, and gives what the index keeps of it.

    progress: called while a video file is read or heard, with seconds done and seconds in all.
    """
    if source.timeline is not None:
        return _named_video(source, model)
    if source.file is not None:
        features, heard = model.read(source.file, progress), narration_of(source.file, listening, progress)
    else:
        assert source.features is not None
        features, heard = source.features(model), None
    found = model.find(features, narration=heard)
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


def _named_video(source: Source, model: Any) -> IndexedVideo:
    """A timeline without vectors: the vectors are those of its names."""
    timeline = source.timeline
    assert timeline is not None
    labels = tuple((step.label or "").strip() or None for step in timeline)
    said = [label for label in labels if label]
    vectors = np.asarray(model.encoder.encode_text(said), np.float32)
    named = np.zeros((len(labels), vectors.shape[1]), np.float32)
    named[[i for i, label in enumerate(labels) if label]] = vectors
    none = np.zeros((0, vectors.shape[1]), np.float32)
    spans = np.array([(step.start_s, step.end_s) for step in timeline], np.float64)
    return IndexedVideo(
        source.video, timeline.duration_s, spans, labels, none, none, 1.0, source.stamp, source.where, named
    )


def update_index(
    folder: str | os.PathLike[str],
    model: Any = None,
    *,
    rebuild: bool = False,
    listening: Listening | None = None,
    report: Report | None = None,
    each: Each | None = None,
) -> Update:
    """Makes the index of a library, or brings it up to date: new and changed videos in, vanished ones out.

    A video that cannot be read is left out and listed; the rest are done. Two updates of one folder take turns. model:
    by default the one that ships. rebuild: from scratch. report: called with videos done, videos in all, and a name.
    each: indexes video files elsewhere, in their order (the command line does it in a process of its own).
    """
    from filelock import FileLock

    if model is None:
        from stepformer.app.discover import load_model

        model = load_model()
    library = Path(folder)
    sources, left_out = find_sources(library)
    (library / FOLDER).mkdir(exist_ok=True)
    with FileLock(library / FOLDER / ".lock"):
        old = _usable(library, model, rebuild)
        known: dict[str, str] = {}
        writer: IndexWriter | None = None
        if old is not None:
            place = generation_folder(library, old.generation)
            writer = IndexWriter(library, old, load_array(place, "means.npy", {0: 3, 1: old.dim}), old, model.bank())
            known = writer.stamps()
        todo = [source for source in sources if known.get(source.video) != source.stamp]
        names = {source.video for source in sources}
        gone = [video for video in known if video not in names]
        replaced = sum(source.video in known for source in todo)
        if writer is not None and not todo and not gone:
            return Update(0, 0, 0, len(known), (), old, tuple(left_out))
        failed: list[tuple[str, str]] = []
        waiting: list[IndexedVideo] = []
        added = 0
        # the first videos give the means; a library that grows keeps them
        first = _CENTRE_VIDEOS if writer is None else _BATCH
        here = partial(run_many, partial(index_video, model=model, listening=listening))
        for number, outcome in enumerate(_outcomes(todo, here, each or here)):
            source = outcome.item
            if outcome.value is not None:
                waiting.append(outcome.value)
            else:
                failed.append((source.video, outcome.error or "unknown error"))
            if report is not None:
                report(number + 1, len(todo), source.video)
            if len(waiting) >= (first if writer is None else _BATCH):
                writer = writer or _new_writer(library, model, waiting)
                added += _flush(writer, waiting, known)
        if waiting:
            writer = writer or _new_writer(library, model, waiting)
            added += _flush(writer, waiting, known)
        if writer is None:
            return Update(0, 0, 0, 0, tuple(failed), None, tuple(left_out))
        removed = writer.remove(gone)
        info = writer.commit()
        done = added - sum(source.video in known for source in todo if source.video not in dict(failed))
        kept = len(known) - replaced - removed
        return Update(done, replaced, removed, kept, tuple(failed), info, tuple(left_out))


def _outcomes(todo: Sequence[Source], here: Each, each: Each) -> Iterator[Outcome[Source, IndexedVideo]]:
    """What becomes of every source, in order."""
    files = each([source for source in todo if source.file is not None])
    for source in todo:
        yield from here([source]) if source.file is None else [next(files)]
    yield from files  # none is left; whoever made them may end


def _flush(writer: IndexWriter, waiting: list[IndexedVideo], known: dict[str, str]) -> int:
    writer.remove([video.video for video in waiting if video.video in known])
    writer.add(waiting)
    number = len(waiting)
    waiting.clear()
    return number


def _usable(library: Path, model: Any, rebuild: bool) -> IndexInfo | None:
    """The index to go on with, or None where it is rebuilt."""
    if rebuild or not (library / FOLDER / "index.json").is_file():
        return None
    old = read_info(library)
    if old.fingerprint != model.encoder.fingerprint or old.model_hash != model.checkpoint.hash:
        return None  # vectors of another encoder or model cannot be compared with new ones
    if old.dead > _REBUILD_DEAD * max(1, old.dead + old.steps + old.moments + old.names):
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
    return IndexWriter(library, info, means_of(videos, model.bank().raw), bank=model.bank())


def means_of(videos: list[IndexedVideo], texts: Any) -> Any:
    """(3, D): what all steps, all frames and all texts have in common, each as a mean of unit vectors."""
    dim = videos[0].frames.shape[1]
    steps = [unit(video.step_vectors) for video in videos if len(video.step_vectors)]
    frames = [unit(video.frames) for video in videos if len(video.frames)]
    return np.stack(
        [
            np.concatenate(steps).mean(0) if steps else np.zeros(dim, np.float32),
            np.concatenate(frames).mean(0) if frames else np.zeros(dim, np.float32),
            unit(texts).mean(0),
        ]
    )
