"""``stepformer bench evaluate``: the whole of Table 1's scoring from ready predictions, in one process.

Predictions are made first and not timed: every video gets 12 to 20 segments at one per second, half of them real steps
with shifted ends, the others anywhere, and one vector per segment, 512 wide: its step's direction plus noise, or noise.
Timed is what scoring does: labels at 16 per second, predictions brought to that rate, K-means of all segments of each
task for every seed, the 60% kept, the matching, the scores.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from stepformer.cli.log import log
from stepformer.cli.measured import peak_mib, report
from stepformer.cli.options import add

if TYPE_CHECKING:
    from stepformer.data.records import Dataset
    from stepformer.evaluation.predictions import Prediction

HELP = """Scores CrossTask's 360 validation videos and COIN's 2,596 test videos under the Table 1 protocol, K-means
included, and reports the time and peak memory of each, and how they grow. Give the datasets with --crosstask and
--coin; one that is not given is replaced by made-up data with the same number of videos, tasks and steps, and the
report says so."""

EXAMPLES = [
    "stepformer bench evaluate --crosstask crosstask_release.tar.gz --coin COIN.json",
    "stepformer bench evaluate --json > evaluate.json",
]

WIDTH = 512
# videos, tasks, mean annotations per video, mean length in seconds
_MADE_UP = {"crosstask": (360, 18, 8, 290.0), "coin": (2596, 180, 4, 145.0)}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from stepformer.evaluation.table1 import Table1Options

    parser.add_argument("--crosstask", metavar="PATH", help="the CrossTask release")
    parser.add_argument("--coin", metavar="PATH", help="COIN's annotations")
    add(parser, "seeds", "threads", seeds=[*Table1Options().seeds], threads=1)


def run(args: argparse.Namespace) -> None:
    from stepformer.data import read_dataset

    rows = []
    idle_mib = peak_mib()
    # the smaller one first: the process's peak only ever grows
    for name, given, subset in (("crosstask", args.crosstask, "validation"), ("coin", args.coin, "testing")):
        log.info("%s: making predictions", name)
        if given:
            dataset, source = read_dataset(given, name).select(subset, annotated=True), f"real annotations, {subset}"
        else:
            dataset, source = made_up(*_MADE_UP[name]), "made-up annotations"
        rows.append({"dataset": name, "source": source, **measure(dataset, ready_predictions(dataset), args.seeds)})
    small, large = rows
    grown = ("videos", "segments", "label_frames", "total_s", "cpu_s", "peak_mib")
    growth = {name: large[name] / small[name] for name in grown}
    facts = {"threads": args.threads, "seeds": args.seeds, "width": WIDTH, "peak_mib_before": idle_mib}
    report(args, {**facts, "growth": growth}, rows)


def made_up(n_videos: int, n_tasks: int, per_video: int, length_s: float) -> Dataset:
    """A dataset of the given size with random timelines."""
    import numpy as np

    from stepformer.data.records import Annotation, Dataset, Task, VideoRecord

    rng = np.random.default_rng(0)
    steps = [int(n) for n in rng.integers(4, 11, n_tasks)]
    tasks = {f"t{t}": Task(f"t{t}", f"task {t}", tuple(f"step {k}" for k in range(n))) for t, n in enumerate(steps)}
    videos = []
    for v in range(n_videos):
        t = v % n_tasks
        duration = float(max(20.0, rng.normal(length_s, length_s / 4)))
        cuts = np.sort(rng.random(2 * per_video)) * duration
        chosen = rng.integers(steps[t], size=per_video)
        rows = tuple(
            Annotation(int(k), float(a), float(b), f"step {k}")
            for k, a, b in zip(chosen, cuts[::2], cuts[1::2], strict=True)
        )
        videos.append(VideoRecord(f"v{v}", f"t{t}", duration, rows, "testing"))
    return Dataset("made-up", tasks, tuple(videos))


def ready_predictions(dataset: Dataset) -> dict[str, Prediction]:
    """Predictions with vectors for every annotated video: noisy, but with something in them to find."""
    import numpy as np

    from stepformer.evaluation.predictions import Prediction

    rng = np.random.default_rng(0)
    direction = {
        task.id: rng.normal(size=(len(task.steps), WIDTH)).astype(np.float32) for task in dataset.tasks.values()
    }
    out = {}
    for record in dataset.videos:
        if not record.labels:
            continue
        length_s = record.duration_s or max(a.end_s for a in record.labels) + 5.0
        n = max(1, int(np.ceil(length_s)))
        count = min(n, int(rng.integers(12, 21)))
        edges = np.unique(np.r_[0, rng.integers(1, n + 1, count - 1), n]) if count > 1 else np.array([0, n])
        ids = np.repeat(np.arange(len(edges) - 1), np.diff(edges))
        vectors = rng.normal(size=(len(edges) - 1, WIDTH)).astype(np.float32)
        for i in rng.permutation(len(record.labels))[: count // 2]:
            a = record.labels[int(i)]
            start = int(np.clip(round(a.start_s + rng.normal()), 0, n - 1))
            stop = int(np.clip(round(a.end_s + rng.normal()), start + 1, n))
            ids[start:stop] = len(vectors)
            vectors = np.concatenate([vectors, direction[record.task][a.step][None] + vectors[:1]])
        ids[ids % 3 == 0] = -1  # a third of the slots is dropped
        out[record.key] = Prediction(ids=ids, rate_hz=1.0, vectors=vectors, duration_s=float(length_s))
    return out


def measure(dataset: Dataset, predictions: dict[str, Prediction], seeds: Sequence[int]) -> dict[str, Any]:
    """Scores one dataset and says what it took; ``peak_mib`` is what the whole process ever held until then."""
    from stepformer.evaluation.protocols import prepare, score
    from stepformer.evaluation.table1 import Table1Options

    log.info("scoring %d videos", len(predictions))
    started, started_cpu = time.perf_counter(), time.process_time()
    prepared = prepare(dataset, predictions, "segments")
    ready = time.perf_counter()
    result = score(prepared, "table1", Table1Options(seeds=tuple(seeds)))
    done, done_cpu = time.perf_counter(), time.process_time()
    tasks = prepared.tasks.values()
    return {
        "videos": prepared.videos, "tasks": len(prepared.tasks),
        "segments": sum(len(set(ids[ids >= 0].tolist())) for task in tasks for ids in task.ids),
        "label_frames": sum(len(labels) for task in tasks for labels in task.labels),
        "predictions_mib": sum(p.vectors.nbytes for p in predictions.values() if p.vectors is not None) / 2**20,
        "prepare_s": ready - started, "score_s": done - ready, "total_s": done - started,
        "cpu_s": done_cpu - started_cpu, "peak_mib": peak_mib(), "f1": result.values["f1"],
    }  # fmt: skip
