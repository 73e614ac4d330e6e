"""Kukleva et al., "Unsupervised learning of action classes with continuous temporal embedding" (CVPR 2019).

1. A perceptron with two hidden layers learns the relative time n / N of a frame from its features alone, by squared
   error. Frames that look alike and come at like times end up together in its last hidden layer before the
   non-linearity: the continuous temporal embedding.
2. K-means puts the embedded frames of a task in K clusters; the clusters are ordered by the mean relative time of
   their frames.
3. Each cluster becomes one Gaussian with full covariance. In every video the frames are assigned to the clusters in
   that one order, each staying or moving on to the next, so that the likelihood is largest (Viterbi). This is Drop-DTW
   without drops, and the same kernel does it.
4. Background: in each cluster the share ``background`` of frames farthest from its centre is background; only the
   others are decoded. 0 switches it off, as the paper does where videos are densely labelled.

Defaults are those of the authors' code for Breakfast, whose learning rate falls to a tenth half-way. Their code
estimates the background from likelihoods; this follows the paper's text.

With first weights so small the embedding starts as nothing and holds little but time. Larger ones (``spread``) leave in
it what the frames look like, which clusters need where a step comes back several times; ``decode`` is then off.

"weak" learns one perceptron per task, "unsupervised" one for all videos.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from stepformer.core.align import drop_dtw
from stepformer.core.devices import one_thread
from stepformer.errors import UsageError
from stepformer.evaluation.baselines import (
    BACKGROUND,
    Baseline,
    Curve,
    FeatureVideo,
    Fitted,
    FloatArray,
    Given,
    IntArray,
    divided,
)
from stepformer.evaluation.kmeans import keep_nearest, kmeans


@dataclass(frozen=True, slots=True)
class Kukleva(Baseline["FittedKukleva"]):
    """Options of the method; ``background`` is the share of each cluster that becomes background (tau in the paper)."""

    embedding: int = 20
    epochs: int = 60
    min_updates: int = 0  # at least so: more epochs where the frames give fewer updates
    batch: int = 256
    learning_rate: float = 1e-3
    weight_decay: float = 1e-4
    background: float = 0.0
    standardize: bool = True
    spread: float = 0.0  # of the first weights: 0 = N(0, 0.01²) as theirs, else N(0, spread² / inputs)
    decode: bool = True  # False: the clusters as K-means left them, without order
    covariance: float = 1e-4  # added to the diagonal
    restarts: int = 5
    name = "kukleva"
    settings = ("weak", "unsupervised")

    def __post_init__(self) -> None:
        if not 0 <= self.background < 1:
            raise UsageError(f"Kukleva.background must be in [0, 1), got {self.background}")

    def train(self, videos: Sequence[FeatureVideo], given: Given) -> FittedKukleva:
        """Learns the embedding: one per task, or one for all."""
        groups = given.groups(videos)
        with one_thread():
            found = [train_embedding(members, self, given.seed, given.device) for members in groups.values()]
        models, curves = zip(*found, strict=True)
        return FittedKukleva(self, given, dict(zip(groups, models, strict=True)), curves)


class TimeEmbedding(nn.Module):
    """Features -> embedding (the second hidden layer before its sigmoid) -> relative time."""

    def __init__(self, width: int, embedding: int, spread: float = 0.0) -> None:
        super().__init__()
        self.first = nn.Linear(width, 2 * embedding)
        self.second = nn.Linear(2 * embedding, embedding)
        self.last = nn.Linear(embedding, 1)
        for layer in (self.first, self.second, self.last):
            nn.init.normal_(layer.weight, 0.0, spread / layer.in_features**0.5 if spread else 0.01)
            nn.init.zeros_(layer.bias)

    def embed(self, x: Tensor) -> Tensor:
        """x (B, D) -> (B, E)."""
        embedded: Tensor = self.second(torch.sigmoid(self.first(x)))
        return embedded


def prepare(video: FeatureVideo, standardize: bool) -> FloatArray:
    """(N, D) features, each dimension at mean 0 and deviation 1 within the video; all-zero frames stay zero.

    Frames of zeros are padding of the extractor (Breakfast's begin with some) and would spoil both moments.
    """
    if not standardize:
        return video.features
    real = video.features.any(axis=1)
    out = np.zeros_like(video.features)
    if real.any():
        part = video.features[real]
        deviation = part.std(axis=0)
        out[real] = (part - part.mean(axis=0)) / np.where(deviation > 1e-8, deviation, 1.0)
    return out


def train_embedding(
    videos: Sequence[FeatureVideo], options: Kukleva, seed: int, device: str
) -> tuple[TimeEmbedding, list[tuple[int, float]]]:
    """The perceptron that predicts relative time in a group of videos, and its learning curve."""
    x = torch.from_numpy(np.concatenate([prepare(v, options.standardize) for v in videos])).to(device)  # (n, D)
    time = torch.from_numpy(np.concatenate([v.relative_time for v in videos])).to(device)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = TimeEmbedding(x.shape[1], options.embedding, options.spread).to(device)
    optimizer = torch.optim.Adam(
        model.parameters(), lr=options.learning_rate, weight_decay=options.weight_decay, fused=True
    )
    updates = max(options.min_updates, options.epochs * -(-len(x) // options.batch))
    curve = Curve()
    for done, rows in enumerate(islice(endless_batches(len(x), options.batch, seed), updates)):
        if done == updates // 2:
            optimizer.param_groups[0]["lr"] = options.learning_rate / 10
        predicted = model.last(torch.sigmoid(model.embed(x[rows])))[:, 0]  # (B,)
        loss = (predicted - time[rows]).square().sum()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        curve.add(float(loss.detach()) / len(rows))
    return model.eval(), curve.points


def endless_batches(count: int, size: int, seed: int) -> Iterator[Tensor]:
    """Row numbers (<= size,) below ``count``: pass after pass, each in a new order."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        yield from torch.randperm(count, generator=generator).split(size)  # type: ignore[no-untyped-call]


@dataclass(frozen=True, slots=True, eq=False)
class FittedKukleva(Fitted[Kukleva, TimeEmbedding]):
    """The embeddings."""

    @torch.no_grad()
    def embed(self, video: FeatureVideo) -> npt.NDArray[np.float64]:
        """(N, E) the continuous temporal embedding of a video's frames."""
        x = torch.from_numpy(prepare(video, self.options.standardize)).to(self.given.device)
        embedded: npt.NDArray[np.float64] = self.model(video.task).embed(x).double().cpu().numpy()
        return embedded

    def segment_task(self, task: str, videos: Sequence[FeatureVideo]) -> list[IntArray]:
        """Clusters of the task's frames in order of time, decoded video by video. Cluster 0 is the earliest."""
        options, embedded = self.options, [self.embed(video) for video in videos]  # (N_i, E) each
        joined = np.concatenate(embedded)
        found = kmeans(joined, self.given.steps(task), seed=self.given.seed, restarts=options.restarts)
        k = len(found.centers)
        labels = in_time_order(found.labels, np.concatenate([video.relative_time for video in videos]), k)
        background = np.zeros(len(joined), bool)
        if options.background:
            centers = np.stack([joined[labels == c].mean(axis=0) for c in range(k)])
            distances = ((joined - centers[labels]) ** 2).sum(axis=1)
            background = keep_nearest(labels, distances, 1 - options.background) == BACKGROUND
        if not options.decode:
            return divided(np.where(background, BACKGROUND, labels), embedded)
        costs = -gaussian_log_likelihood(joined, labels, k, options.covariance)  # (n, K)
        return list(map(decode, divided(costs, embedded), divided(background, embedded)))


def in_time_order(labels: IntArray, times: npt.NDArray[np.floating], k: int) -> IntArray:
    """The labels renumbered so that the cluster with the smallest mean time is 0, the next 1, and so on."""
    sizes = np.bincount(labels, minlength=k)
    means = np.bincount(labels, weights=times, minlength=k) / np.maximum(sizes, 1)
    rank = np.argsort(np.argsort(means, kind="stable"))
    return rank[labels]


def gaussian_log_likelihood(
    points: npt.NDArray[np.float64], labels: IntArray, k: int, ridge: float
) -> npt.NDArray[np.float64]:
    """(n, k) log density of each point under the Gaussian of each cluster's members."""
    width = points.shape[1]
    out = np.empty((len(points), k))
    for c in range(k):
        members = points[labels == c]
        centred = members - members.mean(axis=0)
        covariance = centred.T @ centred / len(members) + ridge * np.eye(width)
        factor = np.linalg.cholesky(covariance)
        white = np.linalg.solve(factor, (points - members.mean(axis=0)).T)  # (E, n)
        log_volume = np.log(np.diag(factor)).sum()
        out[:, c] = -0.5 * (white**2).sum(axis=0) - log_volume - 0.5 * width * np.log(2 * np.pi)
    return out


def decode(costs: npt.NDArray[np.float64], background: npt.NDArray[np.bool_]) -> IntArray:
    """The cheapest assignment of one video's frames to the clusters in order: costs (N, K), background (N,) -> (N,).

    Every cluster takes at least one frame unless there are fewer frames than clusters.
    """
    out = np.full(len(costs), BACKGROUND, np.int64)
    shown = ~background
    if shown.any():
        part = costs[shown].T  # (K, N')
        row_drop = None if part.shape[1] >= part.shape[0] else 0.0
        out[shown] = drop_dtw(part, None, row_drop).assignment
    return out
