"""`stepformer train` and `simulate` as users run them, and the core on a machine with torch and NumPy alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from training_runs import SMALL, rows, same_files

from stepformer.cli import main

QUICK = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}


@pytest.fixture(scope="module")
def run_toml(tiny_world, tmp_path_factory) -> Path:
    """A world file and a small config that names it."""
    folder = tmp_path_factory.mktemp("command")
    tiny_world.save(folder / "world.safetensors")
    sections = {key: value for key, value in SMALL.items() if isinstance(value, dict)}
    simulator = sections["data"]["simulator"]
    lines = [f"{key} = {json.dumps(value)}" for key, value in SMALL.items() if key not in sections]
    for name, section in sections.items():
        lines.append(f"[{name}]")
        lines += [f"{key} = {json.dumps(value)}" for key, value in section.items() if key != "simulator"]
    lines += ["[data.simulator]", *(f"{k} = {json.dumps(v)}" for k, v in simulator.items() if k != "sources")]
    lines += ["sources = {grammar = 1.0}"]
    text = "\n".join(lines).replace("[data]\n", f"[data]\nworld = {json.dumps(str(folder / 'world.safetensors'))}\n")
    (folder / "run.toml").write_text(text + "\n")
    return folder / "run.toml"


def test_a_dry_run_prints_the_resolved_config_and_writes_nothing(run_toml, tmp_path, capsys):
    out = tmp_path / "run"
    code = main(["train", "--config", str(run_toml), "--preset", "paper", "--set", "optim.lr=1e-2", "--without", "div",
                 "--out", str(out), "--dry-run"])  # fmt: skip
    assert code == 0 and not out.exists()
    said = capsys.readouterr()
    shown = json.loads(said.out)
    assert "one batch fits: 2 videos of up to" in said.err and "64 wide" in said.err
    assert (shown["preset"], shown["steps"], shown["optim"]["lr"]) == ("paper", 6, 0.01)
    assert shown["loss"]["weights"]["div"] == 0.0 and shown["loss"]["weights"]["seq"] == 1.0
    assert shown["data"]["simulator"]["max_frames"] == 30


def test_a_dry_run_finds_what_does_not_fit(run_toml, tmp_path, capsys):
    command = ["train", "--config", str(run_toml), "--out", str(tmp_path / "run"), "--dry-run"]
    assert main([*command, "--set", "model.feature_dim=768"]) == 2
    assert "width 64, the config says 768" in capsys.readouterr().err
    assert main([*command, "--set", "loss.div_on=attention", "--set", "model.decoder=nobody"]) == 2
    assert "no decoder 'nobody'" in capsys.readouterr().err
    assert main(["train", "--out", str(tmp_path / "run"), "--dry-run"]) == 0
    assert "no data is given" in capsys.readouterr().err


def test_train_prints_its_result_as_json(run_toml, tmp_path, capsys):
    code = main(["train", "--config", str(run_toml), "--set", "steps=2", "--out", str(tmp_path / "run"),
                 "--device", "cpu", "--json"])  # fmt: skip
    assert code == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["step"] == 2 and 0 <= shown["scores"]["zs_iou"] <= 1
    assert (tmp_path / "run" / "last.safetensors").exists()


def test_a_run_folder_knows_its_config(run_toml, tmp_path, capsys):
    out = str(tmp_path / "run")
    assert main(["train", "--config", str(run_toml), "--set", "steps=2", "--out", out]) == 0
    capsys.readouterr()
    assert main(["train", "--out", out, "--resume", "--set", "steps=3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["step"] == 3
    (tmp_path / "run" / "config.json").write_text("{")
    assert main(["train", "--out", out, "--resume"]) == 3
    assert "give --config" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["--set", "optim.rate=1"], 2, "has no field 'rate'"),
        (["--set", "steps"], 2, "--set takes KEY=VALUE"),
        (["--without", "speed"], 2, "no loss 'speed'"),
        (["--config", "nowhere.toml"], 3, "there is no config file nowhere.toml"),
        (["--set", "data.world=nowhere.safetensors"], 3, "there is no simulated world"),
        ([], 2, "training needs data"),
        (["--preset", "huge"], 2, "does not accept 'huge'; there are: "),
        (["--device", "tpu"], 2, "no device is called 'tpu'"),
        (["--device", "xpu"], 4, "cannot be used here"),
    ],
)
def test_a_mistake_gets_its_exit_code_and_a_sentence(arguments, code, sentence, tmp_path, capsys):
    assert main(["train", "--out", str(tmp_path / "run"), *arguments]) == code
    said = capsys.readouterr()
    assert sentence in said.err and "Traceback" not in said.err and said.out == ""


def test_ctrl_c_keeps_everything_and_the_run_goes_on_exactly(run_toml, tmp_path):
    out = tmp_path / "cut"
    settings = ["--set", "steps=400", "--set", "validation.every=0", "--set", "batch=2", "--set", "log_every=1"]
    command = [sys.executable, "-m", "stepformer", "train", "--config", str(run_toml), "--device", "cpu", *settings]
    process = subprocess.Popen([*command, "--out", str(out)], env=QUICK, stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + 120
        metrics = out / "metrics.jsonl"
        while not (metrics.exists() and metrics.read_text().count("\n") >= 3):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "interrupted" in said and "Traceback" not in said
    done = rows(out)[-1]["step"]
    assert 3 <= done < 400, "the run was over before it could be interrupted"
    # going on for a few steps gives what a run of that many steps without a stop gives; both in this process
    from stepformer.app.training import make_trainer
    from stepformer.core.config import make_config
    from stepformer.core.training import Trainer

    config = make_config(json.loads((out / "config.json").read_text()))
    # exact means: with as many threads as before, since sums are split among them
    threads = torch.get_num_threads()
    torch.set_num_threads(int(QUICK["OMP_NUM_THREADS"]))

    class Short(Trainer):
        def train_step(self, step):
            if step == done + 4:
                os.kill(os.getpid(), signal.SIGINT)
            return super().train_step(step)

    for folder, resume in ((out, True), (tmp_path / "whole", False)):
        with pytest.raises(KeyboardInterrupt):
            make_trainer(config, folder, "cpu", quiet=True, kind=Short).run(resume)
    torch.set_num_threads(threads)
    assert rows(out) == rows(tmp_path / "whole")
    assert same_files(out, tmp_path / "whole", "state.safetensors")


CORE = """
import sys
BLOCKED = {
    "numba", "spacy", "av", "matplotlib", "rich", "pyarrow", "onnxruntime", "scipy", "platformdirs", "tensorboard",
    "tokenizers", "usearch", "PIL",
}

