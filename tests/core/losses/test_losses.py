"""Each loss against a naive per-video implementation of the printed formula, in float64, and by gradient checks."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stepformer.core import losses
from stepformer.core.align import drop_dtw, percentile_drop
from stepformer.core.losses import (
    LOSS_PRESETS,
    LOSSES,
    PAPER_LOSSES,
    Criterion,
    LossConfig,
    cosines,
    match,
    released_smooth_loss,
    sample_frames,
)
from stepformer.core.model import Slots
from stepformer.errors import UsageError

seeds = st.integers(0, 10_000)


def seq_loss(slots, phrases, mask, matched, gamma=0.07, average="all"):
    return losses.seq_loss(cosines(slots, phrases), mask, matched, gamma, average)


def glob_loss(slots, phrases, mask, gamma=0.07, form="log_mean", both_ways=False):
    return losses.glob_loss(losses.Compared(slots, phrases), mask, gamma, form, both_ways)


def div_loss(slots):
    return losses.div_loss(losses.unit(slots))


def smooth_loss(frames, slots, index, valid, window, gamma=0.03, form="log_mean", with_self=True):
    picked = frames.gather(1, index[..., None].expand(-1, -1, frames.shape[-1]))
    return losses.smooth_loss(cosines(picked, slots), index, valid, window, gamma, form, with_self)


def unit_rows(generator, *shape):
    return torch.nn.functional.normalize(torch.randn(*shape, dtype=torch.float64, generator=generator), dim=-1)


def make(seed, B=3, K=5, L=6, N=11, D=7):
    g = torch.Generator().manual_seed(seed)
    slots, phrases, video = (torch.randn(B, n, D, dtype=torch.float64, generator=g) for n in (K, L, N))
    lengths = torch.randint(0, L + 1, (B,), generator=g)
    frames = torch.randint(1, N + 1, (B,), generator=g)
    return slots, phrases, torch.arange(L) < lengths[:, None], video, torch.arange(N) < frames[:, None]


def cos(a, b):
    return float(np.dot(a, b) / (np.linalg.norm(a) * np.linalg.norm(b)))


def f(a, b, gamma):
    return math.exp(cos(a, b) / gamma)


def naive_seq(slots, phrases, mask, matched, gamma, average):
    total = 0.0
    for s, every, m, pairs in zip(slots.numpy(), phrases.numpy(), mask.numpy(), matched.numpy(), strict=True):
        p, y = every[m], pairs[:, m]
        rows = [
            -math.log(f(s[i], p[j], gamma) / sum(f(s[i], q, gamma) for q in p))
            for i in range(len(s)) for j in range(len(p)) if y[i, j]
        ]  # fmt: skip
        columns = [
            -math.log(f(s[i], p[j], gamma) / sum(f(t, p[j], gamma) for t in s))
            for i in range(len(s)) for j in range(len(p)) if y[i, j]
        ]  # fmt: skip
        by_slots, by_phrases = (len(s), max(1, len(p))) if average == "all" else (max(1, len(rows)),) * 2
        total += sum(rows) / by_slots + sum(columns) / by_phrases
    return total / len(slots)


@given(seed=seeds, average=st.sampled_from(["all", "matched"]))
def test_seq_is_the_printed_formula(seed, average):
    slots, phrases, mask, _, _ = make(seed)
    matched = match(cosines(slots, phrases), mask, keep=0.7)
    got = seq_loss(slots, phrases, mask, matched, 0.3, average)
    assert float(got) == pytest.approx(naive_seq(slots, phrases, mask, matched, 0.3, average), rel=1e-9, abs=1e-12)


@given(seed=seeds, form=st.sampled_from(["log_mean", "mean_log"]), both=st.booleans())
def test_glob_is_the_printed_formula(seed, form, both):
    slots, phrases, mask, _, _ = make(seed)
    gamma = 0.4

    def one_way(askers, asker_mask, answers, answer_mask):
        ratios = []
        for b in range(len(askers)):
            for i in np.flatnonzero(asker_mask[b]):
                values = [
                    [f(askers[b, i], answers[c, j], gamma) for j in np.flatnonzero(answer_mask[c])]
                    for c in range(len(answers))
                ]
                if values[b]:
                    ratios.append(sum(values[b]) / sum(map(sum, values)))
        if not ratios:
            return 0.0
        return -math.log(np.mean(ratios)) if form == "log_mean" else float(np.mean([-math.log(r) for r in ratios]))

    everything = np.ones(slots.shape[:2], bool)
    s, p, m = slots.numpy(), phrases.numpy(), mask.numpy()
    want = one_way(s, everything, p, m) + (one_way(p, m, s, everything) if both else 0.0)
    assert float(glob_loss(slots, phrases, mask, gamma, form, both)) == pytest.approx(want, rel=1e-9, abs=1e-12)


@given(seed=seeds)
def test_div_is_the_printed_formula(seed):
    slots = make(seed)[0]
    K = slots.shape[1]
    want = np.mean([
        sum(cos(s[i], s[j]) for i in range(K) for j in range(K) if i != j) / (K * (K - 1)) for s in slots.numpy()
    ])  # fmt: skip
    assert float(div_loss(slots)) == pytest.approx(want, abs=1e-12)
    criterion = Criterion(LossConfig({"div": 1.0}, div_on="attention"))
    total, _ = criterion(Slots(slots, slots, slots), slots, torch.ones(slots.shape[:2]), torch.ones(slots.shape[:2]))
    assert float(total) == pytest.approx(2 * want, abs=1e-12)


def test_div_of_a_single_slot_is_zero():
    assert float(div_loss(torch.randn(2, 1, 4))) == 0.0


@given(
    seed=seeds, form=st.sampled_from(["log_mean", "mean_log"]), with_self=st.booleans(), window=st.integers(1, 4)
)  # fmt: skip
def test_smooth_is_the_printed_formula(seed, form, with_self, window):
    slots, _, _, video, mask = make(seed)
    index, valid = sample_frames(mask, 8, torch.Generator().manual_seed(seed))
    gamma = 0.3
    totals = []
    for s, v, picked, ok in zip(slots.numpy(), video.numpy(), index.numpy(), valid.numpy(), strict=True):
        drawn = picked[ok]
        logits = np.array([[cos(v[i], t) / gamma for t in s] for i in drawn])
        a = np.exp(logits - logits.max(1, keepdims=True))
        a = a / a.sum(1, keepdims=True)
        ratios = []
        for x, i in enumerate(drawn):
            others = [y for y in range(len(drawn)) if with_self or y != x]
            near = [y for y in others if abs(i - drawn[y]) <= window]
            if near:
                ratios.append(sum(f(a[x], a[y], gamma) for y in near) / sum(f(a[x], a[y], gamma) for y in others))
        if not ratios:
            totals.append(0.0)
        else:
            totals.append(-math.log(np.mean(ratios)) if form == "log_mean" else np.mean([-math.log(r) for r in ratios]))
    got = smooth_loss(video, slots, index, valid, window, gamma, form, with_self)
    assert float(got) == pytest.approx(float(np.mean(totals)), rel=1e-9, abs=1e-12)


@settings(max_examples=15)  # each is a hundred evaluations of every loss
@given(seed=seeds)
def test_gradients_agree_with_finite_differences(seed):
    slots, phrases, mask, video, video_mask = make(seed, B=2, K=3, L=3, N=5, D=4)
    mask[:, 0] = True
    matched = match(cosines(slots, phrases), mask, keep=0.7)
    index, valid = sample_frames(video_mask, 4, torch.Generator().manual_seed(seed))
    slots.requires_grad_(True)
    for loss in (
        lambda s: seq_loss(s, phrases, mask, matched, 0.5),
        lambda s: glob_loss(s, phrases, mask, 0.5, both_ways=True),
        div_loss,
        lambda s: smooth_loss(video, s, index, valid, 1, 0.5),
        lambda s: released_smooth_loss(video, s, video_mask, torch.Generator().manual_seed(seed)),
    ):
        assert torch.autograd.gradcheck(loss, (slots,), atol=1e-5)


def test_matches_are_one_to_one_ordered_and_inside_the_mask():
    slots, phrases, mask, _, _ = make(3, B=16, K=9, L=12)
    matched = match(cosines(slots, phrases), mask, keep=0.6)
    assert matched.any()
    assert not (matched & ~mask[:, None]).any()
    assert matched.sum(1).max() <= 1 and matched.sum(2).max() <= 1
    for m in matched:
        pairs = m.nonzero()
        assert (pairs[1:, 1] > pairs[:-1, 1]).all()


@pytest.mark.parametrize("preset", ["paper", "released", "default"])
def test_bf16_is_close_to_float32_and_finite(preset):
    g = torch.Generator().manual_seed(1)
    slots, video, phrases = (torch.randn(4, n, 32, generator=g) for n in (8, 40, 10))
    mask, video_mask = torch.ones(4, 10, dtype=torch.bool), torch.ones(4, 40, dtype=torch.bool)
    attention = torch.rand(4, 8, 40, generator=g).softmax(-1)
    criterion = Criterion(LOSS_PRESETS[preset])
    values = {}
    for kind in (torch.float32, torch.bfloat16):
        output = Slots(slots.to(kind, copy=True).requires_grad_(True), video.to(kind), attention)
        torch.manual_seed(0)
        total, _ = criterion(output, phrases.to(kind), mask, video_mask, torch.arange(10).expand(4, 10))
        total.backward()
        assert torch.isfinite(output.slots.grad).all()
        values[kind] = total.item()
    assert values[torch.bfloat16] == pytest.approx(values[torch.float32], rel=0.05)


def test_extreme_similarities_stay_finite():
    same = torch.ones(2, 4, 8)
    mask = torch.ones(2, 4, dtype=torch.bool)
    matched = torch.eye(4, dtype=torch.bool).expand(2, 4, 4)
    for value in (seq_loss(same, -same, mask, matched, 0.01), glob_loss(same, -same, mask, 0.01)):
        assert math.isfinite(float(value))


@given(seed=seeds)
def test_no_phrases_anywhere_gives_zero_not_nan(seed):
    slots, phrases, mask, _, _ = make(seed)
    mask = torch.zeros_like(mask)
    matched = match(cosines(slots, phrases), mask)
    assert float(seq_loss(slots, phrases, mask, matched)) == 0.0
    assert float(glob_loss(slots, phrases, mask, both_ways=True)) == 0.0


def test_a_loss_switched_off_by_name_is_not_computed():
    slots, phrases, mask, video, video_mask = make(5)
    output = Slots(slots, video, None)
    torch.manual_seed(0)
    full, parts = Criterion()(output, phrases, mask, video_mask)
    weights = LossConfig().weights
    assert float(full) == pytest.approx(sum(weights[n] * float(parts[n]) for n in PAPER_LOSSES))
    for name in PAPER_LOSSES:
        criterion = Criterion(LossConfig().without(name))
        torch.manual_seed(0)
        less, rest = criterion(output, phrases, mask, video_mask)
        assert name not in rest
        assert float(less) == pytest.approx(float(full) - weights[name] * float(parts[name]), abs=1e-9)
    with pytest.raises(UsageError, match="no loss 'order'"):
        LossConfig().without("order")
    with pytest.raises(UsageError, match="no loss 'speed'; there are: div"):
        LossConfig(weights={"speed": 1.0})


def test_attention_diversity_without_attention_says_so():
    slots, phrases, mask, video, video_mask = make(5)
    with pytest.raises(UsageError, match="attention=True"):
        Criterion(LOSS_PRESETS["released"])(Slots(slots, video, None), phrases, mask, video_mask)


def test_a_loss_is_added_by_name(monkeypatch):
    slots, phrases, mask, video, video_mask = make(5)
    seen = []

    def brevity(given):
        seen.append(given)
        given.log["brief"] = given.output.slots.detach().norm(dim=-1).mean()
        return given.options["scale"] * given.output.slots.square().mean()

    monkeypatch.setitem(LOSSES, "brevity", brevity)
    config = LossConfig(weights={"brevity": 2.0}, options={"brevity": {"scale": 3.0}})
    criterion = Criterion(config)
    assert criterion.needs_attention  # a loss from outside may look at it
    total, parts = criterion(Slots(slots, video, torch.ones(1)), phrases, mask, video_mask)
    assert float(total) == pytest.approx(6.0 * float(slots.square().mean()))
    assert set(parts) == {"brevity", "brief"}
    assert torch.equal(seen[0].phrases, phrases) and seen[0].output.attention is not None


@given(seed=seeds)
def test_soft_dtw_is_a_loss_by_name(seed):
    """Above its hard form by nothing, below it by little at a low temperature; no phrases cost nothing; it trains."""
    slots, phrases, mask, video, video_mask = make(seed)
    slots = slots.requires_grad_()
    config = LossConfig(weights={"soft_dtw": 1.0}, options={"soft_dtw": {"temperature": 1e-4}})
    total, _ = Criterion(config)(Slots(slots, video, None), phrases, mask, video_mask)
    total.backward()
    assert bool(torch.isfinite(slots.grad).all())
    # the hard form, by its definition
    logits = (cosines(slots, phrases) / 0.07).detach().masked_fill(~mask[:, None], -1e9)
    costs = -0.5 * (logits.log_softmax(2) + (cosines(slots, phrases) / 0.07).detach().log_softmax(1))
    hard = []
    for cost, length in zip(costs, mask.sum(1).tolist(), strict=True):
        own = cost[:, :length].numpy()
        drop = percentile_drop(-own, 0.8)
        hard.append(drop_dtw(own, drop, 0.0, "one_to_one").cost / max(length, 1))
    assert float(total.detach()) == pytest.approx(sum(hard) / len(hard), abs=2e-3)
    nothing, _ = Criterion(config)(Slots(slots, video, None), phrases, torch.zeros_like(mask), video_mask)
    assert float(nothing.detach()) == pytest.approx(0.0, abs=1e-3)


@pytest.mark.parametrize("both_ways", [False, True])
def test_the_global_loss_in_pieces_is_the_loss(both_ways, monkeypatch):
    """A batch too large for one matrix is done some rows at a time, and again in the backward pass."""
    torch.manual_seed(0)
    phrases, mask = torch.randn(5, 7, 6, dtype=torch.float64), torch.rand(5, 7) < 0.7
    found = []
    for piece in (1 << 20, 100, 1):
        monkeypatch.setattr("stepformer.core.log_sums.PIECE", piece)
        slots = torch.randn(5, 4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_()
        loss = glob_loss(slots, phrases, mask, 0.3, "mean_log", both_ways)
        found.append((loss, torch.autograd.grad(loss, slots)[0]))
    for loss, grad in found[1:]:
        assert torch.allclose(loss, found[0][0], rtol=1e-12) and torch.allclose(grad, found[0][1], rtol=1e-9)
