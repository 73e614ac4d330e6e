"""Elhamifar and Huynh, "Self-supervised multi-task procedure learning from instructional videos" (ECCV 2020).

1. A video is cut into short segments. Attention pools each into one vector. (The paper's attention is over the
   regions of an image; features here are one vector per frame, so it is over the frames of a segment.)
2. A fully convolutional network over the segments scores each for M key-steps that all tasks share. The softmax of the
   scores attends to the segments: a key-step's vector is the weighted sum of theirs. A second attention, over
   key-steps, makes one vector of the video, from which the task is predicted: what does not help to tell the tasks
   apart fades.
3. *Self-supervision*: M centres of all pooled segments are candidates; for each task the K that represent its
   segments best are chosen greedily (unsupervised subset selection, the facility location objective
   Σ_s max_{c in chosen} -|x_s - x_c|), and each segment's nearest chosen candidate is its pseudo-label.
4. The network learns the pseudo-labels by a ranking loss (hinge against every other key-step, classes balanced) and the
   task by cross-entropy at weight 0.5; then the segments are pooled anew and 3 is done again, and so on.

To segment, each segment takes the best-scored of its task's chosen key-steps. The method needs task labels to train: it
has the weak setting alone. M = 50, RMSprop at 1e-3 and one video a step are the authors'; the convolutional network is
narrower than theirs (five pooling levels of VGG width), so that it trains on a CPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from stepformer.core.devices import one_thread
from stepformer.evaluation.baselines import (
    Baseline,
    Curve,
    FeatureVideo,
    Fitted,
    FloatArray,
    Given,
    IntArray,
    by_task,
    divided,
)
from stepformer.evaluation.kmeans import keep_nearest, kmeans


@dataclass(frozen=True, slots=True)
class Elhamifar(Baseline["FittedElhamifar"]):
    """Options of the method."""

    key_steps: int = 50  # M, shared by all tasks
    segment_s: float = 3.0
    width: int = 128  # channels of the convolutional network
    levels: int = 3  # of pooling by two
    rounds: int = 4  # of subset selection and one pass of training
    max_updates: int = 0  # beyond the rounds: until the loss stops improving, up to this number of updates
    task_weight: float = 0.5
    learning_rate: float = 1e-3
    refine: int = 10  # Lloyd steps that carry the candidates to the next round
    keep: float = 1.0  # share of a key-step's segments, best scored first, that is not background
    smooth: int = 1  # segments over which scores are averaged
    name = "elhamifar"
    settings = ("weak",)

    def train(self, videos: Sequence[FeatureVideo], given: Given) -> FittedElhamifar:
        """Alternates subset selection and training, over the videos of all tasks together."""
        seed, device = given.seed, given.device
        tasks = list(by_task(videos))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = KeyStepNetwork(given.width, len(tasks), self).to(device)
        optimizer = torch.optim.RMSprop(model.parameters(), lr=self.learning_rate)
        rng = np.random.default_rng(seed)
        inputs = [torch.from_numpy(cut(v, self.segment_s)).to(device) for v in videos]  # (S_i, W, D) each
        task_index = {task: i for i, task in enumerate(tasks)}
        targets = [torch.tensor([task_index[v.task]], device=device) for v in videos]
        candidates: npt.NDArray[np.floating] | None = None
        chosen: dict[str | None, IntArray] = {}
        curve, done = Curve(window=len(videos)), 0
        with one_thread():
            while done < self.rounds or (curve.updates < self.max_updates and not curve.flat):
                done += 1
                with torch.no_grad():
                    pooled = [model.pool(x).cpu().numpy() for x in inputs]  # (S_i, D) each
                candidates = self._candidates(np.concatenate(pooled), candidates, seed)
                chosen, labels = pseudo_labels(videos, pooled, candidates, given)
                for i in rng.permutation(len(videos)):
                    scores, task_scores = model(inputs[i])
                    loss = ranking_loss(scores, torch.from_numpy(labels[i]).to(device))
                    loss = loss + self.task_weight * nn.functional.cross_entropy(task_scores[None], targets[i])
                    optimizer.zero_grad(set_to_none=True)
                    loss.backward()  # type: ignore[no-untyped-call]
                    optimizer.step()
                    curve.add(float(loss.detach()))
        return FittedElhamifar(self, given, chosen, [curve.points], model.eval())

    def _candidates(
        self, points: FloatArray, before: npt.NDArray[np.floating] | None, seed: int
    ) -> npt.NDArray[np.floating]:
        """M centres of the pooled segments; later rounds move the earlier ones, so that key-steps keep their number."""
        if before is None:
            return kmeans(points, self.key_steps, seed=seed, restarts=3).centers
        centers = before
        for _ in range(self.refine):
            nearest = similarity(centers, points).argmax(axis=0)
            member = (nearest == np.arange(len(centers))[:, None]).astype(points.dtype)  # (M, n)
            sums = member @ points
            sizes = np.bincount(nearest, minlength=len(centers))[:, None]
            centers = np.where(sizes > 0, sums / np.maximum(sizes, 1), centers)
        return centers


def _frames(video: FeatureVideo, segment_s: float) -> int:
    """How many frames a segment has."""
    return max(1, round(segment_s * video.rate_hz))


def cut(video: FeatureVideo, segment_s: float) -> FloatArray:
    """(S, W, D) the segments of a video, W frames each; the last repeats its last frame to be full."""
    width = _frames(video, segment_s)
    n = len(video.features)
    index = np.minimum(np.arange(-(-n // width) * width), n - 1)
    return video.features[index].reshape(-1, width, video.features.shape[1])


def similarity(candidates: npt.NDArray[np.floating], points: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
    """(C, P) minus the Euclidean distance."""
    squares = (candidates**2).sum(1)[:, None] - 2 * candidates @ points.T + (points**2).sum(1)[None]
    out: npt.NDArray[np.floating] = -np.sqrt(np.maximum(squares, 0))
    return out


def select_subset(similarities: npt.NDArray[np.floating], count: int) -> IntArray:
    """Greedy facility location: ``count`` rows whose best similarities to the columns sum up highest.

    similarities (C, P) of candidates with points -> (<= count,) row numbers in the order chosen. Each next row is the
    one that raises Σ_p max over chosen most; it stops where nothing raises it. Greedy is within 1 - 1/e of the best.
    """
    if similarities.shape[0] == 0 or similarities.shape[1] == 0:
        return np.empty(0, np.int64)
    best = np.full(similarities.shape[1], -np.inf)
    chosen: list[int] = []
    for _ in range(min(count, len(similarities))):
        totals = np.maximum(similarities, best).sum(axis=1)  # (C,)
        row = int(totals.argmax())
        if chosen and totals[row] <= best.sum():
            break
        chosen.append(row)
        best = np.maximum(best, similarities[row])
    return np.array(chosen, np.int64)


def pseudo_labels(
    videos: Sequence[FeatureVideo],
    pooled: Sequence[FloatArray],
    candidates: npt.NDArray[np.floating],
    given: Given,
) -> tuple[dict[str | None, IntArray], list[IntArray]]:
    """The chosen key-steps of each task, and for each video (S_i,) the nearest chosen key-step of each segment."""
    chosen: dict[str | None, IntArray] = {}
    labels: list[IntArray] = [np.empty(0, np.int64)] * len(videos)
    for task, where in by_task(videos).items():
        similar = similarity(candidates, np.concatenate([pooled[i] for i in where]))
        chosen[task] = select_subset(similar, given.steps(task))
        nearest = chosen[task][similar[chosen[task]].argmax(axis=0)]
        for i, part in zip(where, divided(nearest, [pooled[i] for i in where]), strict=True):
            labels[i] = part
    return chosen, labels


def ranking_loss(scores: Tensor, labels: Tensor) -> Tensor:
    """Hinge of each segment's labelled key-step against all, rare labels weighing more: scores (S, M), labels (S,)."""
    own = scores.gather(1, labels[:, None])
    hinge = (1 - own + scores).clamp(min=0).mean(1)  # (S,)
    sizes = torch.bincount(labels, minlength=scores.shape[1]).to(scores.dtype)
    weights = len(labels) / (sizes + 1)
    return (hinge * weights[labels]).mean()


