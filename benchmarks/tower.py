"""``stepformer bench tower``: trains the text tower of encoder ``clip`` (on two CPU cores in a few minutes).

Sentence vectors (MiniLM, frozen) go through a linear map and a two-layer perceptron into the space of CLIP ViT-B/16,
in which pictures and some true text vectors are given. Five losses pull: captions to their pictures and step
sentences to their frames among those of a batch; the three sentences of a video to its three frames, among the six
ways to pair them; true vectors by cosine, among those of a batch, and by how they rank pictures. Several networks
from several seeds become one by laying their hidden layers side by side, which is exactly the mean of their outputs.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.clip_data import PARTS, ClipData, Floats, load
from benchmarks.sight import Interval, Sight, tower_row
from stepformer.base.progress import Progress
from stepformer.cli.options import add, positive, set_fields
from stepformer.encoders.clip import TextTower
from stepformer.errors import UsageError, near

HELP = """Trains on parts 1 to 5 of the data and writes the tower; part 0 is left for stepformer bench sight. With
--folds, options are tried instead: trained on four of the five parts and measured on the fifth, in turn. --open leaves
out what is for non-commercial use, or states no licence that allows more."""

EXAMPLES = [
    "stepformer bench tower --data DATASETS --out clip_text.safetensors",
    "stepformer bench tower --data DATASETS --folds",
    "stepformer bench tower --data DATASETS --folds --open --set steps=200",
]

OPEN = ("cocostuff_single", "cocostuff_multi", "context59_multi", "voc12_single")
"""Sources of true text vectors under the MIT licence; of pictures, only the groceries are."""
_ORDERS = torch.tensor(list(itertools.permutations(range(3))))


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a tower is trained. Weights of the losses, sizes of the batches, sizes of the network."""

    captions: float = 1.0
    frames: float = 1.0
    orders: float = 3.0  # the three sentences of a video to its three frames
    true: float = 1.0
    cosine: float = 10.0
    ranks: float = 1.0
    caption_batch: int = 64
    video_batch: int = 48
    true_batch: int = 160
    picture_batch: int = 256
    seeds: int = 4
    hidden: int = 384  # per seed
    dropout: float = 0.1
    steps: int = 300
    rate: float = 1e-3
    decay: float = 1e-2
    order_temperature: float = 0.03


class Source:
    """The sentence vectors of every text, and the rows that may be trained on."""

    def __init__(self, data: ClipData, vectors: dict[str, Floats], parts: Sequence[int], open_only: bool) -> None:
        self.data = data
        self.videos = data.videos(*parts) if not open_only else np.zeros((0, 3), np.int64)
        # choosing looks at captions of part 1, whatever the fold
        self.captioned = data.captioned.of(*(parts if len(parts) == PARTS - 1 else set(parts) - {1}))
        true = data.true.of(*parts, 1)
        held = {data.true.texts[row][0] for row in data.coin if data.true.parts[row] not in parts}
        self.true = np.array([row for row in true if data.true.texts[row][0] not in held])
        self.labelled = np.arange(len(data.labelled.names))
        if open_only:
            self.captioned = self.captioned[:0]
            self.true = np.array([row for row in self.true if data.true.names[row] in OPEN])
            self.labelled = np.array([i for i, name in enumerate(data.labelled.names) if name.startswith("grocery/")])
        self.pictures = torch.from_numpy(
            np.concatenate(
                [
                    data.captioned.pictures[self.captioned],
                    data.labelled.pictures[self.labelled],
                    data.frames.pictures[self.videos.ravel()],
                ]
            )
        )
        self._vectors = vectors

    def sentences(self, texts: Sequence[str]) -> Tensor:
        """(L, 384)."""
        return torch.from_numpy(np.stack([self._vectors[text] for text in texts]))


def _contrast(ours: Tensor, theirs: Tensor, scale: Tensor) -> Tensor:
    """Each of ``ours`` (n, D) to its own of ``theirs`` (n, D) among all of the batch, and back."""
    logits = ours @ theirs.T * scale.exp().clamp(max=100.0)
    own = torch.arange(len(ours))
    return (nn.functional.cross_entropy(logits, own) + nn.functional.cross_entropy(logits.T, own)) / 2


def _start(tower: TextTower, source: Source) -> None:
    """The linear map that least squares give on the true vectors."""
    x = source.sentences([source.data.true.texts[row][0] for row in source.true])
    x = torch.cat([x, torch.ones(len(x), 1)], 1)
    y = torch.from_numpy(source.data.true.pictures[source.true])
    solved = torch.linalg.solve(x.T @ x + torch.eye(x.shape[1]), x.T @ y)  # (385, 512)
    with torch.no_grad():
        tower.linear.weight.copy_(solved[:-1].T)
        tower.linear.bias.copy_(solved[-1])


