"""The decoder layers as one function: the numbers of the modules, gradients too, and dropout that can be replayed."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch

from stepformer.core.graph import Flat
from stepformer.core.model import ModelConfig, StepDecoder, preset
from stepformer.core.stack import Stack, weight_kinds

pytestmark = pytest.mark.usefixtures("plain_kernels")

SMALL = {"feature_dim": 24, "dim": 24, "layers": 3, "heads": 3, "feedforward": 20, "slots": 5, "dropout": 0.0}
PRESETS = {
    "paper": preset("paper", **SMALL),
    "released": preset("released", **SMALL),
    "default": preset("default", **SMALL),
    "projected": replace(preset("default", **SMALL), feature_dim=16, positions="none", queries="position"),
    "one layer": replace(preset("paper", **SMALL), layers=1),
    "keys": replace(preset("released", **SMALL), feature_dim=16),
}


def make(config: ModelConfig, seed: int = 0) -> StepDecoder:
    torch.manual_seed(seed)
    model = StepDecoder(config).double()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.2 * torch.randn_like(p))
    return model


def stacked(model: StepDecoder, seed: int = 1) -> tuple[Stack, Flat]:
    optimizer = torch.optim.AdamW(model.parameters())
    flat = Flat(model, None, optimizer, weight_kinds(model), torch.float64)
    made = Stack(model, flat.stacks(flat.values), flat.stacks(flat.half), flat.stacks(flat.grads), torch.tensor([seed]))
    return made, flat


def results(model, video, mask, decode=None):
    output = model(video, mask, attention=True, decode=decode)
    loss = output.slots.square().mul(torch.linspace(0.5, 2, video.shape[-1], dtype=video.dtype)).sum()
    loss = loss + (output.attention.square() * torch.linspace(1, 3, video.shape[1])).sum()
    return output, loss


@pytest.mark.parametrize("name", PRESETS)
def test_it_gives_the_numbers_and_gradients_of_the_modules(name):
    config = PRESETS[name]
    plain = make(config)
    fused = copy.deepcopy(plain)
    B, N = 4, 40
    video = torch.randn(B, N, config.feature_dim, dtype=torch.float64)
    mask = torch.arange(N) < torch.tensor([N, 31, 7, 1])[:, None]
    expected, loss = results(plain, video, mask)
    loss.backward()
    stack, flat = stacked(fused)
    found, loss = results(fused, video, mask, stack.decode)
    flat.take(torch.autograd.grad(loss, flat.rest, allow_unused=True))
    assert torch.allclose(found.slots, expected.slots, rtol=1e-9, atol=1e-11)
    assert torch.allclose(found.attention, expected.attention.double(), rtol=1e-5, atol=1e-6)  # theirs is float32
    for (label, p), q in zip(plain.named_parameters(), fused.parameters(), strict=True):
        grad = torch.zeros_like(p) if p.grad is None else p.grad
        assert torch.allclose(flat.view(flat.grads, q), grad, rtol=1e-5, atol=1e-6), label
