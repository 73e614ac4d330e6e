"""Where the videos of a table come from: a simulated world, or features of annotated videos.

Every source gives :class:`~stepformer.evaluation.validation.Trial` records: videos of a split with labels, and where
there are any, step texts and narration in the space of the frames. What is behind them does not matter to the rest.

A source keeps *dev* videos, on which options are chosen, apart from the splits that tables report. The fingerprint is
a hash of everything that decides a number: the world file, or all frames, labels, texts and phrases themselves.
"""

from __future__ import annotations

import hashlib
import zlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from stepformer.base.arrays import unit
from stepformer.base.files import sha256_of
from stepformer.data import read_dataset
from stepformer.data.records import Dataset, VideoRecord
from stepformer.data.simulator import Simulator
from stepformer.data.store import FeatureStore, open_stores
from stepformer.data.world import Videos, World, build_world, load_world
from stepformer.errors import InputError, UsageError
from stepformer.evaluation.annotated import phrases_of, trial_of
from stepformer.evaluation.validation import Trial, few, make_trial

_DEV = 240  # dev videos at most: choosing on them takes more than half of the time
DATASET_NAMES = {"crosstask": "CrossTask", "procel": "ProceL", "coin": "COIN", "grammar": "grammar tasks"}


@dataclass(frozen=True, slots=True)
class Words:
    """What figures write beside a video: names of its task's steps, of its own step list, and its narration."""

    task: str
    steps: tuple[str, ...]
    instances: tuple[str, ...]
    phrases: tuple[str, ...]


class Source(ABC):
    """Videos by split. Tables have a group of columns per split."""

    fingerprint: str
    dim: int
    device: str  # where its videos lie and methods are scored
    datasets: Mapping[str, str]  # split -> dataset, in the order of the columns
    real: bool = True
    has_texts: bool = True
    narrated: bool = True  # some video of every task has phrases
    has_dev: bool = False
    about: str = ""  # one sentence for captions

    @abstractmethod
    def trial(self, place: str, seed: int) -> Trial:
        """The videos of a place; ``dev`` where there are dev videos."""

    @abstractmethod
    def words(self, split: str, video: int, trial: Trial) -> Words:
        """Names for the ``video``-th video of a split, of which ``trial`` is the rendering."""


# -- simulation -------------------------------------------------------------------------------------------------


class Simulated(Source):
    """A world file. Each seed draws its own frames, the same for every method, on the CPU: a GPU would draw others."""

    real = False
    has_dev = True
    device = "cpu"

    def __init__(self, path: str | Path, limit: int | None = None) -> None:
        self.world: World = load_world(path)
        self.fingerprint = sha256_of(path)
        if limit is not None:
            world, extra = self.world, {name: few(videos, limit) for name, videos in self.world.extra.items()}
            self.world = replace(world, dev=few(world.dev, min(limit, _DEV)), test=few(world.test, limit), extra=extra)
            self.fingerprint += f" {limit} videos per split, by task"
        self.dim = self.world.dim
        named = ("test", "procel", "coin_test", "timelines")
        reported = [s for s in named if s in self.world.splits and len(self.world.split(s))]
        self.datasets = {split: self._dataset(split) for split in reported}
        counts = [(self.world.split(s), dataset) for s, dataset in self.datasets.items()]
        said = ", ".join(f"{len(v)} videos of {len(set(v.tasks.tolist()))} tasks of {dataset}" for v, dataset in counts)
        self.about = f"Simulated features on {said}; world {self.fingerprint[:12]}. {self.near_texts()}"
        dev = set(self.world.dev.tasks.tolist())
        for split in reported:
            if dev & set(self.world.split(split).tasks.tolist()):
                raise InputError(
                    f"{path}: tasks of dev, where options are chosen, are reported in {split}; make it again"
                )
        self._played = replace(self.world, extra={**self.world.extra, "choose": half_sparse(self.world.dev)})

    def _dataset(self, split: str) -> str:
        names: Sequence[str] = self.world.meta.get("task_names", ())
        first = int(self.world.split(split).tasks[0])
        return names[first].partition(":")[0] if first < len(names) else "unknown"

    def near_texts(self) -> str:
        """How many step texts of each reported split have a training step text near them, at several thresholds."""
        said = []
        for name, whose in (("near_texts", "of the sentence encoder"), ("near_vectors", "in the space of the frames")):
            report: Mapping[str, Mapping[str, float]] = self.world.meta.get(name, {})
            parts = [
                f"{split} " + ", ".join(f"{100 * share:.0f}% at {limit}" for limit, share in report[split].items())
                for split in self.datasets
                if split in report
            ]
            said.append(f"Step texts with a training text nearer than a cosine {whose}: {'; '.join(parts)}.")
        return " ".join(said)

    def trial(self, place: str, seed: int) -> Trial:
        """Rendered again for each seed."""
        split = "choose" if place == "dev" else place
        simulator = Simulator(self._played, seed=seed)
        # each split has its own stream, whatever else is rendered
        return make_trial(simulator, split, seed=zlib.crc32(split.encode()) % 100_000 + seed)

    def words(self, split: str, video: int, trial: Trial) -> Words:
        """Texts of the world behind the ids."""
        world, videos = self.world, self.world.split(split)
        task = int(videos.tasks[video])
        names: dict[int, str] = {}
        for row in torch.nonzero(videos.tasks == task).flatten().tolist():
            there = videos.kinds[row] >= 0
            texts = [world.texts[i] for i in videos.steps[row][there].tolist()]
            names |= dict(zip(videos.kinds[row][there].tolist(), texts, strict=True))
        steps = [row for batch in trial.batches for row in batch.steps][video]
        said = [row for batch in trial.batches for row in batch.phrase_ids][video]
        known: Sequence[str] = world.meta.get("task_names", ())
        return Words(
            known[task] if task < len(known) else f"task {task}",
            tuple(names.get(i, "") for i in range(max(names) + 1)),
            tuple(world.texts[i] for i in steps.tolist() if i >= 0),
            tuple(world.texts[i] for i in said.tolist() if i >= 0),
        )