class KeyStepNetwork(nn.Module):
    """Segments -> scores of key-steps and of tasks; see the module's text."""

    def __init__(self, width: int, tasks: int, options: Elhamifar) -> None:
        super().__init__()
        self.look = nn.Linear(width, 1)  # attention over the frames of a segment
        channels = options.width
        self.enter = nn.Conv1d(width, channels, 1)
        self.down = nn.ModuleList(
            nn.Sequential(
                nn.Conv1d(channels, channels, 3, padding=1), nn.GroupNorm(1, channels), nn.ReLU(),
                nn.Conv1d(channels, channels, 3, padding=1), nn.GroupNorm(1, channels), nn.ReLU(),
            )
            for _ in range(options.levels)
        )  # fmt: skip
        # a score head per level, added up from the coarsest to the finest, as fully convolutional networks do
        self.heads = nn.ModuleList(nn.Conv1d(channels, options.key_steps, 1) for _ in range(options.levels))
        self.choose = nn.Linear(width, 1)  # attention over key-steps
        self.tell = nn.Linear(width, tasks)

    def pool(self, segments: Tensor) -> Tensor:
        """(S, W, D) -> (S, D)."""
        attention = self.look(segments).softmax(1)
        pooled: Tensor = (attention * segments).sum(1)
        return pooled

    def score(self, pooled: Tensor) -> Tensor:
        """(S, D) -> (S, M) scores of key-steps."""
        hidden = self.enter(pooled.T[None])  # (1, C, S)
        levels: list[Tensor] = []
        for i, (block, head) in enumerate(zip(self.down, self.heads, strict=True)):
            hidden = block(nn.functional.max_pool1d(hidden, 2, ceil_mode=True) if i else hidden)
            levels.append(head(hidden))
        scores = levels.pop()
        while levels:
            fine = levels.pop()
            scores = fine + nn.functional.interpolate(scores, size=fine.shape[-1], mode="nearest")
        return scores[0].T

    def forward(self, segments: Tensor) -> tuple[Tensor, Tensor]:
        """(S, W, D) -> scores (S, M), task scores (T,)."""
        pooled = self.pool(segments)
        scores = self.score(pooled)
        attention = scores.softmax(1)  # of each segment over key-steps
        key_steps = attention.T @ pooled  # (M, D)
        video = (self.choose(key_steps).softmax(0) * key_steps).sum(0)  # (D,)
        task_scores: Tensor = self.tell(video)
        return scores, task_scores


