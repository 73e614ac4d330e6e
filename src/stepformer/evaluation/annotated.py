"""Annotated videos with features as a trial: what tables and validation during training score."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from stepformer.base import guard
from stepformer.base.arrays import unit
from stepformer.data import read_dataset
from stepformer.data.precomputed import text_side
from stepformer.data.records import Dataset, VideoRecord, with_features
from stepformer.data.simulator import Batch
from stepformer.data.store import INFO_FILE, FeatureStore, StoredPhrase
from stepformer.errors import InputError
from stepformer.evaluation.metrics import own_labels
from stepformer.evaluation.validation import Trial

Vectors = Mapping[str, npt.NDArray[np.float32]]
_BATCH = 16  # videos
Load = Callable[[VideoRecord], npt.NDArray[Any]]  # (N, D) features of a video


def read_trial(
    dataset: str | Path,
    features: str | Path | None,
    texts: str | None = None,
    *,
    reader: str | None = None,
    subset: str | None = None,
    rate_hz: float = 1.0,
    limit: int | None = None,
    device: str | torch.device = "cpu",
) -> Trial:
    """The annotated videos of a dataset that have features, as a trial.

    ``features``: a folder of arrays, or a feature store (which knows its own rate); None: those of the dataset itself.
    ``texts``: an .npz of step texts and their vectors, or the name of the encoder whose text side makes them; without
    it there is nothing to localise. ``limit`` takes every n-th video, so that all tasks stay.

    Raises:
        InputError: no annotated video has features, or there is no such subset.
    """
    found = read_dataset(dataset, reader)
    part = found if subset is None else found.select(subset)
    records, rate_hz, load = videos_with_features(part, features, rate_hz)
    if limit is not None and limit < len(records):
        records = [records[i] for i in np.linspace(0, len(records) - 1, limit).astype(int)]
    vectors = None if texts is None else text_vectors(texts, records, found)
    return trial_of(records, found, rate_hz, vectors, (), device, load)


def videos_with_features(
    dataset: Dataset, features: str | Path | None, rate_hz: float
) -> tuple[list[VideoRecord], float, Load]:
    """The annotated videos that have features (as in :func:`read_trial`), the rate of these, and how to read them."""
    annotated = [record for record in dataset.videos if record.labels]
    load: Load = _from_file
    if features is not None and (Path(features) / INFO_FILE).is_file():
        store = FeatureStore(Path(features))
        rate_hz = store.info.rate_hz
        names = {r.key: next((n for n in (r.key, r.video) if n in store.ids), None) for r in annotated}
        records = [record for record in annotated if names[record.key] is not None]

        def load(record: VideoRecord) -> npt.NDArray[Any]:
            return store.read(str(names[record.key])).features
    else:
        if features is not None:
            bare = replace(dataset, videos=tuple(replace(record, features=None) for record in annotated))
            annotated = list(with_features(bare, features, rate_hz).videos)
        records = [record for record in annotated if record.features is not None]
    if not records:
        where = features or "its own folder; give one with --features"
        raise InputError(f"none of the {len(annotated)} annotated videos of {dataset.name} has features in {where}")
    return records, rate_hz, load


def text_vectors(texts: str, records: Sequence[VideoRecord], dataset: Dataset) -> Vectors:
    """The vectors of the step texts of some videos: from an .npz of texts and vectors, or by the encoder so called."""
    said = sorted({dataset.tasks[r.task].steps[a.step] for r in records for a in r.labels})
    return dict(zip(said, unit(text_side(texts).encode_text(said), np.float32), strict=True))


def phrases_of(
    record: VideoRecord, stores: Sequence[FeatureStore]
) -> list[tuple[StoredPhrase, npt.NDArray[np.float32]]]:
    """The narration of a video, chatter left out, from the first store that has it."""
    name = record.features.stem if record.features is not None else record.video
    stored = next((store.read(name) for store in stores if name in store.ids), None)
    if stored is None or stored.phrase_vectors is None:
        return []
    return [(p, v) for p, v in zip(stored.phrases, stored.phrase_vectors, strict=True) if not p.chatter]


def _from_file(record: VideoRecord) -> npt.NDArray[Any]:
    assert record.features is not None
    return guard.load_array(record.features)


def trial_of(
    records: Sequence[VideoRecord],
    dataset: Dataset,
    rate_hz: float,
    texts: Vectors | None,
    stores: Sequence[FeatureStore],
    device: str | torch.device,
    load: Load,
) -> Trial:
    """Annotated videos as padded batches at the rate of their features; ``stores`` may hold their narration."""
    tasks = {task: i for i, task in enumerate(dict.fromkeys(r.task for r in records))}
    videos = []
    for record in records:
        features = np.asarray(load(record), np.float32)
        if not np.isfinite(features).all():
            raise InputError(f"the features of {record.video} have NaN or infinity")
        n, width = features.shape
        truth = own_labels(record, n / rate_hz, rate_hz)[:n]
        labels = np.pad(truth, (0, n - len(truth)), constant_values=-1)
        kinds = np.array([a.step for a in record.ordered_steps])
        own = None if texts is None else np.stack([texts[dataset.tasks[record.task].steps[step]] for step in kinds])
        said = phrases_of(record, stores)
        for vector in (*(own if own is not None else ()), *(vector for _, vector in said)):
            if len(vector) != width:
                raise InputError(f"text vectors are {len(vector)} wide and features {width}; both must be of one space")
        times = [(p.start_s + p.end_s) / 2 * rate_hz for p, _ in said]
        vectors = unit([v for _, v in said], np.float32) if said else np.zeros((0, width), np.float32)
        videos.append((unit(features, np.float32), labels, own, vectors, np.array(times, np.float32), kinds))
    return padded(videos, np.array([tasks[r.task] for r in records]), rate_hz, device=device)


def padded(
    videos: Sequence[tuple[npt.NDArray[np.float32], npt.ArrayLike, npt.NDArray[np.float32] | None,
                           npt.NDArray[np.float32], npt.NDArray[np.float32], npt.NDArray[np.int64]]],
    tasks: npt.NDArray[np.int64],
    rate_hz: float,
    device: str | torch.device = "cpu",
) -> Trial:  # fmt: skip
    """A trial of videos given as (frames (N, D), labels (N,) positions in the step list, step vectors (S, D) or None,
    phrase vectors (L, D), phrase times (L,) in frames, step number within the task (S,)).
    """
    widths = sorted({v[0].shape[1] for v in videos})
    if len(widths) > 1:
        raise InputError(f"the features have different widths: {widths}")
    D, S = widths[0], max(1, *(len(v[5]) for v in videos))

    def stack(rows: Sequence[npt.ArrayLike], length: int, fill: float, kind: type) -> torch.Tensor:
        arrays = [np.asarray(row) for row in rows]
        shape = (len(arrays), length, *((D,) if arrays[0].ndim == 2 else ()))
        out = np.full(shape, fill, kind)
        for line, row in zip(out, arrays, strict=True):
            line[: len(row)] = row
        return torch.from_numpy(out).to(device)

    batches, texts = [], []
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
    kinds = stack([v[5] for v in videos], S, -1, np.int64).cpu().numpy()
    return Trial(batches, texts, np.asarray(tasks), kinds, rate_hz)
