"""Makes a simulated world: procedures from the package's grammar and, where they are, from public datasets.

What may be learned from and what is kept for testing:

- ``test``: CrossTask's 360 validation videos (18 primary tasks). Their step texts, and every training text closer
  to one of them than ``NEAR`` (cosine), are removed from training, whatever source they come from.
- ``procel``: the videos of ProceL tasks that are there, likewise held out with their texts.
- ``dev``: COIN videos of held-out tasks, for choosing options; their texts are removed from training likewise.
- ``train``: the rest. Each source keeps its licence; ``open`` sources may be used by anyone, the others are
  non-commercial (see :data:`SOURCES`). Neighbours of an open text are open texts, so that a model trained on open
  sources has seen nothing else.

Without a data folder everything comes from the grammar, split by task.
"""

from __future__ import annotations

import gzip
import json
import math
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from stepformer.data import read_coin, read_crosstask, read_procel
from stepformer.data.grammar import load_grammar
from stepformer.data.records import Dataset
from stepformer.data.world import NEIGHBOURS, PARAPHRASES, Videos, World
from stepformer.errors import InputError

Encode = Callable[[Sequence[str]], npt.NDArray[np.float32]]

NEAR = 0.85
"""Training texts with a cosine above this to a held-out text are removed."""

SOURCES: dict[str, tuple[str, bool]] = {
    # name: (licence, whether anyone may use what is learned from it)
    "grammar": ("Apache-2.0, written for this package", True),
    "youcook2": ("YouCook2 annotations as carried by PDVC, MIT", True),
    "crosstask-related": ("CrossTask related tasks, BSD-3-Clause", True),
    "coin": ("COIN, CC BY-NC 4.0", False),
    "wikihow": ("wikiHow, CC BY-NC-SA 3.0", False),
    "howto100m-phrases": ("HowTo100M verb phrases of ProcedureVRL, CC BY-NC-SA 4.0", False),
}
OPEN_SOURCES = tuple(name for name, (_, is_open) in SOURCES.items() if is_open)

STOCK_LOOKS = (
    "a person talking to the camera", "a title card with text", "a channel logo", "a closing screen with links",
    "a presenter standing behind a table", "a presenter smiling in a kitchen", "an empty kitchen counter",
    "a wide view of a garage", "a wide view of a workshop", "a wide view of a living room", "a street outside",
    "a garden in the sun", "ingredients laid out on a table", "tools laid out on a bench", "a finished dish on a plate",
    "a person tasting food", "a person waving goodbye", "a photo slideshow", "a product in its package",
    "a close-up of a label", "hands resting on a table", "a blurred picture", "a black screen", "a white background",
    "an animated intro", "two people chatting", "a dog walking through the room", "a person looking at a phone",
    "a sponsor advertisement", "a website shown on a screen", "a map of a store", "a shelf in a shop",
    "a person carrying a bag", "a bowl standing on the counter", "a pan standing on the stove", "a clock on the wall",
    "a window with curtains", "a person washing dishes in the background", "a person walking to the camera",
    "a car parked in a driveway", "a sofa and a lamp", "a computer on a desk", "a close-up of a face",
    "a list of ingredients on the screen", "a subscribe button on the screen", "a before and after picture",
    "a person thinking", "a pile of boxes",
)  # fmt: skip


@dataclass(slots=True)
class _Draft:
    """Texts and videos as they are gathered, before vectors."""

    texts: list[str] = field(default_factory=list)
    ids: dict[str, int] = field(default_factory=dict)
    text_open: list[bool] = field(default_factory=list)
    paraphrases: dict[int, list[int]] = field(default_factory=dict)

    def add(self, text: str, is_open: bool) -> int:
        """The id of a text; a text that an open source also has is open."""
        key = " ".join(text.split())
        if key in self.ids:
            number = self.ids[key]
            self.text_open[number] |= is_open
            return number
        self.ids[key] = number = len(self.texts)
        self.texts.append(key)
        self.text_open.append(is_open)
        return number


