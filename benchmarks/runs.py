"""``stepformer bench runs``: how trainings went, from the ``metrics.jsonl`` of their run folders: curves, a table."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from stepformer.base.files import replacing
from stepformer.base.guard import json_of, read_text
from stepformer.cli.options import add
from stepformer.errors import InputError
from stepformer.show.export.pictures import color

HELP = """One line per run against its steps: the sequence and the global loss, and IoU and F1 on validation videos. The
global loss of a model that has learned nothing is the logarithm of the videos per step: 4.16 for 64."""

EXAMPLES = ["stepformer bench runs runs/paper runs/released --out curves.svg"]

PANELS = {"seq": "sequence loss", "glob": "global loss", "val_zs_iou": "IoU", "val_un_f1": "F1"}

Curve = list[tuple[int, float]]


def read_run(path: Path) -> dict[str, Curve]:
    """The curves of a run folder, or of a ``metrics.jsonl``: by number, (step, value)."""
    file = path / "metrics.jsonl" if path.is_dir() else path
    curves: dict[str, Curve] = {name: [] for name in PANELS}
    for line in read_text(file).splitlines():
        row = json_of(line, file)
        for name in PANELS:
            if name in row:
                curves[name].append((int(row["step"]), float(row[name])))
    if not any(curves.values()):
        raise InputError(f"{file}: no losses and no scores in it")
    return curves


def draw(runs: dict[str, dict[str, Curve]], out: Path) -> None:
    """One panel per number, one line per run."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 3), layout="constrained")
    for axis, (name, title) in zip(figure.subplots(1, len(PANELS)), PANELS.items(), strict=True):
        for i, (run, curves) in enumerate(runs.items()):
            if curves[name]:
                axis.plot(*zip(*curves[name], strict=True), linewidth=1.0, color=color(i), label=run)
        axis.set(title=title, xlabel="steps")
        axis.set_ylim(bottom=0)
    figure.axes[0].legend()
    with replacing(out) as temporary:
        figure.savefig(temporary, format=out.suffix[1:])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The runs, and where to draw them."""
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="run folders, or their metrics.jsonl")
    add(parser, "out")


def run(args: argparse.Namespace) -> int:
    """Reads the runs, draws them where asked, and prints the scores of every validation."""
    runs = {path.stem: read_run(path) for path in args.runs}
    if args.out:
        draw(runs, Path(args.out))
    if args.json:
        print(json.dumps(runs))
        return 0
    for name, curves in runs.items():
        steps = [step for step, _ in curves["val_zs_iou"]]
        print(f"| {name} | " + " | ".join(f"{step:,}" for step in steps) + " |\n|---|" + "---|" * len(steps))
        for number, title in PANELS.items():
            values = dict(curves[number])
            print(f"| {title} | " + " | ".join(f"{values.get(step, float('nan')):.3f}" for step in steps) + " |")
        print()
    return 0
