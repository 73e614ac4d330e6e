"""The context layer as two functions: the numbers of the modules, gradients too, and dropout that can be replayed."""

from __future__ import annotations

import copy
import gc
import weakref
from dataclasses import replace

import pytest
import torch

from stepformer.core import context
from stepformer.core.graph import Flat
from stepformer.core.model import StepDecoder, preset

pytestmark = pytest.mark.usefixtures("plain_kernels")

SMALL = preset(
    "default", feature_dim=24, dim=24, layers=1, heads=3, feedforward=20, slots=5, dropout=0.0, apart=False
)
PRESETS = {
    "default": replace(SMALL, apart=True),
    "together": SMALL,
    "projected": replace(SMALL, feature_dim=16),
    "relu, absolute": replace(SMALL, activation="relu", positions="absolute", positions_on="keys"),
    "no positions": replace(SMALL, positions="none"),
}


def make(config):
    torch.manual_seed(0)
    model = StepDecoder(config).double()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.2 * torch.randn_like(p))
    return model


def fused(model, seed=1):
    flat = Flat(model, None, torch.optim.AdamW(model.parameters()), {}, torch.float64)
    half, grad = (lambda p, some=some: flat.view(some, p) for some in (flat.half, flat.grads))
    return context.Context(model, half, grad, torch.tensor([seed])), flat


def video_of(config, B=4, N=24):
    torch.manual_seed(1)
    mask = torch.arange(N) < torch.tensor([N, 17, 7, 1])[:, None]
    return torch.randn(B, N, config.feature_dim, dtype=torch.float64), mask


def loss_of(output, mask):
    frames = output.frames.pow(3) * mask[..., None] * torch.linspace(0.5, 2, output.frames.shape[-1])
    return output.slots.square().sum() + frames.sum()


@pytest.mark.parametrize("name", PRESETS)
def test_it_gives_the_numbers_and_gradients_of_the_modules(name):
    config = PRESETS[name]
    plain = make(config)
    model = copy.deepcopy(plain)
    video, mask = video_of(config)
    expected = plain(video, mask)
    loss_of(expected, mask).backward()
    made, flat = fused(model)
    assert context.fits(model)
    found = model(video, mask, look=made.look)
    flat.take(torch.autograd.grad(loss_of(found, mask), flat.rest, allow_unused=True))
    assert torch.allclose(found.frames[mask], expected.frames[mask], rtol=1e-9, atol=1e-11)
    assert torch.allclose(found.slots, expected.slots, rtol=1e-6, atol=1e-8)  # a read-out is in float32
    for (label, p), q in zip(plain.named_parameters(), model.parameters(), strict=True):
        if label != "context.0.attention.k.bias":  # falls out of the softmax
            grad = torch.zeros_like(p) if p.grad is None else p.grad
            assert torch.allclose(flat.view(flat.grads, q), grad, rtol=1e-5, atol=1e-6), label


def test_dropout_follows_the_seed_and_is_the_same_in_both_directions():
    """A small step along the gradient changes the loss by what the gradient says, with the same elements dropped."""
    model = make(replace(SMALL, dropout=0.3)).train()
    video, mask = video_of(SMALL)

    def loss(seed):
        torch.manual_seed(0)  # attention's own dropout
        made, flat = fused(model, seed)
        return loss_of(model(video, mask, look=made.look), mask), flat

    first, flat = loss(1)
    flat.take(torch.autograd.grad(first, flat.rest, allow_unused=True))
    layer = model.context[0]
    for p in (layer.norm1.weight, layer.attention.out.weight, layer.feedforward[0].weight, layer.feedforward[3].bias):
        grad = flat.view(flat.grads, p)
        with torch.no_grad():
            p.add_(grad, alpha=1e-6 / float(grad.norm()))
        after, _ = loss(1)
        assert float((after - first).detach()) == pytest.approx(1e-6 * float(grad.norm()), rel=1e-2)
        with torch.no_grad():
            p.sub_(grad, alpha=1e-6 / float(grad.norm()))
    first = float(first.detach())
    assert float(loss(1)[0].detach()) == pytest.approx(first, rel=1e-9)
    assert float(loss(2)[0].detach()) != pytest.approx(first, rel=1e-3)


def test_of_several_context_layers_the_modules_are_kept():
    assert not context.fits(make(replace(SMALL, context_layers=2)))
    assert not context.fits(make(preset("paper", feature_dim=24, dim=24, heads=3, layers=1)))


def test_nothing_holds_what_a_step_made():
    """A graph that is kept alive by itself would tie the next recording to the streams of this one."""
    model = make(SMALL)
    made, _ = fused(model)
    gc.collect()
    gc.disable()
    try:
        output = model(*video_of(SMALL), look=made.look)
        kept = weakref.ref(made)  # which every node has
        del output, made
        assert kept() is None
    finally:
        gc.enable()
