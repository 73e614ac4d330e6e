"""Shen, Wang and Elhamifar, "Learning to segment actions from visual and language instructions via differentiable weak
sequence alignment" (CVPR 2021).

1. One linear layer per modality (started as the identity) maps frames and verb phrases to unit vectors; the relative
   time is appended.
2. *Soft ordered prototype learning*: a few rounds of soft K-means over the frames of a batch of videos, differentiable
   to the end, give K prototypes, ordered by their time coordinate; likewise K + 10 over the phrases.
3. The prototypes of both sides are aligned by DWSA (:func:`dwsa_loss`), whose soft cost is the loss.
4. To segment, the learned frame vectors (with time) of a task's videos go through K-means, and the 40% of each cluster
   that lie farthest from its centre become background.

Defaults are those of the authors' code. With ``max_updates`` training goes on after its epochs until the loss stops
improving, for which 30 updates on a task of 20 videos are too few. A frame here is what the features have, mostly one
per second; theirs are clips of 3.2 s.

"weak" learns the two layers task by task with K = the task's number of steps. "unsupervised" learns one pair on batches
drawn from all videos, with K = the mean number of steps (the paper merges all tasks into one).

For zero-shot localisation the prototypes of one video alone are its slots, and step texts and frames must go through
the learned layers too: :meth:`FittedShen.texts`, :meth:`FittedShen.frames`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from stepformer.core.devices import one_thread
from stepformer.core.model import ModelConfig
from stepformer.errors import InputError
from stepformer.evaluation.baselines import (
    Baseline,
    Curve,
    FeatureVideo,
    Fitted,
    FloatArray,
    Given,
    IntArray,
    divided,
)
from stepformer.evaluation.kmeans import KEEP, keep_nearest, kmeans

_NEVER = 1e6  # the cost of a column that there is not; all costs together are less than the number of rows
_POINTS = 1 << 18  # frames, of models that learn side by side


@dataclass(frozen=True, slots=True)
class Shen(Baseline["FittedShen"]):
    """Options of the method; ``slots`` is the number of prototypes of one video in zero-shot localisation."""

    rounds: int = 5  # of soft K-means
    softness: float = 1e-3  # β and γ
    empty_cost: float = 1.0
    time_weight: float = 1.0  # of squared time distance against squared feature distance
    extra_narration: int = 10  # prototypes of speech that is about no step
    epochs: int = 30
    max_updates: int = 0  # beyond the epochs: until the loss stops improving, up to this number of updates
    batch: int = 30  # videos
    learning_rate: float = 5e-4
    weight_decay: float = 0.02
    keep: float = KEEP
    slots: int = ModelConfig().slots
    name = "shen"
    settings = ("weak", "unsupervised")

    def train(self, videos: Sequence[FeatureVideo], given: Given) -> FittedShen:
        """Learns the two linear layers: a pair per task, or one pair for all."""
        groups = []
        for name, members in given.groups(videos).items():
            narrated = [v for v in members if v.phrase_vectors is not None and len(v.phrase_vectors)]
            if not narrated:
                whose = "the videos" if name is None else f"the videos of task {name!r}"
                raise InputError(f"shen learns from narration, and none of {whose} has phrases")
            tasks = {v.task for v in members}
            k = max(2, round(float(np.mean([given.steps(task) for task in sorted(tasks)]))))
            groups.append(Group(name, narrated, k))
        models, curves = train_layers(groups, self, given.seed, given.device)
        return FittedShen(self, given, models, curves)


@dataclass(frozen=True, slots=True)
class Group:
    """What one pair of layers is learned on: videos with narration, and the number of prototypes of their frames."""

    name: str | None
    videos: Sequence[FeatureVideo]
    k: int


class TwoLayers(nn.Module):
    """A linear layer for frames and one for phrases, both the identity at the start; ``models`` such pairs."""

    def __init__(self, width: int, models: int = 1) -> None:
        super().__init__()
        self.visual, self.text = (nn.Parameter(torch.eye(width).repeat(models, 1, 1)) for _ in range(2))
        self.visual_bias, self.text_bias = (nn.Parameter(torch.zeros(models, 1, width)) for _ in range(2))

    def embed(self, vectors: Tensor, modality: str) -> Tensor:
        """(models, n, D) -> (models, n, D) unit vectors of "visual" or "text"; (n, D) of a single pair."""
        weight, bias = getattr(self, modality), getattr(self, f"{modality}_bias")
        given = vectors.reshape(len(weight), -1, vectors.shape[-1])
        return nn.functional.normalize(torch.baddbmm(bias, given, weight.mT), dim=-1).view(vectors.shape)

    def one(self, model: int) -> TwoLayers:
        """A copy of one pair."""
        out = TwoLayers(self.visual.shape[-1]).to(self.visual.device)
        out.load_state_dict({name: value[model : model + 1] for name, value in self.state_dict().items()})
        return out.eval()


class Points(NamedTuple):
    """Points of several models: ``vectors`` (T, n, D), their scaled ``times`` (T, n), and which of them there are."""

    vectors: Tensor
    times: Tensor
    seen: Tensor  # (T, n)


def ordered_prototypes(
    points: Tensor, seen: Tensor, k: Tensor, rounds: int, softness: float, draws: Tensor
) -> tuple[Tensor, Tensor]:
    """Soft K-means of points (T, n, D + 1), the last coordinate being time: (T, K, D + 1) centres in order of time.

    seen (T, n): which points there are, the first at least; k (T,) centres of each, at most as many as points; draws
    (T, K) uniform in [0, 1) for the k-means++ start, through which no gradient flows. The second result (T,) is how
    many of the K centres count. Each round gives every point a softmax over minus squared distances / softness, and
    every centre the weighted mean; all of it is differentiable in the points.
    """
    count = torch.minimum(k, seen.sum(1))
    counted = torch.arange(draws.shape[1], device=points.device) < count[:, None]  # (T, K)
    centers = _starts(points.detach(), seen, draws)
    for _ in range(rounds):
        # |x|² is the same for all centres of a point, so that softmax does not need it
        distances = centers.square().sum(2)[:, None] - 2 * (points @ centers.mT)  # (T, n, K)
        weights = (-distances / softness).masked_fill(~counted[:, None], -torch.inf).softmax(2) * seen[..., None]
        centers = (weights.mT @ points) / (weights.sum(1)[..., None] + 1e-10)
    order = centers[..., -1].detach().masked_fill(~counted, torch.inf).argsort(1)
    return centers.gather(1, order[..., None].expand_as(centers)), count


def _starts(points: Tensor, seen: Tensor, draws: Tensor) -> Tensor:
    """k-means++: each next centre is drawn with probability ~ squared distance to the nearest; (T, K, D + 1)."""
    squares = points.square().sum(2)
    near = seen.double()
    every = torch.arange(len(points), device=points.device)
    centers = []
    for j in range(draws.shape[1]):
        upto = near.cumsum(1)
        chosen = torch.searchsorted(upto, draws[:, j : j + 1].double() * upto[:, -1:], right=True)[:, 0]
        # where all points coincide with a centre, any will do
        chosen = chosen.where(upto[:, -1] > 0, 0).clamp(max=points.shape[1] - 1)
        centers.append(points[every, chosen])
        away = squares - 2 * (points @ centers[-1][..., None])[..., 0] + squares[every, chosen][:, None]  # (T, n)
        away = away.double().clamp(min=0).masked_fill(~seen, 0)
        near = (torch.minimum(near, away) if j else away).scatter(1, chosen[:, None], 0)  # exactly, against rounding
    return torch.stack(centers, 1)


def with_empty_slots(costs: Tensor, empty_cost: float) -> Tensor:
    """costs (..., M, N) -> (..., M, 2N + 1): a column of ``empty_cost`` before, between and after the given ones."""
    n = costs.shape[-1]
    out = costs.new_full((*costs.shape[:-1], 2 * n + 1), empty_cost)
    columns = torch.arange(n, device=costs.device) * 2 + 1
    return out.index_copy(-1, columns, costs)


def soft_alignment_cost(expanded: Tensor, gamma: float, rows: Tensor | None = None) -> Tensor:
    """Soft minimum of the total cost over all weak alignments: expanded (..., M, 2N + 1) costs -> (...).

    Even columns are empty slots, odd ones narration; the first ``rows`` (...) count, all without. Row by row

        D[1, c] = C[1, c]        D[i, c] = C[i, c] + softmin over allowed c' of D[i - 1, c']

    where the soft minimum over all columns up to c is a running logsumexp, so that there is no loop over cells.
    """
    columns = expanded.shape[-1]
    narration = torch.arange(columns, device=expanded.device) % 2 == 1
    scores = -expanded[..., 0, :] / gamma  # minus the totals so far, over γ
    for i in range(1, expanded.shape[-2]):
        upto = scores.logcumsumexp(-1)  # over columns <= c
        before = nn.functional.pad(upto[..., :-1], (1, 0), value=-torch.inf)  # over columns < c
        longer = torch.where(narration, before, upto) - expanded[..., i, :] / gamma
        scores = longer if rows is None else torch.where((i < rows)[..., None], longer, scores)
    return -gamma * scores.logsumexp(-1)


def dwsa_loss(
    visual: Tensor, narration: Tensor, gamma: float = 1e-3, empty_cost: float = 1.0, rows: Tensor | None = None,
    columns: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Differentiable weak sequence alignment of prototypes in time order, (..., M, D) and (..., N, D): cosine distance.

    Every visual prototype is given either a narration prototype or one of the N + 1 *empty slots* that stand before,
    between and after them, because not every step is spoken; narration that nothing was given to costs nothing, because
    not all speech is about steps. The order is kept: the next prototype's column is the same one or a later one where
    it is empty, a later one where it is narration, since a narration prototype is taken at most once. The loss is the
    soft minimum, -γ log Σ exp(-cost / γ), of the total cost over all such alignments. Costs of each visual prototype
    pass through a softmax over its columns first, as in the paper, so that each competes for its narration.

    The first ``rows`` (...) visual and ``columns`` (...) narration prototypes count, all without.
    """
    visual = nn.functional.normalize(visual, dim=-1)
    narration = nn.functional.normalize(narration, dim=-1)
    costs = with_empty_slots(1 - visual @ narration.mT, empty_cost)
    if columns is None:
        return soft_alignment_cost(costs.softmax(-1), gamma, rows)
    beyond = (torch.arange(costs.shape[-1], device=costs.device) > 2 * columns[..., None])[..., None, :]
    costs = costs.masked_fill(beyond, -torch.inf).softmax(-1).masked_fill(beyond, _NEVER)
    return soft_alignment_cost(costs, gamma, rows)


