"""``stepformer bench tower``: trains the text tower of encoder ``clip`` (a minute on a GPU, an hour or more without).

The sentence encoder (MiniLM) gets a change of low rank in each layer; its sentence vectors go through a linear map and
a two-layer perceptron into the space of CLIP ViT-B/16, in which pictures and some true text vectors are given. Five
losses pull: captions to their pictures and step sentences to their frames among those of a batch; the three sentences
of a video to its three frames, among the six ways to pair them; true vectors by cosine, among those of a batch, and by
how they rank pictures. Several networks that begin alike and see their batches in other orders become one: their mean.
"""

from __future__ import annotations

import argparse
import copy
import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.clip_data import PARTS, ClipData, Floats, load
from benchmarks.sight import Interval, Sight, tower_row
from stepformer.base.progress import Progress
from stepformer.cli.options import add, set_fields
from stepformer.core.devices import torch_device
from stepformer.encoders.clip import ClipText, TextTower
from stepformer.encoders.sentence import SentenceEncoder
from stepformer.errors import UsageError, near

HELP = """Trains on parts 1 to 5 of the data and writes the tower; part 0 is left for stepformer bench sight. With
--folds, options are tried instead: trained on four of the five parts and measured on the fifth, in turn. --open leaves
out data for non-commercial use only, and data without a licence that allows more."""

EXAMPLES = [
    "stepformer bench tower --data DATASETS --out clip_text.safetensors",
    "stepformer bench tower --data DATASETS --folds FOLDER",
    "stepformer bench tower --data DATASETS --folds FOLDER --open --set steps=200",
]

