"""Jobs share what they can, go on where they were, and one that fails stops no other."""

import os
import signal
import threading
import time
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from stepformer.errors import InputError
from stepformer.reproduce import execute as module
from stepformer.reproduce.execute import Job, RunStore, execute, make_jobs, stamp, work
from stepformer.reproduce.methods import Method
from stepformer.reproduce.plan import Run, Setup, plan_tables, smaller
from stepformer.reproduce.sources import Simulated


@pytest.fixture(scope="module")
def spec(tiny_world, tmp_path_factory):
    path = tmp_path_factory.mktemp("world") / "w.safetensors"
    tiny_world.save(path)
    return partial(Simulated, path)


def wanted(setup, table="table3", labels=None):
    runs = plan_tables([table], setup)[1]
    return [replace(run, places=("test",)) for run in runs if labels is None or run.label in labels]


def test_a_model_is_one_job_with_all_its_rows_and_a_published_method_is_alone(spec, tmp_path):
    setup = smaller(Setup(spec(), (0, 1)), True)
    runs = wanted(setup, "table1")
    jobs = make_jobs(runs, Job("", spec, (), tmp_path, tmp_path))
    sizes = {job.label: len(job.runs) for job in jobs}
    assert sizes["StepFormer (default), seed 0"] == 3  # its two rows and what needs its cuts
    assert sizes["controls, seed 1"] == 5 and sizes["Shen et al., seed 0"] == 1
    assert sum(len(job.runs) for job in jobs) == len(runs)
    assert len({job.id for job in jobs}) == len(jobs) and jobs[0].label.startswith("controls")


def test_a_job_trains_chooses_scores_and_leaves_nothing_but_results(spec, tmp_path):
    setup = smaller(Setup(spec(), (0,)))
    labels = ("default", "uniform, as many cuts as default")
    (job,) = make_jobs(wanted(setup, labels=labels), Job("", spec, (), tmp_path / "runs", tmp_path / "work"))
    work(job)
    store = RunStore(tmp_path / "runs")
    results = {own.method.kind: store.read(own.id) for own in job.runs}
    own = results["slots"]
    assert set(own["scores"]["test"]) == {f"{t}_{m}" for t, m in [
        ("zs", "iou"), ("zs", "precision"), ("zs", "recall"), ("zs", "mof"),
        ("un", "f1"), ("un", "precision"), ("un", "recall"), ("un", "mof")]}  # fmt: skip
    assert own["training"]["steps"] == 6 and own["chosen"]["tried"]["locate"] == 30
    cuts = results["equal cuts"]["chosen"]  # as many as the model makes; how much of a cluster stays is its own choice
    assert cuts["locate"] == own["chosen"]["locate"] and cuts["tried"] == {"locate": 1, "discover": 3}
    assert {**cuts["discover"], "cluster_keep": 0} == {**own["chosen"]["discover"], "cluster_keep": 0}
    assert own["training"]["glob"][0] > 0
    assert {"commit", "code", "date", "machine", "version"} <= set(own)
    units = store.units(own["id"], "test")
    videos = len(units["tasks"])
    assert units["locate"].shape == (videos, 4) and units["discover"].shape == (5, videos, 5)
    assert units["locate"][:, 0].mean() == pytest.approx(own["scores"]["test"]["zs_iou"], abs=1e-4)
    assert not any((tmp_path / "work").iterdir())


def test_what_is_scored_already_is_not_scored_again(spec, tmp_path):
    setup = smaller(Setup(spec(), (0,)))
    (only,) = wanted(setup, labels=("uniform, as many steps",))
    (job,) = make_jobs([only], Job("", spec, (), tmp_path / "runs", tmp_path / "work"))
    work(job)
    opened, source = [], spec()
    job = replace(job, source=lambda: opened.append(1) or source)
    work(job)
    assert not opened
    store = RunStore(job.results)
    run_id = only.id
    assert store.missing(run_id, ["test", "dev"]) == ["dev"]
    work(replace(job, runs=(replace(only, places=("test", "dev")),)))
    assert set(store.read(run_id)["scores"]) == {"test", "dev"} and len(opened) == 1
    assert set(store.units(run_id, "test")) == set(store.units(run_id, "dev"))


