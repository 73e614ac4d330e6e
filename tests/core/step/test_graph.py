"""The recorded step, run unrecorded on the CPU: the loop's numbers, exact resume, padding, guards."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import pytest
import torch

from stepformer.core.config import make_config
from stepformer.core.devices import seed_device
from stepformer.core.graph import padded_size, why_not
from stepformer.core.model import levelled
from stepformer.core.training import NonFiniteLossError, Trainer

pytestmark = pytest.mark.usefixtures("plain_kernels")

SIZE = {"dim": 24, "layers": 2, "heads": 3, "feedforward": 20, "slots": 5}


class Batch(NamedTuple):
    video: torch.Tensor
    video_mask: torch.Tensor
    phrases: torch.Tensor
    phrase_mask: torch.Tensor
    phrase_times: torch.Tensor


class Source:
    dim, encoder, origin = 24, "random", "random"

    def batch(self, step, size):
        g = torch.Generator().manual_seed(step % 3)
        N, L = 30 + 5 * (step % 2), 7 + step % 3
        frames = torch.randint(10, N + 1, (size, 1), generator=g)
        said = torch.randint(1, L + 1, (size, 1), generator=g)
        topic = torch.randn(size, 1, 24, generator=g)
        return Batch(
            topic + torch.randn(size, N, 24, generator=g), torch.arange(N) < frames,
            topic + torch.randn(size, L, 24, generator=g), torch.arange(L) < said,
            torch.linspace(0, N, L).expand(size, L),
        )  # fmt: skip

    def held_out_batches(self, size):
        return []

    def describe(self):
        return ""


def make(out, preset="paper", recorded=True, device="cpu", **changes):
    config = make_config(
        {"preset": preset, "batch": 4, "steps": 50, "loggers": [], "validation": {"every": 0},
         "optim": {"ema": 0.9, "warmup": 0.1, "lr": 3e-3}, "model": {**SIZE, "dropout": 0.0},
         "loss": {"smooth_frames": 64}, "data": {"simulator": {"max_frames": 40}}, **changes}
    )  # fmt: skip
    trainer = Trainer(config, out, Source(), device, quiet=True)
    if recorded:
        trainer.eager_because = None
    return trainer


def weights(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


@pytest.mark.parametrize("preset", ["paper", "released", "default"])
@pytest.mark.parametrize("optimizer", ["adamw", "adam"])
def test_it_trains_as_the_loop_does(preset, optimizer, tmp_path):
    """Both draw other frames for the smoothness, as padding draws more numbers: that loss is left out."""
    changes = {
        "loss": {"weights": {"smooth": 0.0}},
        "optim": {"ema": 0.9, "warmup": 0.1, "lr": 3e-3, "optimizer": optimizer, "clip": 0.5},
    }
    plain, fast = (make(tmp_path / str(i), preset, recorded=i == 1, **changes) for i in range(2))
    for step in range(6):
        a, b = plain.train_step(step), fast.train_step(step)
        for name in a:
            assert float(b[name]) == pytest.approx(float(a[name]), rel=2e-3, abs=1e-4), (step, name)
    fast.settle()
    moved = (weights(plain.model) - weights(make(tmp_path / "new", preset, **changes).model)).norm()
    assert (weights(plain.model) - weights(fast.model)).norm() < 0.02 * moved
    assert (weights(plain.mean) - weights(fast.mean)).norm() < 0.02 * moved
    assert (weights(fast.model) - weights(fast.mean)).norm() > 0.01 * moved


@pytest.mark.parametrize("preset", ["paper", "default"])
def test_frames_in_float16_are_placed_in_float32(preset, tmp_path):
    """As stores keep them; in float16 the sum with the position codes would be off by a thousandth."""
    trainer = make(tmp_path, preset)
    batch = Source().batch(0, 4)
    trainer.source.batch = lambda step, size: batch._replace(video=batch.video.half(), phrases=batch.phrases.half())
    trainer.train_step(0)
    recorded = next(iter(trainer._graph._recorded.values()))
    assert recorded.inputs["video"].dtype == torch.float16
    seen = []
    decode = trainer.model.decode
    trainer._graph.stack, trainer.model.decode = None, lambda *given: (seen.append(given[0]), decode(*given))[1]
    trainer._graph.forward(recorded)
    video = recorded.inputs["video"].float()
    memory = levelled(video) if trainer.model.config.level else video
    assert torch.equal(seen[0], memory + trainer.model.codes(recorded.inputs["video_mask"]))


def test_a_saved_run_goes_on_exactly(tmp_path):
    changes = {"model": {**SIZE, "dropout": 0.2}}
    whole, first = make(tmp_path / "a", **changes), make(tmp_path / "b", **changes)
    (tmp_path / "b").mkdir()
    for step in range(6):
        whole.train_step(step)
    for step in range(3):
        first.train_step(step)
    first.step = 3
    first.save()
    second = make(tmp_path / "b", **changes)
    second._load_state()
    for step in range(3, 6):
        second.train_step(step)
    assert torch.equal(weights(second.model), weights(whole.model))
    assert torch.equal(weights(second.mean), weights(whole.mean))
    states = [t.optimizer.state_dict()["state"] for t in (whole, second)]
    assert all(torch.equal(states[0][i][k], states[1][i][k]) for i in states[0] for k in states[0][i])
    assert float(states[0][0]["step"]) == 6


def test_dropout_follows_the_seed(tmp_path):
    """The same step gives the same loss again; another seed, with the same weights and batch, another one."""
    changes = {"model": {**SIZE, "dropout": 0.3}}
    first, again = (make(tmp_path / name, **changes) for name in ("a", "b"))
    other = make(tmp_path / "c", seed=5, **changes)
    other.start_from(again.model)
    losses = [float(trainer.train_step(0)["seq"]) for trainer in (first, again, other)]
    assert losses[0] == losses[1] != losses[2]


def test_a_gradient_that_is_not_finite_stops_all_updates_and_is_reported_late(tmp_path):
    trainer = make(tmp_path)
    for step in range(2):
        trainer.train_step(step)
    trainer.settle()
    with torch.no_grad():
        trainer.model.queries[0, 0] = math.nan
    before = weights(trainer.model)
    trainer.train_step(2)
    trainer.train_step(3)  # not read yet
    with pytest.raises(NonFiniteLossError, match=r"step 2: not finite .*nonfinite-2\.safetensors"):
        trainer.settle()
    assert torch.equal(weights(trainer.model).nan_to_num(7.0), before.nan_to_num(7.0))
    with pytest.raises(NonFiniteLossError, match="step"):
        trainer.train_step(4)
        trainer.save()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("preset", ["paper", "released", "default"])
def test_recorded_on_a_gpu_it_trains_as_the_modules_do(preset, tmp_path):
    """Without what both draw for themselves, dropout and the frames for smoothness."""
    changes = {
        "model": {**SIZE, "dim": 48, "dropout": 0.0}, "loss": {"weights": {"smooth": 0.0}},
        "optim": {"warmup": 0.1, "lr": 3e-4},
    }  # fmt: skip
    fast, plain = (make(tmp_path / name, preset, name == "a", "cuda", **changes) for name in "ab")
    plain.eager_because = "asked"
    losses = [[float(trainer.train_step(step)["loss"]) for step in range(8)] for trainer in (fast, plain)]
    assert losses[0] == pytest.approx(losses[1], rel=0.03)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("preset", ["paper", "released", "default"])
def test_recorded_on_a_gpu_a_saved_run_goes_on_exactly(preset, tmp_path):
    changes = {"model": {**SIZE, "dim": 48, "dropout": 0.1}}
    whole, first = (make(tmp_path / name, preset, True, "cuda", **changes) for name in "ab")
    (tmp_path / "b").mkdir()
    for step in range(8):
        whole.train_step(step)
    for step in range(4):
        first.train_step(step)
    first.step = 4
    first.save()
    second = make(tmp_path / "b", preset, True, "cuda", **changes)
    second._load_state()
    for step in range(4, 8):
        second.train_step(step)
    for trainer in (whole, second):
        trainer.settle()
    assert torch.equal(weights(second.model), weights(whole.model))
    assert torch.equal(weights(second.mean), weights(whole.mean))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_on_a_gpu_batches_come_beside_the_step_however_many_trainings_went_before(tmp_path):
    """torch gives out 32 streams in turn: copies must not be put on one that waits for the step."""
    from stepformer.core.devices import side_stream

    trainers = [make(tmp_path / str(i), "paper", True, "cuda") for i in range(12)]
    for trainer in trainers:
        trainer.train_step(0)
        trainer.settle()
        copies = trainer._graph._copies.cuda_stream
        assert copies not in {side_stream(trainer._graph.device, number).cuda_stream for number in range(10)}


def test_sizes_come_in_few_steps():
    assert [padded_size(n, 1000) for n in (1, 125, 128, 129, 700, 999, 1000, 1001)] == [
        128, 128, 128, 256, 768, 1000, 1000, 1024,
    ]  # fmt: skip
    assert {padded_size(n, 96, 3) for n in range(1, 97)} == {32, 64, 96}
    assert len({padded_size(n, 512) for n in range(1, 513)}) == 8
    assert [padded_size(n, 250) for n in (249, 250, 251)] == [256, 256, 256]  # multiples of 8
    assert padded_size(500, 500) == 504


def test_what_cannot_be_recorded_is_said(tmp_path):
    trainer = make(tmp_path, recorded=False)
    config, model = trainer.config, trainer.model
    gpu = torch.device("cuda")
    assert trainer.eager_because == "they run on the CPU"
    assert "CPU" in str(why_not(config, model, torch.device("cpu"), "fp32"))
    accumulating = replace(config, optim=replace(config.optim, accumulate=2))
    for changed, precision, said in (
        (accumulating, "bf16", "2 batches"),
        (config, "fp16", "fp16"),
        (replace(config, optim=replace(config.optim, optimizer="sgd")), "bf16", "optimiser"),
        (replace(config, optim=replace(config.optim, options={"amsgrad": True})), "bf16", "optimiser"),
    ):
        reason = str(why_not(changed, model, gpu, precision))
        assert said in reason or "Triton" in reason


def test_seeding_draws_as_torch_does_and_leaves_nothing_behind():
    torch.manual_seed(7)
    drawn = torch.rand(3)
    waiting = len(torch.cuda._queued_calls)  # what torch.manual_seed adds to where there is no GPU
    seed_device(torch.device("cpu"), 7)
    assert torch.equal(torch.rand(3), drawn)
    assert len(torch.cuda._queued_calls) == waiting
