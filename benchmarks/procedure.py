"""``stepformer bench procedure``: common steps of simulated tasks against controls.

A split of a simulated world gives videos of tasks with known steps; a model's slots (or the true segments) are cut into
steps, clustered across each task's videos, and scored by the paper's Table 1 matching (one assignment of clusters to
steps per task, F1 over frames, averaged over tasks). Controls get the same segments and the true number of steps.
"""

from __future__ import annotations

import argparse
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np

from stepformer.app.procedure.finding import (
    FEWEST_PHRASES,
    group_likeness,
    least_likeness,
    likeness,
    stranger,
    stretches_of,
)
from stepformer.app.procedure.records import VideoSteps
from stepformer.base.arrays import unit
from stepformer.cli.options import add
from stepformer.errors import UsageError
from stepformer.timeline import Timeline

HELP = """Clusters the steps of simulated tasks and compares the result with K-means, equal parts of the video and
random clusters, all on the same segments and with the true number of steps; then with the number that the product
chooses itself. "order" is the share of pairs of common steps in the true order. Whether videos belong together is
tested on groups of one task, of as many tasks as videos, and of one task with one foreign video; the control is the
cosine of mean vectors, its threshold chosen on the groups themselves (5% false alarms). With --data, the same for
YouCook2's recipes by their speech alone, and for real clips. Options were chosen on dev; test is CrossTask's validation
timelines, and the other half of YouCook2. Features are simulated."""

_NOTHING = Timeline("", 1.0, ())
EXAMPLES = [
    "stepformer bench procedure --world world.safetensors",
    "stepformer bench procedure --world world.safetensors --split dev --limit 120",
]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    add(parser, "world", "data", "model", "split", "limit", "seed", world={"required": True}, limit=180)


def run(args: argparse.Namespace) -> int:
    """Measures and prints."""
    from stepformer.app.discover.loading import load_model
    from stepformer.data.simulator import Simulator
    from stepformer.data.world import load_world
    from stepformer.encoders.reading import Features
    from stepformer.evaluation.validation import make_trial

    if args.limit < 4:
        raise UsageError("--limit is at least 4 videos")
    trial = make_trial(Simulator(load_world(args.world)), args.split, args.limit, args.seed)
    model = load_model(args.model)
    labels = trial.task_labels()
    frames = [
        video[:n].numpy()
        for batch in trial.batches
        for video, n in zip(batch.video, batch.video_mask.sum(1).tolist(), strict=True)
    ]
    cases: dict[str, list[tuple[Any, Any]]] = {"true segments": [], "discovered": []}
    for vectors, truth in zip(frames, labels, strict=True):
        cases["true segments"].append(_true_steps(vectors, truth))
        found = model.find(Features(vectors), labels="none")
        spans = [(round(step.start_s), max(round(step.start_s) + 1, round(step.end_s))) for step in found.timeline]
        from stepformer.app.procedure import from_findings

        cases["discovered"].append((from_findings([found])[0].vectors, spans))
    rows = [row for name, steps in cases.items() for row in score_case(name, steps, labels, trial.tasks, args.seed)]
    foreign = [
        float((truth[a:b] < 0).mean() > 0.5)
        for (_, spans), truth in zip(cases["discovered"], labels, strict=True)
        for a, b in spans
    ]
    silent = [VideoSteps(_NOTHING, np.zeros((0, 1)), stretches_of(vectors)) for vectors in frames]
    means = unit(np.stack([unit(vectors).mean(0) for vectors in frames]))
    pairs = likeness(silent, model.bank())
    sets: dict[str, tuple[Any, Any, tuple[int, ...], bool]] = {
        "simulated": (pairs, trial.tasks, (2, 3, 4, 6), False),
        "control": (means @ means.T, trial.tasks, (2, 3, 4, 6), True),
    }
    if args.data:
        spoken, recipes = narrated(Path(args.data), "dev" if args.split == "dev" else "test", model)
        sets["YouCook2, speech alone"] = (likeness(spoken, model.bank()), recipes, (2, 3), False)
        shown, tasks = real_clips(model)
        sets["real dev clips"] = (likeness(shown, model.bank()), tasks, (2, 3, 4), False)
    different = {
        kind: {size: belonging(alike, tasks, args.seed, size, control) for size in sizes}
        for kind, (alike, tasks, sizes, control) in sets.items()
    }
    strange = {size: strangers(pairs, trial.tasks, args.seed, size) for size in (4, 6)}
    result = {
        "called different": different,
        "stranger named, another named, named where there is none": strange,
        "background_share": round(float(np.mean(foreign)), 4) if foreign else None,
        "split": args.split, "videos": len(frames), "tasks": len(set(trial.tasks.tolist())),
        "features": "simulated", "rows": rows,
    }  # fmt: skip
    if args.json:
        print(json.dumps(result, indent=2))
        return 0
    print(f"{result['videos']} {args.split} videos of {result['tasks']} tasks, features {result['features']}")
    if foreign:
        print(f"of the steps discovered, {np.mean(foreign):.2f} are mostly background in the truth")
    for kind, sizes in different.items():
        for size, (one, others) in sizes.items():
            print(
                f"{kind}: called different: {one:.2f} of groups of {size} videos of one task, {others:.2f} of as many"
            )
    for size, (right, wrong, none) in strange.items():
        print(f"{size} videos, one of another task: named {right:.2f}, another named {wrong:.2f}; named where there is "
              f"none: {none:.2f}")  # fmt: skip
    print(f"{'segments':<15} {'clusters':<22} {'F1':>6} {'order':>6} {'steps off':>10}")
    for row in rows:
        off = "" if row["count_error"] is None else f"{row['count_error']:.2f}"
        print(f"{row['segments']:<15} {row['clusters']:<22} {row['f1']:>6.3f} {row['order']:>6.3f} {off:>10}")
    return 0


