"""Runs are known by what decides their numbers, and by nothing else."""

import json
from dataclasses import replace

import pytest

from stepformer.core.checkpoint import save_checkpoint
from stepformer.core.model import StepDecoder, preset
from stepformer.core.options import InferenceConfig
from stepformer.errors import InputError, UsageError
from stepformer.reproduce import plan
from stepformer.reproduce.plan import Setup, code_hash, plan_entry, plan_table, read_checkpoint


class Videos:
    """A source without any video."""

    fingerprint, dim, device, datasets = "f", 64, "cpu", {"test": "crosstask"}
    real = False
    has_texts = narrated = has_dev = True


SETUP = Setup(Videos(), (0, 1), 5, 4)


def ids(table, label, setup=SETUP):
    return {run.id for row in plan_table(table, setup) if row.label == label for run in row.runs.values()}


def test_the_full_model_is_one_run_in_all_tables():
    found = [ids("table1", "StepFormer (default)"), ids("table3", "default"), ids("table4", "default")]
    assert len(found[0]) == 2 and found[0] == found[1] == found[2]


def changed_source(**values):
    return replace(SETUP, source=type("Other", (Videos,), values)())


@pytest.mark.parametrize("other", [
    changed_source(fingerprint="g"), replace(SETUP, steps=6), replace(SETUP, batch=5), replace(SETUP, device="cuda"),
    replace(SETUP, overrides={"optim.lr": 1e-5}), replace(SETUP, stores=("s",)),
])  # fmt: skip
def test_whatever_decides_the_numbers_changes_the_id(other):
    assert not ids("table3", "default") & ids("table3", "default", other)


def test_rows_without_training_are_the_same_run_wherever_models_are_trained():
    for label in ("pooled32", "Kukleva et al."):
        assert ids("table1", label) == ids("table1", label, replace(SETUP, device="cuda")) != set()
    # Shen learns where models do
    assert len(ids("table1", "Shen et al.") | ids("table1", "Shen et al.", replace(SETUP, device="cuda"))) == 8


def test_two_splits_of_one_dataset_are_told_apart():
    def places(datasets):
        setup = changed_source(datasets=datasets, about="")
        return plan_entry("table3", plan_table("table3", setup), setup)["places"]

    assert places({"test": "crosstask", "coin_test": "coin"}) == {"test": "CrossTask", "coin_test": "COIN"}
    both = {"test": "grammar tasks (test)", "coin_test": "grammar tasks (coin_test)"}
    assert places({"test": "grammar", "coin_test": "grammar"}) == both


def test_code_counts_and_comments_do_not(tmp_path, monkeypatch):
    monkeypatch.setattr(plan, "__file__", str(tmp_path / "reproduce" / "plan.py"))
    file = tmp_path / "a.py"

    def hashed(text):
        file.write_text(text, "utf-8")
        code_hash.cache_clear()
        return code_hash(("a.py",))

    first = hashed('"""Says."""\ndef f(x):\n    """Adds."""\n    return x + 1\n')
    assert hashed('"""Says more."""\ndef f(x):\n    # why\n    return x + 1\n') == first
    assert hashed("def f(x):\n    return x + 2\n") != first
    code_hash.cache_clear()


def test_a_loss_that_is_off_has_no_weight():
    (row,) = [r for r in plan_table("table3", SETUP) if r.label == "default without L_glob"]
    weights = row.runs[0].weights.config["loss"]["weights"]
    assert weights.get("glob", 0) == 0 and weights["seq"] > 0


@pytest.mark.parametrize(
    ("row", "field"),
    [
        ("default without relative time", "model.positions"),
        ("default without a mean of the weights", "optim.ema"),
        ("default on unit vectors", "model.level"),
    ],
)
def test_each_change_of_default_is_made_alone(row, field):
    rows = {row.label: row.runs[0].weights for row in plan_table("evidence", SETUP) if row.runs[0].weights}
    ours, theirs = (
        {f"{section}.{name}": value for section in ("model", "optim", "loss") for name, value in run[section].items()}
        for run in (rows["default"].config, rows[row].config)
    )
    assert {name for name in ours if ours[name] != theirs[name]} == {field}


