"""Batches of real videos from feature stores, for the same loop that trains on the simulator.

A batch is a function of (seed, number): a run that resumes in the middle of an epoch gets what it would have got, with
any number of reading threads. An epoch goes through the shards in a new order, :data:`WINDOW` of them at a time, and
through the videos of those in a random order, so that a corpus larger than the memory is read from disk once per epoch.
Threads copy float16 rows from memory-mapped shards into batches, two batches ahead of the one that trains.
"""

from __future__ import annotations

import os
import sys
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from stepformer.core.distributed import Batch
from stepformer.data.store import FeatureStore, open_stores
from stepformer.errors import InputError

WINDOW = 16
"""Shards whose videos are shuffled together: 4 GB, about 7,000 videos of 400 s in 768 dimensions."""
_AHEAD = 2  # batches
_STEP = 64  # rows by which memory for batches differs in size
_AT_ONCE = 16  # videos that a thread copies before it looks for other work


def shorten(features: np.ndarray[Any, Any], most: int) -> np.ndarray[Any, Any]:
    """(N, D) averaged down to at most ``most`` rows of equal duration."""
    n = len(features)
    if n <= most:
        return features
    # in whole numbers, halves up: where floats round a half is not the same everywhere
    edges = (2 * n * np.arange(most + 1) + most) // (2 * most)
    return np.add.reduceat(features.astype(np.float32), edges[:-1], axis=0) / np.diff(edges)[:, None]


class StoreBatches:
    """Shuffled epochs over one or several stores, read ahead by ``threads`` (default: the processors, at most 8).

    Videos without phrases are left out (there is nothing to learn from). ``held_out`` of the videos, chosen by name,
    are kept for the validation loss.
    """

    def __init__(
        self, stores: Sequence[str | Path], max_frames: int, held_out: float, seed: int, threads: int = 0
    ) -> None:
        self.max_frames, self.seed, self.origin = max_frames, seed, [str(store) for store in stores]
        opened = open_stores(stores)
        self.dim, self.encoder = opened[0].info.dim, opened[0].info.encoder
        items = [(store, video) for store in opened for video in store.ids if store.entry(video).said]
        self.without_phrases = sum(len(store.ids) for store in opened) - len(items)
        self.items: list[tuple[FeatureStore, str]] = []
        self.kept: list[tuple[FeatureStore, str]] = []
        for item in items:
            share = zlib.crc32(item[1].encode()) / 2**32
            (self.kept if share < held_out else self.items).append(item)
        if len(self.items) < 2:
            raise InputError(
                f"{', '.join(map(str, stores))}: {len(items)} videos have phrases and {len(self.kept)} of them are "
                "held out (data.held_out); training needs two"
            )
        shards: dict[tuple[int, int], int] = {}  # (store, its shard) -> a number
        self._shard_of = np.array(
            [shards.setdefault((id(store), store.entry(video).shard), len(shards)) for store, video in self.items]
        )
        some = [store.arrays(video).features for store, video in self.items[:64]]
        self.centre = torch.from_numpy(np.concatenate(some).astype(np.float32).mean(0))
        self._order: tuple[int, npt.NDArray[np.intp]] = (-1, np.empty(0, np.intp))  # of the last epoch asked for
        self._buffers = _Buffers(), _Buffers()  # of frames and of phrases
        self.threads = threads or min(8, os.cpu_count() or 1)
        self._pool = ThreadPoolExecutor(self.threads, "read-batches")
        self._ready: dict[tuple[int, int, int | None, int | None], tuple[Batch, list[Future[None]]]] = {}

    def batch(self, step: int, size: int) -> Batch:
        """Batch number ``step``; starts reading the next ones."""
        return self.part(step, size, slice(None))

    def part(self, step: int, size: int, rows: slice) -> Batch:
        """Some rows of a batch, padded as the whole batch is: what one of several processes trains on."""
        wanted = [(number, size, rows.start, rows.stop) for number in range(step, step + 1 + _AHEAD)]
        for old in set(self._ready) - set(wanted):
            for work in self._ready.pop(old)[1]:
                work.cancel()
        for key in wanted:
            if key not in self._ready:
                self._ready[key] = self._begin(self._members(key[0], size), rows)
        return _finished(self._ready.pop(wanted[0]))

    def held_out_batches(self, size: int) -> Iterator[Batch]:
        """The held-out videos, in order."""
        for first in range(0, len(self.kept), size):
            yield _finished(self._begin(self.kept[first : first + size], slice(None)))

    def describe(self) -> str:
        """How many videos there are of each kind."""
        return (
            f"{len(self.items)} videos to learn from, {len(self.kept)} held out, "
            f"{self.without_phrases} without phrases left out"
        )

    def _members(self, step: int, size: int) -> list[tuple[FeatureStore, str]]:
        size = min(size, len(self.items))
        per_epoch = len(self.items) // size
        epoch, place = divmod(step, per_epoch)
        if self._order[0] != epoch:
            random = np.random.default_rng((self.seed, epoch))
            order = random.permutation(len(self.items))
            window = random.permutation(self._shard_of.max() + 1) // WINDOW  # of each shard
            self._order = epoch, order[np.argsort(window[self._shard_of[order]], kind="stable")]
        return [self.items[i] for i in self._order[1][place * size : (place + 1) * size]]

    def _begin(self, members: Sequence[tuple[FeatureStore, str]], rows: slice) -> tuple[Batch, list[Future[None]]]:
        """A batch of the right shape, and the work that fills it."""
        entries = [store.entry(video) for store, video in members]
        # NumPy's masks: torch would wake its threads for them, which then spin beside the readers
        frames = np.array([min(entry.n, self.max_frames) for entry in entries])
        said = np.array([entry.said for entry in entries])
        members, shape = members[rows], (int(frames.max()), int(said.max()))
        video_mask, phrase_mask = (
            torch.from_numpy(np.arange(most) < lengths[rows, None])
            for most, lengths in zip(shape, (frames, said), strict=True)
        )
        rooms = [buffers.room(len(members), most, self.dim) for buffers, most in zip(self._buffers, shape, strict=True)]
        (video, phrases), times = (room.batch for room in rooms), torch.zeros(phrase_mask.shape)
        batch = Batch(video, video_mask, phrases, phrase_mask, times)
        work = [
            self._pool.submit(self._fill, rooms, times.numpy(), first, members[first : first + _AT_ONCE])
            for first in range(0, len(members), _AT_ONCE)
        ]
        return batch, work

    def _fill(
        self, rooms: Sequence[_Room], times: npt.NDArray[np.float32], first: int,
        members: Sequence[tuple[FeatureStore, str]],
    ) -> None:  # fmt: skip
        """Videos of a batch from number ``first`` on: frames, phrases and when these are said."""
        for row, (store, name) in enumerate(members, first):
            entry, stored = store.entry(name), store.arrays(name)
            n, text, said = min(entry.n, self.max_frames), stored.phrases, stored.said
            if entry.said < len(said):
                wanted = said[:, 2] == 0
                text, said = text[wanted], said[wanted]
            given = shorten(stored.features, self.max_frames), text
            for room, rows in zip(rooms, given, strict=True):
                room.memory[row, : len(rows)] = rows
                room.memory[row, len(rows) : room.used[row]] = 0
                room.used[row] = len(rows)
            times[row, : entry.said] = (said[:, 0] + said[:, 1]) * (0.5 * n / max(entry.duration_s, 1e-6))