def train_one(source: Source, recipe: Recipe, seed: int) -> TextTower:
    """One network."""
    torch.manual_seed(seed)
    random = np.random.default_rng(seed)
    data = source.data
    tower = TextTower(hidden=recipe.hidden)
    _start(tower, source)
    scale = nn.Parameter(torch.tensor(np.log(1 / 0.03), dtype=torch.float32))
    groups: list[dict[str, Any]] = [{"params": tower.parameters()}, {"params": [scale], "weight_decay": 0.0}]
    optimiser = torch.optim.AdamW(
        groups,
        lr=recipe.rate, betas=(0.9, 0.98), weight_decay=recipe.decay,
    )  # fmt: skip
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, recipe.rate, recipe.steps, pct_start=0.05, cycle_momentum=False, div_factor=20, final_div_factor=1e3
    )
    for _ in range(recipe.steps):
        shown = random.choice(source.captioned, recipe.caption_batch) if len(source.captioned) else source.captioned
        spoken = [str(random.choice(data.captioned.texts[row])) for row in shown]
        true = random.choice(source.true, recipe.true_batch)
        count = min(recipe.video_batch, len(source.videos))
        frames = source.videos[random.choice(len(source.videos), count, replace=False)].ravel() if count else true[:0]
        texts = spoken + [data.true.texts[row][0] for row in true] + [data.frames.texts[row][0] for row in frames]
        x = nn.functional.dropout(source.sentences(texts), recipe.dropout)
        captions, known, steps = tower(x).split([len(shown), len(true), len(frames)])
        target = torch.from_numpy(data.true.pictures[true])
        loss = recipe.true * _contrast(known, target, scale)
        loss = loss + recipe.cosine * (1 - (known * target).sum(-1)).mean()
        pictures = source.pictures[torch.from_numpy(random.choice(len(source.pictures), recipe.picture_batch))]
        theirs = nn.functional.log_softmax(100 * target @ pictures.T, -1)
        ours = nn.functional.log_softmax(100 * known @ pictures.T, -1)
        loss = loss + recipe.ranks * (theirs.exp() * (theirs - ours)).sum(-1).mean()
        if len(shown):
            loss = loss + recipe.captions * _contrast(captions, torch.from_numpy(data.captioned.pictures[shown]), scale)
        if len(frames):
            looks = torch.from_numpy(data.frames.pictures[frames])
            loss = loss + recipe.frames * _contrast(steps, looks, scale)
            similar = torch.bmm(steps.view(count, 3, -1), looks.view(count, 3, -1).mT) / recipe.order_temperature
            orders = similar[:, torch.arange(3), _ORDERS].sum(-1)  # (videos, 6), the right one first
            loss = loss + recipe.orders * nn.functional.cross_entropy(orders, torch.zeros(count, dtype=torch.long))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    return tower.eval()


@torch.no_grad()
def side_by_side(towers: Sequence[TextTower], sample: Tensor) -> TextTower:
    """One network whose output is the mean of several's, each scaled to like length over ``sample`` (L, 384)."""
    one = TextTower(hidden=sum(tower.widen.out_features for tower in towers))
    shares = []
    for tower in towers:
        length = (tower.linear(sample) + tower.narrow(nn.functional.gelu(tower.widen(sample)))).norm(dim=-1).mean()
        shares.append(1 / (length * len(towers)))
    one.linear.weight.copy_(sum(share * tower.linear.weight for share, tower in zip(shares, towers, strict=True)))
    one.linear.bias.copy_(
        sum(share * (tower.linear.bias + tower.narrow.bias) for share, tower in zip(shares, towers, strict=True))
    )
    one.widen.weight.copy_(torch.cat([tower.widen.weight for tower in towers]))
    one.widen.bias.copy_(torch.cat([tower.widen.bias for tower in towers]))
    narrow = [share * tower.narrow.weight for share, tower in zip(shares, towers, strict=True)]
    one.narrow.weight.copy_(torch.cat(narrow, 1))
    return one.eval()


def train(source: Source, recipe: Recipe, first_seed: int = 0) -> TextTower:
    """All networks of a recipe, as one."""
    towers = []
    with Progress("training", recipe.seeds, "networks", quiet=False) as progress:
        for seed in range(first_seed, first_seed + recipe.seeds):
            towers.append(train_one(source, recipe, seed))
            progress.advance()
    sample = source.sentences([source.data.true.texts[row][0] for row in source.true])
    return side_by_side(towers, sample)


