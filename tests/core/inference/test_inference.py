"""Drop lines against brute force, and discovery and localisation on videos whose blocks are known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from stepformer.core.evidence import (
    Similarity,
    _scatter_left,
    evidence_of,
    noise_share,
    otsu_threshold,
    penalty_of,
    pieces,
    plain_kinds,
    slot_similarity,
    threshold_of,
)
from stepformer.core.inference import (
    find_steps,
    find_texts,
    no_slots,
    pooled_slots,
    random_slots,
    separability,
    slots_of_texts,
)
from stepformer.core.losses import cosines
from stepformer.core.model import Slots
from stepformer.core.options import DEFAULT_INFERENCE, InferenceConfig
from stepformer.core.segments import programme, solve, spread_out
from stepformer.errors import UsageError

FIXED = InferenceConfig(threshold="fixed", similarity=0.5)
AUTOMATIC = InferenceConfig(threshold="automatic")

# -- the automatic threshold -------------------------------------------------------------------------------------------

# steps of 1/64 are exact in float32, so that a midpoint never rounds onto a value
values_of_video = st.lists(st.integers(-64, 64).map(lambda i: i / 64), min_size=1, max_size=12)


def between(values: list[float], line: float) -> float:
    """Otsu's criterion of the division at a line: n_low n_high (mean difference)^2; 0 when one side is empty."""
    low, high = [v for v in values if v < line], [v for v in values if v >= line]
    return len(low) * len(high) * (np.mean(low) - np.mean(high)) ** 2 if low and high else 0.0


@given(st.lists(values_of_video, min_size=1, max_size=4), st.floats(-1, 1))
def test_otsu_divides_as_well_as_the_best_of_all_lines(videos, junk):
    N = max(map(len, videos))
    mask = torch.arange(N) < torch.tensor([[len(v)] for v in videos])
    padded = torch.tensor([v + [junk] * (N - len(v)) for v in videos], dtype=torch.float32)
    lines = otsu_threshold(padded, mask)
    assert lines.dtype == torch.float32
    for values, line in zip(videos, lines.tolist(), strict=True):
        best = max(between(values, candidate) for candidate in values)
        assert between(values, line) == pytest.approx(best, abs=1e-9)
        if best == 0:
            assert min(values) - 1e-6 < line < min(values)  # nothing to divide: everything is kept


def test_otsu_finds_the_gap_between_two_kinds():
    values = torch.tensor([[0.1, 0.9, 0.12, 0.88, 0.11, 0.5]])
    mask = torch.tensor([[True] * 5 + [False]])
    assert 0.12 < float(otsu_threshold(values, mask)) < 0.88
    assert float(otsu_threshold(values[:, :1], mask[:, :1])) == pytest.approx(0.1, abs=1e-6)


def test_a_video_of_one_kind_is_kept_whole():
    video = unit(0, 1)[None].expand(1, 5, D)
    output = Slots(unit(0, 3)[None], video, None)
    found = discover(output, torch.ones(1, 5, dtype=torch.bool), AUTOMATIC)
    assert found.tolist() == [[0] * 5]


def test_the_automatic_threshold_looks_only_at_rows_that_are_there():
    similarity = torch.tensor([[[0.9, 0.1, 0.8, 0.2], [0.0, 0.99, 0.0, 0.99]]])
    mask = torch.ones(1, 4, dtype=torch.bool)
    config = AUTOMATIC
    first = torch.tensor([[True, False]])
    one = float(threshold_of(Similarity(similarity, first, mask), config, 0.1)[0])
    alone = float(threshold_of(Similarity(similarity[:, :1], first[:, :1], mask), config, 0.1)[0])
    assert one == alone == pytest.approx(0.2 + 0.45 * 0.6)


def test_neighbours_of_both_kinds_are_no_tie():
    # midway between -0.35 and -0.16 both frames cost the same kept and dropped: rounding must not decide
    x = torch.tensor([1.0, 0.0])
    for off in (-1e-7, 0.0, 1e-7):
        angles = torch.tensor([0.004, -0.35, -0.16 + off]).acos()
        output = Slots(x[None, None], torch.stack((angles.cos(), angles.sin()), 1)[None], None)
        found = discover(output, torch.ones(1, 3, dtype=torch.bool), AUTOMATIC)
        assert found.tolist() == [[0, 0, 0]]


