"""Tables and sentences out of made-up results whose numbers can be checked by hand."""

import json
from types import MappingProxyType

import numpy as np
import pytest

from stepformer.errors import InputError
from stepformer.evaluation.statistics import interval, mean_draws
from stepformer.reproduce import plan
from stepformer.reproduce.execute import RunStore
from stepformer.reproduce.plan import Setup, plan_entry, plan_table
from stepformer.reproduce.report import (
    Difference,
    Shown,
    build_table,
    differences,
    spearman,
    write_plan,
    write_tables,
)


class Videos:
    """A source without any video."""

    fingerprint, dim, device, about = "f", 64, "cpu", "Simulated features on made-up videos."
    datasets = MappingProxyType({"test": "crosstask", "procel": "procel", "coin_test": "coin"})
    real = False
    has_texts = narrated = has_dev = True


SETUP = Setup(Videos(), (0, 1, 2), 5, 4)
TASKS = np.arange(60) // 10


@pytest.fixture
def table(tmp_path):
    """A function that fills every row of a table; ``value(label, seed)`` is its IoU and its F1."""

    def make(name, value, only=None):
        rows = plan_table(name, SETUP)
        store = RunStore(tmp_path / "runs")
        for row in rows:
            for seed, run in row.runs.items():
                if only is not None and row.label not in only:
                    continue
                share = value(row.label, seed)
                hits = np.round(1000 * share).astype(int)  # of 1,000 predicted and 1,000 labelled frames
                counts = np.tile(np.array([hits, 1000, 1000, hits, 1000]), (1, 60, 1))
                units = {"locate": np.full((60, 4), share), "discover": counts, "tasks": TASKS}
                for place in Videos.datasets:
                    store.add(run, place, units, {"chosen": {}})
        return build_table(name, plan_entry(name, rows, SETUP), store)

    return make


def rows_of(made):
    return {row["method"]: row for row in made.to_dict()["rows"]}


def test_rank_correlation_with_ties():
    assert spearman([1, 2, 3], [10, 20, 30]) == pytest.approx(1)
    assert spearman([1, 2, 3, 4], [1, 3, 2, 4]) == pytest.approx(0.8)  # 1 - 6·2 / (4·15)
    assert spearman([1, 1, 1], [1, 2, 3]) != spearman([1, 1, 1], [1, 2, 3])  # NaN


def test_better_is_said_only_where_the_interval_says_so():
    assert Difference(0.1, (0.03, 0.19), (0.02, 0.2)).verdict == "better"
    assert Difference(0.1, (0.03, 0.19), (-0.02, 0.2)).verdict == "level"  # not together with the column's others
    assert Difference(-0.1, (-0.19, -0.03), (-0.2, -0.02)).verdict == "worse"
    assert Difference(0.0004, (0.0002, 0.0009), (0.0001, 0.001)).verdict == "level"  # it prints as 0.0


@pytest.mark.parametrize("tasks", [4, 6])
def test_an_interval_covers_those_over_videos_and_over_tasks(tasks):
    rng = np.random.default_rng(0)
    of = np.arange(24) % tasks
    ours, theirs = rng.random((2, 24, 4)) + rng.random((tasks, 1))[of] * [[[1]], [[0]]]  # tasks differ in the lead

    class Store:
        def units(self, run, place):
            return {"locate": {"a": ours, "b": theirs}[run], "tasks": of}

    rows = [
        Shown(i, "none", "control", True, {}, [{"id": i, "scores": {"test": {}}, "spec": {"seed": 0}}]) for i in "ab"
    ]
    found = differences(rows, Store(), "a", "test", "zs")["b"]
    values = np.stack([ours[:, 0], theirs[:, 0]])
    draws = {over: mean_draws(values, of, over) for over in ("videos", "tasks")}
    each = {over: interval(d[:, 0] - d[:, 1]) for over, d in draws.items()}
    covered = list(each.values()) if tasks >= 5 else [each["videos"]]  # few tasks say nothing of their spread
    assert each["videos"] != each["tasks"]
    assert found.interval == pytest.approx((min(low for low, _ in covered), max(high for _, high in covered)))


def test_an_interval_covers_other_trainings():
    """Where one seed of three is far ahead, another training might not be: videos and tasks alone do not say that."""
    lead = {0: 0.0, 1: 0.0, 2: 0.3}
    tasks = np.arange(12) % 6

    class Store:
        def units(self, run, place):
            row, seed = run.split()
            return {"locate": np.full((12, 4), 0.2 + (row == "a") * lead[int(seed)]), "tasks": tasks}

    rows = [
        Shown(
            i,
            "none",
            "control",
            True,
            {},
            [{"id": f"{i} {s}", "scores": {"test": {}}, "spec": {"seed": s}} for s in lead],
        )
        for i in "ab"
    ]
    found = differences(rows, Store(), "a", "test", "zs")["b"]
    assert found.value == pytest.approx(0.1) and found.verdict == "level"
    # two of three seeds are drawn: none, one or both are the one ahead
    assert found.interval == pytest.approx((0.0, 0.3))