def narrated(data: Path, half: str, model: Any) -> tuple[list[VideoSteps], Any]:
    """What is said in the videos of one half of YouCook2, and the recipe of each (V,)."""
    from benchmarks.spoken import load_youcook2
    from stepformer.narration import extract_phrases

    videos, recipes = [], []
    for video in load_youcook2(data / "youcook2" / "youcook2_asr_steps.json.gz"):
        if video.half == half:
            texts = [phrase.text for phrase in extract_phrases(video.cues) if not phrase.chatter]
            if len(texts) >= FEWEST_PHRASES:
                videos.append(VideoSteps(_NOTHING, np.zeros((0, 1)), said=model.encoder.encode_text(texts)))
                recipes.append(video.recipe)
    return videos, np.array(recipes)


def real_clips(model: Any) -> tuple[list[VideoSteps], Any]:
    """The real dev clips of ``bench real``, and what each shows (V,): two are of hand washing."""
    from benchmarks.real_clips import clips

    found = [video for _, video in clips(model)[0]["dev"]]
    videos = [VideoSteps(_NOTHING, np.zeros((0, 1)), stretches_of(video.features.vectors)) for video in found]
    return videos, np.array([video.name.rstrip("-0123456789") for video in found])


def belonging(
    pairs: Any, tasks: Any, seed: int, size: int, control: bool = False, draws: int = 8
) -> tuple[float, float]:
    """Shares of groups of ``size`` videos of one task, and of as many tasks, that are said not to belong together, by
    the likeness of pairs (V, V)."""
    rng = np.random.default_rng(seed)
    has = {task: np.flatnonzero(tasks == task) for task in np.unique(tasks)}
    groups = [rng.choice(own, size, replace=False) for own in has.values() if len(own) >= size for _ in range(draws)]
    some = [rng.choice(list(has), size, replace=False) for _ in range(draws * len(has))] if len(has) >= size else []
    mixed = [[rng.choice(has[task]) for task in picked] for picked in some]
    alike = [np.array([group_likeness(pairs[np.ix_(group, group)]) for group in kind]) for kind in (groups, mixed)]
    least = np.quantile(alike[0], 0.05) if control and len(alike[0]) else least_likeness(size)
    one, others = (float((kind < least).mean()) if len(kind) else float("nan") for kind in alike)
    return one, others


def strangers(pairs: Any, tasks: Any, seed: int, size: int, draws: int = 8) -> tuple[float, float, float]:
    """Of groups of one task with one video of another: shares in which that one is named, and in which another one is;
    then of groups of one task, the share in which any is."""
    rng = np.random.default_rng(seed)
    has = {task: np.flatnonzero(tasks == task) for task in np.unique(tasks)}
    right, wrong, none = [], [], []
    for task, own in has.items():
        for _ in range(draws):
            if len(own) >= size - 1:
                other = rng.choice([i for i in range(len(tasks)) if tasks[i] != task])
                group = [*rng.choice(own, size - 1, replace=False), other]
                found = stranger(pairs[np.ix_(group, group)])
                right.append(found == size - 1)
                wrong.append(found not in (None, size - 1))
            if len(own) >= size:
                group = list(rng.choice(own, size, replace=False))
                none.append(stranger(pairs[np.ix_(group, group)]) is not None)
    named, another, falsely = (float(np.mean(kind)) if kind else float("nan") for kind in (right, wrong, none))
    return named, another, falsely


