"""The tables on real features: a dataset's annotations, a folder of ``.npy`` files, and weights or what to train on.

The same scoring as on simulated videos, at the rate of the features. Nothing is chosen here, because there is nothing
to choose it on: the model and the slot controls use the inference options that the checkpoint brings, ground-truth
texts too, and the published methods their defaults with 40% background. Step texts in the space of the features come
from an ``.npz`` file; without it there is no Table 2. Feature stores (``stepformer prepare features``) are what models
are trained on (``real_training.py``). Where they also hold narration of each tested task's videos, Shen et al., who
learn from it, have their rows.
"""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from stepformer.base.files import why_no_array
from stepformer.core.checkpoint import load_checkpoint
from stepformer.core.inference import InferenceConfig, random_slots
from stepformer.data.records import Dataset, VideoRecord, with_features
from stepformer.data.simulator import Batch
from stepformer.data.store import FeatureStore, open_stores
from stepformer.errors import InputError
from stepformer.evaluation.baselines import baseline
from stepformer.evaluation.raster import own_labels
from stepformer.evaluation.validation import (
    FULL,
    SlotMaker,
    Trial,
    frame_kmeans_scores,
    model_slots,
    uniform_scores,
    zero_shot,
)
from stepformer.reproduce import methods, scoring
from stepformer.reproduce.results import Results
from stepformer.reproduce.runs import Run
from stepformer.reproduce.scoring import Chosen, Scores
from stepformer.reproduce.worker import pooled

SPLIT = "test"
_BATCH = 16

Vectors = Mapping[str, npt.NDArray[np.float32]]
Log = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class RealData:
    """Annotated videos with features as a trial, and how many had to be left out."""

    name: str
    trial: Trial
    videos: int
    left_out: int
    has_texts: bool
    has_phrases: bool  # some video of every task is narrated
    fingerprint: str


def read_texts(path: str | Path) -> Vectors:
    """Text vectors of an ``.npz`` file: texts under ``text`` or ``names``, rows under ``emb`` or ``embeddings``."""
    try:
        with np.load(path, allow_pickle=False) as file:
            values = {name: file[name] for name in file.files}
    except (OSError, ValueError, AttributeError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(f"{path} is not a readable .npz of text vectors: {why_no_array(error)}") from None
    texts = next((values[k] for k in ("text", "names") if k in values), None)
    rows = next((values[k] for k in ("emb", "embeddings") if k in values), None)
    if texts is None or rows is None or rows.ndim != 2 or len(texts) != len(rows):
        raise InputError(f"{path} needs texts (text or names) and as many vectors (emb or embeddings)")
    unit = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)
    return {_key(str(t)): row.astype(np.float32) for t, row in zip(texts, unit, strict=True)}


def _key(text: str) -> str:
    return " ".join(text.lower().split())


def load_real(
    dataset: Dataset,
    features: str | Path,
    rate_hz: float = 1.0,
    texts: Vectors | None = None,
    device: str = "cpu",
    stores: Sequence[str | Path] = (),
) -> RealData:
    """The annotated videos that have features, as padded batches at the rate of the features.

    stores: feature stores whose phrases of the same videos (by the name of the feature file) are their narration.
    """
    opened = open_stores(stores) if stores else []
    told = with_features(dataset, features, rate_hz)
    records = [r for r in told.videos if r.labels and r.features is not None]
    if not records:
        raise InputError(f"no annotated video of {dataset.name} has a feature file in {features}")
    digest = hashlib.sha256(f"{dataset.name} {rate_hz} {sorted(texts or ())}".encode())
    for record in records:
        assert record.features is not None
        digest.update(f"{record.key} {record.features.stat().st_size}".encode())
    for store in opened:
        digest.update(f"{store.info.fingerprint} {sorted(store.ids)}".encode())
    tasks = {task: i for i, task in enumerate(dict.fromkeys(r.task for r in records))}
    # step lists of a task may be longer than what is annotated; only what occurs counts as its steps
    most = max(len(r.ordered_steps) for r in records)
    kinds = np.full((len(records), most), -1, np.int64)
    for row, record in zip(kinds, records, strict=True):
        row[: len(record.ordered_steps)] = [a.step for a in record.ordered_steps]
    batches, vectors = [], []
    for first in range(0, len(records), _BATCH):
        batch, own = _batch(records[first : first + _BATCH], told, rate_hz, texts, most, device)
        batches.append(_narrated(batch, records[first : first + _BATCH], opened, rate_hz) if opened else batch)
        vectors.append(own)
    trial = Trial(batches, vectors, np.array([tasks[r.task] for r in records]), kinds)
    annotated = sum(bool(r.labels) for r in told.videos)
    narrated = torch.cat([batch.phrase_mask.any(1) for batch in batches]).cpu().numpy()
    spoken = set(trial.tasks[narrated]) == set(trial.tasks)
    return RealData(
        dataset.name, trial, len(records), annotated - len(records), texts is not None, spoken, digest.hexdigest()[:16]
    )