def test_a_fixed_threshold_is_taken_as_it_is():
    similarity, rows = torch.rand(2, 3, 4), torch.ones(2, 3, dtype=torch.bool)
    config = InferenceConfig(threshold="fixed", similarity=0.3)
    found = threshold_of(Similarity(similarity, rows, torch.ones(2, 4, dtype=torch.bool)), config, 0.1)
    assert torch.equal(found, torch.full((2,), 0.3))


def test_less_is_dropped_where_the_two_kinds_differ_less():
    """Contrast is in standard deviations of all similarities: it does not matter how far apart an encoder puts them."""
    rows, mask = torch.ones(1, 6, dtype=torch.bool), torch.ones(1, 60, dtype=torch.bool)
    fits = (torch.arange(60) // 10 == torch.arange(6)[:, None]).float()[None]  # every frame has a row that fits it
    noise = 0.02 * torch.randn(1, 6, 60, generator=torch.Generator().manual_seed(0))
    step = (torch.arange(60) % 20 < 8).float()
    ramp = replace(AUTOMATIC, contrast_from=0.3, contrast_to=0.9)

    def dropped(apart, scale):
        similarity = scale * (fits + noise + apart * step)
        best = similarity.amax(1)
        return float((best < threshold_of(Similarity(similarity, rows, mask), ramp, 0.1)[:, None]).sum())

    found = [dropped(apart, 1.0) for apart in (0.0, 0.1, 0.2, 1.0)]
    assert found == sorted(found) and found[0] == 0 and found[-1] == 36
    assert found == [dropped(apart, 0.05) for apart in (0.0, 0.1, 0.2, 1.0)]


def test_the_share_kept_in_localisation_is_its_own_with_any_kind_of_evidence():
    g = torch.Generator().manual_seed(2)
    video, texts, mask = torch.randn(1, 40, D, generator=g), torch.randn(1, 3, D, generator=g), torch.ones(1, 40).bool()
    for temperature in (0.0, 0.07):
        config = InferenceConfig(evidence_temperature=temperature, structure_weight=1.0, penalty_share=0.1)
        kept = [
            find_texts(no_slots(video), mask, texts, torch.tensor([3]), replace(config, locate_keep=share)).threshold
            for share in (0.05, 0.9)
        ]
        assert kept[0] > kept[1]


def test_texts_weigh_by_how_well_they_separate_the_moments_of_a_video():
    g = torch.Generator().manual_seed(1)
    kinds = unit(0, 4)
    structure = torch.repeat_interleave(kinds, 20, 0)[None] + 0.1 * torch.randn(1, 80, D, generator=g)
    mask, four = torch.ones(1, 80, dtype=torch.bool), torch.tensor([4])
    spread = spread_out(structure, mask)
    telling = torch.repeat_interleave(torch.eye(4), 20, 1)[None] + 0.1 * torch.randn(1, 4, 80, generator=g)
    noise = torch.randn(1, 4, 80, generator=g)

    def weight(rows):
        rows = (rows - rows.mean(2, keepdim=True)) / rows.std(2, keepdim=True)
        return float(separability(rows, four, spread, mask, DEFAULT_INFERENCE))

    assert weight(telling) == 1.0 and weight(noise) == 0.0 and 0 < weight(telling + 0.5 * noise) < 1
    # texts that say nothing of this video's moments take its segments in order
    stranger = torch.randn(1, 80, D, generator=g)
    found = find_texts(no_slots(stranger), mask, kinds[None], four, DEFAULT_INFERENCE, structure=structure)
    assert [(s.first, s.last, s.row) for s in found.segments[0]] == [(20 * i, 20 * i + 20, i) for i in range(4)]


def test_texts_that_plainly_fit_are_found_between_changing_background(monkeypatch):
    """Background changes more than steps do, so cuts of the pictures say nothing of the texts' places."""
    g = torch.Generator().manual_seed(5)
    texts, other = (torch.nn.functional.normalize(torch.randn(n, 256, generator=g), dim=1) for n in (3, 40))
    frames = other.repeat_interleave(5, 0)
    for i, start in enumerate((31, 90, 150)):
        frames[start : start + 7] += 0.5 * texts[i]
    frames = torch.nn.functional.normalize(frames, dim=1) + 0.03 * torch.randn(200, 256, generator=g)
    mask, three = torch.ones(1, 200, dtype=torch.bool), torch.tensor([3])

    def placed():
        found = find_texts(no_slots(frames[None]), mask, texts[None], three, DEFAULT_INFERENCE).segments[0]
        return [(s.first, s.last) for s in found]

    assert placed() == [(31, 38), (90, 97), (150, 157)]
    monkeypatch.setattr("stepformer.core.inference.plain_kinds", lambda values, *_: values.new_zeros(len(values)))
    assert placed() != [(31, 38), (90, 97), (150, 157)]


def test_two_kinds_are_plain_where_they_lie_further_apart_than_they_are_wide():
    g = torch.Generator().manual_seed(0)
    mask = torch.arange(400) < torch.tensor([[400]] * 4 + [[12]])
    one, even = torch.randn(400, generator=g), torch.rand(400, generator=g)
    two = torch.cat([torch.randn(300, generator=g), 5 + torch.randn(100, generator=g)])
    values = torch.stack([one, even, two, torch.full((400,), -torch.inf), two[294:].repeat(4)[:400]])
    assert plain_kinds(values, mask, 1.0).tolist() == [0, 0, 1, 0, 0]  # 12 looks say little


def test_texts_with_nothing_to_go_by_take_equal_parts():
    mask, lengths = torch.arange(24) < torch.tensor([[24], [16]]), torch.tensor([4, 2])
    still, texts = unit(0, 1)[:, None].expand(2, 24, D), unit(1, 4)[None].expand(2, 4, D)
    found = find_texts(no_slots(still), mask, texts, lengths, DEFAULT_INFERENCE)
    assert [[(s.first, s.last) for s in video] for video in found.segments] == [
        [(0, 6), (6, 12), (12, 18), (18, 24)], [(0, 8), (8, 16)],
    ]  # fmt: skip


def test_background_stands_only_where_texts_or_length_speak_for_it():
    """Two texts, and a frame of something else before them."""
    video, _, kinds = planted([(3, 1), (0, 24), (1, 25)])
    mask, two = torch.ones(1, 50, dtype=torch.bool), torch.tensor([2])

    def steps(seen, **options):
        config = replace(DEFAULT_INFERENCE, **options)
        found = find_texts(no_slots(seen), mask, kinds[None, :2], two, config, structure=video).segments[0]
        return [(s.first, s.last, s.row) for s in found]

    still = unit(7, 1)[:, None].expand(1, 50, D)  # texts say nothing
    assert steps(video) == [(1, 25, 0), (25, 50, 1)]  # they say that the first frame is no step
    assert steps(still) == [(0, 25, 0), (25, 50, 1)]
    assert sum(last - first for first, last, _ in steps(still, background_share=0.0)) < 50
    assert steps(still, background_s=0.0) == steps(still, background_share=0.0)  # at most this many seconds


def test_evidence_lies_between_mean_and_maximum():
    similarity = torch.rand(2, 32, 50) * 2 - 1
    rows = torch.arange(32) < torch.tensor([[32], [7]])
    found = evidence_of(similarity, rows, 0.07)
    for i, k in enumerate((32, 7)):
        assert (found[i] >= similarity[i, :k].mean(0)).all() and (found[i] <= similarity[i, :k].amax(0)).all()
    assert torch.equal(evidence_of(similarity, rows, 0.0)[1], similarity[1, :7].amax(0))


def test_noise_is_what_neighbours_do_not_share():
    rng = np.random.default_rng(0)

    def noise(x, rate_hz=1.0):
        mask = torch.ones(1, len(x), dtype=torch.bool)
        return float(noise_share(spread_out(torch.from_numpy(x)[None], mask), mask, rate_hz))

    def penalty(x, rate_hz=1.0):
        mask = torch.ones(1, len(x), dtype=torch.bool)
        return float(penalty_of(spread_out(torch.from_numpy(x)[None], mask), mask, rate_hz, DEFAULT_INFERENCE))

    assert noise(rng.standard_normal((400, 20))) == pytest.approx(1.0, abs=0.1)
    slides = np.repeat(rng.standard_normal((10, 20)), 40, 0)
    assert noise(slides) < 0.05
    mixed = slides + rng.standard_normal((400, 20))
    assert noise(mixed) == pytest.approx(0.5, abs=0.1)
    # every frame four times, at four times the rate, is the same video
    assert noise(np.repeat(mixed, 4, 0), 4.0) == pytest.approx(noise(mixed), rel=0.05)
    assert penalty(np.repeat(mixed, 4, 0), 4.0) == pytest.approx(4 * penalty(mixed), rel=0.05)
    assert noise(mixed[:1]) == 1.0


def discover(output, mask, config, **options):
    return find_steps(output, mask, config, **options).assignment


def locate(output, mask, texts, lengths, config, **options):
    return find_texts(output, mask, texts, lengths, config, **options).assignment


def locate_texts(video, mask, texts, lengths, config):
    return find_texts(no_slots(video), mask, texts, lengths, config).assignment


# -- planted videos -----------------------------------------------------------------------------------------------

D = 32


def unit(seed: int, n: int) -> torch.Tensor:
    """n orthonormal vectors, so that blocks are as different as can be."""
    g = torch.Generator().manual_seed(seed)
    return torch.linalg.qr(torch.randn(D, D, generator=g)).Q[:n]


def planted(blocks: list[tuple[int, int]], seed: int = 0, noise: float = 0.02):
    """A video of (kind, frames) blocks, kind -1 being background: video (1, N, D), labels (N,), kinds (K, D)."""
    kinds = unit(seed, 1 + max(kind for kind, _ in blocks))
    g = torch.Generator().manual_seed(seed + 1)
    labels = torch.tensor([kind for kind, n in blocks for _ in range(n)])
    background = unit(seed, D)[-4:]
    frames = torch.where(
        (labels >= 0)[:, None], kinds[labels.clamp(min=0)], background[torch.arange(len(labels)) // 3 % 4]
    )
    frames = frames + noise * torch.randn(frames.shape, generator=g)
    return frames[None], labels, kinds


BLOCKS = [(-1, 4), (0, 5), (1, 3), (-1, 6), (2, 7), (3, 1), (-1, 2)]


@pytest.mark.parametrize(
    "config",
    [FIXED, AUTOMATIC],
    ids=["fixed", "auto"],
)
def test_planted_slots_give_back_the_blocks(config):
    video, labels, kinds = planted(BLOCKS)
    mask = torch.ones(1, video.shape[1], dtype=torch.bool)
    output = Slots(kinds[None], video, None)
    assert torch.equal(discover(output, mask, config)[0], labels)
    assert torch.equal(discover(output, mask, replace(FIXED, read_share=0.5))[0], labels)
    lengths = torch.tensor([len(kinds)])
    assert torch.equal(locate(output, mask, kinds[None], lengths, config)[0], labels)
    assert torch.equal(locate_texts(video, mask, kinds[None], lengths, config)[0], labels)


def test_the_percentile_line_keeps_the_share_that_was_asked_for():
    video, labels, kinds = planted(BLOCKS)
    mask = torch.ones(1, video.shape[1], dtype=torch.bool)
    steps = int((labels >= 0).sum())
    keep = (steps + 0.5) / (len(kinds) * len(labels))  # each frame of a step has one high similarity
    found = discover(Slots(kinds[None], video, None), mask, InferenceConfig(keep=keep))[0]
    assert torch.equal(found[found >= 0], labels[found >= 0])
    assert int((found >= 0).sum()) in (steps - 1, steps)  # the one on the line may go either way


def test_slots_that_match_nothing_are_dropped_and_texts_take_the_right_slots():
    video, labels, kinds = planted(BLOCKS)
    mask = torch.ones(1, video.shape[1], dtype=torch.bool)
    strangers = unit(0, 12)[6:12]
    # slots: stranger, kind 0, stranger, kind 1, kind 2, stranger, kind 3
    slots = torch.stack([strangers[0], kinds[0], strangers[1], kinds[1], kinds[2], strangers[2], kinds[3]])[None]
    output = Slots(slots, video, None)
    place = torch.tensor([1, 3, 4, 6])
    found = discover(output, mask, FIXED)[0]
    assert torch.equal(found, torch.where(labels >= 0, place[labels.clamp(min=0)], -1))
    texts = kinds[None]
    assert slots_of_texts(cosines(texts, slots), torch.tensor([4])).tolist() == [place.tolist()]
    assert torch.equal(locate(output, mask, texts, torch.tensor([4]), FIXED)[0], labels)


def test_ordered_and_order_agnostic_differ_where_a_step_comes_back():
    video, labels, kinds = planted([(0, 3), (1, 3), (0, 3)])
    mask = torch.ones(1, 9, dtype=torch.bool)
    output = Slots(kinds[None], video, None)
    free = discover(output, mask, replace(FIXED, ordered=False))[0]
    assert torch.equal(free, labels)
    ordered = discover(output, mask, FIXED)[0]
    kept = ordered[ordered >= 0]
    assert bool((kept.diff() >= 0).all())  # slots never go back in time
    assert (ordered >= 0).sum() == 6


def some_batch(seed: int, B: int = 3, K: int = 6, M: int = 4, N: int = 15):
    g = torch.Generator().manual_seed(seed)
    output = Slots(torch.randn(B, K, D, generator=g), torch.randn(B, N, D, generator=g), None)
    frames = torch.randint(1, N + 1, (B,), generator=g)
    texts = torch.randn(B, M, D, generator=g)
    lengths = torch.randint(1, M + 1, (B,), generator=g)
    return output, torch.arange(N) < frames[:, None], texts, lengths


CONFIGS = [
    DEFAULT_INFERENCE,
    InferenceConfig(),
    AUTOMATIC,
    InferenceConfig(threshold="fixed", similarity=0.0, read_share=0.4),
    InferenceConfig(ordered=False, text_share=0.5),
]


@given(st.integers(0, 1000), st.sampled_from(CONFIGS))
def test_padding_changes_nothing(seed, config):
    output, mask, texts, lengths = some_batch(seed)
    g = torch.Generator().manual_seed(seed + 1)
    more = Slots(output.slots, torch.cat((output.frames, 9 * torch.randn(3, 7, D, generator=g)), 1), None)
    wide = torch.cat((mask, torch.zeros(3, 7, dtype=torch.bool)), 1)
    many = torch.cat((texts, 9 * torch.randn(3, 2, D, generator=g)), 1)
    found, padded = discover(output, mask, config), discover(more, wide, config)
    assert torch.equal(found, padded[:, :15]) and bool((padded[:, 15:] == -1).all())
    at, padded = locate(output, mask, texts, lengths, config), locate(more, wide, many, lengths, config)
    assert torch.equal(at, padded[:, :15]) and bool((padded[:, 15:] == -1).all())
    for i in range(3):  # and each video alone gives what it gives in the batch
        n, m = int(mask[i].sum()), int(lengths[i])
        alone = Slots(output.slots[i : i + 1], output.frames[i : i + 1, :n], None)
        there = torch.ones(1, n, dtype=torch.bool)
        assert torch.equal(discover(alone, there, config)[0], found[i, :n])
        assert torch.equal(locate(alone, there, texts[i : i + 1, :m], lengths[i : i + 1], config)[0], at[i, :n])


@given(st.integers(0, 1000), st.sampled_from([c for c in CONFIGS if c.ordered]))
def test_every_text_takes_a_frame_in_order_where_there_is_room(seed, config):
    output, mask, texts, lengths = some_batch(seed)
    for found in (
        locate(output, mask, texts, lengths, config),
        locate_texts(output.frames, mask, texts, lengths, config),
    ):
        for row, n, m in zip(found, mask.sum(1).tolist(), lengths.tolist(), strict=True):
            seen = row[row >= 0]
            assert bool((seen.diff() >= 0).all())
            assert len(seen.unique()) == min(n, m)
            assert int(row.max()) < m


def test_more_texts_than_slots_still_all_get_frames():
    video, labels, kinds = planted(BLOCKS)
    mask = torch.ones(1, video.shape[1], dtype=torch.bool)
    output = Slots(kinds[None, [0, 2]], video, None)
    taken = slots_of_texts(cosines(kinds[None], output.slots), torch.tensor([4]))
    assert taken.tolist() == [[0, -1, 1, -1]]
    found = locate(output, mask, kinds[None], torch.tensor([4]), FIXED)[0]
    assert torch.equal(found, labels)  # a text without a slot is compared with the frames itself


def test_more_texts_than_frames_and_a_single_frame():
    video, _, kinds = planted([(0, 1), (2, 1), (3, 1)])
    mask = torch.ones(1, 3, dtype=torch.bool)
    lengths = torch.tensor([4])
    for found in (
        locate(Slots(kinds[None], video, None), mask, kinds[None], lengths, InferenceConfig()),
        locate_texts(video, mask, kinds[None], lengths, InferenceConfig()),
    ):
        assert found.tolist() == [[0, 2, 3]]
    for config in CONFIGS:
        one = Slots(kinds[None], video[:, :1], None)
        if config.threshold != "percentile":  # a percentile of four similarities is the best of them
            assert discover(one, mask[:, :1], config).tolist() == [[0]]
        assert locate(one, mask[:, :1], kinds[None], lengths, config).tolist() == [[0]]
        assert locate(one, mask[:, :1], kinds[None], torch.tensor([0]), config).tolist() == [[-1]]


def test_a_text_takes_a_frame_at_any_cost_unless_it_is_said_to_be_absent():
    video, _, kinds = planted([(0, 3), (1, 3)])
    mask, stranger = torch.ones(1, 6, dtype=torch.bool), -kinds.sum(0, keepdim=True)
    texts, three = torch.cat((kinds[:1], stranger, kinds[1:2]))[None], torch.tensor([3])
    config = FIXED
    found = locate_texts(video, mask, texts, three, config)[0]
    assert sorted(set(found.tolist())) in ([-1, 0, 1, 2], [0, 1, 2])
    present = torch.tensor([[True, False, True]])
    without = find_texts(no_slots(video), mask, texts, three, config, present=present)
    assert without.assignment.tolist() == [[0, 0, 0, 2, 2, 2]]
    assert [s.row for s in without.segments[0]] == [0, 2] and without.similarity.shape == (1, 3, 6)


@pytest.mark.parametrize("config", [FIXED, DEFAULT_INFERENCE])
def test_evidence_speaks_for_and_against(config):
    video, labels, kinds = planted(BLOCKS)
    mask = torch.ones(1, len(labels), dtype=torch.bool)
    output = Slots(kinds[None], video, None)
    step, gap = labels == 2, torch.zeros(len(labels), dtype=torch.bool)
    gap[12:18] = True  # the background between the second and the third step
    plain = find_steps(output, mask, config).assignment[0]
    assert (plain[step] == 2).all() and (plain[gap] == -1).all()
    said = torch.where(step, -50.0, torch.where(gap, 50.0, 0.0))[None]
    found = find_steps(output, mask, config, evidence=said).assignment[0]
    assert (found[step] == -1).all() and (found[gap] >= 0).all()
    texts, four = kinds[None], torch.tensor([4])
    here = torch.zeros(1, 4, len(labels))
    here[0, 3, 0:4] = here[0, 3, 4:] = 0.0
    here[0, 1, gap] = 50.0
    placed = find_texts(output, mask, texts, four, config, text_evidence=here).assignment[0]
    assert (placed[gap] == 1).all()


def test_where_an_action_is_spoken_of_there_is_a_step_of_its_own():
    video, labels, kinds = planted([(0, 30), (-1, 30), (1, 30), (2, 30)])
    video[0, 76:90] += 0.1 * kinds[2]  # a slight change within the step of the second kind
    mask, output = torch.ones(1, len(labels), dtype=torch.bool), Slots(kinds[None], video, None)

    def found(*said):
        acts = torch.zeros(1, len(labels), dtype=torch.bool)
        acts[0, list(said)] = True
        return [(s.first, s.last) for s in find_steps(output, mask, DEFAULT_INFERENCE, acts=acts).segments[0]]

    silent = found()
    assert silent == [(0, 30), (60, 90), (90, 120)]
    assert found(5, 65, 95) == silent  # one action per step
    assert found(5, 65, 84, 95) == [(0, 30), (60, 76), (76, 90), (90, 120)]  # two in one
    back = found(5, 45, 65, 95)  # in the background
    assert len(back) == 4 and back[1][0] <= 45 < back[1][1] and back[1][0] >= 30 and back[1][1] <= 60


def test_reading_sharpens_a_slot_with_what_it_reads():
    video, _, kinds = planted([(0, 4), (1, 4)], noise=0.0)
    mask = torch.ones(1, 8, dtype=torch.bool)
    output = Slots((kinds[:1] + 0.8 * unit(0, 3)[2:])[None], video, None)
    plain = slot_similarity(output, mask, InferenceConfig())
    read = slot_similarity(output, mask, InferenceConfig(read_share=1.0))
    assert float(plain[0, 0, 0]) == pytest.approx(1 / (1 + 0.8**2) ** 0.5, abs=1e-5)
    assert float(read[0, 0, 0]) == pytest.approx(1.0, abs=1e-5)


# -- controls -----------------------------------------------------------------------------------------------------


@given(st.integers(1, 40), st.integers(1, 9), st.integers(0, 3))
def test_pooled_slots_are_the_means_of_equal_chunks(n, count, padding):
    g = torch.Generator().manual_seed(n)
    video = torch.randn(1, n + padding, 5, generator=g, dtype=torch.float64)
    mask = torch.arange(n + padding)[None] < n
    output = pooled_slots(video, mask, count)
    for k in range(count):
        members = [i for i in range(n) if i * count // n == k]
        want = video[0, members].mean(0) if members else video[0, min(n - 1, int((k + 0.5) / count * n))]
        assert torch.allclose(output.slots[0, k], want, atol=1e-12)
    assert torch.equal(output.frames, video)


def test_random_slots_know_nothing_of_the_video():
    g = torch.Generator().manual_seed(3)
    mask = torch.ones(2, 5, dtype=torch.bool)
    a = random_slots(torch.zeros(2, 5, 8), mask, 4, g)
    b = random_slots(torch.ones(2, 5, 8), mask, 4, torch.Generator().manual_seed(3))
    assert torch.equal(a.slots, b.slots)
    assert torch.allclose(a.slots.norm(dim=-1), torch.ones(2, 4))


@pytest.mark.parametrize("wrong", [{"keep": 0.0}, {"read_share": 1.5}, {"background_share": 2.0}, {"text_share": -0.1}])
def test_shares_out_of_range_are_refused(wrong):
    with pytest.raises(UsageError, match=r"must be a number in [(\[]0, 1\]"):
        InferenceConfig(**wrong)


def test_a_video_of_a_few_different_pictures_has_as_many_pieces():
    for k in (2, 3, 5):
        video = torch.eye(16)[:k].repeat_interleave(10, 0)[None]
        video = torch.cat([video, video.flip(1)], 1)  # and the same pictures again, the last one twice as long
        mask = torch.ones(1, 20 * k, dtype=torch.bool)
        assert float(pieces(spread_out(video, mask), mask)) == 2 * k - 1
        # the same at four frames per second
        video, mask = video.repeat_interleave(4, 1), mask.repeat_interleave(4, 1)
        assert float(pieces(spread_out(video, mask), mask)) == 2 * k - 1


def test_joining_leaves_the_scatter_of_the_segments():
    rng = np.random.default_rng(0)
    video = torch.from_numpy(rng.standard_normal((1, 9, 3)))
    mask = torch.ones(1, 9, dtype=torch.bool)
    x = spread_out(video, mask)
    left = _scatter_left(x[0].numpy())
    assert left[0] == pytest.approx(1) and left[-1] == pytest.approx(0) and (np.diff(left) <= 1e-12).all()
    for k in range(1, 10):  # no better than the best of all cuts
        best, _ = solve(programme(None, x, mask), torch.zeros(1), count=[k])
        within = sum(float((x[0, s.first : s.last] - x[0, s.first : s.last].mean(0)).square().sum()) for s in best[0])
        assert left[k - 1] >= within / 9 - 1e-9
    assert float(pieces(x, torch.zeros(1, 9, dtype=torch.bool))) == 1


def test_plain_pictures_are_steps_whatever_is_usual():
    for k in (4, 8):
        video = torch.eye(16)[:k].repeat_interleave(10, 0)[None]
        mask = torch.ones(1, 10 * k, dtype=torch.bool)
        found = find_steps(pooled_slots(video, mask), mask, DEFAULT_INFERENCE)
        assert [s.first for s in found.segments[0]] == list(range(0, 10 * k, 10))


def test_detail_moves_the_usual_number():
    generator = torch.Generator().manual_seed(0)
    video = torch.randn(1, 120, 32, generator=generator).cumsum(1)
    mask = torch.ones(1, 120, dtype=torch.bool)
    output = pooled_slots(video, mask)
    numbers = []
    for detail in (0.0, 0.5, 1.0):
        config = replace(DEFAULT_INFERENCE, detail=detail)
        numbers.append(len(find_steps(output, mask, config).segments[0]))
    assert numbers[0] < numbers[1] < numbers[2]
    # noise alone is one thing, which no usual number splits; slots that fit some of its frames better may
    structure = replace(DEFAULT_INFERENCE, step_weight=0.0)
    for _ in range(5):
        noise = torch.randn(1, 120, 32, generator=generator)
        assert len(find_steps(pooled_slots(noise, mask), mask, structure).segments[0]) == 1
