"""``stepformer bench published``: Kukleva et al. and controls on the real visual features of GTEA and Breakfast."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.spaces import Labelled, align_spaces
from stepformer.cli.options import add
from stepformer.errors import InputError

HELP = """Fits Kukleva et al. (2019) and controls on GTEA (28 egocentric kitchen videos, 7 activities by 4 people; steps
are 10 verbs) and on the five videos that Kukleva et al. published with their code, and prints Table 1's scores. No
labels are used in fitting; the number of clusters is the task's number of steps; nothing is background, because both
datasets are labelled almost throughout. Of GTEA only the four activities on which no option was chosen are scored.

--data holds gtea/gtea_features.npz (for each video ID|A: features of a CNN, ID|X: class scores, ID|Y: labels) with
label_names.json, and breakfast/ in the layout of Kukleva et al.'s code."""

EXAMPLES = ["stepformer bench published --data datasets", "stepformer bench published --data datasets --json"]

RATE_HZ = 15.0  # of both datasets' features
DEV_TASKS = ("Cheese", "Coffee", "Peanut")
"""Activities of GTEA on which the options without order were chosen."""
NO_ORDER = (("min_updates", 0), ("standardize", False), ("spread", 2.0), ("decode", False))
_KUKLEVA, _KMEANS = (("min_updates", 0),), (("keep", 1.0), ("time_weight", 0.0))
# label, what the method sees of the frames (:func:`seen`), its kind, setting and options
ROWS: tuple[tuple[str, str, str, Any, tuple[tuple[str, Any], ...]], ...] = (
    ("uniform, as many steps", "raw", "uniform", "", ()),
    ("K-means", "raw", "kmeans", "", _KMEANS),
    ("K-means, spaces aligned", "aligned", "kmeans", "", _KMEANS),
    ("Kukleva et al., one model per task", "blocks", "kukleva", "weak", _KUKLEVA),
    ("Kukleva et al., one model for all", "blocks", "kukleva", "unsupervised", _KUKLEVA),
    ("Kukleva et al., spaces aligned", "aligned", "kukleva", "weak", _KUKLEVA),
    ("Kukleva et al., no order", "aligned", "kukleva", "weak", NO_ORDER),
    ("Kukleva et al., given the labels (a bound, not a result)", "labels", "kukleva", "weak", _KUKLEVA),
)


def read_gtea(folder: Path) -> list[Labelled]:
    """All videos of GTEA, by id such as ``S2_Coffee_C1``: person, activity, camera.

    Features come from four networks: each person's from the one trained on the others, and their
    hidden spaces are unrelated.
    """
    with np.load(folder / "gtea_features.npz", allow_pickle=False) as arrays:
        ids = sorted({key.split("|")[0] for key in arrays.files})
        return [
            Labelled(i, i.split("_")[1], arrays[f"{i}|A"].astype(np.float32), arrays[f"{i}|Y"].astype(np.int64) - 1,
                     RATE_HZ, i.split("_")[0])
            for i in ids
        ]  # fmt: skip


def read_breakfast(folder: Path) -> list[Labelled]:
    """All videos of Breakfast that are there: a line of numbers per frame, a label per line; ``SIL`` is background."""
    root = folder / "dummy_data" if (folder / "dummy_data").is_dir() else folder
    lines = (root / "mapping" / "mapping.txt").read_text("utf-8").splitlines()
    names = [line.split()[1] for line in lines if line.strip()]
    number = {name: i for i, name in enumerate(n for n in names if n != "SIL")} | {"SIL": -1}
    out = []
    for path in sorted((root / "features").glob("*/*.txt")):
        labels = [number[line] for line in (root / "groundTruth" / path.stem).read_text("utf-8").split()]
        features = np.loadtxt(path, dtype=np.float32, ndmin=2)
        out.append(Labelled(path.stem, path.parent.name, features, np.array(labels, np.int64), RATE_HZ))
    return out


def read(data: Path) -> dict[str, list[Labelled]]:
    """The videos that are scored, by dataset."""
    out = {}
    if (data / "gtea").is_dir():
        out["GTEA"] = [video for video in read_gtea(data / "gtea") if video.task not in DEV_TASKS]
    if (data / "breakfast").is_dir():
        out["Breakfast"] = read_breakfast(data / "breakfast")
    if not out:
        raise InputError(f"{data} has neither a gtea nor a breakfast folder; give another with --data")
    return out


