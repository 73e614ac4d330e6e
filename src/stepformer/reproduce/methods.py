"""The published methods of Tables 1 and 2 on simulated videos, fitted and scored on the same split.

The baselines must be trained on the dataset they are tested on (their key-steps are of its tasks); like the paper, and
unlike StepFormer, they therefore see the tested videos, without labels. What can be chosen is chosen on the
choosing videos, where the method is fitted first: Kukleva's share of background, and the drop line and read-out with
which Shen's ordered prototypes are localised, from the same grid as every other method.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from stepformer.core.model import Slots
from stepformer.evaluation.baselines import FeatureVideo, baseline
from stepformer.evaluation.validation import Trial, unsupervised
from stepformer.reproduce import scoring
from stepformer.reproduce.runs import Run

BACKGROUNDS = (0.0, 0.4)
MIN_UPDATES = 5_000
"""Steps of Kukleva's optimiser; the authors' 60 epochs are more on a dataset of the size they had."""


def feature_videos(trial: Trial) -> tuple[list[FeatureVideo], dict[str, int]]:
    """The videos of a trial as baselines take them, and the number of steps of each task."""
    videos: list[FeatureVideo] = []
    for batch, texts in zip(trial.batches, trial.texts, strict=True):
        for i, n in enumerate(batch.video_mask.sum(1).tolist()):
            said = batch.phrase_mask[i]
            times = batch.phrase_times[i][said].float().cpu().numpy()
            steps = int((batch.steps[i] >= 0).sum())
            at = len(videos)
            videos.append(
                FeatureVideo(
                    f"video{at}",
                    str(trial.tasks[at]),
                    batch.video[i, :n].float().cpu().numpy(),
                    phrase_vectors=batch.phrases[i][said].float().cpu().numpy(),
                    phrase_times_s=np.stack([times - 1, times + 1], 1),
                    step_vectors=texts[i, :steps].float().cpu().numpy(),
                    step_ids=trial.kinds[at, :steps],
                )
            )
    steps_of = {str(t): int(trial.kinds[trial.tasks == t].max()) + 1 for t in np.unique(trial.tasks)}
    return videos, steps_of


def discovery_scores(trial: Trial, fitted: Any, videos: Sequence[FeatureVideo]) -> scoring.Scores:
    """``un_*`` of clusters that a method names across the videos of a task."""
    return {f"un_{k}": v for k, v in unsupervised(trial, fitted.segment(videos)).items()}


def prototypes(trial: Trial, fitted: Any, videos: Sequence[FeatureVideo]) -> tuple[Trial, list[Slots]]:
    """A method's ordered prototypes as slots, and the trial with texts in the space that it learned."""
    out: list[Slots] = []
    texts = []
    at = 0
    for batch, given in zip(trial.batches, trial.texts, strict=True):
        members = videos[at : at + len(batch.video)]
        at += len(members)
        found = [torch.from_numpy(np.asarray(fitted.slots(v), np.float32)) for v in members]
        most = max(len(slots) for slots in found)
        # a video shorter than the number of prototypes has fewer: its last one repeats
        slots = torch.stack([torch.cat([s, s[-1:].expand(most - len(s), -1)]) for s in found])
        frames = batch.video.new_zeros(batch.video.shape)
        learned = given.clone()
        for i, video in enumerate(members):
            frames[i, : len(video.features)] = torch.from_numpy(fitted.frames(video)).to(frames)
            learned[i] = torch.from_numpy(fitted.texts(given[i].float().cpu().numpy(), video.task)).to(learned)
        out.append(Slots(slots.to(batch.video), frames, None))
        texts.append(learned)
    return replace(trial, texts=texts), out


def run_baseline(run: Run, stage: Any, device: str) -> dict[str, Any]:
    """Fits a published method on each split and scores it there."""
    name, setting = run.spec["method"], run.spec["setting"]
    options: dict[str, Any] = {"min_updates": MIN_UPDATES} if name == "kukleva" else {}
    # Kukleva's perceptron is so small that a GPU only waits for it
    where = "cpu" if name == "kukleva" else device

    def fit(videos: Sequence[FeatureVideo], steps: dict[str, int]) -> Any:
        return baseline(name, **options).fit(videos, steps, setting=setting, seed=run.seed, device=where)

    chosen: dict[str, Any] = {}
    config = None
    if name in ("kukleva", "shen"):
        videos, steps = feature_videos(stage.dev)
        fitted = fit(videos, steps)
        if name == "kukleva":
            tried = {
                share: discovery_scores(stage.dev, with_background(fitted, share), videos)["un_f1"]
                for share in BACKGROUNDS
            }
            options["background"] = max(tried, key=lambda share: tried[share])
            chosen = {"grid": {"background": options["background"], "dev": {"un_f1": tried[options["background"]]}}}
        else:
            own, outputs = prototypes(stage.dev, fitted, videos)
            config = scoring.choose_locate(own, outputs)
            chosen = {"grid": {"zero_shot": scoring.plain(config)}}
    found: dict[str, dict[str, scoring.Scores]] = {}
    for split in run.spec["splits"]:
        trial = stage.trial(split, scoring.MAIN_ENCODER)
        videos, steps = feature_videos(trial)
        fitted = fit(videos, steps)
        scores = discovery_scores(trial, fitted, videos)
        if config is not None:
            own, outputs = prototypes(trial, fitted, videos)
            scores |= scoring.locate_scores(own, outputs, config)
        found[split] = {scoring.MAIN_ENCODER: {key: round(float(value), 5) for key, value in scores.items()}}
    return {"chosen": chosen, "scores": {"grid": found}}


def with_background(fitted: Any, share: float) -> Any:
    """The same fitted Kukleva with another share of background."""
    return replace(fitted, options=replace(fitted.options, background=share))
