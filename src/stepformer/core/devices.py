"""Which device: the one asked for if it is here, else the GPU where there is one; and how many CPU threads."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import torch

from stepformer.errors import MissingError, UsageError


def torch_device(name: str | torch.device | None = None) -> torch.device:
    """The device called ``name``; by default the GPU where there is one.

    Raises:
        UsageError: there is no such kind of device.
        MissingError: there is, but not here.
    """
    try:
        device = torch.device(name or ("cuda" if torch.cuda.is_available() else "cpu"))
    except RuntimeError:
        raise UsageError(f"no device is called {name!r}; use cpu, cuda, cuda:1 or mps") from None
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise MissingError(f"device {device} cannot be used here: {str(error).splitlines()[0]}") from None
    return device


_plain = False


@contextmanager
def plain_torch() -> Iterator[None]:
    """Inside the block nothing runs in Triton: what measurements compare with."""
    global _plain  # noqa: PLW0603
    _plain = True
    try:
        yield
    finally:
        _plain = False


def has_triton() -> bool:
    """Whether Triton kernels run on the GPU here: it needs a C compiler and a driver it knows."""
    return not _plain and _triton_works()


@lru_cache
def _triton_works() -> bool:
    """Tried once."""
    if not torch.cuda.is_available() or importlib.util.find_spec("triton") is None:
        return False
    try:
        from stepformer.core import loss_kernels

        loss_kernels.unit(torch.ones(1, 16, device="cuda"))
    except Exception as error:
        said = str(error).splitlines()[0] if str(error) else type(error).__name__
        warnings.warn(f"training runs in plain torch, Triton failed: {said}", RuntimeWarning, stacklevel=2)
        return False
    return True


@lru_cache
def side_stream(device: torch.device, number: int) -> torch.cuda.Stream:
    """A stream of a GPU, the same one for the same number.

    torch hands out 32 in turn: after those, a new one is one that others wait for.
    """
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


def seed_device(device: torch.device, seed: int) -> None:
    """Seeds torch's generator of one device.

    ``torch.manual_seed`` seeds those of every kind of device, and for each kind that is not there keeps the call with
    its traceback: at every step that is half a millisecond, and memory that never comes back.
    """
    if device.type == "cpu":
        torch.default_generator.manual_seed(seed)
    elif device.type == "cuda":
        index = torch.cuda.current_device() if device.index is None else device.index
        torch.cuda.default_generators[index].manual_seed(seed)
    else:
        torch.manual_seed(seed)


class Beside:
    """On a GPU, work inside ``with beside:`` runs at the same time as what follows, until ``join()``.

    For kernels too small to fill the GPU. What was made before is there for it; what it makes is there after the join.
    Blocks of different numbers run at the same time as each other too. Elsewhere everything runs in order.
    """

    def __init__(self, device: torch.device, number: int = 0) -> None:
        self._device, self._number = device if device.type == "cuda" else None, number
        self._inside: Any = None
        self._begun = False

    def __enter__(self) -> None:
        if self._device is not None:
            side = side_stream(self._device, self._number)
            side.wait_stream(torch.cuda.current_stream(self._device))
            self._inside, self._begun = torch.cuda.stream(side), True
            self._inside.__enter__()

    def __exit__(self, *_: object) -> None:
        if self._inside is not None:
            self._inside.__exit__(None, None, None)
            self._inside = None

    def join(self) -> None:
        """What follows waits for the work inside, on the device."""
        if self._device is not None and self._begun:
            torch.cuda.current_stream(self._device).wait_stream(side_stream(self._device, self._number))
            self._begun = False


SMALL_FRAMES = 2_000
"""A video of up to this many frames is small work in the sense of :func:`one_thread`."""


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
