"""Shen, Wang and Elhamifar, "Learning to segment actions from visual and language instructions via differentiable weak
sequence alignment" (CVPR 2021).

1. One linear layer per modality (started as the identity) maps frames and verb phrases to unit vectors; the relative
   time is appended.
2. *Soft ordered prototype learning*: a few rounds of soft K-means over the frames of a batch of videos, differentiable
   to the end, give K prototypes, ordered by their time coordinate; likewise K + 10 over the phrases.
3. The prototypes of both sides are aligned by DWSA (:func:`dwsa_loss`), whose soft cost is the loss.
4. To segment, the learned frame vectors (with time) of a task's videos go through K-means, and the 40% of each cluster
   that lie farthest from its centre become background.

Defaults are those of the authors' code: 5 rounds, β = γ = 0.001, empty slots at cost 1, Adam at 5e-4 with weight decay
0.02, batches of up to 30 videos, 30 epochs. With ``max_updates`` training goes on after those until the loss stops
improving, for which 30 updates on a task of 20 videos are too few. A frame here is what the features have, mostly one
per second; theirs are clips of 3.2 s.

"weak" learns the two layers task by task with K = the task's number of steps. "unsupervised" learns one pair on batches
drawn from all videos, with K = the mean number of steps (the paper merges all tasks into one).

For zero-shot localisation the prototypes of one video alone are its slots, and step texts and frames must go through
the learned layers too: :meth:`FittedShen.texts`, :meth:`FittedShen.frames`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from stepformer.core.devices import one_thread
from stepformer.errors import InputError
from stepformer.evaluation.baselines.base import (
    Baseline,
    Curve,
    FeatureVideo,
    FloatArray,
    Given,
    IntArray,
    Setting,
    divided,
    model_of,
    per_task,
    steps_of,
    training_groups,
)
from stepformer.evaluation.kmeans import keep_nearest, kmeans


@dataclass(frozen=True, slots=True)
class Shen(Baseline):
    """Options of the method; ``slots`` is the number of prototypes of one video in zero-shot localisation."""

    rounds: int = 5  # of soft K-means
    softness: float = 1e-3  # β and γ
    empty_cost: float = 1.0
    time_weight: float = 1.0  # of squared time distance against squared feature distance
    extra_narration: int = 10  # prototypes of speech that is about no step
    epochs: int = 30
    max_updates: int = 0  # beyond the epochs: until the loss stops improving, at most so many updates in all
    batch: int = 30  # videos
    learning_rate: float = 5e-4
    weight_decay: float = 0.02
    keep: float = 0.6
    slots: int = 32
    name: ClassVar[str] = "shen"
    settings: ClassVar[tuple[Setting, ...]] = ("weak", "unsupervised")

    def train(self, given: Given) -> FittedShen:
        """Learns the two linear layers: a pair per task, or one pair for all."""
        models, curves = {}, []
        for group, members in training_groups(given.videos, given.setting):
            narrated = [v for v in members if v.phrase_vectors is not None and len(v.phrase_vectors)]
            if not narrated:
                whose = "the videos" if group is None else f"the videos of task {group!r}"
                raise InputError(f"shen learns from narration, and none of {whose} has phrases")
            tasks = {v.task for v in members}
            k = max(2, round(float(np.mean([steps_of(task, given.n_steps) for task in sorted(tasks)]))))
            models[group], curve = train_layers(narrated, k, self, given.seed, given.device)
            curves.append(curve.points)
        return FittedShen(self, models, given.n_steps, given.seed, given.device, curves)


class TwoLayers(nn.Module):
    """A linear layer for frames and one for phrases, both the identity at the start."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.visual = nn.Linear(width, width)
        self.text = nn.Linear(width, width)
        for layer in (self.visual, self.text):
            nn.init.eye_(layer.weight)
            nn.init.zeros_(layer.bias)

    def embed(self, vectors: Tensor, modality: str) -> Tensor:
        """(n, D) -> (n, D) unit vectors of "visual" or "text"."""
        layer = self.visual if modality == "visual" else self.text
        return nn.functional.normalize(layer(vectors), dim=-1)


