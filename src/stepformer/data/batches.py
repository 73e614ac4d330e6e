"""Batches of real videos from feature stores, for the same loop that trains on the simulator."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from queue import Queue
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from stepformer.data.store import FeatureStore, open_stores
from stepformer.errors import InputError


class StoreBatch(NamedTuple):
    """One padded batch, as training reads it."""

    video: Tensor  # (B, N, D)
    video_mask: Tensor  # (B, N)
    phrases: Tensor  # (B, L, D)
    phrase_mask: Tensor  # (B, L)
    phrase_times: Tensor  # (B, L) the middle of each phrase, in frames


def shorten(features: np.ndarray[Any, Any], most: int) -> np.ndarray[Any, Any]:
    """(N, D) averaged down to at most ``most`` rows of equal duration."""
    n = len(features)
    if n <= most:
        return features
    # in whole numbers, halves up: where floats round a half is not the same everywhere
    edges = (2 * n * np.arange(most + 1) + most) // (2 * most)
    return np.add.reduceat(features.astype(np.float32), edges[:-1], axis=0) / np.diff(edges)[:, None]


class StoreBatches:
    """Shuffled epochs over one or several stores; the next batch is read while this one trains.

    Videos without phrases are left out (there is nothing to learn from). ``held_out`` of the videos, chosen by name,
    are kept for the validation loss.
    """

    def __init__(self, stores: Sequence[str | Path], max_frames: int, held_out: float, seed: int) -> None:
        self.max_frames, self.seed, self.origin = max_frames, seed, [str(store) for store in stores]
        items: list[tuple[FeatureStore, str]] = []
        opened = open_stores(stores)
        self.dim, self.encoder = opened[0].dim, opened[0].info.encoder
        for store in opened:
            items += [(store, video) for video in store.ids if store.line(video).get("phrases")]
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
        some = [store.read(video).features for store, video in self.items[:64]]
        self.centre = torch.from_numpy(np.concatenate(some).astype(np.float32).mean(0))
        self._ready: dict[int, Queue[StoreBatch | BaseException]] = {}

    def batch(self, step: int, size: int) -> StoreBatch:
        """Batch number ``step``; starts reading the next one."""
        self._start(step, size)
        self._start(step + 1, size)
        result = self._ready.pop(step).get()
        for old in [number for number in self._ready if number < step]:
            del self._ready[old]
        if isinstance(result, BaseException):
            raise result
        return result

    def held_out_batches(self, size: int) -> Iterator[StoreBatch]:
        """The held-out videos, in order."""
        for first in range(0, len(self.kept), size):
            yield self._collate(self.kept[first : first + size])

    def describe(self) -> str:
        """How many videos there are of each kind."""
        return (
            f"{len(self.items)} videos to learn from, {len(self.kept)} held out, "
            f"{self.without_phrases} without phrases left out"
        )

    def _start(self, step: int, size: int) -> None:
        if step in self._ready:
            return
        queue: Queue[StoreBatch | BaseException] = Queue(1)
        self._ready[step] = queue

        def work() -> None:
            try:
                queue.put(self._collate(self._members(step, size)))
            except BaseException as error:  # handed to the loop, which raises it
                queue.put(error)

        # not a daemon: one that is still reading when the interpreter ends would bring it down
        threading.Thread(target=work).start()

    def _members(self, step: int, size: int) -> list[tuple[FeatureStore, str]]:
        size = min(size, len(self.items))
        per_epoch = len(self.items) // size
        epoch, place = divmod(step, per_epoch)
        order = np.random.default_rng((self.seed, epoch)).permutation(len(self.items))
        return [self.items[i] for i in order[place * size : (place + 1) * size]]

    def _collate(self, members: Sequence[tuple[FeatureStore, str]]) -> StoreBatch:
        videos, phrases, times = [], [], []
        for store, name in members:
            stored = store.read(name)
            videos.append(torch.from_numpy(np.asarray(shorten(stored.features, self.max_frames), np.float32)))
            if stored.phrase_vectors is None:
                raise InputError(f"{store.path}: video {name} has phrases without vectors; prepare the store again")
            wanted = [i for i, phrase in enumerate(stored.phrases) if not phrase.chatter]
            wanted = wanted or list(range(len(stored.phrases)))
            phrases.append(torch.from_numpy(np.asarray(stored.phrase_vectors[wanted], np.float32)))
            middles = [0.5 * (stored.phrases[i].start_s + stored.phrases[i].end_s) for i in wanted]
            times.append(torch.tensor(middles) * len(videos[-1]) / max(stored.duration_s, 1e-6))
        return StoreBatch(*_padded(videos), *_padded(phrases), _padded(times)[0])


def _padded(rows: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    values = torch.nn.utils.rnn.pad_sequence(list(rows), batch_first=True)
    lengths = torch.tensor([len(row) for row in rows])
    return values, torch.arange(values.shape[1]) < lengths[:, None]