@dataclass(frozen=True, slots=True)
class _Video:
    steps: list[int]
    kinds: list[int]
    starts: list[float]
    ends: list[float]
    duration: float
    source: int
    task: int


def _untimed(steps: list[int], source: int, task: int) -> _Video:
    nothing = [math.nan] * len(steps)
    return _Video(steps, list(range(len(steps))), nothing, nothing, math.nan, source, task)


def _share(key: str) -> float:
    """A fixed number in [0, 1) of a name, for splits that never move."""
    return zlib.crc32(key.encode()) / 2**32


def _arrays(videos: Sequence[_Video]) -> Videos:
    S = max((len(v.steps) for v in videos), default=1)

    def pad(values: Iterable[Sequence[float]], empty: float, kind: Any) -> torch.Tensor:
        out = np.full((len(videos), S), empty)
        for row, value in zip(out, values, strict=True):
            row[: len(value)] = value
        return torch.from_numpy(out).to(kind)

    return Videos(
        steps=pad((v.steps for v in videos), -1, torch.int64),
        starts=pad((v.starts for v in videos), math.nan, torch.float32),
        ends=pad((v.ends for v in videos), math.nan, torch.float32),
        durations=torch.tensor([v.duration for v in videos], dtype=torch.float32),
        sources=torch.tensor([v.source for v in videos], dtype=torch.int64),
        tasks=torch.tensor([v.task for v in videos], dtype=torch.int64),
        kinds=pad((v.kinds for v in videos), -1, torch.int64),
    )


class _Builder:
    def __init__(self) -> None:
        self.draft = _Draft()
        self.names = list(SOURCES)
        self.train: list[_Video] = []
        self.dev: list[_Video] = []
        self.test: list[_Video] = []
        self.procel: list[_Video] = []
        self.fillers: list[tuple[int, int]] = []
        self.tasks: dict[str, int] = {}

    def source(self, name: str) -> tuple[int, bool]:
        return self.names.index(name), SOURCES[name][1]

    def task(self, name: str) -> int:
        return self.tasks.setdefault(name, len(self.tasks))

    def from_grammar(self, count: int, seed: int, test: bool, dev: bool) -> None:
        """``count`` procedures; a tenth of the tasks each to test and dev when nothing else serves for them."""
        source, is_open = self.source("grammar")
        grammar = load_grammar()
        for procedure in grammar.procedures(count, seed):
            steps = []
            for step in procedure.steps:
                number = self.draft.add(step.label, is_open)
                others = [self.draft.add(text, is_open) for text in step.paraphrases[:PARAPHRASES]]
                self.draft.paraphrases.setdefault(number, others)
                steps.append(number)
            share = _share(procedure.task)
            video = _untimed(steps, source, self.task(f"grammar:{procedure.task}"))
            target = self.test if test and share < 0.1 else self.dev if dev and 0.1 <= share < 0.2 else self.train
            target.append(video)
        self.fillers += [(self.draft.add(text, is_open), source) for text in grammar.chatter]

    def from_youcook2(self, path: Path) -> None:
        source, is_open = self.source("youcook2")
        for name, entry in json.loads(path.read_text("utf-8")).items():
            rows = sorted(zip(entry["timestamps"], entry["sentences"], strict=True))
            steps = [self.draft.add(text, is_open) for _, text in rows]
            starts, ends = ([float(times[i]) for times, _ in rows] for i in (0, 1))
            task = self.task(f"youcook2:{name}")
            kinds = list(range(len(steps)))
            self.train.append(_Video(steps, kinds, starts, ends, float(entry["duration"]), source, task))

    def from_records(self, dataset: Dataset, source_name: str, out: Callable[[str, str], list[_Video] | None]) -> None:
        """Annotated videos of a dataset; ``out(task, subset)`` says to which list a video goes."""
        source, is_open = self.source(source_name) if source_name in SOURCES else (-1, False)
        for record in dataset:
            target = out(record.task, record.subset or "")
            if target is None or not record.labels:
                continue
            rows = record.ordered_steps
            texts = dataset.tasks[record.task].steps
            last = max(a.end_s for a in rows)
            # CrossTask does not say how long its videos are: a tail of a few seconds, fixed by the video's name
            duration = record.duration_s or last + 3.0 + 27.0 * _share(record.video)
            target.append(
                _Video(
                    [self.draft.add(texts[a.step], is_open) for a in rows],
                    [a.step for a in rows],
                    [a.start_s for a in rows],
                    [a.end_s for a in rows],
                    max(duration, last),
                    source,
                    self.task(f"{dataset.name}:{record.task}"),
                )
            )

    def from_wikihow(self, path: Path, share: float) -> None:
        source, is_open = self.source("wikihow")
        with gzip.open(path, "rt", encoding="utf-8") as stream:
            articles = json.load(stream)
        for article in articles:
            if _share(article["title"]) < share:
                steps = [self.draft.add(text, is_open) for text in article["steps"] if text.strip()]
                if len(steps) > 2:
                    self.train.append(_untimed(steps, source, self.task(f"wikihow:{article['title']}")))

    def from_phrases(self, path: Path) -> None:
        source, is_open = self.source("howto100m-phrases")
        for line in path.read_text("utf-8").splitlines():
            text = line.rsplit(",", 2)[0].strip()
            if text:
                self.fillers.append((self.draft.add(text, is_open), source))


