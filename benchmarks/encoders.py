"""``stepformer bench encoders``: how good encoders' vectors are for steps, on freely licensed clips marked by us.

The clips are the two CC BY hand-washing videos (``stepformer models pull demo-video``); the marks are
``data/step_labels.csv``, made by looking at the pictures five times per second. Any folder of clips with
a CSV of the same columns can be measured too.
"""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import encode, quality
from stepformer.base.arrays import unit
from stepformer.base.progress import Progress
from stepformer.cli.options import add, positive
from stepformer.errors import InputError

HELP = """Measures how well vectors tell a video's steps apart, name them and show where they change, on clips whose
steps are marked. Every clip is encoded at several phases of the one-second grid, so that a number does not depend on
where the seconds happen to fall. There are few clips: differences of a few hundredths mean nothing.

  own step     how often the nearest of the video's own steps is the right one
  R@5          how often a step's own text is among the five nearest of all texts
  ordered MoF  share of annotated seconds that are right when steps are assigned in order
  AUC          how often two seconds of one step are more alike than two of different steps
  boundary F1  of the best cut into the true number of pieces

Centred: without the video's own mean vector, and without that of its step texts."""

EXAMPLES = [
    "stepformer bench encoders",
    "stepformer bench encoders --encoders clip,univl:weights/ --json",
    "stepformer bench encoders --clips my_clips/ --labels my_steps.csv",
]

_RECALL_K = 5


@dataclass(frozen=True, slots=True)
class Marked:
    """One clip and its marked steps, in order of their start: (start_s, end_s, label)."""

    path: Path
    steps: tuple[tuple[float, float, str], ...]


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table; a number is None where the vectors have no text side or no structure."""

    name: str
    own_step: float | None = None
    own_step_centred: float | None = None
    recall_at_5: float | None = None
    ordered_mof: float | None = None
    ordered_mof_centred: float | None = None
    auc: float | None = None
    boundary_f1: float | None = None


@dataclass(slots=True)
class _Tally:
    """Counts of one row, summed over clips and phases."""

    right: dict[str, float] = field(default_factory=dict)
    of: dict[str, float] = field(default_factory=dict)

    def add(self, key: str, right: float, of: float) -> None:
        self.right[key] = self.right.get(key, 0.0) + right
        self.of[key] = self.of.get(key, 0.0) + of

    def row(self, name: str) -> Row:
        return Row(name, **{key: self.right[key] / self.of[key] for key in self.right if self.of[key]})


def read_labels(path: Path, clips: Path) -> list[Marked]:
    """A CSV of ``clip,start_s,end_s,label`` rows, with the folder its clips lie in."""
    steps: dict[str, list[tuple[float, float, str]]] = {}
    try:
        with path.open(newline="", encoding="utf-8") as stream:
            for number, row in enumerate(csv.DictReader(stream), 2):
                try:
                    start, end = float(row["start_s"]), float(row["end_s"])
                    steps.setdefault(row["clip"], []).append((start, end, row["label"].strip()))
                except (KeyError, TypeError, ValueError, AttributeError) as error:
                    raise InputError(f"{path}, line {number}: needs clip,start_s,end_s,label ({error})") from error
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error}") from error
    marked = [Marked(clips / name, tuple(sorted(rows))) for name, rows in steps.items()]
    for clip in marked:
        if not clip.path.is_file():
            raise InputError(f"{path} names {clip.path.name}, which is not in {clips}")
    if not marked:
        raise InputError(f"{path} marks no steps")
    return marked


def _own() -> tuple[Path, Path]:
    """The labels that come with the product, and the folder of their clips."""
    from stepformer.base import weights

    labels = Path(__file__).parent / "data" / "step_labels.csv"
    return Path(str(labels)), weights.pull("demo-video").parent


def _phased_clips(path: Path, encoder: Any, phase_s: float) -> Iterator[NDArray[np.uint8]]:
    """The encoder's clips of a file whose first second starts at ``phase_s``, in batches of a few."""
    from stepformer.media import VideoReader

    reader = VideoReader(path)
    rate, wants = float(encoder.rate_hz), encoder.wants
    count = int((float(reader.info.duration_s or 0.0) - phase_s) * rate)
    times = [max(0.0, phase_s + t) for i in range(count) for t in wants.times_s(i, rate)]
    kept: list[NDArray[np.uint8]] = []
    for _, _, picture in reader.frames_at(times, wants.size, wants.resize):
        kept.append(picture)
        if len(kept) == wants.frames:
            clip, kept = np.stack(kept), []
            yield clip[None] if wants.frames > 1 else clip


def _labels_at(clip: Marked, count: int, rate_hz: float, phase_s: float) -> NDArray[np.int64]:
    """The step in the middle of each vector's time, -1 for none."""
    middles = phase_s + (np.arange(count) + 0.5) / rate_hz
    labels = np.full(count, -1, np.int64)
    for index, (start, end, _) in enumerate(clip.steps):
        labels[(middles >= start) & (middles < end)] = index
    return labels


def _cuts(clip: Marked, count: int, rate_hz: float, phase_s: float) -> list[float]:
    edges = [edge for start, end, _ in clip.steps for edge in (start, end)]
    return quality.true_boundaries(edges, phase_s, phase_s + count / rate_hz, 1.0 / rate_hz)


def _add_structure(tally: _Tally, vectors: NDArray[Any], clip: Marked, labels: Any, rate: float, phase: float) -> None:
    auc, pairs = quality.within_between_auc(vectors, labels)
    tally.add("auc", auc * (pairs > 0), float(pairs > 0))
    true = _cuts(clip, len(vectors), rate, phase)
    found = phase + quality.boundaries(unit(vectors, np.float64), len(true) + 1) / rate
    tally.add("boundary_f1", quality.boundary_f1(list(found), true), 1.0)


