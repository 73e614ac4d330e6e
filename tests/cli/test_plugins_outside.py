"""examples/plugins from outside the package: installed with entry points, by --plugin and by STEPFORMER_PLUGINS."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import av
import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[2] / "examples" / "plugins"
POINTS = {
    "encoders": {"hues": "my_steps.encoder:HueEncoder"},
    "datasets": {"tsv": "my_steps.dataset:read_tsv"},
    "losses": {"in_order": "my_steps.loss:in_order"},
    "baselines": {"jumps": "my_steps.baseline:Jumps"},
    "exporters": {"markdown": "my_steps.exporter:MARKDOWN"},
    "decoders": {"windows": "my_steps.decoder:Windows"},
    "optimizers": {"sgd": "my_steps.optimizer:sgd"},
    "segmenters": {"sat": "my_steps.punctuation:Sat"},
    "resolvers": {"stanza": "my_steps.coreference:Stanza"},
}
SCRIPT = """
import json, sys
import numpy as np
from stepformer import cli
from stepformer.data.store import FeatureStore
from stepformer.evaluation.baselines import FeatureVideo, baseline

def run(*words):
    assert cli.main([*words, "-q"]) == 0, words

run("prepare", "features", "colours.mp4", "store", "--encoder", "hues", "--no-text", "--jobs", "1")
store = FeatureStore("store")
seen = store["colours"].features
assert store.info.encoder == "hues" and seen.shape == (4, 3), (store.info, seen.shape)
assert seen.argmax(1).tolist() == [0, 0, 2, 2], seen

run("evaluate", "steps.tsv", "--reader", "tsv", "--check")

features = np.repeat(np.eye(3, 8, dtype=np.float32), [3, 5, 4], axis=0)
labels = baseline("jumps").fit([], {"t": 3}).segment([FeatureVideo("v", "t", features)])[0]
assert labels.tolist() == [0] * 3 + [1] * 5 + [2] * 4, labels

import types
from stepformer.narration import Word
from stepformer.narration.pipeline import RESOLVERS, SEGMENTERS, make_stage
model = types.SimpleNamespace(split=lambda text: ["add salt ", "stir"])
sys.modules["wtpsplit"] = types.SimpleNamespace(SaT=lambda name: model)  # a stand-in for the package
ends = make_stage(SEGMENTERS, "sat").ends([Word(i, i + 1, text) for i, text in enumerate(("add", "salt", "stir"))], ())
assert ends == [False, True, True], ends
assert type(make_stage(RESOLVERS, "stanza")).__name__ == "Stanza"

run("export", "steps.json", "notes.md")
run("export", "notes.md", "back.json")

train = ("train", "--out", "run", "--device", "cpu", "--set", "data.store=phrases", "--set", "model.feature_dim=8",
         "--set", "model.dim=8", "--set", "model.heads=2", "--set", "batch=4", "--set", "model.decoder=windows",
         "--set", "optim.optimizer=sgd", "--set", "loss.weights.in_order=0.5", "--set", "validation.every=0",
         "--set", "model.slots=4", "--set", "save_every=2", "--set", "log_every=1")