OPEN = ("cocostuff_single", "cocostuff_multi", "context59_multi", "voc12_single")
"""Sources of true text vectors under the MIT licence; of pictures, only the groceries are."""
_ORDERS = torch.tensor(list(itertools.permutations(range(3))))


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a tower is trained. Weights of the losses, sizes of the batches, sizes of the network."""

    captions: float = 1.0
    frames: float = 0.3  # more, and the encoder memorises the few hundred videos
    orders: float = 0.5  # the three sentences of a video to its three frames
    true: float = 1.0
    cosine: float = 10.0
    ranks: float = 1.0
    caption_batch: int = 64
    video_batch: int = 48
    true_batch: int = 160
    picture_batch: int = 256
    seeds: int = 3
    hidden: int = 512
    rank: int = 16  # of the changes to the sentence encoder
    dropout: float = 0.1
    word_dropout: float = 0.1
    steps: int = 300
    rate: float = 1e-3
    encoder_rate: float = 2e-3
    decay: float = 1e-2
    order_temperature: float = 0.03


class Source:
    """The rows that may be trained on."""

    def __init__(self, data: ClipData, parts: Sequence[int], open_only: bool, device: str = "cpu") -> None:
        self.data, self.device = data, device
        self.videos = data.videos(*parts) if not open_only else np.zeros((0, 3), np.int64)
        self.captioned = data.captioned.of(*parts)
        true = data.true.of(*parts, 1)
        held = {data.true.texts[row][0] for row in data.coin if data.true.parts[row] not in parts}
        self.true = np.array([row for row in true if data.true.texts[row][0] not in held])
        self.labelled = np.arange(len(data.labelled.names))
        if open_only:
            self.captioned = self.captioned[:0]
            self.true = np.array([row for row in self.true if data.true.names[row] in OPEN])
            self.labelled = np.array([i for i, name in enumerate(data.labelled.names) if name.startswith("grocery/")])
        self.pictures = self.vectors_of(
            data.captioned.pictures[self.captioned],
            data.labelled.pictures[self.labelled],
            data.frames.pictures[self.videos.ravel()],
        )

    def vectors_of(self, *some: Floats) -> Tensor:
        """Arrays (n, D) as one tensor where training happens."""
        return torch.from_numpy(np.concatenate(some)).to(self.device)


class LowRank(nn.Module):
    """What is added to a weight (out, in): up (out, r) times down (r, in), nothing at first."""

    def __init__(self, weight: Tensor, rank: int) -> None:
        super().__init__()
        self.up = nn.Parameter(torch.zeros(len(weight), rank))
        self.down = nn.Parameter(torch.randn(rank, weight.shape[1]) / weight.shape[1] ** 0.5)

    def forward(self, weight: Tensor) -> Tensor:
        """(out, in) -> (out, in)."""
        return weight + self.up @ self.down


class Reader(nn.Module):
    """The sentence encoder with a change of low rank in each of its layers, and with words left out in training."""

    def __init__(self, encoder: SentenceEncoder, recipe: Recipe) -> None:
        super().__init__()
        self.bert, self._tokenize = copy.deepcopy(encoder._bert).cpu().requires_grad_(False), encoder._tokenize
        self._drop = recipe.word_dropout
        self.changed = {
            name: layer for name, layer in self.bert.named_modules()
            if isinstance(layer, nn.Linear) and name.startswith("encoder")
        }  # fmt: skip
        for layer in self.changed.values():
            nn.utils.parametrize.register_parametrization(layer, "weight", LowRank(layer.weight, recipe.rank))

    def forward(self, texts: Sequence[str]) -> Tensor:
        """Texts to (L, 384)."""
        device = self.bert.embeddings.word_embeddings.weight.device
        rows, ids, mask = next(self._tokenize.batches(texts, 48, len(texts)))
        kept = mask & (torch.rand(mask.shape) >= self._drop)
        kept[:, 0] = True
        hidden = self.bert(ids.to(device), kept.to(device))  # (L, T, 384)
        weight = kept.to(device).unsqueeze(-1).float()
        mean = nn.functional.normalize((hidden * weight).sum(1) / weight.sum(1), dim=-1)
        return mean[torch.tensor(rows).argsort().to(device)]

    def changes(self) -> dict[str, Tensor]:
        """``NAME.up`` and ``NAME.down`` of every changed layer."""
        found: dict[str, Tensor] = {}
        for name, layer in self.changed.items():
            for key, value in cast(Any, layer).parametrizations.weight[0].named_parameters():
                found[f"{name}.{key}"] = value.detach()
        return found


def _contrast(ours: Tensor, theirs: Tensor, scale: Tensor) -> Tensor:
    """Each of ``ours`` (n, D) to its own of ``theirs`` (n, D) among all of the batch, and back."""
    logits = ours @ theirs.T * scale.exp().clamp(max=100.0)
    own = torch.arange(len(ours), device=ours.device)
    return (nn.functional.cross_entropy(logits, own) + nn.functional.cross_entropy(logits.T, own)) / 2


def _start(tower: TextTower, source: Source, encoder: SentenceEncoder) -> None:
    """The linear map that least squares give on the true vectors."""
    x = torch.from_numpy(encoder.encode_text([source.data.true.texts[row][0] for row in source.true]))
    x = torch.cat([x, torch.ones(len(x), 1)], 1)
    y = torch.from_numpy(source.data.true.pictures[source.true])
    solved = torch.linalg.solve(x.T @ x + torch.eye(x.shape[1]), x.T @ y)  # (385, 512)
    with torch.no_grad():
        tower.linear.weight.copy_(solved[:-1].T)
        tower.linear.bias.copy_(solved[-1])


def _train_one(source: Source, recipe: Recipe, tower: TextTower, reader: Reader, seed: int) -> None:
    """Trains both with the batches of ``seed``."""
    torch.manual_seed(seed)
    random = np.random.default_rng(seed)
    data, device = source.data, source.device
    scale = nn.Parameter(torch.tensor(np.log(1 / 0.03), dtype=torch.float32, device=device))
    groups: list[dict[str, Any]] = [
        {"params": tower.parameters()},
        {"params": [value for value in reader.parameters() if value.requires_grad], "lr": recipe.encoder_rate},
        {"params": [scale], "weight_decay": 0.0},
    ]
    optimiser = torch.optim.AdamW(groups, lr=recipe.rate, betas=(0.9, 0.98), weight_decay=recipe.decay)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, [group["lr"] for group in optimiser.param_groups], recipe.steps, pct_start=0.05,
        cycle_momentum=False, div_factor=20, final_div_factor=1e3,
    )  # fmt: skip
    orders_of = _ORDERS.to(device)
    for _ in range(recipe.steps):
        shown = random.choice(source.captioned, recipe.caption_batch) if len(source.captioned) else source.captioned
        spoken = [str(random.choice(data.captioned.texts[row])) for row in shown]
        true = random.choice(source.true, recipe.true_batch)
        count = min(recipe.video_batch, len(source.videos))
        frames = source.videos[random.choice(len(source.videos), count, replace=False)].ravel() if count else true[:0]
        texts = spoken + [data.true.texts[row][0] for row in true] + [data.frames.texts[row][0] for row in frames]
        x = nn.functional.dropout(reader(texts), recipe.dropout)
        captions, known, steps = tower(x).split([len(shown), len(true), len(frames)])
        target = source.vectors_of(data.true.pictures[true])
        loss = recipe.true * _contrast(known, target, scale)
        loss = loss + recipe.cosine * (1 - (known * target).sum(-1)).mean()
        drawn = torch.from_numpy(random.choice(len(source.pictures), recipe.picture_batch)).to(device)
        pictures = source.pictures[drawn]
        theirs = nn.functional.log_softmax(100 * target @ pictures.T, -1)
        ours = nn.functional.log_softmax(100 * known @ pictures.T, -1)
        loss = loss + recipe.ranks * (theirs.exp() * (theirs - ours)).sum(-1).mean()
        if len(shown):
            looks = source.vectors_of(data.captioned.pictures[shown])
            loss = loss + recipe.captions * _contrast(captions, looks, scale)
        if len(frames):
            looks = source.vectors_of(data.frames.pictures[frames])
            loss = loss + recipe.frames * _contrast(steps, looks, scale)
            similar = torch.bmm(steps.view(count, 3, -1), looks.view(count, 3, -1).mT) / recipe.order_temperature
            orders = similar[:, torch.arange(3, device=device), orders_of].sum(-1)  # (videos, 6), the right one first
            right = torch.zeros(count, dtype=torch.long, device=device)
            loss = loss + recipe.orders * nn.functional.cross_entropy(orders, right)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()


def train(source: Source, recipe: Recipe, encoder: SentenceEncoder) -> dict[str, Tensor]:
    """The mean of all networks of a recipe, as the state that is shipped."""
    found: list[dict[str, Tensor]] = []
    with Progress("training", recipe.seeds, "networks", quiet=False) as progress:
        for seed in range(recipe.seeds):
            torch.manual_seed(0)  # only networks that begin alike have a mean
            tower, reader = TextTower(hidden=recipe.hidden), Reader(encoder, recipe)
            _start(tower, source, encoder)
            _train_one(source, recipe, tower.to(source.device), reader.to(source.device), seed)
            found.append({**tower.state_dict(), **reader.changes()})
            progress.advance()
    return {key: torch.stack([one[key] for one in found]).mean(0).cpu() for key in found[0]}


def by_folds(
    data: ClipData, recipe: Recipe, open_only: bool, encoder: SentenceEncoder, towers: Path
) -> dict[str, list[float]]:
    """Each of parts 1 to 5 measured by a tower that was not trained on it: one list per number, a value per fold.
    The towers are kept in the folder ``towers``, and not trained again where they are."""
    found: dict[str, list[float]] = {}
    for fold in range(1, PARTS):
        path = fold_file(towers, fold)
        if not path.is_file():
            train_to(path, data, recipe, fold, open_only, encoder)
        row: Sight = tower_row("", ClipText(path, sentences=encoder).encode_text, data, [fold])
        for name in ("greedy", "matched", "recall_1", "cosine", "own_first", "correlation"):
            value: Interval = getattr(row, name)
            found.setdefault(name, []).append(value[0])
    return found


def fold_file(towers: Path, fold: int) -> Path:
    """Where the tower lies that was not trained on part ``fold``."""
    return towers / f"fold{fold}.safetensors"


def train_to(
    path: Path, data: ClipData, recipe: Recipe, held_out: int, open_only: bool, encoder: SentenceEncoder
) -> dict[str, int]:
    """Trains on parts 1 to 5 but ``held_out`` (0: all five), writes the tower; how much it was trained on."""
    source = Source(data, [part for part in range(1, PARTS) if part != held_out], open_only, encoder.device)
    counts = {"videos": len(source.videos), "captioned": len(source.captioned), "true": len(source.true)}
    facts = {"trained_on": counts, "command": "stepformer bench tower", "open": open_only, "held_out": held_out}
    save(train(source, recipe, encoder), path, facts)
    return counts


def save(state: dict[str, Tensor], path: Path, facts: dict[str, Any]) -> None:
    """Writes a tower in 16 bits, with what it was trained on."""
    from safetensors.torch import save_file

    from stepformer.base.files import replacing

    with replacing(path) as temporary:
        half = {key: value.half().contiguous() for key, value in state.items()}
        save_file(half, temporary, {"stepformer": json.dumps(facts)})


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    add(parser, "data", "out", "set", "device", data={"required": True})
    parser.add_argument(
        "--folds", type=Path, metavar="FOLDER",
        help="measure the recipe on parts 1 to 5 in turn instead, and keep the five towers here",
    )  # fmt: skip
    parser.add_argument("--open", action="store_true", help="leave out what is for non-commercial use")


def run(args: argparse.Namespace) -> int:
    """Trains, and writes or measures."""
    if (args.out is None) == (args.folds is None):
        raise UsageError("give --out FILE, or --folds FOLDER")
    given, known = set_fields(args.set), [field.name for field in fields(Recipe)]
    if unknown := set(given) - set(known):
        raise UsageError(f"--set: a recipe has no field {near(unknown.pop(), known)}")
    recipe = Recipe(**given)
    data = load(Path(args.data))
    encoder = SentenceEncoder(device=str(torch_device(args.device)))
    if args.folds is not None:
        found = by_folds(data, recipe, args.open, encoder, args.folds)
        if args.json:
            print(json.dumps(found, indent=2))
        else:
            for name, values in found.items():
                print(f"{name:12} {np.mean(values):.3f}  folds {np.min(values):.3f} to {np.max(values):.3f}")
        return 0
    counts = train_to(Path(args.out), data, recipe, 0, args.open, encoder)
    print(json.dumps({"out": str(args.out), **counts}) if args.json else f"wrote {args.out}: {counts}")
    return 0
