"""Prints from results.json what the tables leave out: calibration, the text sources, and what dev said of L_smooth.

python docs/results/show.py
"""

import json
import statistics
from pathlib import Path

RUNS = list(json.loads((Path(__file__).parent / "results.json").read_text("utf-8"))["runs"].values())


def show(title: str, rows: list[dict[str, float]], names: tuple[str, ...]) -> None:
    """Mean and standard deviation over seeds, in percent."""
    cells = [[100 * row[name] for row in rows] for name in names]
    print(f"{title:<44}", *(f"{n} {statistics.mean(c):.1f} ± {statistics.stdev(c):.1f}" for n, c in zip(names, cells)))


def scores(name: str, view: str, encoder: str = "concepts") -> list[dict[str, float]]:
    """Test scores of the runs of a name, one a seed."""
    return [run["scores"][view]["test"][encoder] for run in RUNS if run["name"] == name]


for encoder in ("concepts", "plain", "joint"):
    columns = ("zs_iou", "zs_precision", "zs_recall", "zs_mof")
    show(f"ground-truth text, 10% line, {encoder}", scores("text", "fixed", encoder), columns)
for name in ("default", "default all sources"):
    show(f"{name}, test", scores(name, "grid"), ("zs_iou", "un_f1"))
for name in ("default", "default without smooth"):
    show(f"{name}, choosing videos", [r["chosen"]["grid"]["dev"] for r in RUNS if r["name"] == name], ("un_f1",))