def seen(videos: Sequence[Labelled], how: str) -> list[npt.NDArray[np.float32]]:
    """The frames that a method sees: as they are (raw), brought into one space (aligned), in columns of their space's
    own (blocks: a linear layer then has a part for each), or the labels themselves.
    """
    if how == "aligned":
        return align_spaces(videos)
    if how == "labels":
        kinds = 2 + max(int(video.labels.max()) for video in videos)
        return [np.eye(kinds, dtype=np.float32)[video.labels + 1] for video in videos]
    spaces = sorted({video.space for video in videos})
    if how == "raw" or len(spaces) == 1:
        return [video.features for video in videos]
    return [np.hstack([v.features if v.space == s else np.zeros_like(v.features) for s in spaces]) for v in videos]


def trial_of(videos: Sequence[Labelled], frames: Sequence[npt.NDArray[np.float32]]) -> Any:
    """Videos with what a method sees of them as a trial; a task's steps are the labels that occur in its videos."""
    from stepformer.evaluation.annotated import padded

    tasks = sorted({video.task for video in videos})
    rows = []
    for video, x in zip(videos, frames, strict=True):
        every = np.unique(np.concatenate([v.labels[v.labels >= 0] for v in videos if v.task == video.task]))
        own = np.unique(video.labels[video.labels >= 0])
        labels = np.where(video.labels >= 0, np.searchsorted(own, video.labels), -1)
        said = np.zeros((0, x.shape[1]), np.float32)
        rows.append((x, labels, None, said, np.zeros(0, np.float32), np.searchsorted(every, own)))
    return padded(rows, np.array([tasks.index(v.task) for v in videos]), RATE_HZ)


def counts(videos: Sequence[Labelled], row: int, seeds: Sequence[int]) -> npt.NDArray[np.int64]:
    """(seeds, K-means seeds, V, 5) counts of every video, of one of the rows."""
    from stepformer.evaluation.baselines import baseline
    from stepformer.evaluation.validation import FULL, Segments, discover_units
    from stepformer.reproduce.methods import Method, Stage, answer, feature_videos

    _, how, kind, setting, options = ROWS[row]
    trial = trial_of(videos, seen(videos, how))
    found = []
    for seed in seeds:
        stage = Stage(trial, False, seed)
        if kind == "kukleva":
            members, steps = feature_videos(stage)
            fitted = baseline(kind, **dict(options)).fit(members, steps, setting=setting, seed=seed)
            segments: Segments = fitted.segment(members), None
        else:
            discover = answer(Method(kind), stage).discover
            assert discover is not None
            segments = discover(dict(options))
        found.append(discover_units(trial, segments, FULL))
    return np.stack(found)


def measure(videos: Sequence[Labelled], seeds: Sequence[int]) -> list[list[Any]]:
    """For each row its F1, precision, recall and MoF, and the difference of the first row's F1, as cells."""
    from stepformer.evaluation.statistics import by_task, discovery_scores, f1_draws, interval
    from stepformer.evaluation.tables import Cell

    names = np.array([video.task for video in videos])
    every = np.stack([counts(videos, row, seeds) for row in range(len(ROWS))]).astype(np.float64)  # (R, S, T, V, 5)
    drawn = f1_draws(every.reshape(len(ROWS), -1, *every.shape[3:]), names, "videos")
    per_task = np.stack([every[:, :, :, group].sum(3) for group in by_task(names)], 3)  # (R, S, T, tasks, 5)
    scores = [values.mean((2, 3)) for values in discovery_scores(per_task).values()]  # (R, S) each
    cells = []
    for row in range(len(ROWS)):
        shown = [Cell(values[row].mean(), values[row].std(ddof=1) if len(seeds) > 1 else None) for values in scores]
        gap = Cell(scores[0][0].mean() - scores[0][row].mean(), interval=interval(drawn[:, 0] - drawn[:, row]))
        cells.append([*shown, gap if row else None])
    return cells


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    add(parser, "data", "seeds", data={"required": True})


def run(args: argparse.Namespace) -> int:
    """Fits, scores and prints."""
    from stepformer.evaluation.tables import Table
    from stepformer.reproduce.execute import stamp
    from stepformer.reproduce.report import with_bold

    datasets = read(Path(args.data))
    columns, rows = ["method"], [[label] for label, *_ in ROWS]
    for name, videos in datasets.items():
        columns += [f"{name} {metric}" for metric in ("F1", "P", "R", "MoF", "F1: uniform − row")]
        for row, cells in zip(rows, measure(videos, args.seeds), strict=True):
            row.extend(cells)
    notes = (
        ", ".join(f"{len(videos)} videos of {name}" for name, videos in datasets.items()),
        f"Mean ± standard deviation over seeds {args.seeds}; differences: paired bootstrap over videos, 95%.",
        ", ".join(map(str, stamp().values())),
    )
    table = Table("Published methods on GTEA and Breakfast, real features", tuple(columns), with_bold(rows), notes)
    print(json.dumps(table.to_dict(), indent=2) if args.json else table.to_markdown())
    return 0
