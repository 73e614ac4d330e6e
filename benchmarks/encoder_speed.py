"""How fast an encoder turns pictures into vectors, and where its time goes: the encoder half of ``bench encode``."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from stepformer.errors import UsageError


@dataclass(frozen=True, slots=True)
class EncoderSpeed:
    """Times for one second of video: ``wall_s`` with all threads, ``cpu_s`` summed over them.

    Wall time is the best of the repeats and means little on a busy machine; processor time means more there.
    ``parts`` is the wall time inside each network the encoder is made of.
    """

    name: str
    threads: int
    wall_s: float
    cpu_s: float
    parts: dict[str, float]
    texts_a_second: float

    @property
    def times_real_time(self) -> float:
        """Seconds of video encoded in one second."""
        return 1.0 / self.wall_s if self.wall_s > 0 else float("inf")


@contextmanager
def _clocked(encoder: Any, spent: dict[str, float]) -> Iterator[None]:
    """Adds up the time spent in every callable network that the encoder holds as an attribute."""
    import torch

    def wrap(name: str, network: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter()
            try:
                return network(*args, **kwargs)
            finally:
                spent[name] = spent.get(name, 0.0) + time.perf_counter() - start

        return run

    held = {
        name: value
        for name, value in vars(encoder).items()
        if isinstance(value, torch.nn.Module) or (callable(value) and not isinstance(value, type))
    }
    restored = {}
    for name, value in held.items():
        label = name.strip("_")
        if isinstance(value, torch.nn.Module):
            restored[value] = value.forward
            value.forward = wrap(label, value.forward)
        else:
            setattr(encoder, name, wrap(label, value))
    try:
        yield
    finally:
        for name, value in held.items():
            if isinstance(value, torch.nn.Module):
                value.forward = restored[value]
            else:
                setattr(encoder, name, value)


def encoder_speed(encoder: Any, *, threads: int = 2, seconds: int = 4, repeats: int = 3) -> EncoderSpeed:
    """Times ``encoder`` on random pictures (its speed does not depend on what they show), ``seconds`` at a time."""
    import torch

    if min(threads, seconds, repeats) < 1:
        raise UsageError("threads, seconds and repeats must be at least 1")
    if getattr(encoder, "wants", None) is None:
        raise UsageError(f"encoder {encoder.name} reads its vectors from files; there is nothing to time")
    count = max(1, round(seconds * encoder.rate_hz))
    height, width = encoder.wants.size
    shape = (count, height, width, 3) if encoder.wants.frames == 1 else (count, encoder.wants.frames, height, width, 3)
    frames = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        encoder.encode_video(frames[:1])  # the first call lays out weights and chooses kernels
        best_wall, best_cpu, parts = float("inf"), float("inf"), {}
        for _ in range(repeats):
            spent: dict[str, float] = {}
            wall, cpu = time.perf_counter(), time.process_time()
            with _clocked(encoder, spent):
                encoder.encode_video(frames)
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            best_cpu = min(best_cpu, cpu)
            if wall < best_wall:
                best_wall, parts = wall, spent
        texts = [f"pour the batter into pan number {i}" for i in range(64)]
        start = time.perf_counter()
        encoder.encode_text(texts)
        text_s = time.perf_counter() - start
    finally:
        torch.set_num_threads(before)
    video_s = count / encoder.rate_hz
    return EncoderSpeed(
        encoder.name,
        threads,
        best_wall / video_s,
        best_cpu / video_s,
        {name: value / video_s for name, value in parts.items()},
        len(texts) / text_s,
    )