def _batch(
    records: Sequence[VideoRecord], dataset: Dataset, rate_hz: float, texts: Vectors | None, most: int, device: str
) -> tuple[Batch, torch.Tensor]:
    arrays = []
    for record in records:
        assert record.features is not None
        array = np.asarray(np.load(record.features, allow_pickle=False), np.float32)
        if not np.isfinite(array).all():
            raise InputError(f"{record.features} has NaN or infinity")
        arrays.append(array / np.maximum(np.linalg.norm(array, axis=1, keepdims=True), 1e-9))
    widths = {a.shape[1] for a in arrays}
    if len(widths) > 1:
        raise InputError(f"the features have different widths: {sorted(widths)}")
    B, N, D = len(records), max(map(len, arrays)), widths.pop()
    video = np.zeros((B, N, D), np.float32)
    labels = np.full((B, N), -1, np.int64)
    steps = np.full((B, most), -1, np.int64)
    own = np.zeros((B, most, D), np.float32)
    for i, (record, array) in enumerate(zip(records, arrays, strict=True)):
        n = len(array)
        video[i, :n] = array
        truth = own_labels(record, n / rate_hz, rate_hz)[:n]
        labels[i, : len(truth)] = truth
        steps[i, : len(record.ordered_steps)] = range(len(record.ordered_steps))
        if texts is not None:
            own[i, : len(record.ordered_steps)] = list(_own_texts(record, dataset, texts, D))
    mask = np.arange(N) < np.array([[len(a)] for a in arrays])
    nothing = torch.zeros(B, 1, device=device)
    batch = Batch(
        torch.from_numpy(video).to(device), torch.from_numpy(mask).to(device),
        torch.zeros(B, 1, D, device=device), nothing.bool(), torch.from_numpy(labels).to(device),
        torch.from_numpy(steps).to(device), nothing.long() - 1, nothing.long() - 1, nothing,
    )  # fmt: skip
    return batch, torch.from_numpy(own).to(device)


def _narrated(batch: Batch, records: Sequence[VideoRecord], stores: Sequence[FeatureStore], rate_hz: float) -> Batch:
    """The batch with the phrases that the stores have of its videos."""
    found = []
    for record in records:
        assert record.features is not None
        name = record.features.stem
        stored = next((store.read(name) for store in stores if name in store.ids), None)
        rows = (
            []
            if stored is None or stored.phrase_vectors is None
            else list(zip(stored.phrases, stored.phrase_vectors, strict=True))
        )
        found.append([(p, v) for p, v in rows if not p.chatter])
    B, L, D = len(records), max(1, *map(len, found)), batch.video.shape[2]
    phrases, mask, times = np.zeros((B, L, D), np.float32), np.zeros((B, L), bool), np.zeros((B, L), np.float32)
    for i, rows in enumerate(found):
        for j, (phrase, vector) in enumerate(rows):
            if len(vector) != D:
                raise InputError(f"phrases of {records[i].video} are {len(vector)} wide and features {D}")
            phrases[i, j] = vector / max(float(np.linalg.norm(vector)), 1e-9)
            times[i, j] = (phrase.start_s + phrase.end_s) / 2 * rate_hz
            mask[i, j] = True
    device = batch.video.device
    unknown = torch.full((B, L), -1, device=device)
    return batch._replace(
        phrases=torch.from_numpy(phrases).to(device), phrase_mask=torch.from_numpy(mask).to(device),
        phrase_steps=unknown, phrase_ids=unknown, phrase_times=torch.from_numpy(times).to(device),
    )  # fmt: skip


def _own_texts(record: VideoRecord, dataset: Dataset, texts: Vectors, width: int) -> Iterator[npt.NDArray[np.float32]]:
    for annotation in record.ordered_steps:
        text = dataset.tasks[record.task].steps[annotation.step]
        vector = texts.get(_key(text))
        if vector is None:
            raise InputError(f"there is no vector for the step text {text!r} of task {record.task}")
        if len(vector) != width:
            raise InputError(f"text vectors are {len(vector)} wide and features {width}; both must be of one space")
        yield vector


