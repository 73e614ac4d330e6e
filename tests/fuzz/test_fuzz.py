"""Mutated files of every kind give a result or a documented error: some cases here, a million by ``make soak``."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from mutate import variant
from readers import TIME_S, readers

CASES = 40


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
        cuts = range(0, min(len(reader.seed), 2000), 1 + min(len(reader.seed), 2000) // 10)
        for case in (*cuts, *range(2000, 2000 + CASES)):
            data = variant(reader.seed, reader.name, case)
            began = time.process_time()
            try:
                reader.try_on(data, folder)
            except Exception as error:
                faults.append(f"{reader.name} case {case}: {type(error).__name__}: {error}")
            if time.process_time() - began > TIME_S:
                faults.append(f"{reader.name} case {case}: {time.process_time() - began:.1f} s")
    assert not faults, "\n".join(faults)
