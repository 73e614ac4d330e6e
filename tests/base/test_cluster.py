"""Many inputs on a Ray cluster: as in many processes, and nodes may die."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stepformer.base.cluster import run_anywhere
from stepformer.errors import InputError, MissingError, StepFormerError

_offset = 0


def set_offset(value):
    global _offset  # noqa: PLW0603 (what an initializer is for)
    _offset = value


def never(value):
    raise InputError(f"no model {value}")


def work(item):
    """Doubles a number and leaves a mark; some numbers are trouble."""
    kind, number = item
    with Path(f"marks/{number}").open("a") as mark:
        mark.write(f"{os.getpid()}\n")
    if kind == "bad":
        raise InputError(f"{number} cannot be read")
    if kind == "dies":
        os._exit(9)
    if kind == "hangs":
        time.sleep(600)
    time.sleep(0.1)
    return number * 2 + _offset


# what runs on the cluster: three nodes on this machine, of which one is killed as soon as its worker is at work
SCRIPT = """
import sys, time
from pathlib import Path
import ray
from ray.cluster_utils import Cluster
from stepformer.base.cluster import run_anywhere
from stepformer.errors import InputError
from tests.base.test_cluster import never, set_offset, work

cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
other = [cluster.add_node(num_cpus=1) for _ in range(2)]
ray.init(cluster.address, log_to_driver=False, logging_level="ERROR")
kinds = {3: "bad", 7: "dies", 9: "hangs"}
items = [(kinds.get(i, "ok"), i) for i in range(60)]
found, taken = {}, []
coming = (taken.append(item) or item for item in items)
for outcome in run_anywhere("auto", work, coming, 0, set_offset, (100,), time_limit_s=8):
    assert outcome.item not in found
    found[outcome.item] = outcome.value, outcome.error
    assert len(taken) - len(found) <= 2 * 3  # one at each of three actors, one waiting for each
    if len(found) == 12:
        cluster.remove_node(other.pop(), allow_graceful=False)
assert found.pop(("bad", 3)) == (None, "3 cannot be read"), found
assert found.pop(("dies", 7)) == (None, "the process that worked on it died (out of memory, or a decoder crash)")
assert found.pop(("hangs", 9)) == (None, "it was given up after 8 s, the time limit")
assert found == {("ok", i): (2 * i + 100, None) for i in range(60) if i not in kinds}, found
assert len(Path("marks/7").read_text().split()) == 3  # three actors died of it
try:
    list(run_anywhere("auto", work, items, 2, never, ("x",)))
except InputError as error:
    print(error)
ray.shutdown()
cluster.shutdown()
"""


# a node with two GPUs, as far as Ray is concerned, and one without: one actor per GPU, each of which sees its own
GPU_SCRIPT = """
import ray
from ray.cluster_utils import Cluster
from stepformer.base.cluster import run_anywhere
from tests.base.test_cluster import sees

cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 4, "num_gpus": 2, "include_dashboard": False})
cluster.add_node(num_cpus=4)
ray.init(cluster.address, log_to_driver=False, logging_level="ERROR")
for jobs, actors in ((0, {2}), (4, {3, 4})):  # the last may be ready when all is done
    found = [outcome.value for outcome in run_anywhere("auto", sees, range(100), jobs, gpu=True)]
    assert {gpu for _, gpu in found} == {"0", "1"} and len({pid for pid, _ in found}) in actors, found
ray.shutdown()
cluster.shutdown()
"""


def sees(item):
    """Which process works, and the GPU that it may use."""
    time.sleep(0.2)
    return os.getpid(), os.environ["CUDA_VISIBLE_DEVICES"]


def run_script(script, folder):
    pytest.importorskip("ray", reason="needs Ray: pip install 'stepformer[ray]'")
    root = Path(__file__).parents[2]
    env = {**os.environ, "PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}", "RAY_USAGE_STATS_ENABLED": "0"}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=folder, env=env, capture_output=True, text=True, timeout=400, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.slow
def test_a_node_is_killed_and_nothing_is_lost(tmp_path):
    (tmp_path / "marks").mkdir()
    assert "no model x" in run_script(SCRIPT, tmp_path)  # Ray's own lines may come after it


@pytest.mark.slow
def test_actors_share_the_gpus_there_are(tmp_path):
    run_script(GPU_SCRIPT, tmp_path)


def test_without_ray_or_a_cluster_there_is_a_sentence(monkeypatch):
    pytest.importorskip("ray", reason="needs Ray: pip install 'stepformer[ray]'")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with pytest.raises(MissingError, match=r"no Ray cluster answers at 'auto' .*; start one with: ray start --head"):
        list(run_anywhere("auto", work, []))
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(StepFormerError, match=r"--cluster needs Ray; install it with: pip install 'stepformer\[ray\]'"):
        list(run_anywhere("auto", work, []))
