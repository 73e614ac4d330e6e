"""Several processes train as one does: same losses, same weights; one writes; one that dies costs nothing but time."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

from stepformer.app.training import make_trainer
from stepformer.core.distributed import Ranks, join, own_rows
from stepformer.errors import UsageError
from tests.core.training.training_runs import make_store, rows, small

# chance apart: no dropout, and as many frames drawn as there are
SURE = {
    "model__dropout": 0.0, "loss__smooth_frames": 64, "loggers": [], "batch": 5, "steps": 4,
    "optim__options": {"eps": 1e-4},  # where the gradient is rounding alone, Adam would make a whole step of it
}  # fmt: skip
VARIANTS = {
    "default": {},
    "paper": {"preset": "paper"},
    "released": {"preset": "released", "loss__weights": {"smooth": 0.0}},  # it draws neighbours
    "soft": {"loss__weights": {"soft_dtw": 0.5}, "optim__accumulate": 2},
}
ALL = """
import json, sys
from stepformer.app.training import make_trainer
from stepformer.core.distributed import join, leave
from stepformer.core.config import make_config
ranks, device = join("cpu")
for name, config in json.load(open("configs.json")).items():
    make_trainer(make_config(config), "many-" + name, device, quiet=True, ranks=ranks).run()
leave()
"""


def torchrun(processes, *command, cwd, **more):
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}", *command],
        cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more,
    )  # fmt: skip


def close(a: Path, b: Path, name="last.safetensors"):
    x, y = load_file(a / name), load_file(b / name)
    return x.keys() == y.keys() and all(torch.allclose(x[key], y[key], rtol=0, atol=1e-5) for key in x)


def test_two_processes_learn_what_one_does_from_uneven_parts(tmp_path, monkeypatch):
    """Batches of 5 videos over 2 processes: every preset, every loss, gradients accumulated."""
    monkeypatch.chdir(tmp_path)
    make_store(tmp_path / "store", 17)
    data = {"data__store": ["store"], "data__held_out": 0.2}
    configs = {name: small(**{**SURE, **data, **more}) for name, more in VARIANTS.items()}
    (tmp_path / "configs.json").write_text(json.dumps({k: asdict(c) for k, c in configs.items()}, default=str))
    (tmp_path / "all.py").write_text(ALL)
    where = {**os.environ, "OMP_NUM_THREADS": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        where["MASTER_PORT"] = str(free.getsockname()[1])
    pair = [
        subprocess.Popen(
            [sys.executable, "-X", "faulthandler", "all.py"],
            env={**where, "RANK": str(rank)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    for name, config in configs.items():
        make_trainer(config, f"one-{name}", "cpu", quiet=True).run()
    for process in pair:
        _, said = process.communicate(timeout=300)
        assert process.returncode == 0, said
    for name in configs:
        one, many = tmp_path / f"one-{name}", tmp_path / f"many-{name}"
        assert len(rows(one)) == len(rows(many)) == 4 + 2  # four steps, two validations: written once
        for a, b in zip(rows(one), rows(many), strict=True):
            assert a == pytest.approx(b, abs=1e-5, rel=1e-5), name
        assert close(one, many), name
        assert sorted(path.name for path in one.iterdir()) == sorted(path.name for path in many.iterdir())


@pytest.mark.slow
def test_a_process_is_killed_and_the_run_resumed_with_another_number(tmp_path):
    make_store(tmp_path / "store", 17)
    settings = {
        "loggers": [], "batch": 5, "steps": 300, "save_every": 20, "log_every": 5, "data.store": ["store"],
        "model.dropout": 0.0, "model.slots": 6, "model.dim": 32, "model.feature_dim": 64, "model.layers": 1,
        "model.heads": 2, "model.feedforward": 32, "validation.every": 0,
    }  # fmt: skip
    sets = [word for key, value in settings.items() for word in ("--set", f"{key}={json.dumps(value)}")]
    train = ("-m", "stepformer", "train", "--preset", "paper", "--device", "cpu", *sets)
    run = torchrun(2, *train, "--out", "run", cwd=tmp_path, start_new_session=True)
    state = tmp_path / "run" / "state.safetensors"
    deadline = time.monotonic() + 120
    while not state.exists():
        assert time.monotonic() < deadline and run.poll() is None
        time.sleep(0.05)
    workers = subprocess.run(["pgrep", "-P", str(run.pid)], capture_output=True, text=True, check=True).stdout.split()
    os.kill(int(workers[-1]), signal.SIGKILL)
    _, said = run.communicate(timeout=120)
    assert run.returncode != 0 and len(rows(tmp_path / "run")) < 60
    again = torchrun(3, *train, "--out", "run", "--resume", cwd=tmp_path)
    assert again.wait(timeout=300) == 0, said
    whole = subprocess.run([sys.executable, *train, "--out", "whole"], cwd=tmp_path, capture_output=True, check=False)
    assert whole.returncode == 0
    assert [row["step"] for row in rows(tmp_path / "run")] == list(range(5, 301, 5))
    for a, b in zip(rows(tmp_path / "run"), rows(tmp_path / "whole"), strict=True):
        assert a["loss"] == pytest.approx(b["loss"], rel=2e-3)  # 300 steps of rounding


@given(st.integers(0, 50), st.integers(1, 9))
def test_every_row_has_one_process(count, size):
    parts = [range(count)[Ranks(rank, size).rows(count)] for rank in range(size)]
    assert [row for part in parts for row in part] == list(range(count))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_only_the_first_process_writes(tmp_path):
    config = small(**{**SURE, "data__store": [str(make_store(tmp_path / "store", 8))], "validation__every": 0})
    for rank in (1, 0):
        (tmp_path / "run").mkdir(exist_ok=True)
        make_trainer(config, tmp_path / "run", "cpu", ranks=Ranks(rank, 2)).save()
        assert len(list((tmp_path / "run").iterdir())) == (0 if rank else 2)


def test_too_few_videos_get_a_sentence(tmp_path, monkeypatch):
    store = make_store(tmp_path / "store", 4)
    config = small(**{**SURE, "data__store": [str(store)], "data__held_out": 0.0, "validation__every": 0})
    trainer = make_trainer(config, tmp_path / "run", "cpu", ranks=Ranks(1, 2))
    with pytest.raises(UsageError, match="fewer videos than a batch of 5 takes"):
        own_rows(trainer.source, trainer.ranks, 0, 5)
    with pytest.raises(UsageError, match="a batch of 5 videos is too small for 6 processes"):
        make_trainer(config, tmp_path / "run", "cpu", ranks=Ranks(0, 6))
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(UsageError, match="start several processes with torchrun"):
        join("cpu")
