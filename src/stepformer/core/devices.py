"""Which device: the one asked for if it is here, else the GPU where there is one; and how many CPU threads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from stepformer.errors import MissingError, UsageError


def torch_device(name: str | torch.device | None = None) -> torch.device:
    """The device called ``name``; by default the GPU where there is one.

    Raises:
        UsageError: there is no such kind of device. MissingError: there is, but not here.
    """
    try:
        device = torch.device(name or ("cuda" if torch.cuda.is_available() else "cpu"))
    except RuntimeError:
        raise UsageError(f"no device is called {name!r}; cpu, cuda, cuda:1 or mps") from None
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise MissingError(f"device {device} cannot be used here: {str(error).splitlines()[0]}") from None
    return device


SMALL_FRAMES = 2_000
"""A video of up to so many frames is small work in the sense of :func:`one_thread`."""


@contextmanager
def one_thread(when: bool = True) -> Iterator[None]:
    """Torch works with one CPU thread inside the block, if ``when``.

    For work whose matrices are small: handing their products from thread to thread costs more than the products, and
    on a busy machine a thread that waits for another waits long.
    """
    before = torch.get_num_threads()
    if when:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
