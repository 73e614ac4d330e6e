"""Brings processed videos into a library's index: feature stores, and videos whose features are kept or made."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from stepformer.app.search.index import FOLDER, IndexedVideo, IndexInfo, IndexWriter, read_info, unit
from stepformer.base.files import no_such
from stepformer.base.many import Outcome, run_many
from stepformer.encoders.base import Vectors
from stepformer.encoders.reading import Features
from stepformer.errors import InputError
from stepformer.narration import Listening, narration_of

if TYPE_CHECKING:
    from stepformer.app.discover.stepformer import StepFormer
    from stepformer.data.store import FeatureStore

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
    """A video that may be indexed: its name, where it is, what changes when it does, and the file or store it is in."""

    video: str
    where: str
    stamp: str
    file: Path | None = None  # the video itself, where it is here to be looked at and listened to
    store: FeatureStore | None = None
    key: str = ""  # its name in the store


@dataclass(frozen=True, slots=True)
class Update:
    """What an update did.

    Attributes:
        added: How many videos are new.
        replaced: How many had changed.
        removed: How many are gone.
        kept: How many are as they were.
        failed: The names of those that could not be read, and why.
        info: What the index holds now; None where there is none.
    """

    added: int
    replaced: int
    removed: int
    kept: int
    failed: tuple[tuple[str, str], ...]
    info: IndexInfo | None


def find_sources(folder: Path) -> list[Source]:
    """Every processed video of a library: of ``folder`` if it is a feature store, else of stores in it and files."""
    from stepformer.data.store import INFO_FILE, FeatureStore
    from stepformer.media import find_videos

    if not folder.is_dir():
        raise no_such(folder, "folder")
    if (folder / INFO_FILE).is_file():
        return list(_stored(FeatureStore(folder), ""))
    stores = sorted(path.parent for path in folder.glob(f"*/{INFO_FILE}"))
    found = [source for store in stores for source in _stored(FeatureStore(store), f"{store.name}/")]
    with suppress(InputError):  # there may be none
        for path in find_videos([folder]):
            stat = path.stat()
            name = str(path.relative_to(folder))
            found.append(Source(name, str(path), f"{stat.st_size}-{stat.st_mtime_ns}", file=path))
    if not found:
        raise InputError(
            f"{folder} has no videos and no feature store in it (timelines alone do not show what a step looks like). "
            f"Fill it with: stepformer prepare features VIDEOS {folder}"
        )
    return found


def _stored(store: FeatureStore, prefix: str) -> Iterator[Source]:
    for video in store.ids:
        line = store.line(video)
        facts = repr((line["shard"], line["n"], line["duration_s"], line.get("meta")))
        source = str(line.get("meta", {}).get("source", "") or "")
        stamp = hashlib.sha256(facts.encode()).hexdigest()[:16]
        yield Source(prefix + video, source, stamp, store=store, key=video)


def index_video(
    source: Source, model: StepFormer, listening: Listening | None = None, progress: Progress | None = None
) -> IndexedVideo:
    """Discovers the steps of one video and gives what the index keeps of it.

    progress: called while a video file is read or heard, with seconds done and seconds in all.
    """
    if source.file is not None:
        features, heard = model.read(source.file, progress), narration_of(source.file, listening, progress)
    else:
        assert source.store is not None
        source.store.require_encoder(model.encoder.fingerprint, f"encoder {model.encoder.name}")
        stored = source.store.read(source.key)
        features = Features(stored.features, stored.rate_hz, stored.structure, stored.duration_s, source.key)
        heard = None
    found = model.find(features, narration=heard)
    timeline = found.timeline
    return IndexedVideo(
        source.video,
        timeline.duration_s,
        np.array([(step.start_s, step.end_s) for step in timeline], np.float64).reshape(-1, 2),
        tuple(step.label for step in timeline),
        found.looks,
        found.features.vectors,
        found.features.rate_hz,
        source.stamp,
        source.where,
    )


def update_index(
    folder: str | os.PathLike[str],
    model: StepFormer | None = None,
    *,
    rebuild: bool = False,
    listening: Listening | None = None,
    report: Report | None = None,
    each: Each | None = None,
    apart: bool = False,
) -> Update:
    """Makes the index of a library, or brings it up to date: new and changed videos in, vanished ones out.

    A video that cannot be read is left out and listed; the rest are done. Two updates of one folder take turns.

    Args:
        folder: A feature store, a folder of stores, or a folder of videos.
        model: By default the one that ships.
        rebuild: Start from scratch.
        listening: Where narration is looked for.
        report: Called with videos done, videos in all, and a name.
        each: Indexes video files elsewhere, in their order.
        apart: Change the graphs of the index that is there in a process of their own. (The command line has a process
            for each: videos crash decoders, forged graphs crash usearch.)

    Raises:
        InputError: the folder has no videos and no store.
    """
    from filelock import FileLock

    if model is None:
        from stepformer.app.discover.loading import load_model

        model = load_model()
    library = Path(folder)
    sources = find_sources(library)
    (library / FOLDER).mkdir(exist_ok=True)
    with FileLock(library / FOLDER / ".lock"), ExitStack() as ended:
        old = _usable(library, model, rebuild)
        known: dict[str, str] = {}
        writer: IndexWriter | None = None
        if old is not None:
            writer = IndexWriter(library, old, bank=model.bank(), apart=apart)
            ended.callback(writer.close)
            known = writer.stamps()
        todo = [source for source in sources if known.get(source.video) != source.stamp]
        names = {source.video for source in sources}
        gone = [video for video in known if video not in names]
        if writer is not None and not todo and not gone:
            return Update(0, 0, 0, len(known), (), old)
        failed: list[tuple[str, str]] = []
        waiting: list[IndexedVideo] = []
        added = replaced = 0
        here = partial(run_many, partial(index_video, model=model, listening=listening))
        for number, outcome in enumerate(_outcomes(todo, here, each or here), 1):
            if outcome.value is not None:
                waiting.append(outcome.value)
            else:
                failed.append((outcome.item.video, outcome.error or "unknown error"))
            if report is not None:
                report(number, len(todo), outcome.item.video)
            # the first videos give the means; a library that grows keeps them
            if waiting and (number == len(todo) or len(waiting) >= (_CENTRE_VIDEOS if writer is None else _BATCH)):
                writer = writer or _new_writer(library, model, waiting)
                again = writer.remove([video.video for video in waiting])
                writer.add(waiting)
                added, replaced, waiting = added + len(waiting) - again, replaced + again, []
        if writer is None:
            return Update(0, 0, 0, 0, tuple(failed), None)
        removed = writer.remove(gone)
        return Update(added, replaced, removed, len(known) - replaced - removed, tuple(failed), writer.commit())


def _outcomes(todo: Sequence[Source], here: Each, each: Each) -> Iterator[Outcome[Source, IndexedVideo]]:
    """What becomes of every source, in order."""
    files = each([source for source in todo if source.file is not None])
    for source in todo:
        yield from here([source]) if source.file is None else [next(files)]
    yield from files  # none is left; the generator may finish


def _usable(library: Path, model: StepFormer, rebuild: bool) -> IndexInfo | None:
    """The index to go on with, or None where it is rebuilt."""
    if rebuild or not (library / FOLDER / "index.json").is_file():
        return None
    old = read_info(library)
    # vectors of another encoder or model cannot be compared with new ones
    same = old.fingerprint == model.encoder.fingerprint and old.model_hash == model.checkpoint.hash
    return old if same and old.dead <= _REBUILD_DEAD * max(1, old.dead + old.steps + old.moments) else None


def _new_writer(library: Path, model: StepFormer, videos: list[IndexedVideo]) -> IndexWriter:
    means, encoder = means_of(videos, model.bank().raw), model.encoder
    info = IndexInfo(encoder.name, encoder.fingerprint, means.shape[1], Path(model.name).name, model.checkpoint.hash)
    return IndexWriter(library, info, means, bank=model.bank())


def means_of(videos: list[IndexedVideo], texts: Vectors) -> Vectors:
    """(3, D): what all steps, all frames and all texts have in common, each as a mean of unit vectors."""
    steps = [unit(video.step_vectors) for video in videos if len(video.step_vectors)]
    frames = [unit(video.frames) for video in videos if len(video.frames)]
    texts = unit(texts)
    means = [np.concatenate(rows).mean(0) if rows else np.zeros_like(texts[0]) for rows in (steps, frames)]
    return np.stack([*means, texts.mean(0)])
