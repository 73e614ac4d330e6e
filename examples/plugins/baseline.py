"""A baseline of your own: fitted on videos, it names the cluster of every frame.

    stepformer reproduce table1 --dataset data --features features --baseline jumps --plugin baseline.py --out results

    fitted = baseline("jumps", smooth=3).fit(videos, {"omelette": 5})    # in Python, with its options
    fitted.segment(videos)          # one int array per video, -1 background: what sf.evaluation.score_task takes

Or, in an installed package:  [project.entry-points."stepformer.baselines"]  jumps = "my_package.baseline:Jumps"
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from stepformer.evaluation.baselines import BASELINES


@dataclass(frozen=True)
class Jumps:
    """Cuts a video where its features change most; the n-th part is step n. Its fields are its options."""

    smooth: int = 1  # frames on either side that are averaged before they are compared
    name: ClassVar[str] = "jumps"
    settings: ClassVar[tuple[str, ...]] = ("weak", "unsupervised")

    def fit(self, videos, n_steps, *, setting="weak", seed=0, device="cpu"):
        """Nothing is learned; n_steps is the number of steps of each task."""
        return FittedJumps(self.smooth, dict(n_steps))


@dataclass(frozen=True)
class FittedJumps:
    smooth: int
    n_steps: dict

    def segment(self, videos):
        """(N,) int per video."""
        return [self._one(video.features, self.n_steps[video.task]) for video in videos]

    def _one(self, x, k):
        w = self.smooth
        change = [np.linalg.norm(x[i : i + w].mean(0) - x[max(0, i - w) : i].mean(0)) for i in range(1, len(x))]
        cuts = np.sort(np.argsort(change)[::-1][: k - 1]) + 1
        return np.searchsorted(cuts, np.arange(len(x)), side="right").astype(np.int64)


BASELINES.register("jumps", Jumps)
