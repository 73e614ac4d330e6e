"""Names of whole talks: what is done here and now, and nothing of the stories, plans and warnings around it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from stepformer.app.naming import candidates
from stepformer.narration import Cue, extract_phrases
from stepformer.narration.imperative import spoken_names

_WORDS_PER_CUE, _WORD_S = 8, 0.4


def talks() -> dict[str, tuple[str, list[str]]]:
    found = {}
    for block in (Path(__file__).parent / "talks.txt").read_text("utf-8").split("\n## ")[1:]:
        title, _, rest = block.partition("\n")
        said, _, names = rest.partition("\n= ")
        found[title] = " ".join(said.split()), [name.strip() for name in " ".join(names.split()).split(";")]
    return found


TALKS = talks()


def phrases_of(said: str):
    words = said.split()
    parts = [words[i : i + _WORDS_PER_CUE] for i in range(0, len(words), _WORDS_PER_CUE)]
    cue_s = _WORDS_PER_CUE * _WORD_S
    return extract_phrases([Cue(i * cue_s, (i + 1) * cue_s, " ".join(part)) for i, part in enumerate(parts)])


@pytest.mark.parametrize("title", TALKS)
def test_only_what_is_done_here_and_now_names_a_step(title: str) -> None:
    said, wanted = TALKS[title]
    found = candidates(phrases_of(said), lambda names: np.ones((len(names), 2), np.float32))
    assert found is not None and list(found.names) == wanted


def names_of(said: str) -> list[str]:
    return [name for name in spoken_names(phrases_of(said)) if name is not None]


@pytest.mark.parametrize(
    "said",
    [
        "I once broke a rim.",
        "Later we'll add the peas.",
        "I already chopped the onions.",
        "So we've added the salt.",
        "My sister puts peas in the sauce.",
        "Some people soak the beans.",
        "A lot of people wash the rice.",
        "If you don't have stock, add water.",
        "You could also add cream.",
        "You can also roast the peppers.",
        "Could you move the camera?",
        "Never use a screwdriver to lever the tire off.",
        "Never attempt to open the valve.",
        "Instead of chopping the onions, relax.",
        "Today I'll show you how to fix a flat tire.",
        "And that's how you hang a shelf.",
        "My mom told me to scrub the stains.",
        "Next week, we'll roast a chicken.",
        "The box is now fully assembled.",
        "Turning it too far will break it, bending the keys.",
    ],
)
def test_what_is_not_done_here_and_now_names_nothing(said: str) -> None:
    assert names_of(f"{said} Pour the milk into the bowl.") == ["pour the milk into the bowl"]


def test_a_talk_that_tells_what_was_done_is_named_by_it() -> None:
    assert names_of("First I peeled the potatoes. Then I sliced the potatoes.") == [
        "peel the potatoes", "slice the potatoes",
    ]  # fmt: skip


def test_it_is_not_what_must_not_be_done() -> None:
    assert names_of("Don't paint the ceiling. Let it dry.") == ["let it dry"]
    assert names_of("Wipe off the soap. Dab it with a towel.")[-1] == "dab it with a towel"
    assert names_of("Take the dough and roll it into a ball.")[-1] == "roll the dough into a ball"