@dataclass(frozen=True, slots=True, eq=False)
class FittedElhamifar(Fitted[Elhamifar, IntArray]):
    """The key-steps chosen for each task, and the network that scores them."""

    network: KeyStepNetwork

    def segment_task(self, task: str, videos: Sequence[FeatureVideo]) -> list[IntArray]:
        """The best-scored of the task's key-steps for each segment, repeated over its frames."""
        scores = [self._scores(video) for video in videos]
        best = self.model(task)[np.concatenate([values.argmax(axis=1) for values in scores])]
        far = -np.concatenate([values.max(axis=1) for values in scores])
        ids = divided(keep_nearest(best, far, self.options.keep), scores)
        return [
            np.repeat(part, _frames(video, self.options.segment_s))[: len(video.features)]
            for part, video in zip(ids, videos, strict=True)
        ]

    @torch.no_grad()
    def _scores(self, video: FeatureVideo) -> npt.NDArray[np.floating]:
        """(S, K) scores of a video's segments for its task's key-steps."""
        segments = torch.from_numpy(cut(video, self.options.segment_s)).to(self.given.device)
        scores = self.network.score(self.network.pool(segments))[:, self.model(video.task).tolist()]
        if (n := self.options.smooth) > 1:
            scores = nn.functional.avg_pool1d(scores.T[None], n, 1, n // 2, count_include_pad=False)[0].T
        values: npt.NDArray[np.floating] = scores.cpu().numpy()
        return values
