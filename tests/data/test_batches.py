"""Batches of stored videos: every video once an epoch, the same batch for the same number, honest padding."""

from __future__ import annotations

import math
from concurrent.futures import wait
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from stepformer.data import batches
from stepformer.data.batches import StoreBatches, shorten
from stepformer.data.store import StoredPhrase, StoredVideo, StoreInfo, StoreWriter
from stepformer.errors import InputError

DIM = 6


def write(path, videos: dict[str, tuple[int, list[bool]]], vectors: bool = True, **options):
    """A store of videos, name -> (frames, chatter flag of each phrase). Frames of video i hold i + 1 everywhere."""
    with StoreWriter(path, StoreInfo("toy", "toy-1", dim=DIM), **options) as writer:
        for i, (name, (frames, chatter)) in enumerate(videos.items()):
            said = tuple(StoredPhrase(f"p{j}", j, j + 1, flag) for j, flag in enumerate(chatter))
            text = np.arange(len(said), dtype=np.float32)[:, None] + np.ones((1, DIM), np.float32)
            features = np.full((frames, DIM), i + 1, np.float32)
            writer.append(StoredVideo(name, features, 1.0, float(frames), None, said, text if vectors else None))
    return path


@pytest.fixture
def store(tmp_path):
    return write(tmp_path / "s", {f"v{i}": (5 + i, [False] * (1 + i % 3)) for i in range(10)})


def members(batch) -> list[int]:
    """Which videos of the store are in a batch: their frames tell."""
    return (batch.video[:, 0, 0].round().int() - 1).tolist()


def test_an_epoch_shows_every_video_once_and_the_next_in_another_order(store):
    source = StoreBatches([store], 100, 0.0, seed=1)
    assert source.dim == DIM
    epochs = [[i for step in range(5 * e, 5 * e + 5) for i in members(source.batch(step, 2))] for e in range(3)]
    assert all(sorted(epoch) == list(range(10)) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2]
    assert StoreBatches([store], 100, 0.0, seed=2)._members(0, 10) != source._members(0, 10)


def test_a_batch_is_a_function_of_its_number(store):
    walked, fresh = StoreBatches([store], 100, 0.0, seed=1), StoreBatches([store], 100, 0.0, seed=1)
    for step in range(8):
        batch = walked.batch(step, 3)
    assert all(torch.equal(a, b) for a, b in zip(batch, fresh.batch(7, 3), strict=True))
    assert all(torch.equal(a, b) for a, b in zip(fresh.batch(2, 3), walked.batch(2, 3), strict=True))  # also backwards


def test_padding_is_masked(store):
    batch = StoreBatches([store], 100, 0.0, seed=1).batch(0, 10)
    for i, row in enumerate(members(batch)):
        assert int(batch.video_mask[i].sum()) == 5 + row
        assert int(batch.phrase_mask[i].sum()) == 1 + row % 3
    for values, mask in ((batch.video, batch.video_mask), (batch.phrases, batch.phrase_mask)):
        assert bool((mask[:, 1:] <= mask[:, :-1]).all())
        assert bool((values[~mask] == 0).all()) and bool((values[mask] != 0).all())


def test_frames_and_phrases_come_in_their_order(tmp_path):
    """A loader that shuffles a video's frames would teach a model that order means nothing."""
    videos = {}
    with StoreWriter(tmp_path / "s", StoreInfo("toy", "toy-1", dim=DIM)) as writer:
        for name, frames in (("a", 9), ("b", 12), ("c", 5)):
            rng = np.random.default_rng(frames)
            said = tuple(StoredPhrase(f"p{j}", j, j + 1, False) for j in range(4))
            features, text = (rng.standard_normal((n, DIM)).astype(np.float16) for n in (frames, len(said)))
            writer.append(StoredVideo(name, features.astype(np.float32), 1.0, float(frames), None, said, text))
            videos[frames] = features, text
    for most in (100, 6):
        batch = StoreBatches([tmp_path / "s"], most, 0.0, seed=1).batch(0, 3)
        seen = set()
        for video, there, phrases in zip(batch.video, batch.video_mask, batch.phrases, strict=True):
            frames = next(n for n, (_, text) in videos.items() if np.array_equal(phrases.numpy(), text))
            expected = shorten(videos[frames][0], most)
            np.testing.assert_allclose(video[there].float().numpy(), expected, atol=2e-3)
            seen.add(frames)
        assert seen == {*videos}


def test_long_videos_are_averaged_down(store):
    batch = StoreBatches([store], 7, 0.0, seed=1).batch(0, 10)
    assert batch.video.shape[1] == 7
    for i, row in enumerate(members(batch)):
        assert int(batch.video_mask[i].sum()) == min(7, 5 + row)