def _add_text(tally: _Tally, vectors: Any, clip: Marked, labels: Any, pool: Any, column_of: Any) -> None:
    texts = pool[column_of]
    raw, centred = (quality.similarity(vectors, texts, centred=c) for c in (False, True))
    tally.add("own_step", *quality.own_step_accuracy(raw, labels, column_of))
    tally.add("own_step_centred", *quality.own_step_accuracy(centred, labels, column_of))
    tally.add("recall_at_5", *quality.recall_at(_RECALL_K, quality.similarity(vectors, pool), labels, column_of))
    tally.add("ordered_mof", *quality.ordered_mof(raw, labels))
    tally.add("ordered_mof_centred", *quality.ordered_mof(centred, labels))


def _add_baseline(
    tally: _Tally, clip: Marked, labels: Any, column_of: Any, pool: int, rate: float, phase: float
) -> None:
    """Chance for naming; cutting into equal parts for alignment and boundaries."""
    marked = labels[labels >= 0]
    distinct = len(set(column_of[np.unique(marked)]))
    tally.add("own_step", len(marked) / max(len(set(column_of)), distinct), len(marked))
    tally.add("recall_at_5", len(marked) * _RECALL_K / pool, len(marked))
    tally.add("ordered_mof", *quality.uniform_mof(labels))
    true = _cuts(clip, len(labels), rate, phase)
    equal = phase + np.arange(1, len(true) + 1) * len(labels) / rate / (len(true) + 1)
    tally.add("boundary_f1", quality.boundary_f1(list(equal), true), 1.0)


def measure(
    names: list[str], clips: list[Marked], others: list[str], phases: int = 4, *, quiet: bool = False
) -> list[Row]:
    """The table: a row for chance and equal parts, and rows for every encoder's vectors and structure."""
    from stepformer import encoders

    tallies: dict[str, _Tally] = {"chance / equal parts": _Tally()}
    texts = list(dict.fromkeys([label for clip in clips for _, _, label in clip.steps] + others))
    columns = [np.array([texts.index(label) for _, _, label in clip.steps]) for clip in clips]
    with Progress("encoding", len(names) * len(clips) * phases, "clips", quiet=quiet) as progress:
        for position, spec in enumerate(names):
            encoder = encoders.load(spec)
            pool = encoder.encode_text(texts)
            for clip, column_of in zip(clips, columns, strict=True):
                for phase in np.arange(phases) / phases / encoder.rate_hz:
                    encoded = encode.encoded(encoder, _phased_clips(clip.path, encoder, float(phase)))
                    labels = _labels_at(clip, len(encoded.vectors), encoder.rate_hz, float(phase))
                    tally = tallies.setdefault(spec, _Tally())
                    _add_text(tally, encoded.vectors, clip, labels, pool, column_of)
                    _add_structure(tally, encoded.vectors, clip, labels, encoder.rate_hz, float(phase))
                    if encoded.structure is not None:
                        tally = tallies.setdefault(f"{spec}, structure", _Tally())
                        _add_structure(tally, encoded.structure, clip, labels, encoder.rate_hz, float(phase))
                    if position == 0:
                        base = tallies["chance / equal parts"]
                        _add_baseline(base, clip, labels, column_of, len(texts), encoder.rate_hz, float(phase))
                    progress.advance()
    return [tally.row(name) for name, tally in tallies.items()]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this command."""
    add(parser, "encoders", "threads", encoders=["clip"], threads=1)
    parser.add_argument("--clips", type=Path, metavar="FOLDER", help="clips of your own (needs --labels)")
    parser.add_argument("--labels", type=Path, metavar="FILE", help="a CSV of clip,start_s,end_s,label")
    parser.add_argument("--phases", type=positive, default=4, metavar="N", help="phases of the one-second grid")


def run(args: argparse.Namespace) -> int:
    """Measures and prints the table."""
    from stepformer.errors import UsageError

    if (args.clips is None) != (args.labels is None):
        raise UsageError("--clips and --labels go together")
    labels, folder = (args.labels, args.clips) if args.labels else _own()
    clips = read_labels(labels, folder)
    others = (Path(__file__).parent / "data" / "other_steps.txt").read_text(encoding="utf-8").splitlines()
    rows = measure(args.encoders, clips, others, args.phases, quiet=args.json)
    count = sum(len(clip.steps) for clip in clips)
    pool = len({label for clip in clips for _, _, label in clip.steps} | set(others))
    if args.json:
        facts = {"clips": len(clips), "steps": count, "pool": pool, "phases": args.phases}
        print(json.dumps({**facts, "rows": [asdict(row) for row in rows]}, indent=2))
        return 0
    print(f"{len(clips)} clips, {count} marked steps, {pool} step texts in the pool, {args.phases} phases\n")
    print("| encoder | own step (centred) | R@5 | ordered MoF (centred) | within/between AUC | boundary F1 ±1 s |")
    print("|---|---|---|---|---|---|")
    for row in rows:
        own = f"{_cell(row.own_step)} ({_cell(row.own_step_centred)})"
        mof = f"{_cell(row.ordered_mof)} ({_cell(row.ordered_mof_centred)})"
        print(
            f"| {row.name} | {own} | {_cell(row.recall_at_5)} | {mof} | {_cell(row.auc)} | {_cell(row.boundary_f1)} |"
        )
    return 0


def _cell(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
