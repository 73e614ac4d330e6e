"""--cluster: the corpus commands on three Ray nodes of this machine, one of which is killed while it works."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

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


@pytest.mark.slow
def test_features_phrases_and_steps_with_a_node_killed(tmp_path):
    pytest.importorskip("ray", reason="needs Ray: pip install 'stepformer[ray]'")
    for folder in ("videos", "said", "arrays"):
        (tmp_path / folder).mkdir()
    for i in range(20):
        write_clip(tmp_path / "videos" / f"v{i}.mp4", [j / 10 for j in range(30 + i)])
    (tmp_path / "videos" / "broken.mp4").write_bytes(b"nothing of the kind" * 100)
    (tmp_path / "clock.py").write_text(
        "from stepformer.encoders import ENCODERS\nENCODERS['clock'] = 'tests.data.test_store_features:ClockEncoder'\n"
    )
    for i in range(6):
        (tmp_path / "said" / f"v{i}.vtt").write_text("WEBVTT\n\n00:01.000 --> 00:03.000\nNow crack the eggs.\n")
    width = load_checkpoint(checkpoint_file("default")).model.config.feature_dim
    for i in range(4):
        array = np.random.default_rng(i).standard_normal((40, width)).astype(np.float32)
        np.save(tmp_path / "arrays" / f"a{i}.npy", array[:, : width - (i == 3)])  # the last has another width
    root = Path(__file__).parents[2]
    env = {**os.environ, "PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}", "RAY_USAGE_STATS_ENABLED": "0"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().splitlines()[-1] == "[5, 0, 5]", done.stderr
    store = FeatureStore(tmp_path / "store")
    assert sorted(store.ids) == sorted(f"v{i}" for i in range(20))
    for i in range(20):
        np.testing.assert_allclose(
            store[f"v{i}"].features[:, 0], np.arange(len(store[f"v{i}"].features)) + 0.5, atol=0.01
        )
    assert not list((tmp_path / "store" / "spool").iterdir())
    rows = [json.loads(line) for line in (tmp_path / "phrases.jsonl").read_text().splitlines()]
    assert [row["video"] for row in rows] == [f"v{i}" for i in range(6)]
    assert len(list((tmp_path / "found").glob("*.steps.json"))) == 3
