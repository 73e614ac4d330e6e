"""One torch thread for work whose matrices are too small to share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def one_thread() -> Iterator[None]:
    """Torch works with one CPU thread inside the block.

    The networks of the baselines are small: handing their products from thread to thread costs more than the products,
    and on a busy machine a thread that waits for another waits long.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
