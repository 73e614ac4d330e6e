"""The intervals of ``stepformer bench claim``."""

import numpy as np

from benchmarks.claim import RULES, SPLITS, gap_table, gaps


def _row(name, iou, found, seed):
    """A row whose every video has this IoU, and this many of 100 labelled frames right."""
    units = {"tasks": np.arange(12) // 2, "locate": np.full((12, 4), iou)}
    units["discover"] = np.tile(np.array([found, 100, 100, found, 200]), (2, 12, 1))
    return {"closeness": 0.0, "clear": False, "row": name, "seed": seed,
            "units": {f"{s}, {e}": units for s in SPLITS for e in RULES}}  # fmt: skip


def test_a_difference_that_all_tasks_share_has_an_interval_of_its_own_size():
    rows = [_row("paper", 0.3, 40, seed) for seed in (0, 1)] + [_row("pooled32", 0.5, 25, seed) for seed in (0, 1)]
    found = gaps(rows)
    assert len(found) == 8
    assert {(g["metric"], g["gap"]) for g in found} == {("iou", -20.0), ("f1", 15.0)}
    assert all(np.allclose(g["interval"], g["gap"]) for g in found)
    assert "| 0 | usual | paper − pooled32, F1 | +15.0 [+15.0, +15.0] |" in gap_table(found)


def test_a_difference_of_single_tasks_is_not_told_from_chance():
    ours, theirs = _row("paper", 0.3, 40, 0), _row("frame K-means", 0.3, 40, 0)
    for units in theirs["units"].values():
        units["discover"] = units["discover"].copy()
        units["discover"][:, ::3, 0] = 60
        units["discover"][:, 1::3, 0] = 20
    assert all(g["interval"][0] < 0 < g["interval"][1] for g in gaps([ours, theirs]) if g["metric"] == "f1")


def test_a_difference_of_single_trainings_is_not_told_from_chance():
    """One of four trainings has the gap, on all tasks: intervals over tasks alone would call it certain."""
    rows = [_row("paper", 0.3, 40 + 40 * (seed == 0), seed) for seed in range(4)]
    rows += [_row("frame K-means", 0.3, 40, seed) for seed in range(4)]
    found = [g for g in gaps(rows) if g["metric"] == "f1"]
    assert all(g["gap"] == 10.0 and g["interval"][0] <= 0 < g["interval"][1] for g in found)
