"""Mutated files of every kind give a result or a documented error: some cases here, a million by ``make soak``."""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from mutate import mutated
from readers import TIME_S, readers

CASES = 60


@pytest.fixture(scope="module")
def all_readers(tmp_path_factory):
    return readers(tmp_path_factory.mktemp("seeds"))


def test_seeds_are_read(all_readers, tmp_path):
    for number, reader in enumerate(all_readers):
        assert reader.try_on(reader.seed, tmp_path / str(number)) == "ok", reader.name


def test_mutations_are_read_or_refused(all_readers, tmp_path):
    faults = []
    for number, reader in enumerate(all_readers):
        folder = tmp_path / str(number)
        for case in range(CASES):
            chance = random.Random(f"{reader.name} {case}")
            data = mutated(reader.seed, chance)
            began = time.process_time()
            try:
                reader.try_on(data, folder)
            except Exception as error:
                faults.append(f"{reader.name} case {case}: {type(error).__name__}: {error}")
            if time.process_time() - began > TIME_S:
                faults.append(f"{reader.name} case {case}: {time.process_time() - began:.1f} s")
    assert not faults, "\n".join(faults)