def half_sparse(videos: Videos) -> Videos:
    """Every second video with twice as much background added as its steps last, spread evenly between them.

    COIN's steps fill half of its videos, those of other datasets a quarter. A threshold chosen on dense videos alone
    fails on sparse ones, and how dense the tested videos are must not be known; so options have to serve both kinds.
    """
    there = videos.steps >= 0
    odd = torch.arange(len(videos)) % 2 == 1
    lengths = torch.where(there, videos.ends - videos.starts, 0.0).nan_to_num().clamp(min=0).sum(1)  # (P,)
    added = torch.where(odd, 2.0 * lengths, 0.0)
    pause = added / (there.sum(1) + 1)  # NaN times stay to be sampled
    later = pause[:, None] * torch.arange(1, there.shape[1] + 1)
    return replace(videos, starts=videos.starts + later, ends=videos.ends + later, durations=videos.durations + added)


def word_vectors(texts: Sequence[str], width: int = 64) -> npt.NDArray[np.float32]:
    """(L, width) unit vectors, sums of one random vector per word, the same everywhere: in place of a text encoder."""
    out = np.zeros((len(texts), width), np.float32)
    for i, text in enumerate(texts):
        for word in text.lower().split() or [""]:
            seed = int.from_bytes(hashlib.sha256(word.encode()).digest()[:8], "little")
            out[i] += np.random.default_rng(seed).standard_normal(width).astype(np.float32)
    return unit(out)


def write_tiny_world(path: str | Path) -> None:
    """A world from the package's grammar alone: every part of a table in a minute; numbers say nothing."""
    build_world(word_vectors, grammar_procedures=40, encoder="words").save(path)


# -- features of annotated videos -------------------------------------------------------------------------------


class Features(Source):
    """Real features of annotated videos; the same for every seed.

    dataset: its annotations. features: a folder of ``<task>_<video>.npy`` or ``<video>.npy`` files, (frames, width), or
    a feature store; None takes those of the dataset itself, which a plain folder may have. texts: an ``.npz`` of step
    texts and their vectors in the space of the features, or the encoder that makes them; without it there is no
    localisation. stores: feature stores whose phrases of the same videos are their narration. dev: the subset on whose
    videos options are chosen; without it nothing is chosen.
    """

    def __init__(
        self,
        dataset: str,
        features: str | None = None,
        rate_hz: float = 1.0,
        texts: str | None = None,
        stores: Sequence[str] = (),
        subset: str | None = None,
        dev: str | None = None,
        device: str = "cpu",
    ) -> None:
        self.device = device
        annotated = read_dataset(dataset)
        subset = subset or annotated.test_subset
        if dev is not None and (dev == subset or subset in (None, "all")):
            raise UsageError("options must not be chosen on the reported videos: give --subset as well as --dev")
        opened = open_stores(stores) if stores else []
        self._trials: dict[str, Trial] = {}
        self._words: dict[str, list[Words]] = {}
        splits = {"test": subset} | ({"dev": dev} if dev else {})
        digest, facts = hashlib.sha256(), []
        for split, name in splits.items():
            part = annotated if name in (None, "all") else annotated.select(name)
            records, trial = trial_of(part, features, texts or None, rate_hz, opened, device=device)
            missing = sum(bool(r.labels) for r in part.videos) - len(records)
            facts.append(f"{len(records)} {split} videos ({missing} annotated ones have no features)")
            self._trials[split] = trial
            self._words[split] = [_words(r, part, opened) for r in records]
            digest.update(fingerprint(trial).encode())
        self.fingerprint = digest.hexdigest()
        trial = self._trials["test"]
        self.datasets, self.has_dev, self.has_texts = {"test": annotated.name}, "dev" in splits, texts is not None
        self.dim = trial.batches[0].video.shape[2]
        said = torch.cat([b.phrase_mask.any(1) for b in trial.batches]).cpu().numpy()
        self.narrated = set(trial.tasks[said]) == set(trial.tasks)
        self.about = f"Real features of {annotated.name}: {', '.join(facts)}, {trial.rate_hz:g} per second."

    def trial(self, place: str, seed: int) -> Trial:
        """The loaded videos."""
        return self._trials[place]

    def words(self, split: str, video: int, trial: Trial) -> Words:
        """Names from the annotations."""
        return self._words[split][video]


def fingerprint(trial: Trial) -> str:
    """SHA-256 of everything that a trial holds."""
    digest = hashlib.sha256(f"{trial.rate_hz}".encode())
    digest.update(trial.tasks.tobytes() + trial.kinds.tobytes())
    for number, (batch, texts) in enumerate(zip(trial.batches, trial.texts, strict=True)):
        cutting = () if trial.cutting is None else (trial.cutting[number],)
        for tensor in (*batch, texts, *cutting):
            digest.update(str(tuple(tensor.shape)).encode() + tensor.cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def _words(record: VideoRecord, dataset: Dataset, stores: Sequence[FeatureStore]) -> Words:
    task = dataset.tasks[record.task]
    said = tuple(phrase.text for phrase, _ in phrases_of(record, stores))
    return Words(task.title, task.steps, tuple(task.steps[a.step] for a in record.ordered_steps), said)