def ordered_prototypes(points: Tensor, k: int, rounds: int, softness: float, seed: int) -> Tensor:
    """Soft K-means of points (n, D + 1), the last coordinate being time: (min(k, n), D + 1) centres in order of time.

    Starts from k-means++ centres (no gradient flows through the start). Each round gives every point a softmax over
    minus squared distances / softness, and every centre the weighted mean; all of it is differentiable in the points.
    """
    start = kmeans(points.detach().cpu().numpy(), k, seed=seed, restarts=1, max_iterations=1).centers
    centers = torch.as_tensor(start, dtype=points.dtype, device=points.device)
    for _ in range(rounds):
        # |x|² is the same for all centres of a point, so that softmax does not need it
        distances = centers.square().sum(1) - 2 * points @ centers.T  # (n, k)
        weights = (-distances / softness).softmax(1)
        centers = (weights.T @ points) / (weights.sum(0)[:, None] + 1e-10)
    return centers[centers[:, -1].detach().argsort()]


def with_empty_slots(costs: Tensor, empty_cost: float) -> Tensor:
    """costs (M, N) -> (M, 2N + 1) with a column of ``empty_cost`` before, between and after the given ones."""
    m, n = costs.shape
    out = costs.new_full((m, 2 * n + 1), empty_cost)
    columns = torch.arange(n, device=costs.device) * 2 + 1
    return out.index_copy(1, columns, costs)


def soft_alignment_cost(expanded: Tensor, gamma: float) -> Tensor:
    """Soft minimum of the total cost over all weak alignments: expanded (M, 2N + 1) costs -> a number.

    Even columns are empty slots, odd ones narration. Row by row

        D[1, c] = C[1, c]        D[i, c] = C[i, c] + softmin over allowed c' of D[i - 1, c']

    where the soft minimum over all columns up to c is a running logsumexp, so that there is no loop over cells.
    """
    columns = expanded.shape[1]
    narration = torch.arange(columns, device=expanded.device) % 2 == 1
    nothing = expanded.new_full((1,), -torch.inf)
    scores = -expanded[0] / gamma  # minus the totals so far, over γ
    for row in expanded[1:]:
        upto = torch.logcumsumexp(scores, 0)  # over columns <= c
        before = torch.cat([nothing, upto[:-1]])  # over columns < c
        scores = torch.where(narration, before, upto) - row / gamma
    return -gamma * torch.logsumexp(scores, 0)


