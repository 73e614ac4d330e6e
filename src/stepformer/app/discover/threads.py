"""Small work on one thread: shared out, a minute's slots and cuts wait for threads longer than they compute."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from stepformer.core.devices import one_thread

_SMALL_FRAMES = 2_000


@contextmanager
def one_thread_if_small(frames: int) -> Iterator[None]:
    """Torch on one thread inside the block, for videos of up to half an hour or so."""
    if frames > _SMALL_FRAMES:
        yield
        return
    with one_thread():
        yield