class Bare:
    # what another finder finds, but for packages that a bare machine does not have
    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, path=None, target=None):
        return None if name.split(".")[0] in BLOCKED else self.finder.find_spec(name, path, target)

sys.meta_path[:] = [Bare(finder) for finder in sys.meta_path if hasattr(finder, "find_spec")]
import json
import stepformer.core.training, stepformer.core.inference, stepformer.core.checkpoint, stepformer.evaluation.validation
from stepformer.cli import main
assert not BLOCKED & {name.split(".")[0] for name in sys.modules}, BLOCKED & set(sys.modules)
code = main(["train", "--config", sys.argv[1], "--set", "steps=2", "--set", "validation.every=2",
             "--out", sys.argv[2], "--device", "cpu"])
assert not BLOCKED & {name.split(".")[0] for name in sys.modules}
sys.exit(code)
"""


def test_the_training_core_needs_torch_numpy_and_safetensors_alone(run_toml, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", CORE, str(run_toml), str(tmp_path / "run")],
        env=QUICK, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    metrics = rows(tmp_path / "run")
    assert [row["step"] for row in metrics if "loss" in row] == [1, 2]
    assert "val_un_f1" in metrics[-1]
    assert not (tmp_path / "run" / "alignment").exists()  # pictures need matplotlib
    # the torch kernels give what the compiled ones give
    assert main(["train", "--config", str(run_toml), "--set", "steps=2", "--set", "validation.every=2", "--out",
                 str(tmp_path / "here"), "--device", "cpu", "--json"]) == 0  # fmt: skip
    assert rows(tmp_path / "here")[0] == metrics[0]


def test_simulate_asks_for_what_it_needs(capsys):
    assert main(["simulate"]) == 2
    assert "--out is required" in capsys.readouterr().err