def phrase_relative_times(video: FeatureVideo) -> FloatArray:
    """(L,) where in the video each phrase is said, in [0, 1]; evenly spread where its times are not known."""
    assert video.phrase_vectors is not None  # callers keep narrated videos only
    count = len(video.phrase_vectors)
    if video.phrase_times_s is None:
        return ((np.arange(count) + 0.5) / count).astype(np.float32)
    middle = video.phrase_times_s.mean(axis=1) / video.duration_s
    placed: FloatArray = np.clip(middle, 0.0, 1.0).astype(np.float32)
    return placed


def train_layers(
    groups: Sequence[Group], options: Shen, seed: int, device: str
) -> tuple[dict[str | None, TwoLayers], list[list[tuple[int, float]]]]:
    """The layers of each group after passes over its videos in random batches, and how their losses fell.

    On a GPU, which waits for the many small products of an update, groups of like size learn side by side.
    """
    models: dict[str | None, TwoLayers] = {}
    curves: dict[str | None, list[tuple[int, float]]] = {}
    by_size = sorted(groups, key=lambda g: _size(g, options))
    while by_size:
        most = max(1, _POINTS // _size(by_size[-1], options)) if device.startswith("cuda") else 1
        by_size, together = by_size[:-most], by_size[-most:]
        learned = _train_together(together, options, seed, device)
        for group, (model, curve) in zip(together, learned, strict=True):
            models[group.name], curves[group.name] = model, curve.points
    return models, [curves[group.name] for group in groups]


def _size(group: Group, options: Shen) -> int:
    """Frames in the largest batch."""
    return sum(sorted((len(v.features) for v in group.videos), reverse=True)[: options.batch])


def _train_together(groups: Sequence[Group], options: Shen, seed: int, device: str) -> list[tuple[TwoLayers, Curve]]:
    model = TwoLayers(groups[0].videos[0].features.shape[1], len(groups)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=options.learning_rate, weight_decay=options.weight_decay)
    rng = np.random.default_rng(seed)
    generator = torch.Generator(device).manual_seed(seed)
    k = torch.tensor([g.k for g in groups], device=device)
    least = [options.epochs * -(-len(g.videos) // options.batch) for g in groups]  # updates
    batches = _batches(groups, options, rng, device)
    curves, done = [Curve() for _ in groups], {}
    losses: list[Tensor] = []  # read once per window, so that the CPU does not wait for the device
    update = 0
    while True:
        if losses and (update % curves[0].window == 0 or update in least):
            for row in torch.stack(losses).tolist():
                for curve, loss in zip(curves, row, strict=True):
                    curve.add(loss)
            losses = []
        for i, curve in enumerate(curves):
            if i not in done and update >= least[i] and (update >= options.max_updates or curve.flat):
                done[i] = (model.one(i), replace(curve, points=list(curve.points)))
        if len(done) == len(groups):
            return [done[i] for i in range(len(groups))]
        update += 1
        loss = batch_loss(model, *next(batches), k, int(max(g.k for g in groups)), options, generator)
        optimizer.zero_grad(set_to_none=True)
        loss.sum().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(loss.detach())


def _batches(
    groups: Sequence[Group], options: Shen, rng: np.random.Generator, device: str
) -> Iterator[tuple[Points, Points]]:
    """Frames and phrases of the next batch of every group, each going through its own videos in random order."""
    scale = float(np.sqrt(options.time_weight))

    def tensors(videos: Sequence[FeatureVideo], of: Callable[[FeatureVideo], Any]) -> list[Tensor]:
        return [torch.as_tensor(of(v)).to(device) for v in videos]

    sides = [
        [(tensors(g.videos, vectors), tensors(g.videos, times)) for g in groups]
        for vectors, times in (
            (lambda v: v.features, lambda v: v.relative_time * scale),
            (lambda v: v.phrase_vectors, lambda v: phrase_relative_times(v) * scale),
        )
    ]

    def orders(count: int) -> Iterator[IntArray]:
        while True:
            yield from np.array_split(rng.permutation(count), -(-count // options.batch))

    def padded(parts: Sequence[Sequence[Tensor]]) -> Tensor:
        return nn.utils.rnn.pad_sequence([torch.cat(list(part)) for part in parts], batch_first=True)

    drawn = [orders(len(g.videos)) for g in groups]
    while True:
        chosen = [next(order) for order in drawn]
        made = []
        for side in sides:
            vectors = padded([[v[i] for i in at] for (v, _), at in zip(side, chosen, strict=True)])
            times = [[t[i] for i in at] for (_, t), at in zip(side, chosen, strict=True)]
            lengths = torch.tensor([sum(len(t) for t in part) for part in times])
            seen = (torch.arange(vectors.shape[1]) < lengths[:, None]).to(device)
            made.append(Points(vectors, padded(times), seen))
        yield made[0], made[1]
        while all(len(g.videos) <= options.batch for g in groups):  # always the same videos
            yield made[0], made[1]


def batch_loss(
    model: TwoLayers, frames: Points, phrases: Points, k: Tensor, most: int, options: Shen, generator: torch.Generator
) -> Tensor:
    """(T,) DWSA between the prototypes of each model's frames, k (T,), at most ``most``, and those of its phrases."""
    sides = []
    for points, modality, extra in ((frames, "visual", 0), (phrases, "text", options.extra_narration)):
        timed = torch.cat([model.embed(points.vectors, modality), points.times[..., None]], 2)
        draws = torch.rand(len(timed), min(most + extra, timed.shape[1]), generator=generator, device=timed.device)
        sides.append(ordered_prototypes(timed, points.seen, k + extra, options.rounds, options.softness, draws))
    (a, rows), (b, columns) = sides
    # costs are divided by γ = 0.001 and added up: there float32 would be too coarse
    a, b = a[..., :-1].double(), b[..., :-1].double()
    return dwsa_loss(a, b, options.softness, options.empty_cost, rows, columns)


@dataclass(frozen=True, slots=True, eq=False)
class FittedShen(Fitted[Shen, TwoLayers]):
    """The layers."""

    def frames(self, video: FeatureVideo) -> FloatArray:
        """(N, D) the learned unit vectors of the frames, which slots are compared with."""
        return self._embed(video.features, video.task, "visual")

    def texts(self, vectors: FloatArray, task: str) -> FloatArray:
        """(S, D) the learned unit vectors of step texts of a task, which slots are compared with."""
        return self._embed(vectors, task, "text")

    @torch.no_grad()
    def _embed(self, vectors: FloatArray, task: str, modality: str) -> FloatArray:
        x = torch.as_tensor(np.ascontiguousarray(vectors, np.float32), device=self.given.device)
        out: FloatArray = self.model(task).embed(x, modality).cpu().numpy()
        return out

    def _timed(self, video: FeatureVideo) -> FloatArray:
        times = video.relative_time * np.float32(np.sqrt(self.options.time_weight))
        return np.concatenate([self.frames(video), times[:, None]], axis=1)

    def segment_task(self, task: str, videos: Sequence[FeatureVideo]) -> list[IntArray]:
        """K-means of the learned vectors with time; the farthest become background."""
        points = [self._timed(video) for video in videos]
        joined = np.concatenate(points)
        found = kmeans(joined, self.given.steps(task), seed=self.given.seed, restarts=5)
        distances = ((joined - found.centers[found.labels]) ** 2).sum(axis=1)
        return divided(keep_nearest(found.labels, distances, self.options.keep), points)

    @torch.no_grad()
    def slots(self, video: FeatureVideo) -> FloatArray:
        """(K, D) the ordered prototypes of this video alone; fewer than ``slots`` where it has fewer frames."""
        points = torch.from_numpy(self._timed(video))[None]
        k = min(self.options.slots, points.shape[1])
        draws = torch.rand(1, k, generator=torch.Generator().manual_seed(self.given.seed))
        seen = torch.ones(points.shape[:2], dtype=torch.bool)
        with one_thread():
            centers, _ = ordered_prototypes(
                points, seen, torch.tensor([k]), self.options.rounds, self.options.softness, draws
            )
        out: FloatArray = centers[0, :, :-1].numpy()
        return out