def _finished(reading: tuple[Batch, list[Future[None]]]) -> Batch:
    batch, work = reading
    for part in work:
        part.result()  # raises what the thread raised
    return batch


class _Room(NamedTuple):
    """Memory for the vectors of a batch."""

    batch: Tensor  # (B, most, D)
    memory: npt.NDArray[np.float16]  # (B, at least most, D), of which that is a part
    used: npt.NDArray[np.int64]  # (B,) rows of each video that are not zero


class _Buffers:
    """Memory for batches, used again once it is released: fresh pages cost more than the copy into them."""

    def __init__(self) -> None:
        self._kept: list[tuple[npt.NDArray[np.float16], npt.NDArray[np.int64]]] = []

    def room(self, videos: int, most: int, dim: int) -> _Room:
        """Memory for a batch (videos, most, dim)."""
        if torch.cuda.is_available():  # torch itself keeps pinned memory until copies from it are done
            pinned = torch.empty(videos, most, dim, dtype=torch.float16, pin_memory=True)
            return _Room(pinned, pinned.numpy(), np.full(videos, most))
        # a size in steps is used again as it is, with little to be made zero
        size = (-(-most // _STEP) * _STEP, dim)
        # only its pair in the list and the call itself refer to an unused array
        unused = [i for i in range(len(self._kept)) if sys.getrefcount(self._kept[i][0]) == 2]
        fitting = [i for i in unused if self._kept[i][0].shape[1:] == size and len(self._kept[i][0]) >= videos]
        if fitting:
            memory, used = self._kept[fitting[0]]
        else:
            for i in reversed(unused[:-_AHEAD]):
                del self._kept[i]
            memory, used = np.zeros((videos, *size), np.float16), np.zeros(videos, np.int64)
            self._kept.append((memory, used))
        return _Room(torch.from_numpy(memory[:videos, :most]), memory, used)
