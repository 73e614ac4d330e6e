"""No step waits for the device: one that is not finite is reported late, and changes nothing."""

from __future__ import annotations

import math

import pytest
import torch

from stepformer.core.training import OPTIMIZERS, NonFiniteLossError
from tests.core.step.test_graph import make, weights


@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_fused_update_is_called_off_and_the_step_reported_late(accumulate, tmp_path, monkeypatch):
    def fused(model, config):
        return torch.optim.AdamW(model.parameters(), lr=config.lr, fused=True)

    monkeypatch.setitem(OPTIMIZERS, "fused", fused)
    trainer = make(
        tmp_path, recorded=False, optim={"optimizer": "fused", "ema": 0.0, "lr": 3e-3, "accumulate": accumulate}
    )
    plain = make(
        tmp_path, recorded=False, optim={"ema": 0.0, "lr": 3e-3, "accumulate": accumulate, "weight_decay": 0.01}
    )
    for step in range(4):
        losses = [float(t.train_step(step)["loss"]) for t in (trainer, plain)]
        assert losses[0] == pytest.approx(losses[1], rel=1e-3)
    trainer.settle()
    with torch.no_grad():
        trainer.model.queries[0, 0] = math.nan
    before = weights(trainer.model)
    for step in (4, 5):
        trainer.train_step(step)  # not read yet
    with pytest.raises(NonFiniteLossError, match=r"step 4: not finite .*nonfinite-4\.safetensors"):
        for step in (6, 7):
            trainer.train_step(step)
    assert torch.equal(weights(trainer.model).nan_to_num(7.0), before.nan_to_num(7.0))
    assert {float(state["step"]) for state in trainer.optimizer.state.values()} == {4.0}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("recorded", [True, False])
def test_on_a_gpu_no_step_waits_for_the_device(recorded, tmp_path):
    trainer = make(tmp_path, "paper", recorded, "cuda")
    if not recorded:
        trainer.eager_because = "asked"
    for step in range(12):  # all shapes, twice
        trainer.train_step(step)
    torch.cuda.set_sync_debug_mode("error")  # raises where torch waits
    try:
        for step in range(12, 18):
            trainer.train_step(step)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    trainer.settle()
