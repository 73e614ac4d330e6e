"""Which device: the one asked for if it is here, else the GPU where there is one."""

from __future__ import annotations

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