run(*train, "--train-steps", "2")
run(*train, "--train-steps", "4", "--resume")
from stepformer.core.checkpoint import load_checkpoint
loaded = load_checkpoint("run/last.safetensors")
assert type(loaded.model).__name__ == "Windows", type(loaded.model)
rows = [json.loads(line) for line in open("run/metrics.jsonl")]
assert len(rows) == 4 and all("in_order" in row and "out_of_order" in row for row in rows), rows
"""


def outside(folder, *command, **variables):
    """A command in a process of its own, in ``folder``."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "STEPFORMER_PLUGINS": "", **variables}
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.fixture
def work(tmp_path):
    """A clean folder: a video of two colours, labelled stretches, a timeline, a store with phrases."""
    from stepformer.data.store import StoredPhrase, StoredVideo, StoreInfo, StoreWriter

    folder = tmp_path / "work"
    folder.mkdir()
    with av.open(str(folder / "colours.mp4"), "w") as container:
        stream = container.add_stream("mpeg4", rate=4)
        stream.width, stream.height, stream.pix_fmt = 64, 64, "yuv420p"
        for i in range(16):
            picture = np.zeros((64, 64, 3), np.uint8)
            picture[..., 0 if i < 8 else 2] = 230
            for packet in stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")):
                container.mux(packet)
        for packet in stream.encode(None):
            container.mux(packet)
    (folder / "steps.tsv").write_text("v1\tomelette\t20\t1\t4\tcrack\nv1\tomelette\t20\t5\t9\twhisk\n")
    steps = [{"start_s": 0, "end_s": 2.5, "label": "crack"}, {"start_s": 3, "end_s": 4, "label": None}]
    (folder / "steps.json").write_text(json.dumps({"video": "v1", "duration_s": 5, "steps": steps}))
    rng = np.random.default_rng(0)
    with StoreWriter(folder / "phrases", StoreInfo("made-up", "made-up-1", 8)) as writer:
        for i in range(8):
            said = tuple(StoredPhrase(f"p{j}", j, j + 1) for j in range(3))
            features, phrases = (rng.standard_normal((n, 8)).astype(np.float32) for n in (12, 3))
            writer.append(StoredVideo(f"v{i}", features, 1.0, 12.0, None, said, phrases, {}))
    return folder


def test_every_kind_from_an_installed_package(tmp_path, work):
    site = tmp_path / "site"
    shutil.copytree(EXAMPLES, site / "my_steps", ignore=shutil.ignore_patterns("__pycache__"))
    (site / "my_steps" / "__init__.py").touch()
    info = site / "my_steps-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-steps\nVersion: 1.0\n")
    lines = [
        f"[stepformer.{group}]\n" + "".join(f"{k} = {v}\n" for k, v in some.items()) for group, some in POINTS.items()
    ]
    (info / "entry_points.txt").write_text("\n".join(lines))
    path = os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])
    outside(work, "-c", SCRIPT, PYTHONPATH=path)
    assert "| 0.00 | 2.50 | crack |" in (work / "notes.md").read_text()
    back = json.loads((work / "back.json").read_text())
    assert [(s["start_s"], s["end_s"], s["label"]) for s in back["steps"]] == [(0.0, 2.5, "crack"), (3.0, 4.0, None)]


def test_a_plugin_file_by_flag_and_by_environment(work):
    shutil.copy(EXAMPLES / "exporter.py", work / "my_exporter.py")
    command = ("-m", "stepformer", "export", "steps.json")
    outside(work, *command, "a.md", "--plugin", "my_exporter")
    outside(work, *command, "b.md", "--plugin", str(EXAMPLES / "exporter.py"))
    outside(work, *command, "c.md", STEPFORMER_PLUGINS="my_exporter.py")
    (work / "stepformer.toml").write_text('plugin = ["my_exporter"]\n')
    outside(work, *command, "d.md")
    assert len({(work / f"{name}.md").read_text() for name in "abcd"}) == 1


def test_a_plugin_that_is_not_there_is_a_usage_error(capsys):
    from stepformer.cli import main

    assert main(["export", "--formats", "--plugin", "no_such_plugin"]) == 2
    assert "no_such_plugin cannot be imported" in capsys.readouterr().err


def test_every_registry_and_every_short_example_is_named_in_contributing():
    text = (EXAMPLES.parents[1] / "CONTRIBUTING.md").read_text("utf-8")
    code = "\n".join(path.read_text("utf-8") for path in (EXAMPLES.parents[1] / "src").rglob("*.py"))
    groups = set(re.findall(r'= Registry\(\s*(?:#[^\n]*\n\s*)?"[^"]+",\s*"(\w+)"', code))
    assert len(groups) >= 10 and all(f"`stepformer.{group}`" in text for group in groups), groups
    files = sorted(EXAMPLES.glob("*.py"))
    for path in files:
        assert len(path.read_text("utf-8").splitlines()) <= 50
        assert f"examples/plugins/{path.name}" in text
