"""A video of any length takes the memory of an hour: a fixed number of vectors, each the mean of its neighbours."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from stepformer import media
from stepformer.encoders import reading
from stepformer.encoders.base import Encoded
from stepformer.encoders.reading import MOST_VECTORS, Partial, encode_file
from stepformer.media.picture import FrameSpec

HOUR = 3_600


class Counter:
    """Vector i of a video holds i."""

    name, rate_hz, wants, structure_dim, batch = "counter", 1.0, FrameSpec((1, 1)), 96, 250

    def encode_video(self, frames):
        return Encoded(np.repeat(frames, 64, 1), np.repeat(frames, 96, 1) / 1e5)

    def finish(self, whole):
        """Called once, with all of it."""
        return Encoded(whole.vectors + 0.0, whole.structure)


@pytest.fixture
def video_of(monkeypatch):
    """Makes every file a video of this many seconds, with what is wrong with it."""

    def make(length_s, problems=()):
        def clips(wants, rate_hz, batch, start=0):
            for first in range(start, round(length_s * rate_hz), batch):
                last = min(first + batch, round(length_s * rate_hz))
                yield np.arange(first, last, dtype=np.float32)[:, None]

        reader = SimpleNamespace(
            info=SimpleNamespace(duration_s=length_s), problems=problems, end_s=length_s, longest_gap_s=0.0, clips=clips
        )
        monkeypatch.setattr(media, "VideoReader", lambda *_, **__: reader)

    return make


def test_so_many_vectors_are_kept_of_a_video_of_any_length(video_of):
    counts = {}
    for hours in (0.5, 1.0, 1.001, 1.5, 3, 3.7, 24, 48):
        video_of(hours * HOUR)
        seen = encode_file(Path("v.mp4"), Counter())
        counts[hours], neighbours = len(seen), round(1 / seen.rate_hz)
        number = round(hours * HOUR)
        groups = [range(number)[i : i + neighbours] for i in range(0, number, neighbours)]
        assert np.allclose(seen.vectors[:, 0], [np.mean(group) for group in groups], rtol=1e-5)
        assert np.allclose(seen.structure[:, 0], seen.vectors[:, 0] / 1e5, rtol=2e-3)
        assert seen.duration_s == hours * HOUR
    assert max(counts.values()) <= MOST_VECTORS
    assert (counts[0.5], counts[1.0], counts[1.001], counts[3]) == (1800, 3600, 1802, 2700)


@pytest.mark.parametrize("how", ["well", "damaged", "cache full", "goes on"])
def test_memory_does_not_grow_with_the_length_of_a_video(video_of, tmp_path, monkeypatch, how):
    monkeypatch.setattr(reading, "_CHUNK_S", -1.0)
    if how == "cache full":
        monkeypatch.setattr(reading, "keep_arrays", lambda *_: False)

    def peak(hours):
        video_of(hours * HOUR, [SimpleNamespace(text="damage")] if how == "damaged" else ())
        kept = tmp_path / f"{hours}.safetensors"
        if how == "goes on":
            encode_file(Path("v.mp4"), Counter(), partial=Partial(kept))
        tracemalloc.start()
        encode_file(Path("v.mp4"), Counter(), partial=Partial(kept))
        size = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return size

    peak(0.1)  # what is imported once
    assert peak(20) < 1.2 * peak(1)


def test_which_vectors_share_a_mean_does_not_depend_on_batches():
    rows = np.random.default_rng(0).standard_normal((997, 3)).astype(np.float32)
    for most in (2, 8, 64, 1000):
        found = []
        for size in (1, 3, 7, 100, 997):
            kept = reading.Kept(most)
            for first in range(0, len(rows), size):
                kept.add(Encoded(rows[first : first + size]))
            found.append(kept.taken().vectors)
            assert len(found[-1]) == -(-len(rows) // kept.neighbours) <= most
        assert all(np.array_equal(found[0], other) for other in found[1:])