def real_runs(data: RealData, seeds: Sequence[int], checkpoint: str | None) -> list[Run]:
    """What can be run on these features."""
    world = f"features {data.fingerprint}"
    runs = [Run("real", "uniform", seeds[0], {"method": "uniform"}, world)]
    if data.has_texts:
        runs.append(Run("real", "text", seeds[0], {"method": "text"}, world))
    if checkpoint is not None:
        spec = {"method": "stepformer", "checkpoint": load_checkpoint(checkpoint).hash}
        runs.append(Run("real", "default", seeds[0], spec, world))
    runs.append(Run("real", "pooled", seeds[0], {"method": "pooled", "checkpoint": checkpoint is not None}, world))
    for seed in seeds:
        runs += [Run("real", name, seed, {"method": name}, world) for name in ("kmeans", "random")]
        for method, setting in (("kukleva", "weak"), ("elhamifar", "weak"), ("kukleva", "unsupervised")):
            spec = {"method": method, "setting": setting}
            runs.append(Run("real", f"{method} {setting}", seed, spec, world))
        if data.has_phrases:
            for setting in ("weak", "unsupervised"):
                runs.append(Run("real", f"shen {setting}", seed, {"method": "shen", "setting": setting}, world))
    return runs


def execute_real(
    data: RealData, runs: Sequence[Run], results: Results, out: Path, checkpoint: str | None, device: str, log: Log
) -> None:
    """Scores what is missing, one after the other, saving after each."""
    model, config = None, InferenceConfig()
    if checkpoint is not None:
        loaded = load_checkpoint(checkpoint, device)
        width = data.trial.batches[0].video.shape[2]
        if loaded.model.config.feature_dim != width:
            raise InputError(f"the model takes features {loaded.model.config.feature_dim} wide, these are {width}")
        model = loaded.model
        config = loaded.inference
    results.save(out)  # the plan, also where every run is done
    for run in runs:
        if run.id in results.runs:
            continue
        make = model_slots(model) if run.spec["method"] == "stepformer" and model is not None else None
        scores = score_real(data, run, make, config, device)
        # nothing is chosen here: a checkpoint brings its options
        keep_scores(results, run, dict.fromkeys(("grid", "own"), scores))
        results.save(out)
        log(f"{run.name}, seed {run.seed}")


def keep_scores(results: Results, run: Run, views: Mapping[str, Scores]) -> None:
    """Puts a run's scores, by view, among the results."""
    nested = {
        view: {SPLIT: {scoring.MAIN_ENCODER: {name: round(float(value), 5) for name, value in scores.items()}}}
        for view, scores in views.items()
    }
    results.runs[run.id] = {"id": run.id, **run.to_dict(), "scores": nested, "chosen": {}, "code": "real"}


def slot_scores(data: RealData, make: SlotMaker, config: InferenceConfig) -> Scores:
    """Both tasks, or discovery alone where there are no texts."""
    outputs = scoring.all_slots(data.trial, make)
    scores = scoring.scores_with(data.trial, outputs, Chosen(config, config, "slots", {}))
    return scores if data.has_texts else {k: v for k, v in scores.items() if k.startswith("un_")}


def score_real(data: RealData, run: Run, make: SlotMaker | None, config: InferenceConfig, device: str) -> Scores:
    """One method on real features."""
    trial, method = data.trial, run.spec["method"]
    if method == "uniform":
        return uniform_scores(trial)
    if method == "kmeans":
        return frame_kmeans_scores(trial, FULL)
    if method == "text":
        return {f"zs_{k}": v for k, v in zero_shot(trial, scoring.text_located(trial, config)).items()}
    if method in ("kukleva", "elhamifar"):
        videos, steps = methods.feature_videos(trial)
        options = {"background": 0.4, "min_updates": methods.MIN_UPDATES} if method == "kukleva" else {}
        fitted: Any = baseline(method, **options).fit(videos, steps, setting=run.spec["setting"], seed=run.seed)
        return methods.discovery_scores(trial, fitted, videos)
    if method == "shen":
        videos, steps = methods.feature_videos(trial)
        learned: Any = baseline(method).fit(videos, steps, setting=run.spec["setting"], seed=run.seed, device=device)
        scores = methods.discovery_scores(trial, learned, videos)
        if data.has_texts:
            own, outputs = methods.prototypes(trial, learned, videos)
            scores |= scoring.locate_scores(own, outputs, config)
        return scores
    if method == "random":
        generator = torch.Generator(device=device).manual_seed(run.seed)
        make = lambda batch: random_slots(batch.video, batch.video_mask, generator=generator)  # noqa: E731
    return slot_scores(data, make or pooled, config)
