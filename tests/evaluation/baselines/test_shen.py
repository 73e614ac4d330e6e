import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stepformer.errors import InputError
from stepformer.evaluation.baselines import FeatureVideo, baseline
from stepformer.evaluation.baselines.shen import (
    Points,
    TwoLayers,
    dwsa_loss,
    ordered_prototypes,
    phrase_relative_times,
    soft_alignment_cost,
    with_empty_slots,
)


def all_alignments(rows, columns):
    """Every way to give each row a column in order; odd columns (narration) once at most."""
    for path in itertools.product(range(columns), repeat=rows):
        if all(b > a or (b == a and b % 2 == 0) for a, b in itertools.pairwise(path)):
            yield path


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 3), st.integers(1, 3), st.integers(0, 10_000), st.sampled_from([0.05, 0.5, 2.0]))
def test_the_soft_cost_is_the_soft_minimum_over_all_alignments(rows, narrations, seed, gamma):
    costs = torch.from_numpy(np.random.default_rng(seed).normal(size=(rows, narrations)))
    expanded = with_empty_slots(costs, 0.3)
    totals = torch.stack(
        [sum(expanded[i, c] for i, c in enumerate(path)) for path in all_alignments(rows, 2 * narrations + 1)]
    )
    expected = -gamma * torch.logsumexp(-totals / gamma, 0)
    assert torch.allclose(soft_alignment_cost(expanded, gamma), expected)


@pytest.mark.parametrize("gamma", [0.05, 1.0])
def test_the_gradient_agrees_with_finite_differences(gamma):
    generator = torch.Generator().manual_seed(0)
    costs = torch.randn(4, 5, generator=generator, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda c: soft_alignment_cost(with_empty_slots(c, 0.5), gamma), costs)
    a = torch.randn(3, 6, generator=generator, dtype=torch.float64, requires_grad=True)
    b = torch.randn(4, 6, generator=generator, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, y: dwsa_loss(x, y, gamma), (a, b))


def test_a_small_gamma_gives_the_cheapest_alignment_and_unspoken_steps_cost_the_empty_slot():
    costs = torch.tensor([[0.0, 9.0], [9.0, 9.0], [9.0, 0.1]], dtype=torch.float64)
    assert soft_alignment_cost(with_empty_slots(costs, 1.0), 1e-3).item() == pytest.approx(0.0 + 1.0 + 0.1, abs=0.01)


def prototypes(points, k, softness):
    """Of one model: points (n, D + 1) -> (k, D + 1)."""
    draws = torch.rand(1, k, generator=torch.Generator().manual_seed(0))
    seen = torch.ones(1, len(points), dtype=torch.bool)
    found, count = ordered_prototypes(points[None], seen, torch.tensor([k]), 5, softness, draws)
    assert count.tolist() == [k]
    return found[0]


def test_models_side_by_side_learn_what_they_learn_alone():
    """Groups of several sizes, numbers of steps and of phrases, padded, against each of them by itself."""
    rng = np.random.default_rng(0)
    generator = torch.Generator().manual_seed(0)
    sizes, said, steps = [40, 25, 9], [9, 3, 20], [3, 5, 2]
    model = TwoLayers(6, 3)
    for weight in model.parameters():
        weight.data += 0.2 * torch.randn(weight.shape, generator=generator)

    def points(counts):
        vectors = [torch.from_numpy(rng.normal(size=(n, 6))).float() for n in counts]
        times = [torch.linspace(0, 1, n) for n in counts]
        pad = torch.nn.utils.rnn.pad_sequence
        seen = torch.arange(max(counts)) < torch.tensor(counts)[:, None]
        return Points(pad(vectors, batch_first=True), pad(times, batch_first=True), seen)

    def loss(model, frames, phrases, k, draws):
        sides = []
        for part, modality, wanted, drawn in zip((frames, phrases), ("visual", "text"), (k, k + 1), draws, strict=True):
            timed = torch.cat([model.embed(part.vectors, modality), part.times[..., None]], 2)
            sides.append(ordered_prototypes(timed, part.seen, wanted, 5, 0.1, drawn))
        (a, rows), (b, columns) = sides
        return dwsa_loss(a[..., :-1].double(), b[..., :-1].double(), 0.1, 1.0, rows, columns)

    frames, phrases, k = points(sizes), points(said), torch.tensor(steps)
    draws = [torch.rand(3, 5, generator=generator), torch.rand(3, 6, generator=generator)]
    together = loss(model, frames, phrases, k, draws)
    together.sum().backward()
    for i in range(3):
        own = model.one(i)
        alone = [Points(*(x[i : i + 1, :n] for x in part)) for part, n in ((frames, sizes[i]), (phrases, said[i]))]
        few = [
            d[i : i + 1, : min(k[i] + j, n)] for j, (d, n) in enumerate(zip(draws, (sizes[i], said[i]), strict=True))
        ]
        single = loss(own, *alone, k[i : i + 1], few)
        single.sum().backward()
        assert torch.allclose(single, together[i], atol=1e-5)
        for name, weight in own.named_parameters():
            assert torch.allclose(weight.grad[0], getattr(model, name).grad[i], atol=1e-4), name