@settings(deadline=None)
@example(29, 14)  # an edge at 14.5, which floats put on either side
@given(st.integers(1, 60), st.integers(1, 20))
def test_shortening_keeps_the_mean_of_equal_parts(n, most):
    features = np.random.default_rng(n).standard_normal((n, 3)).astype(np.float32)
    short = shorten(features, most)
    assert len(short) == min(n, most)
    edges = [math.floor(Fraction(i * n, len(short)) + Fraction(1, 2)) for i in range(len(short) + 1)]
    if n > most:
        for row, a, b in zip(short, edges, edges[1:], strict=False):
            assert b - a in (n // most, n // most + 1)
            assert np.allclose(row, features[a:b].mean(0), atol=1e-5)
    else:
        assert np.array_equal(short, features)


def test_chatter_is_left_out_unless_there_is_nothing_else(tmp_path):
    write(tmp_path / "s", {"a": (5, [True, False, True, False]), "b": (5, [True, True]), "c": (5, [])})
    source = StoreBatches([tmp_path / "s"], 100, 0.0, seed=0)
    assert len(source.items) == 2  # a video without phrases teaches nothing
    batch = source.batch(0, 2)
    a, b = members(batch).index(0), members(batch).index(1)
    assert batch.phrases[a, batch.phrase_mask[a], 0].tolist() == [2.0, 4.0]
    assert batch.phrases[b, batch.phrase_mask[b], 0].tolist() == [1.0, 2.0]


def test_held_out_videos_are_chosen_by_name_and_never_trained_on(store, tmp_path):
    source = StoreBatches([store], 100, 0.4, seed=1)
    kept = {name for _, name in source.kept}
    assert kept and kept == {name for _, name in StoreBatches([store], 100, 0.4, seed=2).kept}
    seen = {i for step in range(20) for i in members(source.batch(step, 3))}
    shown = [i for batch in source.held_out_batches(2) for i in members(batch)]
    assert {f"v{i}" for i in shown} == kept and not seen & set(shown)
    more = write(tmp_path / "more", {f"v{i}": (5, [False]) for i in range(30)})
    assert kept <= {name for _, name in StoreBatches([more], 100, 0.4, seed=1).kept}


def test_several_stores_are_one(store, tmp_path):
    other = write(tmp_path / "t", {f"w{i}": (4, [False]) for i in range(3)})
    assert len(StoreBatches([store, other], 100, 0.0, seed=0).items) == 13


def test_the_next_batches_are_read_while_this_one_trains(store):
    source = StoreBatches([store], 100, 0.0, seed=1)
    source.batch(0, 2)
    assert [key[0] for key in source._ready] == [1, 2]
    for batch, work in source._ready.values():
        wait(work, timeout=20)
        assert all(part.done() for part in work) and bool((batch.video[batch.video_mask] != 0).all())
    for step in (1, 2, 3, 9):
        source.batch(step, 2)
        assert len(source._ready) <= 2  # what was read ahead and not used is let go


def test_memory_is_used_again_but_never_under_a_batch_that_is_held(store):
    source = StoreBatches([store], 100, 0.0, seed=1)
    held = [source.batch(step, 3) for step in range(12)]
    again = StoreBatches([store], 100, 0.0, seed=1)
    for step, batch in enumerate(held):
        assert all(torch.equal(a, b) for a, b in zip(batch, again.batch(step, 3), strict=True))
    assert len(again._buffers[0]._kept) <= 4 < len(source._buffers[0]._kept)


def test_the_order_is_the_same_for_any_number_of_threads_and_in_parts(store):
    one, many = (StoreBatches([store], 100, 0.0, seed=1, threads=n) for n in (1, 5))
    for step in range(6):
        whole = one.batch(step, 5)
        assert all(torch.equal(a, b) for a, b in zip(whole, many.batch(step, 5), strict=True))
    pieces = [StoreBatches([store], 100, 0.0, seed=1).part(5, 5, rows) for rows in (slice(0, 3), slice(3, 5))]
    assert all(torch.equal(a, torch.cat(b)) for a, b in zip(whole, zip(*pieces, strict=True), strict=True))


def test_an_epoch_goes_through_the_shards_some_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr(batches, "WINDOW", 3)
    path = write(tmp_path / "s", {f"v{i}": (5, [False]) for i in range(80)}, shard_bytes=4000)
    source = StoreBatches([path], 100, 0.0, seed=1)
    shards = source._shard_of.max() + 1
    assert shards > 9
    orders = []
    for epoch in range(2):
        items = source._members(epoch, 80)
        orders.append([name for _, name in items])
        assert sorted(orders[-1]) == sorted(name for _, name in source.items)
        seen = [store.entry(name).shard for store, name in items]
        places = {shard: [i for i, s in enumerate(seen) if s == shard] for shard in set(seen)}
        widest = 3 * max(len(at) for at in places.values())
        assert all(at[-1] - at[0] < widest for at in places.values())  # within a window of three shards
        assert any(at[-1] - at[0] >= len(at) for at in places.values())  # and mixed there
    assert orders[0] != orders[1]


def test_what_cannot_be_trained_on_gets_a_sentence(store, tmp_path):
    with pytest.raises(InputError, match=r"10 videos have phrases and 10 of them are held out"):
        StoreBatches([store], 100, 1.0, seed=0)
    with pytest.raises(InputError, match="training needs two"):
        StoreBatches([write(tmp_path / "one", {"a": (5, [False])})], 100, 0.0, seed=0)
    with pytest.raises(InputError, match="phrases without vectors; prepare the store again"):
        StoreBatches([write(tmp_path / "bare", {f"v{i}": (5, [False]) for i in range(3)}, False)], 100, 0.0, seed=0)
    with pytest.raises(InputError, match="is not a feature store"):
        StoreBatches([tmp_path / "nowhere"], 100, 0.0, seed=0)