def test_table3_has_mean_spread_difference_paper_and_verdict(table):
    base = {"default": 0.3, "pooled32": 0.2, "default without L_seq": 0.1, "GT text": 0.35}
    made = table("table3", lambda label, seed: base.get(label, 0.05) + (seed - 1) * 0.01)
    rows = rows_of(made)
    assert rows["default"]["CrossTask IoU"] == pytest.approx({"value": 0.3, "spread": 0.01})
    assert rows["default"]["paper: CrossTask IoU"] == "23.7"
    gap = rows["pooled32"]["default − row, CrossTask IoU"]
    assert gap["value"] == pytest.approx(0.1) and gap["interval"] == pytest.approx(
        [0.1, 0.1]
    )  # all videos say the same
    assert rows["default"]["default − row, CrossTask IoU"] is None
    said = " ".join(made.notes)
    assert "CrossTask IoU: default is better than pooled32 (+10.0 [+10.0, +10.0])" in said
    assert "is worse than GT text (-5.0 [-5.0, -5.0])" in said
    assert "the best control is GT text, 5.0 above default" in said
    assert "Simulated" in said and "Commit:" in said and "Machine:" in said
    assert "30.0 ± 1.0" in made.to_markdown() and "30.0 $\\pm$ 1.0" in made.to_latex()


def test_the_order_of_the_paper_gives_a_rank_correlation_of_one(table):
    def value(label, seed):
        key = label.removeprefix("default ").replace("L_", "")
        return plan.TABLE3.get(key, plan.TABLE3["full"])["zs_iou"]

    made = table("table3", value, {row.label for row in plan_table("table3", SETUP) if "GT" not in row.label})
    note = next(n for n in made.notes if n.startswith("CrossTask IoU: rank"))
    assert "6 rows" in note and "+1.00" in note


@pytest.mark.parametrize("name", ["table1", "table2"])
def test_comparisons_have_a_column_group_per_dataset_and_unique_column_names(table, name):
    made = table(name, lambda label, seed: 0.4 if label == "StepFormer (default)" else 0.3 + 0.01 * seed)
    assert len(set(made.columns)) == len(made.columns)
    metric = "F1" if name == "table1" else "IoU"
    ours = rows_of(made)["StepFormer (default)"]
    for dataset in ("CrossTask", "ProceL", "COIN"):
        assert ours[f"{dataset} {metric}"]["value"] == pytest.approx(0.4)
    shen = next(r for r in made.to_dict()["rows"] if r["method"] == "Shen et al. (weak)")
    assert shen[f"COIN {metric}"] == pytest.approx({"value": 0.31, "spread": 0.01})
    column = next(c for c in made.columns if c.startswith("paper: ProceL"))
    assert shen[column] == ("20.3/17.4/26.7/35.4" if name == "table1" else "12.1/16.0/19.0/30.7")


def test_what_is_missing_is_said(table):
    made = table("table4", lambda label, seed: 0.3, {"default", "24 slots"})
    assert [row["method"] for row in made.to_dict()["rows"]] == ["default", "24 slots"]
    assert any(note.startswith("Incomplete: 24 of 36 scores") for note in made.notes)


def test_nothing_to_show_is_said(table):
    with pytest.raises(InputError, match="reproduce table4"):
        table("table4", None, set())


def test_every_file_says_where_it_was_made(table, tmp_path):
    table("table4", lambda label, seed: 0.3)
    write_plan({"table4": plan_entry("table4", plan_table("table4", SETUP), SETUP)}, tmp_path)
    write_tables(["table4"], tmp_path)
    written = json.loads((tmp_path / "table4.json").read_text("utf-8"))
    assert {"commit", "date", "machine"} <= set(written["written"])
    assert "Commit: " in (tmp_path / "table4.md").read_text("utf-8")
    with pytest.raises(InputError, match="nothing of table3"):
        write_tables(["table3"], tmp_path)


def test_a_row_that_lacks_a_seed_is_compared_on_the_others_alone(tmp_path):
    rows = plan_table("table1", SETUP)
    store = RunStore(tmp_path / "runs")
    for row in rows:
        for seed, run in row.runs.items():
            if row.label == "pooled32" and seed == 0:
                continue
            hits = {0: 900, 1: 300, 2: 200}[seed] - 100 * (row.label == "pooled32")
            counts = np.tile(np.array([hits, 1000, 1000, hits, 1000]), (1, 60, 1))
            units = {"locate": np.full((60, 4), hits / 1000), "discover": counts, "tasks": TASKS}
            for place in Videos.datasets:
                store.add(run, place, units, {"label": f"{row.label}, seed {seed}", "curve": [[(50, 2.0), (100, 1.0)]]})
    write_plan({"table1": plan_entry("table1", rows, SETUP)}, tmp_path)
    made = write_tables(["table1"], tmp_path)["table1"]
    gap = next(v for k, v in rows_of(made)["pooled32"].items() if k.endswith("− row, CrossTask F1"))
    assert gap["value"] == pytest.approx(0.1) and gap["interval"] == pytest.approx([0.1, 0.1])
    # how long published methods were fitted is said and drawn
    assert any("100 to 100 updates per model" in note for note in made.notes)
    assert (tmp_path / "curves.svg").read_text().count("<svg") == 1


def test_a_method_in_two_settings_shows_the_results_of_each(tmp_path):
    rows = [row for row in plan_table("table1", SETUP) if row.label == "Kukleva et al."]
    store = RunStore(tmp_path / "runs")
    for row in rows:
        hits = {"weak": 300, "unsupervised": 200}[row.row.knows]
        units = {"discover": np.tile(np.array([hits, 1000, 1000, hits, 1000]), (1, 60, 1)), "tasks": TASKS}
        for run in row.runs.values():
            for place in Videos.datasets:
                store.add(run, place, units, {"chosen": {}})
    made = rows_of(build_table("table1", plan_entry("table1", rows, SETUP), store))
    assert {method: row["CrossTask F1"]["value"] for method, row in made.items()} == {
        "Kukleva et al. (weak)": pytest.approx(0.3), "Kukleva et al. (unsupervised)": pytest.approx(0.2),
    }  # fmt: skip
