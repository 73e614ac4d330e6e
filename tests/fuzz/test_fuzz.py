"""Mutated files of every kind give a result or a documented error: some cases here, a million by ``make soak``."""

from __future__ import annotations

import contextlib
import re
import sys
import time
from pathlib import Path

import pytest

from stepformer.errors import StepFormerError

sys.path.insert(0, str(Path(__file__).parent))
from mutate import RUNS, variant
from readers import TIME_S, readers

CASES = 40


@pytest.fixture(scope="module")
def all_readers(tmp_path_factory):
    return readers(tmp_path_factory.mktemp("seeds"))


def test_seeds_are_read(all_readers, tmp_path):
    for number, reader in enumerate(all_readers):
        assert reader.try_on(reader.seed, tmp_path / str(number)) == "ok", reader.name


def test_time_is_in_proportion_to_the_text(all_readers, tmp_path):
    """A run of 100,000 characters behind a time, a quote, a tag: patterns that go back and forth need minutes."""
    faults = []
    for number, reader in enumerate(all_readers):
        if not reader.name.startswith(("subtitles", "timeline", "index page")) or reader.slow:
            continue
        places = [found.end() for found in re.finditer(rb"\d(?=\D)|>|^.", reader.seed)]
        for i, run in enumerate(RUNS):
            at = places[i % len(places)]
            began = time.process_time()
            with contextlib.suppress(StepFormerError):
                reader.try_on(reader.seed[:at] + run * (100_000 // len(run)) + reader.seed[at:], tmp_path / str(number))
            if time.process_time() - began > TIME_S:
                faults.append(f"{reader.name}: {run!r} at {at}: {time.process_time() - began:.1f} s")
    assert not faults, "\n".join(faults)


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