def _true_steps(vectors: Any, truth: Any) -> tuple[Any, list[tuple[int, int]]]:
    """Mean vectors and spans of the runs of one label."""
    edges = [0, *(np.flatnonzero(np.diff(truth)) + 1).tolist(), len(truth)]
    spans = [(a, b) for a, b in itertools.pairwise(edges) if truth[a] >= 0]
    means = [vectors[a:b].mean(0) for a, b in spans]
    return np.asarray(means, np.float32).reshape(-1, vectors.shape[1]), spans


def score_case(
    name: str, steps: list[tuple[Any, Any]], labels: list[Any], tasks: Any, seed: int
) -> list[dict[str, Any]]:
    """One row a way of clustering: F1 and order, averaged over the tasks with at least three videos."""
    from stepformer.app.procedure.clustering import choose_count, cluster_steps
    from stepformer.evaluation.kmeans import kmeans
    from stepformer.evaluation.metrics import score_task

    totals: dict[str, list[tuple[float, float, float | None]]] = {}
    for task in np.unique(tasks):
        members = [int(i) for i in np.flatnonzero(tasks == task)]
        if len(members) < 3 or sum(len(steps[i][1]) > 0 for i in members) < 2:
            continue
        vectors = [steps[i][0] for i in members]
        places = [np.array([(a + b) / 2 / len(labels[i]) for a, b in steps[i][1]]) for i in members]
        true = len({k for i in members for k in labels[i].tolist() if k >= 0})
        flat, cuts = unit(np.concatenate(vectors)), np.cumsum([len(v) for v in vectors])[:-1]
        rng = np.random.default_rng((seed, int(task)))
        chosen, _ = choose_count(vectors, places, seed)
        answers = {
            "ours": list(cluster_steps(vectors, places, true, seed).labels),
            "K-means": np.split(kmeans(flat, true, seed=seed, restarts=4).labels, cuts),
            "equal parts of video": [np.minimum((p * true).astype(int), true - 1) for p in places],
            "random": np.split(rng.integers(true, size=len(flat)), cuts),
            "ours, number chosen": list(chosen.labels),
        }
        for way, found in answers.items():
            predictions = [np.full(len(labels[i]), -1) for i in members]
            for row, i, path in zip(predictions, members, found, strict=True):
                for (a, b), cluster in zip(steps[i][1], path.tolist(), strict=True):
                    row[a:b] = cluster
            truth = [labels[i] for i in members]
            error = float(abs(chosen.count - true)) if way.endswith("chosen") else None
            score = score_task(predictions, truth)
            totals.setdefault(way, []).append((float(score.f1), _order(predictions, truth), error))
    return [
        {
            "segments": name, "clusters": way, "f1": round(float(np.mean([v[0] for v in values])), 4),
            "order": round(float(np.mean([v[1] for v in values])), 4),
            "count_error": None if values[0][2] is None else round(float(np.mean([v[2] or 0.0 for v in values])), 3),
            "tasks": len(values),
        }
        for way, values in totals.items()
    ]  # fmt: skip


def _order(predictions: list[Any], truth: list[Any]) -> float:
    """Share of pairs of clusters, in the order found, whose steps stand so in the truth; clusters stand for the step
    they share most frames with, and pairs that stand for one step are not counted. 0.5 is chance."""
    from stepformer.app.procedure.finding import best_order, precedence

    def firsts(rows: list[Any]) -> list[Any]:
        return [row[np.concatenate(([True], np.diff(row) != 0))] if len(row) else row for row in rows]

    flat, labels = np.concatenate(predictions), np.concatenate(truth)
    number, kinds = int(flat.max(initial=-1)) + 1, int(labels.max(initial=-1)) + 1
    if number < 2 or kinds < 2:
        return 0.5
    stands = np.array(
        [np.bincount(labels[(flat == c) & (labels >= 0)], minlength=kinds).argmax() for c in range(number)]
    )
    places = np.array([np.mean([np.flatnonzero(r == c).mean() / len(r) for r in predictions if (r == c).any()] or [0.5])
                       for c in range(number)])  # fmt: skip
    order = best_order(precedence(firsts(predictions), number)[0], places)
    true_places = np.array([np.mean([np.flatnonzero(r == k).mean() / len(r) for r in truth if (r == k).any()] or [0.5])
                            for k in range(kinds)])  # fmt: skip
    true_order = best_order(precedence(firsts(truth), kinds)[0], true_places)
    rank = np.empty(kinds, np.int64)
    rank[true_order] = np.arange(kinds)
    found = rank[stands[order]]
    pairs = [(a, b) for i, a in enumerate(found) for b in found[i + 1 :] if a != b]
    return float(np.mean([a < b for a, b in pairs])) if pairs else 0.5
