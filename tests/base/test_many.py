"""Many inputs in many processes: one bad input never stops the rest."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stepformer.base import many
from stepformer.base.many import Outcome, own, run_many
from stepformer.errors import InputError

_offset = 0


def set_offset(value):
    global _offset  # noqa: PLW0603 (what an initializer is for)
    _offset = value


def work(item):
    """Doubles a number; some numbers are trouble."""
    kind, number = item
    if kind == "bad":
        raise InputError(f"{number} cannot be read")
    if kind == "bug":
        raise KeyError(number)
    if kind == "dies":
        os._exit(9)
    return number * 2 + _offset


def hand_over(item):
    """The first input waits for the second to be done."""
    number, folder = item
    if number == 0:
        deadline = time.monotonic() + 60
        while not (Path(folder) / "done").exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
    if number == 1:
        (Path(folder) / "done").touch()
    return number


def results(outcomes):
    return {outcome.item: (outcome.value, outcome.error) for outcome in outcomes}


@pytest.mark.parametrize("jobs", [1, 2])
def test_errors_are_outcomes_and_the_rest_is_done(jobs):
    items = [("ok", 1), ("bad", 2), ("ok", 3), ("bug", 4), ("ok", 5)]
    found = results(run_many(work, iter(items), jobs, set_offset, (100,)))
    assert found == {
        ("ok", 1): (102, None),
        ("bad", 2): (None, "2 cannot be read"),
        ("ok", 3): (106, None),
        ("bug", 4): (None, "KeyError: 4"),
        ("ok", 5): (110, None),
    }
    set_offset(0)


def test_one_process_works_in_order_and_lazily():
    taken = []

    def feed():
        for i in range(5):
            taken.append(i)
            yield ("ok", i)

    outcomes = run_many(work, feed())
    assert next(outcomes) == Outcome(("ok", 0), value=0)
    assert taken == [0]
    assert [outcome.value for outcome in outcomes] == [2, 4, 6, 8]


def test_outcomes_come_in_the_order_in_which_they_finish_and_input_is_read_as_needed(tmp_path):
    taken = []

    def feed():
        for i in range(30):
            taken.append(i)
            yield i, str(tmp_path)

    outcomes = run_many(hand_over, feed(), jobs=2)
    first = next(outcomes)
    assert first.value != 0
    assert len(taken) <= 2 * 4 + 1  # a million inputs are never all in memory
    assert sorted([first.value, *(outcome.value for outcome in outcomes)]) == list(range(30))


def test_a_process_that_dies_fails_only_its_own_input():
    items = [("ok", 1), ("dies", 2), *(("ok", i) for i in range(3, 12))]
    found = results(run_many(work, items, jobs=2))
    assert found.pop(("dies", 2)) == (None, "the process that worked on it died (out of memory, or a decoder crash)")
    assert found == {("ok", i): (2 * i, None) for i in (1, *range(3, 12))}


def test_nothing_to_do():
    assert list(run_many(work, [], jobs=2)) == [] == list(run_many(work, []))


def test_an_error_becomes_one_sentence():
    assert str(own(InputError("a.mp4 is empty"))) == "a.mp4 is empty"
    assert str(own(ZeroDivisionError("by zero"))) == "ZeroDivisionError: by zero"


def slow_mark(item):
    """Leaves a mark when it is begun, then takes its time."""
    number, folder = item
    (Path(folder) / str(number)).touch()
    time.sleep(0.4)
    return number


def test_who_stops_listening_does_not_wait_for_the_queue(tmp_path):
    outcomes = run_many(slow_mark, [(i, str(tmp_path)) for i in range(40)], jobs=2)
    next(outcomes)
    outcomes.close()
    # two in work, and what the pool had handed to its processes before; 8 of the queue would be begun otherwise
    assert 1 <= len(list(tmp_path.iterdir())) <= 6


def stuck(item):
    """Hangs as a decoder does: in a thread that cannot be interrupted."""
    kind, number = item
    if kind == "hangs":
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(1) as thread:
            thread.submit(time.sleep, 600).result()
    return number


def test_a_time_limit_ends_what_is_stuck_and_the_rest_is_done(monkeypatch):
    monkeypatch.setattr("stepformer.base.many._POLITE_S", 0.2)
    items = [("ok", 1), ("hangs", 2), ("ok", 3)]
    found = results(run_many(stuck, items, jobs=1, time_limit_s=1.0))
    assert found.pop(("hangs", 2)) == (None, "it was given up after 1 s, the time limit")
    assert found == {("ok", 1): (1, None), ("ok", 3): (3, None)}
    assert results(run_many(stuck, [("ok", 1)], jobs=1, time_limit_s=1e21)) == {("ok", 1): (1, None)}


def refuse():
    raise InputError("no model is here")


def test_what_cannot_start_fails_as_a_whole():
    with pytest.raises(InputError, match="no model is here"):
        list(run_many(work, [("ok", 1), ("ok", 2)], jobs=2, initializer=refuse))


def threads_here(item):
    return int(os.environ["OMP_NUM_THREADS"])


@pytest.mark.parametrize(("given", "each"), [(None, 3), ("2", 2)])
def test_processes_share_the_cores(monkeypatch, given, each):
    monkeypatch.setattr(many, "cores", lambda: 6)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if given:
        monkeypatch.setenv("OMP_NUM_THREADS", given)
    assert [outcome.value for outcome in run_many(threads_here, [1, 2], jobs=2)] == [each, each]


def greedy(item):
    """Takes this many MiB and holds them."""
    import numpy as np

    return int(np.ones(item << 20, np.uint8).sum()) >> 20


def test_one_input_cannot_take_all_memory():
    found = results(run_many(greedy, [10, 2000, 20], apart=True, memory_bytes=300 << 20))
    assert found == {10: (10, None), 2000: (None, "it needs more memory than one input may use"), 20: (20, None)}


def talkative(item):
    """Notes how far it is, every 0.3 s, this many times; then says nothing for a while."""
    from stepformer.base import many

    times, silent_s = item
    for i in range(times):
        time.sleep(0.3)
        many.note(i)
    time.sleep(silent_s)
    return "done"


def test_a_single_job_apart_tells_how_far_it_is_and_is_given_up_when_it_falls_silent(monkeypatch):
    monkeypatch.setattr("stepformer.base.many._POLITE_S", 0.2)
    heard = []
    items = [(8, 0.0), (1, 60.0)]
    outcomes = run_many(talkative, items, apart=True, noted=lambda item, value: heard.append(value), silence_s=1.5)
    found = results(outcomes)
    assert found[8, 0.0] == ("done", None) and heard == [*range(8), 0]  # longer than the silence, but not silent
    assert found[1, 60.0] == (None, "it was given up: nothing more was read of it for 0.025 minutes")


def test_no_number_of_threads_is_too_large(monkeypatch):
    import torch

    before = torch.get_num_threads()
    for name in ("OMP", "OPENBLAS", "MKL", "NUMBA"):
        monkeypatch.setenv(f"{name}_NUM_THREADS", "1")  # given back after the test
    try:
        many.limit_threads(1 << 40)
        assert torch.get_num_threads() == int(os.environ["OMP_NUM_THREADS"]) == 1024
    finally:
        torch.set_num_threads(before)


ORPHANS = """
import multiprocessing, os, sys, time
from pathlib import Path
from stepformer.base import many

