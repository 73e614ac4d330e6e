"""Steps spoiled as captions spoil them, and names that were read by hand."""

from __future__ import annotations

import numpy as np

from benchmarks.sense import _PARTICLES, _PLACES, Spoiler, as_said, read_names, recipes

SAID = ["bolt", "chopper", "onions", "battery", "sold", "today", "guys", "really", "garlic", "parsing"]


def test_a_spoiled_step_is_no_step_and_is_said_in_words_that_are_there() -> None:
    steps = recipes()[::25]
    words = {word for text in (*steps, *SAID) for word in text.replace(",", "").split()}
    words |= {"the", "it", "a", "to", "in", "some", *_PLACES, *_PARTICLES, "of", "and"}
    spoil = Spoiler(steps, SAID)
    made = [spoil(text) for text in steps for _ in range(20)]
    spoiled = [text for text in made if text is not None]
    assert len(spoiled) > len(made) / 2 and not set(spoiled) & set(steps)
    assert {word for text in spoiled for word in text.replace(",", "").split()} <= words
    again = Spoiler(steps, SAID)
    assert [again(text) for text in steps for _ in range(20)] == made  # the same seed, the same steps


def test_what_is_misheard_sounds_alike() -> None:
    spoil = Spoiler(["peel the garlic", "season with salt", "melt the butter"], SAID)
    assert spoil._alike("salt")[0] == "sold" and spoil._alike("butter")[0] == "battery"


def test_written_steps_are_said_with_particles_amounts_and_pronouns() -> None:
    random = np.random.default_rng(0)
    said = {as_said(text, random) for text in ("chop the onions", "add salt", "cook it gently") for _ in range(200)}
    assert {"chop up the onions", "add salt", "cook this gently", "add two cups of salt"} <= said
    assert not any(text.split()[1] in ("one", "two", "three") and text.startswith(("chop", "cook")) for text in said)


def test_names_of_the_dev_half_were_read() -> None:
    names = read_names()
    assert len(names) > 800 and 50 < sum(absurd for _, absurd in names) < 70
    assert ("take the cook", True) in names and ("whisk the eggs", False) in names
