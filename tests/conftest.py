"""What several rooms' tests share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

try:
    from hypothesis import settings
except ImportError:  # a GPU machine with torch and NumPy alone: the tests of core/step need no more
    pass
else:
    settings.register_profile("project", deadline=None, print_blob=True)
    settings.load_profile("project")
os.environ.setdefault("OMP_NUM_THREADS", "2")


@pytest.fixture(autouse=True)
def _no_plugins_left_over(monkeypatch):
    """``main(["--plugin", ...])`` tells processes that it starts by a variable; the next test's must not hear of it."""
    monkeypatch.setenv("STEPFORMER_PLUGINS", "")


SHARED_DATA = Path(__file__).parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of public datasets that lies beside the repository on development machines."""
    if not SHARED_DATA.is_dir():
        pytest.skip("the public datasets are not here (no ../shared/data)")
    return SHARED_DATA


@pytest.fixture(scope="session")
def parser():
    """The spaCy pipeline, or a skip that says why there is none."""
    from stepformer.errors import MissingError
    from stepformer.narration.parse import load_parser

    try:
        return load_parser()
    except MissingError as error:
        pytest.skip(f"no spaCy pipeline here: {error}")


@pytest.fixture(scope="session")
def word_encoder():
    """A stand-in for the sentence encoder, for tests that build worlds of their own."""
    from stepformer.reproduce.sources import word_vectors

    return word_vectors


@pytest.fixture(scope="session")
def tiny_world(word_encoder):
    """A small simulated world from the grammar alone, in a 64-dimensional bag-of-words space; pictures are imagined."""
    from stepformer.data.world import build_world

    return build_world(word_encoder, grammar_procedures=150, encoder="words")