def _nearest(vectors: torch.Tensor, open_texts: torch.Tensor, banned: torch.Tensor) -> torch.Tensor:
    """(V, NEIGHBOURS) nearest other texts, neither copies nor held out; open texts only for open texts."""
    out = torch.zeros(len(vectors), NEIGHBOURS, dtype=torch.int64)
    everything = torch.nonzero(~banned).squeeze(1)
    free = torch.nonzero(~banned & open_texts).squeeze(1)
    for is_open, pool in ((True, free), (False, everything)):
        rows = torch.nonzero(open_texts == is_open).squeeze(1)
        targets = vectors[pool]
        for part in torch.split(rows, 2048):
            similarity = vectors[part] @ targets.T
            similarity[similarity > 0.97] = -1.0
            best = similarity.topk(min(NEIGHBOURS, len(pool)), dim=1).indices
            picked = pool[best]
            out[part] = picked[:, torch.arange(NEIGHBOURS) % picked.shape[1]]
    return out


def build_world(
    encode: Encode,
    concepts: Sequence[str],
    data: str | Path | None = None,
    grammar_procedures: int = 6000,
    wikihow_share: float = 0.3,
    seed: int = 0,
) -> World:
    """Gathers texts, embeds them with ``encode`` (list of str -> unit (L, D)) and removes what must stay unseen.

    data: a folder laid out as ``crosstask/``, ``coin/``, ``youcook2/``, ``wikihow/``, ``procel/``; any may be missing.
    """
    builder = _Builder()
    root = Path(data) if data is not None else None
    if root is not None and not root.is_dir():
        raise InputError(f"the data folder {root} does not exist")
    crosstask = root / "crosstask" if root is not None else None
    coin = root / "coin" / "coin_annotations.json.gz" if root is not None else None
    has_test = crosstask is not None and crosstask.is_dir()
    has_dev = coin is not None and coin.is_file()
    builder.from_grammar(grammar_procedures, seed, test=not has_test, dev=not has_dev)
    if root is not None:
        if (root / "youcook2" / "yc2_train.json").is_file():
            builder.from_youcook2(root / "youcook2" / "yc2_train.json")
        if (root / "wikihow" / "procedures.json.gz").is_file():
            builder.from_wikihow(root / "wikihow" / "procedures.json.gz", wikihow_share)
        if (root / "howto100m_verb_phrases.txt").is_file():
            builder.from_phrases(root / "howto100m_verb_phrases.txt")
    if has_test and crosstask is not None:
        release = next(iter(sorted(crosstask.glob("*.tar.gz"))), crosstask)
        dataset = read_crosstask(release)
        validation = {"val", "validation"}
        builder.from_records(dataset, "", lambda _, subset: builder.test if subset in validation else None)
        source, is_open = builder.source("crosstask-related")
        for task in dataset.tasks.values():
            if task.group == "related":
                steps = [builder.draft.add(text, is_open) for text in task.steps]
                builder.train.append(_untimed(steps, source, builder.task(f"related:{task.id}")))
    if has_dev and coin is not None:

        def split(task: str, subset: str) -> list[_Video] | None:
            held_out = _share(task) < 0.2
            if held_out:
                return builder.dev if subset == "testing" else None
            return builder.train

        builder.from_records(read_coin(coin), "coin", split)
    procel = sorted((root / "procel").glob("*.json")) if root is not None else []
    for path in procel:
        builder.from_records(read_procel(path), "", lambda _task, _subset: builder.procel)
    return _finish(builder, encode, concepts, seed)


