"""Names of whole talks: what is done here and now, and little of the stories, plans and warnings around it."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepformer.app.spoken import SHOWN_SAID, candidates
from stepformer.base import weights
from stepformer.encoders.name_classifier import default_name_classifier
from stepformer.narration import Cue, extract_phrases

_WORDS_PER_CUE, _WORD_S = 8, 0.4
RIGHT_OF_SHOWN, NAMED_OF_STEPS, NAMED_BEHIND_TALK = 0.8, 0.5, 0.6  # at least
NAMED_OF_TALK = 0.2  # at most

# each alone names nothing
NOT_DONE = [
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
]


def talks() -> dict[str, tuple[str, list[str]]]:
    found = {}
    for block in (Path(__file__).parent / "talks.txt").read_text("utf-8").split("\n## ")[1:]:
        title, _, rest = block.partition("\n")
        said, _, names = rest.partition("\n= ")
        found[title] = " ".join(said.split()), [name.strip() for name in " ".join(names.split()).split(";")]
    return found


def cues_of(said: str) -> list[Cue]:
    words = said.split()
    parts = [words[i : i + _WORDS_PER_CUE] for i in range(0, len(words), _WORDS_PER_CUE)]
    cue_s = _WORDS_PER_CUE * _WORD_S
    return [Cue(i * cue_s, (i + 1) * cue_s, " ".join(part)) for i, part in enumerate(parts)]


def names_of(said: str) -> list[str]:
    cues = cues_of(said)
    found = candidates(extract_phrases(cues), cues, default_name_classifier())
    if found is None:
        return []
    return [name for name, score in zip(found.names, found.scores, strict=True) if score >= SHOWN_SAID]


def same(name: str, other: str) -> bool:
    """The same act in other words: the same verb, and another word that says what of it."""
    (verb, *rest), (second, *others) = name.split(), other.split()
    return verb == second and (not rest or not others or bool(set(rest) & set(others) - {"the", "a", "in", "on", "of"}))


@pytest.fixture(autouse=True)
def classifier():
    if weights.find("minilm") is None:
        pytest.skip("weights are not here: stepformer models pull minilm")


def test_most_of_what_is_done_here_and_now_is_named_and_little_else() -> None:
    shown = right = steps = named = 0
    for said, wanted in talks().values():
        names = names_of(said)
        shown, right = shown + len(names), right + sum(any(same(name, w) for w in wanted) for name in names)
        steps, named = steps + len(wanted), named + sum(any(same(name, w) for name in names) for w in wanted)
    assert right / shown > RIGHT_OF_SHOWN and named / steps > NAMED_OF_STEPS, (right / shown, named / steps)


def test_what_is_not_done_here_and_now_names_little() -> None:
    found = {said: names_of(f"{said} Pour the milk into the bowl.") for said in NOT_DONE}
    right = [said for said, names in found.items() if "pour the milk into the bowl" in names]
    assert len(right) >= NAMED_BEHIND_TALK * len(found), set(found) - set(right)
    wrong = {said: names for said, names in found.items() if len(names) > 1}
    assert len(wrong) <= NAMED_OF_TALK * len(found), wrong