def test_prototypes_are_in_order_of_time_and_at_the_planted_looks():
    rng = np.random.default_rng(0)
    looks = np.eye(5)[[3, 0, 4, 1]]
    labels = np.repeat(np.arange(4), 25)
    points = np.concatenate([looks[labels] + 0.02 * rng.normal(size=(100, 5)), np.arange(100)[:, None] / 100], axis=1)
    found = prototypes(torch.from_numpy(points), 4, 1e-3)
    assert (found[:, -1].diff() > 0).all()
    assert np.allclose(found[:, :-1].numpy(), looks, atol=0.05)


def test_gradients_flow_through_the_prototypes():
    points = torch.rand(30, 4, dtype=torch.float64, requires_grad=True)
    prototypes(points, 3, 0.1).square().sum().backward()
    assert points.grad is not None and points.grad.abs().sum() > 0


def narrated(seed, looks, turn):
    """Four looks in order, each spoken about in a text space that is turned against the space of the looks."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(4), rng.integers(10, 20, size=4))
    features = looks[labels] + 0.2 * rng.normal(size=(len(labels), looks.shape[1]))
    starts = np.array([np.flatnonzero(labels == step).mean() for step in range(4)])
    phrases = looks @ turn + 0.1 * rng.normal(size=looks.shape)
    times = np.stack([starts, starts + 1], axis=1)
    return FeatureVideo(f"v{seed}", "t", features, phrase_vectors=phrases, phrase_times_s=times), labels


def test_learning_brings_frames_and_phrases_of_a_step_together():
    rng = np.random.default_rng(0)
    looks = rng.normal(size=(4, 16))
    turn = np.linalg.qr(np.eye(16) + 0.35 * rng.normal(size=(16, 16)))[0]
    turn *= np.sign(np.diag(turn))  # a rotation not too far from the identity, where the layers start
    made = [narrated(seed, looks, turn) for seed in range(1, 9)]
    videos = [v for v, _ in made]

    def agreement(fitted):
        hits = []
        for video, labels in made:
            similarity = fitted.frames(video) @ fitted.texts(video.phrase_vectors, "t").T
            hits.append((similarity.argmax(axis=1) == labels).mean())
        return float(np.mean(hits))

    options = {"learning_rate": 5e-3, "weight_decay": 1e-4, "extra_narration": 0}
    before = agreement(baseline("shen", epochs=0, **options).fit(videos, {"t": 4}))
    after = agreement(baseline("shen", epochs=60, **options).fit(videos, {"t": 4}))
    assert after > before + 0.05 and after > 0.9


def test_segments_and_slots():
    looks = np.random.default_rng(0).normal(size=(4, 16))
    made = [narrated(seed, looks, np.eye(16)) for seed in range(1, 5)]
    videos = [v for v, _ in made]
    fitted = baseline("shen", epochs=2, keep=1.0, slots=12).fit(videos, {"t": 4}, setting="unsupervised")
    found = np.concatenate(fitted.segment(videos))
    truth = np.concatenate([labels for _, labels in made])
    pairs = {(a, b) for a, b in zip(found.tolist(), truth.tolist(), strict=True)}
    assert len(pairs) == 4, "one cluster a step"
    similarity = fitted.slots(videos[0]) @ fitted.frames(videos[0]).T
    shown = made[0][1][similarity.argmax(axis=1)]  # the step of the frame most like each slot
    assert (np.diff(shown) >= 0).all() and set(shown.tolist()) == {0, 1, 2, 3}, "slots come in the order of the steps"


def test_without_narration_it_says_so():
    with pytest.raises(InputError, match="learns from narration"):
        baseline("shen").fit([FeatureVideo("v", "t", np.ones((4, 2)))], {"t": 2})


def test_phrase_times_are_relative_and_even_where_unknown():
    v = FeatureVideo("v", "t", np.ones((10, 2)), 2.0, np.ones((2, 2)), np.array([[0.0, 2.0], [4.0, 9.0]]))
    assert phrase_relative_times(v).tolist() == pytest.approx([0.2, 1.0])
    assert phrase_relative_times(FeatureVideo("v", "t", np.ones((4, 2)), 1.0, np.ones((2, 2)))).tolist() == [0.25, 0.75]
