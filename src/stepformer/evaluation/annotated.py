"""Annotated videos with features as a trial: what tables and validation during training score."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from stepformer.base.arrays import unit
from stepformer.base.guard import load_array
from stepformer.data.precomputed import text_side
from stepformer.data.records import Dataset, VideoRecord, with_features
from stepformer.data.simulator import Batch
from stepformer.data.store import INFO_FILE, FeatureStore, StoredPhrase
from stepformer.errors import InputError
from stepformer.evaluation.metrics import own_labels
from stepformer.evaluation.validation import Trial

_BATCH = 16  # videos
Seen = tuple[npt.NDArray[Any], npt.NDArray[Any] | None]  # features (N, D), structure (N, S) where there is any
Found = list[tuple[VideoRecord, Callable[[], Seen]]]  # videos, and what reads them


def _with_features(dataset: Dataset, features: str | Path | None, rate_hz: float) -> tuple[Found, float]:
    """The annotated videos that have features (as in :func:`trial_of`), and the rate of these."""
    annotated = [record for record in dataset.videos if record.labels]
    if features is not None and (Path(features) / INFO_FILE).is_file():
        store = FeatureStore(features)
        rate_hz = store.info.rate_hz
        names = [(r, next((n for n in (r.key, r.video) if n in store.ids), None)) for r in annotated]
        found: Found = [(r, partial(_stored, store, name)) for r, name in names if name is not None]
    else:
        if features is not None:
            bare = replace(dataset, videos=tuple(replace(record, features=None) for record in annotated))
            annotated = list(with_features(bare, features, rate_hz).videos)
        found = [(r, partial(_in_file, r.features)) for r in annotated if r.features is not None]
    if not found:
        where = features or "its own folder; give one with --features"
        raise InputError(f"none of the {len(annotated)} annotated videos of {dataset.name} has features in {where}")
    return found, rate_hz


def _stored(store: FeatureStore, name: str) -> Seen:
    video = store.read(name)
    return video.features, video.structure


def _in_file(path: Path) -> Seen:
    return load_array(path), None


def phrases_of(
    record: VideoRecord, stores: Sequence[FeatureStore]
) -> list[tuple[StoredPhrase, npt.NDArray[np.float32]]]:
    """The narration of a video, chatter left out, from the first store that has it."""
    name = record.features.stem if record.features is not None else record.video
    stored = next((store.read(name) for store in stores if name in store.ids), None)
    if stored is None or stored.phrase_vectors is None:
        return []
    return [(p, v) for p, v in zip(stored.phrases, stored.phrase_vectors, strict=True) if not p.chatter]


def trial_of(
    dataset: Dataset,
    features: str | Path | None,
    texts: str | None,
    rate_hz: float,
    stores: Sequence[FeatureStore] = (),
    limit: int | None = None,
    device: str | torch.device = "cpu",
) -> tuple[list[VideoRecord], Trial]:
    """The annotated videos of a dataset that have features, and these as padded batches at the rate of the features.

    ``features``: a folder of arrays, or a feature store (which knows its own rate); None: those of the dataset itself.
    ``texts``: an .npz of step texts and their vectors, or the name of the encoder whose text side makes them; without
    it there is nothing to localise. ``stores`` may hold the narration. ``limit`` takes every n-th video, so that all
    tasks stay.

    Raises:
        InputError: no annotated video has features.
    """
    found, rate_hz = _with_features(dataset, features, rate_hz)
    if limit is not None and limit < len(found):
        found = [found[i] for i in np.linspace(0, len(found) - 1, limit).astype(int)]
    records = [record for record, _ in found]
    steps = {task: dataset.tasks[task].steps for task in dict.fromkeys(record.task for record in records)}
    if texts is not None:
        named = sorted({steps[record.task][a.step] for record in records for a in record.labels})
        known = dict(zip(named, unit(text_side(texts).encode_text(named), np.float32), strict=True))
    videos, structures = [], []
    for record, load in found:
        seen, structure = load()
        frames = np.asarray(seen, np.float32)
        structures += [] if structure is None else [np.asarray(structure, np.float32)]
        if not all(np.isfinite(x).all() for x in (frames, *structures[-1:])):
            raise InputError(f"the features of {record.video} have NaN or infinity")
        n, width = frames.shape
        truth = own_labels(record, n / rate_hz, rate_hz)[:n]
        labels = np.pad(truth, (0, n - len(truth)), constant_values=-1)
        kinds = np.array([a.step for a in record.ordered_steps])
        own = None if texts is None else np.stack([known[steps[record.task][step]] for step in kinds])
        said = phrases_of(record, stores)
        for vector in (*(own if own is not None else ()), *(vector for _, vector in said)):
            if len(vector) != width:
                raise InputError(f"text vectors are {len(vector)} wide and features {width}; both must be of one space")
        times = [(p.start_s + p.end_s) / 2 * rate_hz for p, _ in said]
        vectors = unit([v for _, v in said], np.float32) if said else np.zeros((0, width), np.float32)
        videos.append((unit(frames, np.float32), labels, own, vectors, np.array(times, np.float32), kinds))
    number = {task: i for i, task in enumerate(steps)}
    tasks = np.array([number[record.task] for record in records])
    return records, padded(videos, tasks, rate_hz, structures, device=device)


def padded(
    videos: Sequence[tuple[npt.NDArray[np.float32], npt.ArrayLike, npt.NDArray[np.float32] | None,
                           npt.NDArray[np.float32], npt.NDArray[np.float32], npt.NDArray[np.int64]]],
    tasks: npt.NDArray[np.int64],
    rate_hz: float,
    structures: Sequence[npt.NDArray[np.float32]] = (),
    device: str | torch.device = "cpu",
) -> Trial:  # fmt: skip
    """A trial of videos given as (frames (N, D), labels (N,) positions in the step list, step vectors (S, D) or None,
    phrase vectors (L, D), phrase times (L,) in frames, step number within the task (S,)), and their structure (N, S).
    """
    widths = sorted({v[0].shape[1] for v in videos})
    if len(widths) > 1:
        raise InputError(f"the features have different widths: {widths}")
    D, S = widths[0], max(1, *(len(v[5]) for v in videos))

    def stack(rows: Sequence[npt.ArrayLike], length: int, fill: float, kind: type) -> torch.Tensor:
        arrays = [np.asarray(row) for row in rows]
        shape = len(arrays), length, *arrays[0].shape[1:]
        out = np.full(shape, fill, kind)
        for line, row in zip(out, arrays, strict=True):
            line[: len(row)] = row
        return torch.from_numpy(out).to(device)

    batches, texts, cutting = [], [], []
    for first in range(0, len(videos), _BATCH):
        part = videos[first : first + _BATCH]
        N, L = max(len(v[0]) for v in part), max(1, *(len(v[3]) for v in part))
        unknown = torch.full((len(part), L), -1, device=device)
        batches.append(
            Batch(
                video=stack([v[0] for v in part], N, 0, np.float32),
                video_mask=stack([np.ones(len(v[0]), bool) for v in part], N, 0, bool),
                phrases=stack([v[3] for v in part], L, 0, np.float32),
                phrase_mask=stack([np.ones(len(v[3]), bool) for v in part], L, 0, bool),
                labels=stack([v[1] for v in part], N, -1, np.int64),
                steps=stack([np.arange(len(v[5])) for v in part], S, -1, np.int64),
                phrase_steps=unknown,
                phrase_ids=unknown,
                phrase_times=stack([v[4] for v in part], L, 0, np.float32),
            )
        )
        none = np.zeros((0, D), np.float32)
        texts.append(stack([none if v[2] is None else v[2] for v in part], S, 0, np.float32))
        cutting += [stack(own, N, 0, np.float32)] if (own := structures[first : first + _BATCH]) else []
    kinds = stack([v[5] for v in videos], S, -1, np.int64).cpu().numpy()
    return Trial(batches, texts, np.asarray(tasks), kinds, rate_hz, cutting or None)