def test_results_keep_what_they_were_given(tmp_path):
    store, run = RunStore(tmp_path), Run(Method("uniform"), 0, "f")
    units = {"locate": np.full((3, 4), 0.25), "discover": np.ones((1, 3, 5), int), "tasks": np.array([0, 0, 1])}
    store.add(run, "test", units, {"chosen": {}})
    store.add(run, "other", units, {"chosen": {}})
    assert store.missing(run.id, ["test", "other", "third"]) == ["third"]
    assert store.units(run.id, "other")["locate"].tolist() == units["locate"].tolist()
    assert store.read(run.id)["spec"] == run.spec


def test_the_commit_is_said_where_there_is_no_git(monkeypatch):
    monkeypatch.setenv("STEPFORMER_COMMIT", "abc")
    module.commit.cache_clear()
    monkeypatch.setattr(module, "_processor", lambda: "a processor")
    said = stamp()
    module.commit.cache_clear()
    assert said["commit"] == "abc" and said["machine"].startswith("a processor, torch")


# -- many jobs: their work is replaced by small functions ---------------------------------------------------------


def good(job):
    (job.results / job.label).touch()


def bad(job):
    if job.label == "a":
        raise InputError("the reason")
    good(job)


def slow(job):
    if job.label == "a":
        try:
            time.sleep(60)
        except KeyboardInterrupt:
            (job.results / "asked to stop").touch()
            raise
    good(job)


@pytest.fixture
def jobs(tmp_path, monkeypatch):
    """Jobs in processes that are forked from here, so that the replaced function is theirs too."""
    import multiprocessing

    fork = multiprocessing.get_context("fork")
    monkeypatch.setattr("stepformer.base.many._context", lambda preload: fork)
    run = Run(Method("uniform"), 0, "f")
    return [Job(name, None, (run,), tmp_path, tmp_path / "work") for name in "abc"]


@pytest.mark.parametrize("parallel", [1, 2])
def test_jobs_end_and_are_counted(jobs, monkeypatch, tmp_path, parallel):
    monkeypatch.setattr(module, "work", good)
    said = []
    ended = execute(jobs, parallel, None, said.append)
    assert (ended.done, ended.failed, ended.left) == (3, {}, 0) and len(said) == 3
    assert all((tmp_path / name).exists() for name in "abc")


def test_a_failed_job_is_reported_and_stops_nothing(jobs, monkeypatch, tmp_path):
    monkeypatch.setattr(module, "work", bad)
    ended = execute(jobs, 1, None, lambda text: None)
    assert ended.failed == {"a": "the reason"} and ended.done == 2
    monkeypatch.setattr(module, "work", lambda job: os.kill(os.getpid(), signal.SIGKILL))
    ended = execute(jobs[:1], 1, None, lambda text: None)
    assert set(ended.failed) == {"a"}


def test_the_time_limit_stops_jobs_politely_and_the_next_call_goes_on(jobs, monkeypatch, tmp_path):
    monkeypatch.setattr(module, "work", slow)
    began = time.monotonic()
    ended = execute(jobs, 1, 1.5, lambda text: None)
    assert time.monotonic() - began < 30 and ended.done == 0 and ended.left == 3
    assert (tmp_path / "asked to stop").exists()
    monkeypatch.setattr(module, "work", good)
    assert execute(jobs, 1, None, lambda text: None).done == 3


def test_a_work_folder_that_cannot_be_written_to_is_one_sentence(jobs, tmp_path):
    (tmp_path / "file").touch()
    ended = execute([replace(jobs[0], work=tmp_path / "file")], 1, None, lambda text: None)
    assert "give another --out" in ended.failed["a"]


def test_an_error_that_nobody_foresaw_leaves_its_traceback(jobs, monkeypatch, tmp_path):
    monkeypatch.setattr(module, "work", lambda job: 1 / 0)
    assert execute(jobs[:1], 1, None, lambda text: None).failed == {"a": "ZeroDivisionError: division by zero"}
    (log,) = (tmp_path / "work").glob("*.log")
    assert "1 / 0" in log.read_text()


def test_ctrl_c_keeps_what_is_done_and_asks_the_workers_once(jobs, monkeypatch, tmp_path):
    """As in a terminal, where Ctrl-C reaches the whole group of processes."""
    monkeypatch.setattr(module, "work", slow)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # who runs the tests may ignore it
    threading.Timer(1.5, lambda: signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)).start()
    try:
        with pytest.raises(KeyboardInterrupt):
            execute([jobs[1], jobs[0]], 1, None, lambda text: None)
    finally:
        signal.signal(signal.SIGINT, before)
    assert (tmp_path / "b").exists() and (tmp_path / "asked to stop").exists()
