"""Runs are known by what decides their numbers, and by nothing else."""

import pytest

from stepformer.errors import UsageError
from stepformer.reproduce.runs import BASELINES, Run, Setup, config_of, table_runs, train_run, unique

SETUP = Setup(world="w", dim=64, splits=("test", "unseen"), seeds=(0, 1), steps=5, batch=4)


def test_the_full_model_is_one_run_in_all_tables():
    ids = [
        {r.id for r in table_runs(t, SETUP) if r.name == "default"} for t in ("table1", "table2", "table3", "table4")
    ]
    assert len(ids[0]) == 2 and all(found == ids[0] for found in ids)


def test_naming_the_number_of_layers_it_has_makes_no_second_run():
    runs = table_runs("table4", SETUP)
    own = config_of(runs[0]).model.layers
    same = {r.id for r in runs if r.seed == 0 and r.name in ("default", f"default {own} layers")}
    assert len(same) == 1
    assert len(unique(runs)) == len(runs) - len(SETUP.seeds)


@pytest.mark.parametrize(
    "other",
    [
        Setup(world="v", dim=64, splits=("test",), steps=5, batch=4),
        Setup(world="w", dim=64, splits=("test",), steps=6, batch=4),
        Setup(world="w", dim=64, splits=("test",), steps=5, batch=5),
        Setup(world="w", dim=64, splits=("test",), steps=5, batch=4, overrides={"optim.lr": 1e-5}),
        Setup(world="w", dim=64, splits=("test",), steps=5, batch=4, encoders=("plain",)),
    ],
)
def test_whatever_decides_the_numbers_changes_the_id(other):
    assert train_run(SETUP, "default", 0).id != train_run(other, "default", 0).id
    assert train_run(SETUP, "default", 0).id != train_run(SETUP, "default", 1).id


def test_an_id_survives_a_round_trip_through_json():
    import json

    run = train_run(SETUP, "released", 0, ("seq",))
    again = Run.from_dict(json.loads(json.dumps(run.to_dict())))
    assert again.id == run.id and config_of(again) == config_of(run)


def test_a_loss_that_is_off_has_no_weight_and_the_run_is_not_the_full_one():
    run = train_run(SETUP, "default", 0, ("glob",))
    assert config_of(run).loss.weights.get("glob", 0) == 0
    assert config_of(run).loss.weights["seq"] > 0
    assert not run.spec["full"] and train_run(SETUP, "default", 0).spec["full"]


def test_table1_fits_every_published_method_on_every_split():
    runs = [r for r in table_runs("table1", SETUP) if r.kind == "baseline"]
    assert {(r.name, r.seed) for r in runs} == {(f"{m} {how}", seed) for m, how in BASELINES for seed in SETUP.seeds}
    assert all(tuple(r.spec["splits"]) == SETUP.splits for r in runs)


def test_senseless_asks_are_refused():
    with pytest.raises(UsageError, match="no table"):
        table_runs("table9", SETUP)
    with pytest.raises(UsageError, match="seeds"):
        Setup(world="w", dim=64, splits=(), seeds=(1, 1))