def dwsa_loss(visual: Tensor, narration: Tensor, gamma: float = 1e-3, empty_cost: float = 1.0) -> Tensor:
    """Differentiable weak sequence alignment of prototypes in time order, (M, D) and (N, D), by cosine distance.

    Every visual prototype is given either a narration prototype or one of the N + 1 *empty slots* that stand before,
    between and after them, because not every step is spoken; narration that nothing was given to costs nothing, because
    not all speech is about steps. The order is kept: the next prototype's column is the same one or a later one where
    it is empty, a later one where it is narration, since a narration prototype is taken at most once. The loss is the
    soft minimum, -γ log Σ exp(-cost / γ), of the total cost over all such alignments. Costs of each visual prototype
    pass through a softmax over its columns first, as in the paper, so that each competes for its narration.
    """
    visual = torch.nn.functional.normalize(visual, dim=-1)
    narration = torch.nn.functional.normalize(narration, dim=-1)
    costs = with_empty_slots(1 - visual @ narration.T, empty_cost)
    return soft_alignment_cost(costs.softmax(-1), gamma)


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
    videos: Sequence[FeatureVideo], k: int, options: Shen, seed: int, device: str
) -> tuple[TwoLayers, Curve]:
    """The layers after passes over the videos in random batches, and how the loss fell."""
    model = TwoLayers(videos[0].features.shape[1]).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=options.learning_rate, weight_decay=options.weight_decay)
    rng = np.random.default_rng(seed)
    scale = float(np.sqrt(options.time_weight))
    frames = [torch.from_numpy(v.features).to(device) for v in videos]
    phrases = [torch.as_tensor(v.phrase_vectors).to(device) for v in videos]
    frame_times = [torch.from_numpy(v.relative_time * scale).to(device) for v in videos]
    phrase_times = [torch.from_numpy(phrase_relative_times(v) * scale).to(device) for v in videos]
    curve, epoch = Curve(), 0
    while epoch < options.epochs or (curve.updates < options.max_updates and not curve.flat):
        epoch += 1
        for batch in np.array_split(rng.permutation(len(videos)), -(-len(videos) // options.batch)):
            loss = batch_loss(
                model,
                torch.cat([frames[i] for i in batch]),
                torch.cat([frame_times[i] for i in batch]),
                torch.cat([phrases[i] for i in batch]),
                torch.cat([phrase_times[i] for i in batch]),
                k, options, int(rng.integers(2**31)),
            )  # fmt: skip
            optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            curve.add(float(loss.detach()))
    return model.eval(), curve


def batch_loss(
    model: TwoLayers,
    frames: Tensor,
    frame_times: Tensor,
    phrases: Tensor,
    phrase_times: Tensor,
    k: int,
    options: Shen,
    seed: int,
) -> Tensor:
    """DWSA between the prototypes of frames (n, D) and of phrases (l, D), with their scaled times (n,) and (l,)."""
    visual = torch.cat([model.embed(frames, "visual"), frame_times[:, None]], 1)
    spoken = torch.cat([model.embed(phrases, "text"), phrase_times[:, None]], 1)
    a = ordered_prototypes(visual, k, options.rounds, options.softness, seed)
    b = ordered_prototypes(spoken, k + options.extra_narration, options.rounds, options.softness, seed)
    # costs are divided by γ = 0.001 and added up: there float32 would be too coarse
    return dwsa_loss(a[:, :-1].double(), b[:, :-1].double(), options.softness, options.empty_cost)


@dataclass(frozen=True, slots=True, eq=False)
class FittedShen:
    """The layers by task (weak), or one pair under None (unsupervised)."""

    options: Shen
    models: Mapping[str | None, TwoLayers]
    n_steps: Mapping[str, int]
    seed: int
    device: str
    curve: Sequence[Sequence[tuple[int, float]]] = ()  # of each model: updates, loss

    @torch.no_grad()
    def frames(self, video: FeatureVideo) -> FloatArray:
        """(N, D) the learned unit vectors of the frames, which slots are compared with."""
        x = torch.from_numpy(video.features).to(self.device)
        out: FloatArray = model_of(self.models, video.task).embed(x, "visual").cpu().numpy()
        return out

    @torch.no_grad()
    def texts(self, vectors: FloatArray, task: str) -> FloatArray:
        """(S, D) the learned unit vectors of step texts of a task, which slots are compared with."""
        x = torch.as_tensor(np.ascontiguousarray(vectors, np.float32), device=self.device)
        out: FloatArray = model_of(self.models, task).embed(x, "text").cpu().numpy()
        return out

    def _timed(self, video: FeatureVideo) -> FloatArray:
        times = video.relative_time * np.float32(np.sqrt(self.options.time_weight))
        return np.concatenate([self.frames(video), times[:, None]], axis=1)

    def segment(self, videos: Sequence[FeatureVideo]) -> list[IntArray]:
        """K-means of the learned vectors with time, task by task; the farthest become background."""

        def segment(task: str, own: list[FeatureVideo]) -> list[IntArray]:
            points = [self._timed(video) for video in own]
            joined = np.concatenate(points)
            found = kmeans(joined, steps_of(task, self.n_steps), seed=self.seed, restarts=5)
            distances = ((joined - found.centers[found.labels]) ** 2).sum(axis=1)
            return divided(keep_nearest(found.labels, distances, self.options.keep), points)

        return per_task(videos, segment)

    @torch.no_grad()
    def slots(self, video: FeatureVideo) -> FloatArray:
        """(K, D) the ordered prototypes of this video alone; fewer than ``slots`` where it has fewer frames."""
        points = torch.from_numpy(self._timed(video))
        k = min(self.options.slots, len(points))
        with one_thread():
            centers = ordered_prototypes(points, k, self.options.rounds, self.options.softness, self.seed)
        out: FloatArray = centers[:, :-1].numpy()
        return out
