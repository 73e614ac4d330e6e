"""``stepformer bench world``: the simulated world of public datasets and real pictures, which tables are made on.

Who may learn from what, or choose by it:

- ``test``: CrossTask's 360 validation videos (18 primary tasks). ``calibration``: every fifth of the other annotated
  videos of these tasks. ``procel``: the videos of ProceL tasks that are there.
- ``coin_test``: COIN's test videos of half of its tasks. Nothing is chosen on them.
- ``dev``: COIN's test videos of a sixth of its tasks, for choosing options.
- ``train``: the rest.

:mod:`stepformer.data.world` says how texts are divided between them. Pictures are divided by what they belong to
(a video, a product); a picture closer than ``NEAR_PICTURE`` to one of a later split belongs to none.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from stepformer.base.arrays import unit
from stepformer.base.defaults import GRAMMAR_PROCEDURES
from stepformer.base.files import no_such
from stepformer.base.guard import load_arrays, read_json, read_text, reading
from stepformer.cli import simulate
from stepformer.cli.options import add, share
from stepformer.data import read_coin, read_crosstask, read_dataset, read_procel
from stepformer.data.records import Dataset
from stepformer.data.world import (
    OWNERS,
    SOURCES,
    Builder,
    Divided,
    Encode,
    Planned,
    World,
    closeness_to,
    owner_of,
    share_of,
    to_unit,
    untimed,
)  # fmt: skip
from stepformer.errors import InputError

HELP = """Makes a simulated world as stepformer simulate does, from a folder of public datasets as well as the grammar:
crosstask/, coin/, youcook2/, goalstep/, wikihow/, procel/ and clip/, vectors of real pictures by CLIP ViT-B/16 (frames
of cooking videos with the sentence of their step, captioned pictures, food in eleven states, groceries, ImageNet
samples). Any may be missing. The test split is CrossTask's validation set."""

EXAMPLES = ["stepformer bench world --data DATASETS --out world.safetensors"]

Vectors = npt.NDArray[np.float32]

NEAR_PICTURE = 0.95
_BACKGROUND_SHARE = 0.15
"""Share of the pictures that stand between steps."""

