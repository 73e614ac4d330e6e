"""The Triton kernels of the training step against their plain counterparts, dropout included.

They run on a GPU where there is one, else in Triton's interpreter where Triton is installed (TRITON_INTERPRET=1).
"""

from __future__ import annotations

import importlib.util
import os

import pytest
import torch

from stepformer.core import losses
from stepformer.core.model import levelled
from tests.core.step import plain as reference

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed"),
    pytest.mark.skipif(
        DEVICE == "cpu" and os.environ.get("TRITON_INTERPRET") != "1", reason="no GPU, and TRITON_INTERPRET is not 1"
    ),
]
DROPOUT = round(0.25 * 2**24)
SEED = torch.tensor([1_234_567_890_123], device=DEVICE)


def draw(*shape, dtype=torch.float32):
    return torch.randn(*shape).to(DEVICE, dtype)


@pytest.fixture(autouse=True)
def _exact_products():
    """Training on a GPU switches TF32 on, for all that follows."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    yield
    torch.set_float32_matmul_precision(before)


@pytest.fixture(scope="module")
def kernels():
    from stepformer.core import stack_kernels

    return stack_kernels


class AllRows:
    """A tensor of which only the sum over its rows is given."""

    def __init__(self, rows):
        self.rows = rows

    def float(self):
        return self.rows.float().sum(0)


def both(kernels, name, make):
    """The tensors that a function wrote, by the plain version and by the kernel, from the same arguments."""
    found = []
    for module in (reference, kernels):
        torch.manual_seed(0)
        arguments, written = make()
        getattr(module, name)(*arguments)
        found.append(written)
    for plain, fast in zip(*found, strict=True):
        size = plain.float().abs().max()
        assert torch.isfinite(fast.float()).all()
        assert (plain.float() - fast.float()).abs().max() <= 2e-3 * size + 1e-5, name
    return found[1]


@pytest.mark.parametrize("dropout", [0, DROPOUT])
@pytest.mark.parametrize("query", [False, True])
@pytest.mark.parametrize("first", [False, True])
def test_add_norm(kernels, dropout, query, first):
    R, D, K = 12, 24, 4

    def make():
        written = [torch.full((R, D), torch.nan, device=DEVICE) for _ in range(3)]
        written += [torch.full((R,), torch.nan, device=DEVICE) for _ in range(2)]
        x = draw(K if first else R, D)  # the first norm sees the same slots in every video
        branch, bias, weight, shift = draw(R, D), draw(D), draw(D), draw(D)
        added = draw(K, D)
        given = (x, None if first else branch, None if first else bias, weight, shift, added if query else None)
        y_query = written.pop(2) if query else (written.pop(2), None)[1]
        out = [*written, y_query] if query else written
        return (*given, written[0], written[1], y_query, written[2], written[3], SEED, 7, dropout, 1e-5), out

    both(kernels, "add_norm", make)


@pytest.mark.parametrize("dropout", [0, DROPOUT])
@pytest.mark.parametrize("more", [False, True])
@pytest.mark.parametrize("branch", [False, True])
@pytest.mark.parametrize(("R", "D"), [(13, 24), (1300, 20), (43, 768)])
def test_add_norm_back(kernels, dropout, more, branch, R, D):
    parts = kernels.norm_parts(R, D)
    assert parts > 1 or R == 13

    def make():
        x = draw(R, D)
        mean, rstd = x.mean(1), 1 / x.std(1)
        dx, d_branch = draw(R, D), draw(R, D) if branch else None
        sums = torch.full((parts, 3, D), torch.nan, device=DEVICE)
        arguments = (draw(R, D), x, draw(D), mean, rstd, dx, more, d_branch, sums, SEED, 5, dropout)
        there = sums if branch else sums[:, :2]
        return arguments, [t for t in (dx, d_branch, AllRows(there)) if t is not None]

    both(kernels, "add_norm_back", make)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("level", [False, True])
@pytest.mark.parametrize("videos", [1, 3])
def test_codes_are_added_in_one_pass(kernels, dtype, level, videos):
    x, codes = draw(3, 50, 20).to(dtype), draw(videos, 50, 20)
    expected = levelled(x.float()) if level else x.float()
    for both in (False, True):
        plain, placed = kernels.add_codes(x, codes, level, both)
        assert torch.allclose(placed.float(), expected + codes, rtol=1e-2, atol=1e-2)
        assert (plain is not placed) == both
    assert torch.allclose(plain.float(), expected, rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("dropout", [0, DROPOUT])
def test_activate(kernels, dropout):
    R, width = 7, 20

    def forward():
        out = torch.full((R, width), torch.nan, device=DEVICE)
        return (draw(R, width), draw(width), out, SEED, 3, dropout), [out]

    def backward():
        grad, sums = draw(R, width), torch.full((3, width), torch.nan, device=DEVICE)
        return (grad, draw(R, width), draw(width), sums, SEED, 3, dropout), [grad, AllRows(sums)]

    both(kernels, "activate", forward)
    both(kernels, "activate_back", backward)


@pytest.mark.parametrize("dropout", [0, DROPOUT])
@pytest.mark.parametrize("extra", [False, True])
def test_softmax(kernels, dropout, extra):
    B, K, H, N = 3, 2, 2, 37
    mask = (torch.arange(N) < torch.tensor([N, 20, 1])[:, None]).to(DEVICE)

    def rows():  # as in the stack: rows lie further apart than they are long
        return torch.full((B, K * H, 64), torch.nan, device=DEVICE)[..., :N]

    def made():
        scores, passed, level = rows().copy_(draw(B, K * H, N) * 3), rows(), draw(B, K * H)
        return scores, passed, level, (scores, mask, passed, level, 0.5, SEED, 2, dropout)

    def forward():
        _, passed, level, arguments = made()
        return arguments, [passed, level]

    passed, _ = both(kernels, "softmax", forward)
    assert dropout or torch.allclose(passed.sum(-1), torch.ones(B, K * H, device=DEVICE))

    def backward():
        scores, _, level, arguments = made()
        reference.softmax(*arguments)
        grad, again = rows().copy_(draw(B, K * H, N)), rows()
        other = draw(B, K, N) if extra else None
        return (grad, scores, mask, level, other, H, again, 0.5, SEED, 2, dropout), [grad, again]

    both(kernels, "softmax_back", backward)
    scores, _, level, arguments = made()
    reference.softmax(*arguments)
    plain, fast = (ops.mean_weights(scores, mask, level, H, 0.5) for ops in (reference, kernels))
    assert torch.allclose(plain, fast, atol=1e-5)
    assert torch.allclose(plain.sum(-1), torch.ones(B, K, device=DEVICE))


@pytest.mark.parametrize("dropout", [0, DROPOUT])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(("slots", "size"), [(5, 24), (16, 16)])
def test_attend(kernels, dropout, shared, slots, size):
    B, H = 2, 3
    R, D = B * slots, H * size
    given_rows = slots if shared else R  # of the first layer, all videos have the same

    def draw(*shape):  # Triton multiplies float32 in TF32: numbers that it has exactly, and their sums
        return torch.randn(*shape).mul(16).round().div(16).to(DEVICE)

    def forward():
        out = torch.full((R, D), torch.nan, device=DEVICE)
        return (draw(given_rows, 3 * D), draw(3 * D), out, None, None, None, slots, H, SEED, 11, dropout), [out]

    def backward():
        d_qkv, sums = (torch.full((n, 3 * D), torch.nan, device=DEVICE) for n in (R, B))
        given = draw(given_rows, 3 * D), draw(3 * D), None, draw(R, D)
        return (*given, d_qkv, sums, slots, H, SEED, 11, dropout), [d_qkv, sums]

    both(kernels, "attend", forward)
    both(kernels, "attend", backward)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_unit_vectors(dtype):
    from stepformer.core import loss_kernels

    x = draw(7, 20).to(dtype).requires_grad_()
    up = draw(7, 20)
    fast, plain = loss_kernels.unit(x), torch.nn.functional.normalize(x.float(), dim=-1)
    grads = [torch.autograd.grad(made, x, up)[0].float() for made in (fast, plain)]
    close = 1e-5 if dtype == torch.float32 else 2e-2
    assert torch.allclose(fast, plain, atol=1e-5) and torch.allclose(*grads, atol=close)


@pytest.mark.parametrize("decoupled", [False, True])
@pytest.mark.parametrize("averaged", [False, True])
@pytest.mark.parametrize("moments", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("broken", ["", "norm", "before"])
def test_update(kernels, decoupled, averaged, broken, moments):
    P = 3001
    found = []
    for module in (reference, kernels):
        torch.manual_seed(1)
        values, grads, first, mean = (draw(P) for _ in range(4))
        first, second, half = first.to(moments), draw(P).abs().to(moments), values.bfloat16()
        control = torch.tensor([0.1, 0.3, 0.5, 0.7, 0.0, 1.0], dtype=torch.float64, device=DEVICE)
        norm = grads.norm() * (torch.nan if broken == "norm" else 1)
        bad = torch.tensor(int(broken == "before"), dtype=torch.int32, device=DEVICE)
        tensors = [values, grads, first, second, mean if averaged else None, half]
        before = values.clone()
        arguments = (*tensors, control, norm, bad, 1.0, (0.9, 0.99), 0.2, 1e-8, decoupled)
        if module is reference and DEVICE == "cuda":
            arguments = tuple(a.cpu() if isinstance(a, torch.Tensor) else a for a in arguments)
        module.update(*arguments)
        found.append([t.float().cpu() for t in arguments[:6] if t is not None])
        assert broken == "" or torch.equal(arguments[0].cpu(), before.cpu())
        assert bool(arguments[8]) == bool(broken)
    exact = [moments == torch.float32 or n not in (2, 3) for n in range(len(found[0]) - 1)] + [False]
    for a, b, same in zip(*found, exact, strict=True):
        assert torch.allclose(a, b, rtol=1e-5 if same else 1e-2, atol=1e-6)


def test_moments_in_bf16_are_right_on_average(kernels):
    P, steps = 4096, 40
    values, grads, first, second = (torch.full((P,), x, device=DEVICE) for x in (0.0, 1.0, 1.0, 1.0))
    first, second, half = first.bfloat16(), second.bfloat16(), values.bfloat16()
    control = torch.tensor([0.1, 0.0, 1.0, 1.0, 0.0, 1.0], dtype=torch.float64, device=DEVICE)
    norm, bad = torch.zeros((), device=DEVICE), torch.zeros((), dtype=torch.int32, device=DEVICE)
    for step in range(steps):
        control.view(torch.int64)[4] = step
        args = (control, norm, bad, 1.0, (0.999, 0.999), 0.0, 1e-8, True)
        kernels.update(values, grads * 2, first, second, None, half, *args)
    # towards 2 and 4: by less than half of bf16's last bit per step, so that rounding to the nearest would stay at 1
    assert float(first.float().mean()) == pytest.approx(2 - 0.999**steps, abs=0.002)
    assert float(second.float().mean()) == pytest.approx(4 - 3 * 0.999**steps, abs=0.002)


# -- losses -------------------------------------------------------------------------------------------------------


def pairs(seed, B=4, K=5, L=9, D=12):
    g = torch.Generator().manual_seed(seed)
    slots, phrases = (torch.randn(B, n, D, generator=g).to(DEVICE) for n in (K, L))
    mask = (torch.arange(L) < torch.tensor([L, 4, 1, 0])[:, None]).to(DEVICE)
    return slots.requires_grad_(), phrases, mask


@pytest.fixture
def with_kernels(monkeypatch):
    """Switches the losses between plain torch and the kernels, also on the CPU."""
    return lambda on: monkeypatch.setattr(losses, "_kernels", lambda x: on)


@pytest.mark.parametrize("average", ["all", "matched"])
@pytest.mark.parametrize("form", ["log_mean", "mean_log"])
@pytest.mark.parametrize("both_ways", [False, True])
@pytest.mark.parametrize("weights", [{"smooth": 0.7, "seq": 1.0, "glob": 2.0, "div": 0.5}, {"glob": 0.3, "seq": 3.0}])
def test_losses_of_pairs_together(with_kernels, average, form, both_ways, weights):
    slots, phrases, mask = pairs(0)
    criterion = losses.Criterion(
        losses.LossConfig(
            weights, gamma=0.2, keep=0.7, seq_average=average, glob_form=form, glob_both_ways=both_ways,
            smooth_form=form, smooth_gamma=0.3, smooth_frames=10,
        )
    )  # fmt: skip
    output = losses.Slots(slots, draw(4, 30, 12), None)
    seen = (torch.arange(30) < torch.tensor([30, 9, 1, 20])[:, None]).to(DEVICE)
    found = []
    for on in (False, True):
        with_kernels(on)
        torch.manual_seed(0)  # the same frames are drawn
        ahead = criterion.ahead(slots.shape[1], phrases, mask, criterion.draw(seen), torch.float32)
        assert (ahead is not None) == on
        total, parts = criterion(output, phrases, mask, seen, ahead=ahead)
        found.append((parts, total, torch.autograd.grad(3 * total, slots)[0]))
    (plain, *more), (fast, *other) = found
    assert set(plain) == set(fast) == {*weights, "matched"}
    for a, b in [*((plain[name], fast[name]) for name in plain), *zip(more, other, strict=True)]:
        assert torch.allclose(b, a, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("form", ["log_mean", "mean_log"])
@pytest.mark.parametrize("with_self", [False, True])
def test_smoothness(form, with_self):
    frames, (slots, _, _) = draw(4, 30, 12), pairs(1)
    mask = (torch.arange(30) < torch.tensor([30, 9, 1, 20])[:, None]).to(DEVICE)
    torch.manual_seed(0)
    index, valid = losses.sample_frames(mask, 10)
    window = (mask.sum(1) / 8).clamp(min=1.0)
    from stepformer.core import loss_kernels

    picked = frames.gather(1, index[..., None].expand(-1, -1, 12))
    fast = loss_kernels.smooth(losses.cosines(picked, slots), index, valid, window, 0.3, form == "log_mean", with_self)
    plain = losses.smooth_loss(losses.cosines(picked, slots), index, valid, window, 0.3, form, with_self)
    found = [(loss, torch.autograd.grad(loss, slots)[0]) for loss in (plain, fast.mean())]
    for plain, fast in zip(*found, strict=True):
        assert torch.allclose(fast, plain, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("keep", "top"), [(0.8, None), (0.5, 3), (0.7, None), (1.0, 1)])
def test_matching_is_that_of_the_aligner(with_kernels, seed, keep, top):
    g = torch.Generator().manual_seed(seed)
    K, L = [5, 7, 1, 8][seed % 4], [6, 12, 9][seed % 3]
    similarity = torch.randn(4, K, L, generator=g).to(DEVICE)
    if seed % 2:
        similarity = (similarity * 2).round() / 2  # many ties
    mask = (torch.arange(L) < torch.tensor([L, L // 2, 1, 0])[:, None]).to(DEVICE)
    found = []
    for on in (False, True):
        with_kernels(on)
        found.append(losses.match(similarity, mask, keep, top))
    assert torch.equal(*found)