def test_only_controls_need_no_weights_and_no_fit():
    rows = plan_table("table2", SETUP, ("control",))
    assert {row.label for row in rows} >= {"uniform, as many steps", "pooled32", "change-point segments", "GT text"}
    assert all(run.weights is None and run.method.setting == "" for row in rows for run in row.runs.values())
    assert {row.row.kind for row in plan_table("table1", SETUP, ("published",))} == {"published"}


def test_what_cannot_be_run_has_no_row():
    labels = {row.label for row in plan_table("table1", changed_source(narrated=False, real=True, has_texts=False))}
    assert not any("Shen" in label or "StepFormer" in label or "default" in label for label in labels)
    assert "Kukleva et al." in labels and "GT text" not in labels


@pytest.fixture
def checkpoints(tmp_path):
    """Two models of one shape: what a user calls by their preset, and one that says nothing of itself."""
    model = StepDecoder(preset("paper", feature_dim=64, dim=64, layers=1, heads=2, feedforward=32, slots=8))
    save_checkpoint(tmp_path / "a.safetensors", model, "toy", {"preset": "paper"}, InferenceConfig(keep=0.2))
    save_checkpoint(tmp_path / "b.safetensors", model, "toy", {"preset": "paper"}, InferenceConfig(keep=0.4))
    save_checkpoint(tmp_path / "c.safetensors", model, "toy")
    return tmp_path


def test_a_checkpoint_is_called_what_it_says_it_is(checkpoints):
    given = read_checkpoint(checkpoints / "a.safetensors")
    labels = [row.label for row in plan_table("table1", replace(SETUP, checkpoint=given))]
    assert "StepFormer (paper)" in labels and "uniform, as many cuts as paper" in labels
    assert not any("default" in label or "released" in label for label in labels)
    unnamed = read_checkpoint(checkpoints / "c.safetensors")
    assert unnamed.label == f"weights {unnamed.hash[:8]}"


def test_options_that_a_checkpoint_brings_are_part_of_every_row_that_uses_them(checkpoints):
    a, b = (read_checkpoint(checkpoints / f"{name}.safetensors") for name in "ab")
    assert a.hash == b.hash  # the same tensors
    blind = changed_source(has_dev=False, real=True)
    rows = [plan_table("table2", replace(blind, checkpoint=c)) for c in (a, b)]
    for one, other in zip(*rows, strict=True):
        assert one.label == other.label
        if one.row.method.kind not in ("uniform", "kmeans"):
            assert one.runs[0].id != other.runs[0].id
            assert one.runs[0].inference["keep"] == 0.2 and other.runs[0].inference["keep"] == 0.4


@pytest.mark.parametrize("name", ["table1", "table2", "table3", "evidence"])
def test_rows_without_dev_videos_differ_in_what_they_are_called_after(checkpoints, name):
    blind = replace(changed_source(has_dev=False, real=True), checkpoint=read_checkpoint(checkpoints / "a.safetensors"))
    rows = plan_table(name, blind)
    ids = [row.runs[0].id for row in rows]
    assert len(ids) == len(set(ids))
    if name == "table3":
        assert {row.runs[0].method.rule for row in rows} == {"own", "own unordered"}
        assert not any("smoothed" in row.label for row in rows)


def test_a_run_folder_is_a_checkpoint(checkpoints):
    folder = checkpoints / "run"
    folder.mkdir()
    with pytest.raises(InputError, match="no checkpoint"):
        read_checkpoint(folder)
    (checkpoints / "a.safetensors").rename(folder / "last.safetensors")
    assert read_checkpoint(folder).path == str(folder / "last.safetensors")
    (checkpoints / "b.safetensors").rename(folder / "best.safetensors")
    assert read_checkpoint(folder).path == str(folder / "best.safetensors")


def test_senseless_asks_are_refused(checkpoints):
    with pytest.raises(UsageError, match="no table"):
        plan_table("table9", SETUP)
    with pytest.raises(UsageError, match="seeds"):
        replace(SETUP, seeds=(1, 1))
    with pytest.raises(InputError, match="64 wide, these are 16"):
        replace(changed_source(dim=16), checkpoint=read_checkpoint(checkpoints / "c.safetensors"))


def test_a_spec_is_plain_json():
    for row in plan_table("table3", SETUP):
        assert json.loads(json.dumps(row.runs[0].spec)) is not None