STATES = {
    "creamy_paste": "a creamy paste", "diced": "diced food", "floured": "food coated with flour",
    "grated": "grated food", "juiced": "juice in a glass", "jullienne": "food cut into thin strips",
    "mixed": "mixed food in a bowl", "other": "food in a kitchen", "peeled": "peeled food", "sliced": "sliced food",
    "whole": "whole food before it is cut",
}  # fmt: skip
PICTURES = {
    "youcook2": "frames of YouCook2 videos (YouCook2-Demo, no licence stated)",
    "f8k": "Flickr8k, for non-commercial research",
    "coco": "COCO, Creative Commons, by picture",
    "cooking-states": "Cooking State Recognition, no licence stated",
    "grocery": "GroceryStoreDataset, MIT",
    "imagenet": "ImageNet samples, for non-commercial research",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    simulate.add_arguments(parser)
    add(parser, "data", data={"required": True})
    parser.add_argument(
        "--wikihow-share", type=share, default=0.4, metavar="0..1", help="share of wikiHow articles taken"
    )
    parser.add_argument(
        "--timelines", type=Path, metavar="PATH", help="annotated videos of your own, one more dataset of the tables"
    )


def run(args: argparse.Namespace) -> int:
    """Gathers, embeds, divides and saves; prints what came of it."""

    def build(encode: Encode, *given: Any) -> World:
        return world_of(encode, args.data, args.wikihow_share, *given, timelines=args.timelines)

    return simulate.make(args, build)


@dataclass(frozen=True, slots=True)
class Pictures:
    """X pictures. ``group`` keeps together what must not be divided between splits (a video, a grocery class)."""

    vectors: Vectors  # (X, D) unit
    texts: tuple[str, ...]  # what each shows
    groups: tuple[str, ...]
    sources: tuple[str, ...]
    licences: Mapping[str, str]  # of each source

    def __post_init__(self) -> None:
        if not len(self.vectors) == len(self.texts) == len(self.groups) == len(self.sources):
            raise InputError("pictures need a vector, a text, a group and a source each")


class DatasetBuilder(Builder):
    """Gathers public datasets."""

    given: Pictures | None = None

    def take_pictures(self, given: Pictures) -> None:
        """Real pictures instead of imagined ones."""
        self.given, self._described = given, torch.tensor([self.add(text) for text in given.texts])

    def pictures(self, vectors: torch.Tensor, owner: torch.Tensor, is_step: torch.Tensor) -> Divided:
        """The given pictures; imagined ones where there are none. -1 owns what looks like one of a later owner."""
        if self.given is None:
            return super().pictures(vectors, owner, is_step)
        seen, groups = to_unit(self.given.vectors), self.given.groups
        if seen.shape[1] != vectors.shape[1]:
            raise InputError(
                f"the pictures are {seen.shape[1]} wide and the texts {vectors.shape[1]}: they are not of one space"
            )
        owners = torch.tensor([OWNERS.index(owner_of(group)) for group in groups])
        for number in reversed(range(1, len(OWNERS))):
            close = closeness_to(seen, seen[owners == number]) > NEAR_PICTURE
            owners[close & (owners < number)] = -1
        # of every source alike: what is background shows in what a picture has to do with the steps, not in its kind
        background = torch.tensor([share_of(f"background {group}") < _BACKGROUND_SHARE for group in groups])
        licences = {f"pictures {name}": self.given.licences[name] for name in sorted(set(self.given.sources))}
        return Divided(seen, self._described, owners, background, licences)

    def from_youcook2(self, path: Path) -> None:
        """Recipes with times; a video of a held-out owner only rewords."""
        source = self.names.index("youcook2")
        for name, entry in read_json(path).items():
            rows = sorted(zip(entry["timestamps"], entry["sentences"], strict=True))
            steps = [self.add(text) for _, text in rows]
            if owner_of(f"youcook2:{name.removeprefix('v_')}") != "train":
                self.spare += steps  # its frames, too, belong to a held-out owner
                continue
            timed = [(steps[i], i, float(start), float(end)) for i, ((start, end), _) in enumerate(rows)]
            task = self.task(f"youcook2:{name}")
            self.videos["train"].append(Planned(timed, float(entry["duration"]), source, task))

    def from_goalstep(self, path: Path) -> None:
        """Egocentric cooking videos; a step that is divided further gives its parts."""
        source = self.names.index("goalstep")
        for video in read_json(path):
            rows = [part for step in video["steps"] for part in (step[4] or [step[:3]])]
            rows = sorted((float(start), float(end), text) for start, end, text in rows if text.strip() and end > start)
            first = float(video["start_s"])
            if len(rows) > 2:
                self.videos["train"].append(
                    Planned(
                        [(self.add(text.rstrip(". ")), i, a - first, b - first) for i, (a, b, text) in enumerate(rows)],
                        float(video["end_s"]) - first,
                        source,
                        self.task(f"goalstep:{video['video']}"),
                    )
                )

    def from_records(self, dataset: Dataset, source_name: str, out: Callable[[str, str, str], str | None]) -> None:
        """Annotated videos of a dataset; ``out(task, subset, video)`` says to which split a video goes."""
        source = self.names.index(source_name) if source_name in SOURCES else -1
        for record in dataset:
            target = out(record.task, record.subset or "", record.video)
            if target is None or not record.labels:
                continue
            rows = record.ordered_steps
            texts = dataset.tasks[record.task].steps
            last = max(a.end_s for a in rows)
            # CrossTask does not say how long its videos are: a tail of a few seconds, fixed by the video's name
            duration = record.duration_s or last + 3.0 + 27.0 * share_of(record.video)
            self.videos[target].append(
                Planned(
                    [(self.add(texts[a.step]), a.step, a.start_s, a.end_s) for a in rows],
                    max(duration, last),
                    source,
                    self.task(f"{dataset.name}:{record.task}"),
                )
            )

    def from_wikihow(self, path: Path, share: float) -> None:
        """A share of the articles, without times."""
        source = self.names.index("wikihow")
        for article in read_json(path):
            if share_of(article["title"]) >= share:
                continue
            steps = [self.add(text) for text in article["steps"] if text.strip()]
            if owner_of(f"wikihow:{article['title']}") != "train":
                self.spare += steps
            elif len(steps) > 2:
                self.videos["train"].append(untimed(steps, source, self.task(f"wikihow:{article['title']}")))

    def from_phrases(self, path: Path) -> None:
        """Every second of the verb phrases, as passing ones."""
        source = self.names.index("howto100m-phrases")
        for line in read_text(path).splitlines()[::2]:
            text = line.rsplit(",", 2)[0].strip()
            if text:
                self.fillers.append((self.add(text), source))


def world_of(
    encode: Encode,
    data: str | Path,
    wikihow_share: float = 0.4,
    grammar_procedures: int = GRAMMAR_PROCEDURES,
    seed: int = 0,
    sentences: Encode | None = None,
    encoder: str = "",
    fingerprint: str = "",
    *,
    timelines: str | Path | None = None,
) -> World:
    """As :func:`stepformer.data.world.build_world`, with the datasets and pictures of a folder. timelines: any dataset
    that has a reader; its steps are held out as those of ``test`` are."""
    builder, root = DatasetBuilder(), Path(data)
    if not root.is_dir():
        raise no_such(root, "data folder")
    crosstask, coin = root / "crosstask", root / "coin" / "coin_annotations.json.gz"
    held_out = (() if crosstask.is_dir() else ("test",)) + (() if coin.is_file() else ("dev", "coin_test"))
    builder.from_grammar(grammar_procedures, seed, held_out)
    readers: tuple[tuple[str, Callable[[Path], None]], ...] = (
        ("youcook2/yc2_train.json", builder.from_youcook2),
        ("goalstep/goalstep_valid.json.gz", builder.from_goalstep),
        ("wikihow/procedures.json.gz", lambda path: builder.from_wikihow(path, wikihow_share)),
        ("howto100m_verb_phrases.txt", builder.from_phrases),
    )
    for name, read in readers:
        if (root / name).is_file():
            with reading(root / name, "dataset"):
                read(root / name)
    if crosstask.is_dir():
        _add_crosstask(builder, crosstask)
    if coin.is_file():
        builder.from_records(read_coin(coin), "coin", _coin_split)
    for path in sorted((root / "procel").glob("*.json")):
        builder.from_records(read_procel(path), "", lambda *_: "procel")
    if timelines is not None:
        builder.from_records(read_dataset(timelines), "", lambda *_: "timelines")
    if (root / "clip").is_dir():
        builder.take_pictures(read_pictures(root / "clip"))
    return builder.finish(encode, sentences, {"seed": seed, "encoder": encoder, "fingerprint": fingerprint})


def _add_crosstask(builder: DatasetBuilder, folder: Path) -> None:
    dataset = read_crosstask(next(iter(sorted(folder.glob("*.tar.gz"))), folder))

    def split(_: str, subset: str, video: str) -> str | None:
        if subset in {"val", "validation"}:
            return "test"
        return "calibration" if share_of(video) < 0.2 else None

    builder.from_records(dataset, "", split)
    source = builder.names.index("crosstask-related")
    for task in dataset.tasks.values():
        if task.group == "related":
            steps = [builder.add(text) for text in task.steps]
            builder.videos["train"].append(untimed(steps, source, builder.task(f"related:{task.id}")))


def _coin_split(task: str, subset: str, _: str) -> str | None:
    """Half of the tasks are coin_test's, a sixth are dev's: their test videos; all videos of the others are train's."""
    share = share_of(task)
    if share >= 2 / 3:
        return "train"
    return ("coin_test" if share < 0.5 else "dev") if subset == "testing" else None


def _unit(archive: Any) -> Vectors:
    """Vectors stored as int8 with one scale each, as unit float32."""
    return unit(archive["vec"].astype(np.float32) * archive["scale"][:, None])


def read_pictures(folder: str | Path) -> Pictures:
    """The pictures of a folder laid out as ``data/clip``."""
    folder = Path(folder)
    vectors: list[Vectors] = []
    rows: list[tuple[str, str, str]] = []  # text, group, source
    with reading(folder, "folder of pictures"):
        frames = load_arrays(folder / "youcook2_frames.npz")
        vectors.append(_unit(frames))
        rows += [(str(t), f"youcook2:{v}", "youcook2") for t, v in zip(frames["text"], frames["video"], strict=True)]
        captions = read_json(folder / "captions.json.gz")
        captioned = load_arrays(folder / "captioned_images.npz")
        vectors.append(_unit(captioned))
        rows += [(captions[name][0], name, name.partition("/")[0]) for name in map(str, captioned["name"])]
        labelled = load_arrays(folder / "labelled_images.npz")
        vectors.append(_unit(labelled))
        for name, label in zip(map(str, labelled["name"]), map(str, labelled["label"]), strict=True):
            source = name.partition("/")[0]
            source = source if source in PICTURES else "imagenet"
            # a product is photographed many times over: its class goes to one split whole
            rows.append((STATES.get(label, label), f"grocery:{label}" if source == "grocery" else name, source))
    texts, groups, sources = zip(*rows, strict=True)
    return Pictures(np.concatenate(vectors), texts, groups, sources, PICTURES)
