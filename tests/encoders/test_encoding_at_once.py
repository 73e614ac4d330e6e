"""Batches of one video that are encoded at the same time: in order, each by one thread, errors included."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
import torch

from stepformer.encoders.base import Encoded
from stepformer.encoders.reading import _encoded
from stepformer.errors import InputError


def batches(number):
    return iter([np.full((2, 1), i, np.float32) for i in range(number)])


@pytest.mark.parametrize("at_once", [1, 2, 3])
def test_batches_come_in_order(at_once):
    running, most, threads, lock = 0, 0, set(), threading.Lock()

    def encode(clips):
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
            threads.add(torch.get_num_threads())
        time.sleep(0.02 if clips[0, 0] % 2 else 0.06)  # later ones are done before earlier ones
        with lock:
            running -= 1
        return Encoded(clips, None)

    before, spent = torch.get_num_threads(), {"encode": 0.0}
    found = [part.vectors[0, 0] for part in _encoded(batches(7), encode, spent, at_once)]
    assert found == list(range(7))
    assert most == at_once
    assert spent["encode"] > 0
    assert torch.get_num_threads() == before
    assert at_once == 1 or threads == {1}


@pytest.mark.parametrize("at_once", [1, 2])
def test_what_was_encoded_before_an_error_is_there(at_once):
    def encode(clips):
        if clips[0, 0] == 3:
            raise InputError("broken")
        return Encoded(clips, None)

    found = []
    with pytest.raises(InputError, match="broken"):
        for part in _encoded(batches(6), encode, {"encode": 0.0}, at_once):
            found.append(part.vectors[0, 0])
    assert found == [0, 1, 2]
