"""Videos of a task whose common steps are known: planted vectors, with steps missing, repeated, swapped, cut in two."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stepformer.app.procedure.records import VideoSteps
from stepformer.timeline import Step, Timeline


@dataclass
class Planted:
    videos: list[VideoSteps]
    truth: list[np.ndarray]  # per video the true common step of each step, -1 = only here


def plant(
    steps: int = 6, videos: int = 12, *, noise: float = 0.5, missing: float = 0.15, swap: float = 0.1,
    split: float = 0.15, extra: float = 0.1, look: float = 0.4, dim: int = 48, seed: int = 0, labels: bool = False,
) -> Planted:  # fmt: skip
    rng = np.random.default_rng(seed)

    def direction(*shape: int) -> np.ndarray:
        x = rng.standard_normal((*shape, dim))
        return x / np.linalg.norm(x, axis=-1, keepdims=True)

    kinds, task = direction(steps), direction()
    made, truth = [], []
    for number in range(videos):
        present = [k for k in range(steps) if rng.random() >= missing]
        for i in range(len(present) - 1):
            if rng.random() < swap:
                present[i], present[i + 1] = present[i + 1], present[i]
        path: list[int] = []
        for k in present:
            path += [k, k] if rng.random() < split else [k]
            if rng.random() < extra:
                path.append(-1)
        style, at, spans, vectors = direction() * look, 0.0, [], []
        for k in path:
            length = float(rng.uniform(5, 15))
            at += float(rng.uniform(0, 3))
            spans.append(Step(at, at + length, f"step {k}" if labels and k >= 0 else None))
            at += length
            content = kinds[k] if k >= 0 else direction()
            vectors.append(content + 0.6 * task + style + noise * direction())
        made.append(
            VideoSteps(Timeline(f"video{number}.mp4", at + 2, tuple(spans)), np.array(vectors).reshape(-1, dim))
        )
        truth.append(np.array(path, np.int64))
    return Planted(made, truth)


def pair_f1(found: list[np.ndarray], truth: list[np.ndarray]) -> float:
    """F1 of 'these two steps are the same common step', over pairs of steps of different videos."""
    video = np.repeat(np.arange(len(found)), [len(f) for f in found])
    a, b = np.concatenate(found), np.concatenate(truth)
    other = video[:, None] < video
    same_a = (a[:, None] == a) & (a >= 0)[:, None] & other
    same_b = (b[:, None] == b) & (b >= 0)[:, None] & other
    right = (same_a & same_b).sum()
    return 2 * right / max(same_a.sum() + same_b.sum(), 1)


def found_labels(procedure, planted: Planted) -> list[np.ndarray]:
    """The common step (from 0) of each original step, read back from the timelines by time."""
    out = []
    for video, told in zip(planted.videos, procedure.timelines, strict=True):
        labels = []
        for step in video.timeline:
            middle = (step.start_s + step.end_s) / 2
            owner = next(s for s in told if s.start_s <= middle < s.end_s)
            labels.append((owner.meta["common"] or 0) - 1)
        out.append(np.array(labels))
    return out