def _finish(builder: _Builder, encode: Encode, concepts: Sequence[str], seed: int) -> World:
    draft = builder.draft
    vectors = torch.from_numpy(np.ascontiguousarray(encode(draft.texts)))
    vectors = torch.nn.functional.normalize(vectors.float(), dim=-1)
    held_out = sorted({step for video in (*builder.dev, *builder.test, *builder.procel) for step in video.steps})
    closeness = torch.cat([(part @ vectors[held_out].T).amax(1) for part in torch.split(vectors, 4096)])
    banned = closeness > NEAR
    banned[held_out] = True
    kept = []
    for video in builder.train:
        keep = [i for i, step in enumerate(video.steps) if not banned[step]]
        if len(keep) >= 2:
            columns = (video.steps, video.kinds, video.starts, video.ends)
            steps, kinds, starts, ends = ([column[i] for i in keep] for column in columns)
            kept.append(_Video(steps, kinds, starts, ends, video.duration, video.source, video.task))  # type: ignore[arg-type]
    paraphrases = torch.full((len(draft.texts), PARAPHRASES), -1, dtype=torch.int64)
    for number, others in draft.paraphrases.items():
        allowed = [o for o in others if not banned[o]]
        if allowed:
            paraphrases[number] = torch.tensor([allowed[i % len(allowed)] for i in range(PARAPHRASES)])
    fillers = [(text, source) for text, source in builder.fillers if not banned[text]]
    removed = sum(len(v.steps) for v in builder.train) - sum(len(v.steps) for v in kept)

    def unit(texts: Sequence[str]) -> torch.Tensor:
        return torch.nn.functional.normalize(
            torch.from_numpy(np.ascontiguousarray(encode(list(texts)))).float(), dim=-1
        )

    names = {number: name for name, number in builder.tasks.items()}
    return World(
        vectors=vectors,
        neighbours=_nearest(vectors, torch.tensor(draft.text_open), banned),
        paraphrases=paraphrases,
        concepts=unit(concepts),
        stock=unit(STOCK_LOOKS),
        fillers=torch.tensor([text for text, _ in fillers], dtype=torch.int64),
        filler_sources=torch.tensor([source for _, source in fillers], dtype=torch.int64),
        train=_arrays(kept),
        dev=_arrays(builder.dev),
        test=_arrays(builder.test),
        extra={"procel": _arrays(builder.procel)} if builder.procel else {},
        texts=tuple(draft.texts),
        sources=tuple(builder.names),
        meta={
            "seed": seed,
            "licences": {name: licence for name, (licence, _) in SOURCES.items()},
            "removed_step_instances": removed,
            "task_names": [names[i] for i in range(len(names))],
            "videos": {
                "train": len(kept),
                "dev": len(builder.dev),
                "test": len(builder.test),
                "procel": len(builder.procel),
            },
        },
    )
