"""--cluster: the corpus commands on Ray nodes of this machine; a node, or the command itself, is killed meanwhile."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open

from benchmarks.timecode import write_clip
from stepformer.app.discover.loading import checkpoint_file
from stepformer.core.checkpoint import load_checkpoint
from stepformer.data.store import FeatureStore

SCRIPT = """
import sys, threading, time
from pathlib import Path
import ray
from ray.cluster_utils import Cluster
from stepformer.cli import main

cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
other = [cluster.add_node(num_cpus=1) for _ in range(2)]
ray.init(cluster.address, log_to_driver=False, logging_level="ERROR")

def kill():
    while not list(Path("store/spool").glob("*.safetensors")):
        time.sleep(0.02)
    cluster.remove_node(other.pop(), allow_graceful=False)

threading.Thread(target=kill).start()
codes = [main(words + ["--cluster", "auto", "--quiet"]) for words in (
    ["prepare", "features", "videos", "store", "--encoder", "clock", "--no-text", "--plugin", "clock.py"],
    ["prepare", "phrases", "said", "phrases.jsonl"],
    ["discover", "arrays", "--out", "found", "--format", "json", "--keep-going"],
)]
assert len(other) == 1
ray.shutdown()
cluster.shutdown()
print(codes)
"""

EGGS = ("eggs", "walnuts")
PLUGIN = "from stepformer.encoders import ENCODERS\nENCODERS['clock'] = 'tests.data.test_store_features:ClockEncoder'\n"

# a cluster that outlives the command, which is killed once it has finished two videos, and started again
KILLED = """
import json, subprocess, sys, time
from pathlib import Path
from ray.cluster_utils import Cluster

cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
words = [sys.executable, "-m", "stepformer", "prepare", "features", "videos", "store", "--encoder", "clock", "--plugin"]
words += ["clock.py", "--cluster", cluster.address, "--quiet", "--json"]
first = subprocess.Popen(words, stdout=subprocess.DEVNULL)
while len(list(Path("store/spool").glob("*.safetensors"))) < 2:
    assert first.poll() is None
    time.sleep(0.02)
first.kill()
first.wait()
again = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
cluster.shutdown()
print(json.dumps(json.loads(again.stdout)))
"""


def run_script(script, folder):
    """The last line of what a script prints."""
    pytest.importorskip("ray", reason="needs Ray: pip install 'stepformer[ray]'")
    root = Path(__file__).parents[2]
    env = {**os.environ, "PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}", "RAY_USAGE_STATS_ENABLED": "0"}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=folder, env=env, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip().splitlines()[-1]


def assert_once(store, videos):
    """Every video has one line in the index and one place in a shard, and nothing is left over."""
    lines = (store / "index.jsonl").read_text("utf-8").splitlines()
    assert sorted(json.loads(line)["id"] for line in lines) == sorted(videos)
    stored = []
    for shard in (store / "shards").iterdir():
        with safe_open(shard, framework="numpy") as arrays:
            stored += [name.partition("|")[0] for name in arrays.keys() if name.endswith("|features")]  # noqa: SIM118
    assert sorted(stored) == sorted(videos)
    assert not list((store / "spool").iterdir())


@pytest.mark.slow
def test_a_command_that_is_killed_and_started_again_loses_and_doubles_nothing(tmp_path):
    """With text: subtitles to phrases to vectors, on the cluster."""
    (tmp_path / "videos").mkdir()
    (tmp_path / "clock.py").write_text(PLUGIN)
    for i in range(16):
        write_clip(tmp_path / "videos" / f"v{i}.mp4", [j / 10 for j in range(30 + i)])
        (tmp_path / "videos" / f"v{i}.vtt").write_text(
            f"WEBVTT\n\n00:01.000 --> 00:03.000\nNow crack the {EGGS[i % 2]}.\n"
        )
    summary = json.loads(run_script(KILLED, tmp_path))
    assert summary["skipped"] >= 2 and summary["videos"] == 16 - summary["skipped"] > 0 and not summary["failed"]
    assert_once(tmp_path / "store", [f"v{i}" for i in range(16)])
    store = FeatureStore(tmp_path / "store")
    for i in range(16):
        (phrase,) = store[f"v{i}"].phrases
        assert phrase.text == f"crack the {EGGS[i % 2]}"
        np.testing.assert_allclose(store[f"v{i}"].phrase_vectors, [[len(phrase.text), 1.0]])


@pytest.mark.slow
def test_features_phrases_and_steps_with_a_node_killed(tmp_path):
    for folder in ("videos", "said", "arrays"):
        (tmp_path / folder).mkdir()
    for i in range(20):
        write_clip(tmp_path / "videos" / f"v{i}.mp4", [j / 10 for j in range(30 + i)])
    (tmp_path / "videos" / "broken.mp4").write_bytes(b"nothing of the kind" * 100)
    (tmp_path / "clock.py").write_text(PLUGIN)
    for i in range(6):
        (tmp_path / "said" / f"v{i}.vtt").write_text("WEBVTT\n\n00:01.000 --> 00:03.000\nNow crack the eggs.\n")
    width = load_checkpoint(checkpoint_file("default")).model.config.feature_dim
    for i in range(4):
        array = np.random.default_rng(i).standard_normal((40, width)).astype(np.float32)
        np.save(tmp_path / "arrays" / f"a{i}.npy", array[:, : width - (i == 3)])  # the last has another width
    assert run_script(SCRIPT, tmp_path) == "[5, 0, 5]"
    store = FeatureStore(tmp_path / "store")
    assert_once(tmp_path / "store", [f"v{i}" for i in range(20)])
    for i in range(20):
        np.testing.assert_allclose(
            store[f"v{i}"].features[:, 0], np.arange(len(store[f"v{i}"].features)) + 0.5, atol=0.01
        )
    rows = [json.loads(line) for line in (tmp_path / "phrases.jsonl").read_text().splitlines()]
    assert [row["video"] for row in rows] == [f"v{i}" for i in range(6)]
    assert len(list((tmp_path / "found").glob("*.steps.json"))) == 3