def work(name):
    Path(name).write_text(str(os.getpid()))
    if name.endswith("long"):
        time.sleep(60)
    while not Path(name).with_name("long").exists():  # both are at work before one has nothing more to do
        time.sleep(0.01)

def feed(folder):
    yield folder + "/long"
    yield folder + "/short"
    time.sleep(60)  # while the second process waits for more

if __name__ == "__main__":
    if sys.argv[2] == "fork":
        many._context = lambda preload: multiprocessing.get_context("fork")
    list(many.run_many(work, feed(sys.argv[1]), jobs=2))
"""


def is_running(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until(true):
    deadline = time.monotonic() + 90  # of a busy machine
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks processes up in /proc")
@pytest.mark.parametrize("start", ["fork", "as always"])
def test_processes_of_a_killed_parent_end_at_work_and_idle(tmp_path, start):
    (tmp_path / "orphans.py").write_text(ORPHANS)
    parent = subprocess.Popen([sys.executable, str(tmp_path / "orphans.py"), str(tmp_path), start])
    notes = [tmp_path / "long", tmp_path / "short"]
    processes = []
    try:
        wait_until(lambda: all(path.exists() and path.read_text() for path in notes))
        processes = [int(path.read_text()) for path in notes]
        assert all(map(is_running, processes))
        parent.kill()
        parent.wait()
        wait_until(lambda: not any(map(is_running, processes)))
    finally:
        parent.kill()
        for process in filter(is_running, processes):
            os.kill(process, signal.SIGKILL)


def test_who_stops_asking_hears_no_more_notes():
    heard = []
    outcomes = run_many(str, [1, 2], noted=lambda item, value: heard.append(value))
    assert next(outcomes).value == "1"
    many.note("of other work, between two inputs")
    outcomes.close()
    many.note("of other work, afterwards")
    assert heard == []
