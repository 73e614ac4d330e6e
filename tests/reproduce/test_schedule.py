"""Parallel, resumable, and nothing that fails stops the rest. Workers here are small scripts."""

import json
import subprocess
import sys
import time

import pytest

from stepformer.cli import main
from stepformer.reproduce import schedule
from stepformer.reproduce.results import Results, read_results
from stepformer.reproduce.runs import Setup, control_run, train_run
from stepformer.reproduce.schedule import Machine, execute

SETUP = Setup(world="w", dim=64, splits=("test",), steps=5, batch=4)


@pytest.fixture
def fake(monkeypatch):
    """Workers that note that they ran and write a result; the script of a name can be replaced."""
    scripts: dict[str, str] = {}
    started: list[str] = []

    def start(run, machine, code):
        folder = machine.work / run.id
        folder.mkdir(parents=True, exist_ok=True)
        started.append(run.name)
        good = (
            f"import json; json.dump({{'id': {run.id!r}, 'scores': {{}}}}, open({str(folder / 'result.json')!r}, 'w'))"
        )
        with (folder / "log.txt").open("ab") as log:
            return subprocess.Popen([sys.executable, "-c", scripts.get(run.name, good)], stderr=log)

    monkeypatch.setattr(schedule, "_start", start)
    return scripts, started


def runs(*names):
    return [control_run(SETUP, name, 0) for name in names]


def test_runs_end_once_and_are_found_again(tmp_path, fake):
    _, started = fake
    machine = Machine(tmp_path / "w", tmp_path / "work", jobs=2)
    ended = execute(runs("a", "b", "c"), Results(), tmp_path / "out", machine, lambda text: None)
    assert (ended.found, ended.done, ended.failed, ended.left) == (0, 3, {}, 0)
    assert sorted(started) == ["a", "b", "c"]
    # another output folder finds them in the work folder; a results file finds them without one
    again = execute(runs("a", "b"), Results(), tmp_path / "other", machine, lambda text: None)
    assert (again.found, again.done) == (2, 0)
    bare = Machine(tmp_path / "w", tmp_path / "empty", jobs=2)
    known = read_results(tmp_path / "out")
    assert execute(runs("a", "c"), known, tmp_path / "third", bare, lambda text: None).found == 2
    assert sorted(started) == ["a", "b", "c"]


def test_a_failed_run_is_told_and_stops_nothing(tmp_path, fake):
    scripts, _ = fake
    scripts["bad"] = "import sys; print('the reason', file=sys.stderr); sys.exit(3)"
    machine = Machine(tmp_path / "w", tmp_path / "work", jobs=1)
    results = Results()
    ended = execute(runs("bad", "good"), results, tmp_path / "out", machine, lambda text: None)
    assert ended.failed == {"bad, seed 0": "the reason"} and ended.done == 1
    assert len(read_results(tmp_path / "out").runs) == 1


def test_the_time_limit_stops_workers_and_the_next_call_goes_on(tmp_path, fake):
    scripts, started = fake
    scripts["slow"] = "import time; time.sleep(60)"
    machine = Machine(tmp_path / "w", tmp_path / "work", jobs=1, time_limit_s=0.5)
    began = time.monotonic()
    ended = execute(runs("slow", "after"), Results(), tmp_path / "out", machine, lambda text: None)
    assert time.monotonic() - began < 20 and ended.left == 2 and ended.done == 0
    del scripts["slow"]
    machine = Machine(tmp_path / "w", tmp_path / "work", jobs=1)
    assert execute(runs("slow", "after"), Results(), tmp_path / "out", machine, lambda text: None).done == 2
    assert started == ["slow", "slow", "after"]


def test_weights_that_are_asked_for_and_gone_mean_training_again(tmp_path, fake):
    _, started = fake
    run = train_run(SETUP, "default", 0)
    plain = Machine(tmp_path / "w", tmp_path / "work")
    execute([run], Results(), tmp_path / "out", plain, lambda text: None)
    keeping = Machine(tmp_path / "w", tmp_path / "work", checkpoints=tmp_path / "out" / "checkpoints")
    execute([run], Results(), tmp_path / "out", keeping, lambda text: None)
    assert len(started) == 2
    path = schedule.checkpoint_path(run, keeping)
    path.parent.mkdir(parents=True)
    path.touch()
    execute([run], Results(), tmp_path / "out", keeping, lambda text: None)
    assert len(started) == 2


def test_the_command_plans_renders_and_says_what_is_missing(tmp_path, tiny_world, capsys):
    world = tmp_path / "w.safetensors"
    tiny_world.save(world)
    common = ["--out", str(tmp_path / "out"), "--work", str(tmp_path / "work")]
    assert main(["reproduce", "table3", "--world", str(world), *common, "--seeds", "0", "--plan"]) == 0
    planned = capsys.readouterr().out.splitlines()
    assert len(planned) == 13 and all(line.startswith("to do") for line in planned)
    assert main(["reproduce", "table3", *common, "--render"]) == 3
    assert "run the table first" in capsys.readouterr().err
    assert main(["reproduce", "table3", *common]) == 2
    assert main(["reproduce", "table3", "--world", str(world), *common, "--set", "steps"]) == 2


@pytest.mark.slow
def test_table4_end_to_end_in_processes(tmp_path, tiny_world, capsys):
    world = tmp_path / "w.safetensors"
    tiny_world.save(world)
    command = ["reproduce", "table4", "--world", str(world), "--out", str(tmp_path / "out")]
    command += ["--work", str(tmp_path / "work"), "--seeds", "0", "--steps", "2", "--batch", "3", "--device", "cpu"]
    assert main([*command, "--jobs", "2", "--keep-checkpoints", "--json"]) == 0
    table = json.loads(capsys.readouterr().out)["table4"]
    assert [row["method"] for row in table["rows"]][:3] == ["default", "24 slots", "48 slots"]
    assert all(0 < row["F1"]["value"] < 1 for row in table["rows"])
    assert len(list((tmp_path / "out" / "checkpoints").iterdir())) == 6
    assert not list((tmp_path / "work").glob("*/train"))
    assert main([*command, "--render"]) == 0
