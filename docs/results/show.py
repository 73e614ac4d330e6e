"""Prints from results.json what the tables leave out: longer trainings, what the choosing videos said, late trainings.

python docs/results/show.py
"""

import json
import statistics
from collections.abc import Callable
from pathlib import Path

RUNS = list(json.loads((Path(__file__).parent / "results.json").read_text("utf-8"))["runs"].values())
TRAININGS = [run for run in RUNS if run["kind"] == "train"]
Scores = dict[str, float]


def test(run: dict) -> Scores:
    """Scores on the test videos with the preset's own inference."""
    return run["scores"]["own"]["test"]["concepts"]


def chosen(run: dict) -> Scores:
    """The best scores of the grid on the choosing videos (held-out COIN tasks)."""
    return run["chosen"]["grid"]["dev"]


def show(title: str, runs: list[dict], of: Callable[[dict], Scores]) -> None:
    """Mean and standard deviation over seeds, in percent."""
    cells = []
    for name in ("zs_iou", "un_f1"):
        values = [100 * of(run)[name] for run in runs]
        spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
        cells.append(f"{name} {statistics.mean(values):.1f}{spread}")
    print(f"{title:<52}", *cells, f"({len(runs)} seeds)")


def named(name: str, steps: int) -> list[dict]:
    """Trainings of one name and length."""
    return [run for run in TRAININGS if run["name"] == name and run["training"]["steps"] == steps]


print("longer trainings of the default preset")
for name, steps in (("default", 1200), ("default long", 3000), ("default long", 9000), ("default long concepts", 3000)):
    show(f"  {name}, {steps} steps, choosing videos", named(name, steps), chosen)
    show(f"  {name}, {steps} steps, test", named(name, steps), test)
print("what the choosing videos say of the two regularisers")
for name in ("default", "default without div", "default without smooth"):
    show(f"  {name}", named(name, 1200), chosen)
print("trainings in which nearly all slots are still in use at the end: the late ones")
for run in sorted(TRAININGS, key=lambda r: (r["name"], r["seed"])):
    share = test(run)["un_slots"] / run["spec"]["config"]["model"]["slots"]
    if run["name"].startswith("default") and share > 0.8:
        print(
            f"  {run['name']}, seed {run['seed']}: {100 * share:.0f}% of the slots, IoU {100 * test(run)['zs_iou']:.1f}"
        )
