"""The simulator: batches by number alone, labels that agree with times, narration as it is described."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from stepformer.core.config import SimConfig
from stepformer.data.simulator import Batch, Sight, Simulator, _seed
from stepformer.data.world import OWNERS, Videos
from stepformer.errors import InputError, UsageError


def same(a: Batch, b: Batch) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture(scope="module")
def many(tiny_world) -> Batch:
    """One large batch."""
    config = SimConfig(composed=0.0, max_frames=80, max_steps=8)
    return Simulator(tiny_world, config, seed=5).batch(3, 160)


def timed(tiny_world, rows: list[list[tuple[float, float]]], duration: float) -> Videos:
    """Videos of the first training steps at given times."""
    S = max(map(len, rows))
    steps = tiny_world.train.steps[: len(rows), :S].clone()
    starts, ends = (torch.full((len(rows), S), math.nan) for _ in range(2))
    for i, row in enumerate(rows):
        steps[i, len(row) :] = -1
        for j, (start, end) in enumerate(row):
            starts[i, j], ends[i, j] = start, end
    number = torch.zeros(len(rows), dtype=torch.int64)
    kinds = torch.where(steps >= 0, torch.arange(S), -1)
    return Videos(steps, starts, ends, torch.full((len(rows),), duration), number, number, kinds)


# -- chance -------------------------------------------------------------------------------------------------------


def test_a_batch_is_a_function_of_seed_and_step_alone(tiny_world):
    config = SimConfig(max_frames=40)
    walked, fresh = Simulator(tiny_world, config, seed=4), Simulator(tiny_world, config, seed=4)
    history = [walked.batch(step, 6) for step in range(4)]
    torch.manual_seed(99)  # nor of torch's own state
    torch.rand(10)
    assert same(fresh.batch(3, 6), history[3])
    assert not torch.equal(history[2].steps, history[3].steps)
    assert not torch.equal(Simulator(tiny_world, config, seed=5).batch(3, 6).steps, history[3].steps)


def test_a_padded_batch_is_an_ordinary_one_of_the_largest_shape(tiny_world):
    """As it is made on a GPU: the same videos, as long and as talkative as they are, in a shape known beforehand."""
    config = SimConfig(max_frames=60, max_steps=5, irrelevant_every_s=12.0)
    simulator = Simulator(tiny_world, config, seed=4)
    plain, padded = (simulator._make(40, generator(7), padded) for padded in (False, True))
    most = 5 + math.ceil(60 / 12 * 1.5) + 2
    assert padded.video.shape == (40, 60, simulator.dim) and padded.phrases.shape == (40, most, simulator.dim)
    assert torch.equal(padded.steps, plain.steps)
    assert torch.equal(padded.video_mask.sum(1), plain.video_mask.sum(1))
    assert torch.equal(padded.labels[:, : plain.labels.shape[1]], plain.labels)
    for batch in (plain, padded):
        for values, mask in ((batch.video, batch.video_mask), (batch.phrases, batch.phrase_mask)):
            assert torch.allclose(values.norm(dim=-1), mask.float(), atol=1e-5)

    def nearness(batch: Batch) -> float:
        """How much frames look like the next one."""
        pair = batch.video_mask[:, 1:]
        return float((batch.video[:, 1:] * batch.video[:, :-1]).sum(-1)[pair].mean())

    assert nearness(padded) == pytest.approx(nearness(plain), abs=0.02)
    said = [float(batch.phrase_mask.sum(1).float().mean()) for batch in (plain, padded)]
    assert said[1] == pytest.approx(said[0], rel=0.15)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_a_recorded_batch_is_the_one_that_was_not_recorded(tiny_world):
    simulator = Simulator(tiny_world, SimConfig(max_frames=40), seed=4, device="cuda")
    first = [simulator.batch(step, 6) for step in (3, 4, 3)]
    for step, made in zip((3, 4, 3), first, strict=True):
        g = torch.Generator("cuda").manual_seed(_seed(4, step))
        expected = simulator._make(6, g, padded=True)
        assert all(torch.allclose(a.double(), b.double(), atol=1e-6) for a, b in zip(made, expected, strict=True))
    assert not torch.equal(first[0].steps, first[1].steps)
    torch.cuda.set_sync_debug_mode("error")  # raises where torch waits
    try:
        simulator.batch(5, 6)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_a_turned_batch_keeps_how_vectors_lie_to_each_other_and_nothing_else(tiny_world):
    plain, half, turned = (
        Simulator(tiny_world, SimConfig(max_frames=40, turned=turn), seed=4).batch(2, 6) for turn in (0.0, 0.5, 1.0)
    )
    assert torch.equal(plain.labels, turned.labels) and torch.equal(plain.phrase_ids, turned.phrase_ids)

    def inner(batch: Batch) -> torch.Tensor:
        return torch.cat((batch.video[batch.video_mask], batch.phrases[batch.phrase_mask]))

    a, b = inner(plain), inner(turned)
    assert torch.allclose(b.norm(dim=1), torch.ones(len(b)), atol=1e-5)
    grams = torch.stack(((a @ a.T).flatten(), (b @ b.T).flatten()))
    assert torch.corrcoef(grams)[0, 1] > 0.9
    assert (a - b).norm(dim=1).mean() > 0.3  # the vectors themselves are others
    assert 0.1 < (a - inner(half)).norm(dim=1).mean() < (a - b).norm(dim=1).mean()


def test_a_split_is_rendered_whole_in_order_and_alike_for_every_seed_of_training(tiny_world):
    videos = tiny_world.test
    a = Simulator(tiny_world, seed=1).render_all(videos, seed=1, size=8)
    b = Simulator(tiny_world, seed=2).render_all(videos, seed=1, size=8)
    assert [len(batch.video) for batch in a] == [8] * (len(videos) // 8) + [len(videos) % 8] * (len(videos) % 8 > 0)
    assert all(same(x, y) for x, y in zip(a, b, strict=True))
    assert torch.equal(torch.cat([batch.steps for batch in a]), videos.steps)
    other = Simulator(tiny_world).render_all(videos, seed=2, size=8)
    assert not same(a[0], other[0])


# -- shapes and masks ---------------------------------------------------------------------------------------------


def test_masks_are_prefixes_and_what_they_hide_is_empty(many):
    for mask in (many.video_mask, many.phrase_mask):
        assert bool((mask[:, 1:] <= mask[:, :-1]).all())
    assert bool(many.video_mask.any(1).all())
    for values, mask in ((many.video, many.video_mask), (many.phrases, many.phrase_mask)):
        norms = values.norm(dim=-1)
        assert torch.allclose(norms[mask], torch.ones(()), atol=1e-5)
        assert float(norms[~mask].abs().max()) == 0.0
    assert bool((many.labels[~many.video_mask] == -1).all())
    assert bool((many.phrase_steps[~many.phrase_mask] == -1).all())
    assert bool((many.phrase_ids[many.phrase_mask] >= 0).all())
    assert all(bool(values.isfinite().all()) for values in (many.video, many.phrases))


def test_limits_on_frames_and_steps_are_kept(many, tiny_world):
    assert many.video.shape[1] <= 80
    assert many.steps.shape[1] == 8
    longest = (tiny_world.train.steps >= 0).sum(1)
    assert int(longest.max()) > 8, "the world needs a procedure that must be cut"
    runs = {tuple(row[row >= 0].tolist()) for row in tiny_world.train.steps}
    for row in many.steps:
        steps = tuple(row[row >= 0].tolist())
        assert any(
            steps == run[i : i + len(steps)] for run in runs for i in range(len(run) - len(steps) + 1)
        )  # consecutive


@pytest.mark.parametrize("max_steps", [2, 5, 40])
def test_an_excerpt_of_a_procedure_without_times_has_times(tiny_world, max_steps):
    assert bool(tiny_world.train.durations.isnan().all())
    batch = Simulator(tiny_world, SimConfig(max_steps=max_steps)).batch(0, 40)
    there = (batch.steps >= 0).sum(1)
    assert int(there.min()) >= 2
    shown = torch.tensor([len(row[row >= 0].unique()) for row in batch.labels])
    assert float((shown >= there - 1).float().mean()) > 0.9  # every step is seen, but for the shortest
    assert float((batch.labels >= 0).sum() / batch.video_mask.sum()) > 0.2


def test_a_timed_procedure_is_cut_with_its_times(tiny_world):
    rows = [[(10.0 * i, 10.0 * i + 6.0) for i in range(6)]]
    world = replace(tiny_world, train=timed(tiny_world, rows, 70.0))
    config = SimConfig(max_steps=3, max_frames=500, composed=0.0)
    starts = set()
    for step in range(12):
        batch = Simulator(world, config).batch(step, 1)
        first = int((world.train.steps[0] == batch.steps[0, 0]).nonzero()[0])
        starts.add(first)
        begin = 5 if first else 0  # five seconds before the first step
        want = [-1] * begin + ([0] * 6 + [-1] * 4 + [1] * 6 + [-1] * 4 + [2] * 6) + [-1] * 5
        assert batch.labels[0].tolist() == want
    assert starts == {0, 1, 2, 3}


# -- labels -------------------------------------------------------------------------------------------------------


def test_labels_are_the_steps_at_the_middle_of_each_second(tiny_world):
    videos = timed(tiny_world, [[(1.0, 3.0), (4.6, 6.4)], [(0.0, 8.0)]], 8.7)
    batch = Simulator(tiny_world).render(videos, Sight(), 100, generator())
    assert batch.labels.tolist() == [[-1, 0, 0, -1, -1, 1, -1, -1], [0] * 8]
    assert batch.video_mask.sum(1).tolist() == [8, 8]


def test_the_last_annotation_wins_where_two_overlap(tiny_world):
    videos = timed(tiny_world, [[(0.0, 6.0), (2.0, 4.0), (3.0, 5.0)]], 8.0)
    batch = Simulator(tiny_world).render(videos, Sight(), 100, generator())
    assert batch.labels[0].tolist() == [0, 0, 1, 2, 2, 0, -1, -1]


def test_a_video_too_long_is_seen_at_fewer_frames_a_second(tiny_world):
    videos = timed(tiny_world, [[(0.0, 100.0), (300.0, 400.0)]], 400.0)
    batch = Simulator(tiny_world).render(videos, Sight(), 40, generator())
    assert batch.labels[0].tolist() == [0] * 10 + [-1] * 20 + [1] * 10


# -- frames -------------------------------------------------------------------------------------------------------


def closeness(world, sight: Sight) -> tuple[float, float]:
    """Mean cosine of the frames of steps to their own text and to another text of the same video."""
    simulator = Simulator(world)
    batch = simulator.render_all(world.test.pick(torch.arange(12)), sight)[0]
    video, at = (batch.labels >= 0).nonzero(as_tuple=True)
    label = batch.labels[video, at]
    frames = batch.video[video, at]
    count = (batch.steps >= 0).sum(1)[video]
    own, other = (world.vectors[batch.steps[video, i]] for i in (label, (label + 1) % count))
    return float((frames * own).sum(-1).mean()), float((frames * other).sum(-1).mean())


def test_frames_of_a_step_are_nearer_to_its_text_than_to_the_next_step(tiny_world):
    own, other = closeness(tiny_world, Sight())
    assert own > other + 0.01  # weak on purpose
    clear = Sight(look=0.0, clutter=0.0, fast=0.0, stray=0.0, related=0.0)
    assert closeness(tiny_world, clear)[0] > own + 0.01


def test_without_clutter_a_frame_is_a_picture_of_its_step_and_keeps_it_for_a_shot(tiny_world):
    videos = tiny_world.test.pick(torch.arange(8))
    batch = Simulator(tiny_world).render_all(videos, Sight(0.0, 0.0, 0.0, 0.0, 0.0, shot_s=4.0))[0]
    seen = (batch.video @ tiny_world.pictures.T).argmax(-1)  # (B, N) which picture
    assert torch.allclose(batch.video[batch.video_mask], tiny_world.pictures[seen[batch.video_mask]], atol=1e-5)
    test = OWNERS.index("test")
    assert bool((tiny_world.picture_owner[seen[batch.video_mask]] == test).all())
    for row, labels, steps, mask in zip(seen, batch.labels, batch.steps, batch.video_mask, strict=True):
        for picture, label in zip(row[mask].tolist(), labels[mask].tolist(), strict=True):
            if label >= 0:
                assert picture in tiny_world.shows[steps[label]].tolist()
            else:
                assert bool(tiny_world.background[picture])
        kept = row[mask].diff() == 0
        assert float(kept.float().mean()) > 0.5


def test_a_video_says_and_shows_only_what_its_owner_owns(tiny_world):
    simulator = Simulator(tiny_world, SimConfig(max_frames=40))
    for owner in OWNERS:
        videos = tiny_world.split(owner)
        batches = [simulator.batch(0, 40)] if owner == "train" else simulator.render_all(videos)
        said = torch.cat([batch.phrase_ids[batch.phrase_mask] for batch in batches])
        number = OWNERS.index(owner)
        assert bool((tiny_world.text_owner[said] == number).all()), owner
        assert bool((tiny_world.text_owner[tiny_world.neighbours[said]] == number).all()), owner


def test_a_composed_video_goes_from_one_procedure_into_another(tiny_world):
    whole = {tuple(row[row >= 0].tolist()) for row in tiny_world.train.steps}
    texts = {step: i for i, row in enumerate(tiny_world.train.steps.tolist()) for step in row if step >= 0}
    batch = Simulator(tiny_world, SimConfig(composed=1.0, max_frames=40, max_steps=6)).batch(0, 40)
    crossed = 0
    for row, labels in zip(batch.steps, batch.labels, strict=True):
        steps = row[row >= 0].tolist()
        assert len(steps) >= 2 and -1 not in row[: len(steps)].tolist()
        crossed += len({texts[step] for step in steps}) > 1
        assert labels.max() < len(steps)
    assert crossed > 20
    plain = Simulator(tiny_world, SimConfig(composed=0.0, max_frames=40, max_steps=40)).batch(0, 20)
    assert all(tuple(row[row >= 0].tolist()) in whole for row in plain.steps)


# -- narration ----------------------------------------------------------------------------------------------------


def test_narration_is_mostly_irrelevant_and_names_the_steps_it_says(many, tiny_world):
    relevant = many.phrase_steps >= 0
    assert 0 < int(relevant.sum()) < int((many.phrase_mask & ~relevant).sum())
    video, at = relevant.nonzero(as_tuple=True)
    instance = many.phrase_steps[video, at]
    step = many.steps[video, instance]
    assert bool((step >= 0).all())
    said = many.phrase_ids[video, at]
    # said in its own words or in one of the grammar's other ways to say it
    own = (said == step) | (tiny_world.paraphrases[step] == said[:, None]).any(1)
    assert bool(own.all())
    other_words = tiny_world.paraphrases[step, 0] >= 0
    assert bool((said != step)[other_words].all())
    fillers = many.phrase_mask & ~relevant
    allowed = torch.cat((tiny_world.fillers, tiny_world.train.steps[tiny_world.train.steps >= 0]))
    allowed = allowed[tiny_world.text_owner[allowed] == 0]
    assert bool(torch.isin(many.phrase_ids[fillers], allowed).all())
    # no step is said twice
    for row in many.phrase_steps:
        assert len(row[row >= 0].unique()) == int((row >= 0).sum())


def test_the_share_of_steps_said_is_what_is_asked_for(tiny_world):
    for share in (0.0, 0.5, 1.0):
        batch = Simulator(tiny_world, SimConfig(spoken=share, max_frames=30)).batch(0, 80)
        said, steps = int((batch.phrase_steps >= 0).sum()), int((batch.steps >= 0).sum())
        assert said / steps == pytest.approx(share, abs=0.08)


def test_narration_is_in_the_order_of_time(tiny_world):
    # said without shift, steps that follow each other are said one after the other
    config = SimConfig(spoken=1.0, shift_s=0.0, composed=0.0)
    batch = Simulator(tiny_world, config).batch(0, 30)
    for row in batch.phrase_steps:
        said = row[row >= 0]
        assert bool((said.diff() > 0).all())
    # with a large shift they are not: narrators run ahead and come back
    batch = Simulator(tiny_world, replace(config, shift_s=60.0)).batch(0, 30)
    assert any(bool((row[row >= 0].diff() < 0).any()) for row in batch.phrase_steps)


# -- sources ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def two_sources(tiny_world):
    """The tiny world, half of its procedures and chatter given to another source."""
    train = tiny_world.train
    other = tiny_world.source_index(["coin"])[0]
    sources = train.sources.clone()
    sources[::2] = other
    filler_sources = tiny_world.filler_sources.clone()
    filler_sources[::2] = other
    return replace(tiny_world, train=replace(train, sources=sources), filler_sources=filler_sources)


@pytest.mark.parametrize("sources", [(("grammar", 1.0),), (("grammar", 0.7), ("coin", 0.0))])
def test_only_chosen_sources_are_drawn_from(two_sources, sources):
    world = two_sources
    simulator = Simulator(world, SimConfig(sources=sources, max_frames=40))
    number = world.source_index(["grammar"])[0]
    steps = world.train.steps[world.train.sources == number]
    mine = steps[steps >= 0].unique()
    talk = world.fillers[world.filler_sources == number]
    for step in range(5):
        batch = simulator.batch(step, 40)
        assert bool(torch.isin(batch.steps[batch.steps >= 0], mine).all())
        irrelevant = batch.phrase_ids[batch.phrase_mask & (batch.phrase_steps < 0)]
        assert bool(torch.isin(irrelevant, torch.cat((mine, talk))).all())


def test_shares_decide_how_often_a_source_is_drawn(two_sources):
    world = two_sources
    simulator = Simulator(world, SimConfig(sources=(("grammar", 1.0), ("coin", 3.0)), max_frames=4, max_steps=2))
    drawn = torch.cat([simulator._draw(200, generator(i)).sources for i in range(5)])
    coin = world.source_index(["coin"])[0]
    assert float((drawn == coin).float().mean()) == pytest.approx(0.75, abs=0.06)


def test_wrong_names_get_a_sentence(tiny_world):
    with pytest.raises(InputError, match="no source bookshelf; it has grammar"):
        Simulator(tiny_world, SimConfig(sources=(("bookshelf", 1.0),)))
    with pytest.raises(UsageError, match="no training procedures in the sources coin"):
        Simulator(tiny_world, SimConfig(sources=(("coin", 1.0),)))
