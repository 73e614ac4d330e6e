"""What the narration tests share."""

from __future__ import annotations

from pathlib import Path

import pytest

SHARED = Path(__file__).parents[2].parent / "shared" / "data"


@pytest.fixture(scope="session")
def shared() -> Path:
    if not SHARED.is_dir():
        pytest.skip(f"the shared data folder is not beside the repository ({SHARED.name})")
    return SHARED


@pytest.fixture
def say(parser):
    """Text -> the phrases in it that are no chatter, as texts."""
    from stepformer.narration import Cue, PhraseOptions, extract_phrases

    def said(text: str, chatter: bool = False, **options: object) -> list[str]:
        cue = Cue(0.0, 0.4 * max(1, len(text.split())), text)
        return [p.text for p in extract_phrases([cue], PhraseOptions(**options)) if p.chatter == chatter]

    return said