def sentence_vectors(data: ClipData, cache: Path | None) -> dict[str, Floats]:
    """Every text of the data to its MiniLM vector; kept in ``cache`` (.npz), for they take minutes."""
    from stepformer.base.files import replacing
    from stepformer.encoders.sentence import default_sentence_encoder

    pairs = (data.frames, data.captioned, data.true)
    texts = list(dict.fromkeys(text for pair in pairs for some in pair.texts for text in some))
    known: dict[str, Floats] = {}
    if cache is not None and cache.is_file():
        kept = np.load(cache, allow_pickle=False)
        known = dict(zip(kept["texts"].tolist(), kept["vectors"], strict=True))
    missing = [text for text in texts if text not in known]
    with Progress("sentence vectors", len(missing), "texts", quiet=not missing) as progress:
        for start in range(0, len(missing), 1024):
            some = missing[start : start + 1024]
            known.update(zip(some, default_sentence_encoder().encode_text(some), strict=True))
            progress.advance(len(some))
    if cache is not None and missing:
        with replacing(cache) as temporary, temporary.open("wb") as stream:
            np.savez(stream, texts=np.array(texts), vectors=np.stack([known[text] for text in texts]))
    return known


def by_folds(
    data: ClipData, vectors: dict[str, Floats], recipe: Recipe, open_only: bool, repeats: int
) -> dict[str, list[float]]:
    """Each of parts 1 to 5 measured by towers that were not trained on it: one list per number, a value per fold."""
    found: dict[str, list[float]] = {}
    for repeat, fold in itertools.product(range(repeats), range(1, PARTS)):
        source = Source(data, vectors, [part for part in range(1, PARTS) if part != fold], open_only)
        tower = train(source, recipe, first_seed=100 * repeat)

        @torch.inference_mode()
        def encode(texts: Sequence[str], tower: TextTower = tower, source: Source = source) -> Floats:
            return np.asarray(tower(source.sentences(texts)).numpy())

        row: Sight = tower_row("", encode, data, [fold])
        for name in ("greedy", "matched", "recall_1", "cosine", "own_first", "correlation"):
            value: Interval = getattr(row, name)
            found.setdefault(name, []).append(value[0])
    return found


def save(tower: TextTower, path: Path, facts: dict[str, Any]) -> None:
    """Writes the tower in 16 bits, with what it was trained on."""
    from safetensors.torch import save_file

    from stepformer.base.files import replacing

    state = {key: value.half().contiguous() for key, value in tower.state_dict().items()}
    with replacing(path) as temporary:
        save_file(state, temporary, {"stepformer": json.dumps(facts)})


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    add(parser, "data", "out", "set", data={"required": True})
    parser.add_argument("--folds", action="store_true", help="measure the recipe on parts 1 to 5 in turn instead")
    parser.add_argument("--runs", type=positive, default=1, metavar="N", help="times every fold is trained")
    parser.add_argument("--open", action="store_true", help="leave out what is for non-commercial use")
    parser.add_argument("--keep-vectors", type=Path, metavar="FILE", help="keep the sentence vectors here (.npz)")


def run(args: argparse.Namespace) -> int:
    """Trains, and writes or measures."""
    if (args.out is None) != args.folds:
        raise UsageError("give --out FILE, or --folds")
    given, known = set_fields(args.set), [field.name for field in fields(Recipe)]
    if unknown := set(given) - set(known):
        raise UsageError(f"--set: a recipe has no field {near(unknown.pop(), known)}")
    recipe = Recipe(**given)
    data = load(Path(args.data))
    vectors = sentence_vectors(data, args.keep_vectors)
    if args.folds:
        found = by_folds(data, vectors, recipe, args.open, args.runs)
        if args.json:
            print(json.dumps(found, indent=2))
        else:
            for name, values in found.items():
                print(f"{name:12} {np.mean(values):.3f}  folds {np.min(values):.3f} to {np.max(values):.3f}")
        return 0
    source = Source(data, vectors, range(1, PARTS), args.open)
    tower = train(source, recipe)
    counts = {"videos": len(source.videos), "captioned": len(source.captioned), "true": len(source.true)}
    save(tower, Path(args.out), {"trained_on": counts, "command": "stepformer bench tower", "open": args.open})
    print(json.dumps({"out": str(args.out), **counts}) if args.json else f"wrote {args.out}: {counts}")
    return 0
