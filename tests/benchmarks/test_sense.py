"""Steps spoiled as captions spoil them, and names that were read by hand."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np

from benchmarks.sense import _PARTICLES, _PLACES, Spoiler, as_said, labelled, marked, read_names, recipes

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


def test_written_steps_are_said_with_particles_amounts_times_and_pronouns() -> None:
    random = np.random.default_rng(0)
    said = {as_said(text, random) for text in ("chop the onions", "add salt", "cook it gently") for _ in range(2000)}
    assert {"chop up the onions", "add salt", "cook this gently", "add two cups of salt"} <= said
    assert "cook for ten minutes" in said
    assert not any(text.split()[1] in ("one", "two", "three") and text.startswith(("chop", "cook")) for text in said)


def test_sentences_that_hold_several_acts_are_taken_apart(tmp_path: Path) -> None:
    said = {"a": {"asr": [{"start": 0, "text": "hi"}], "segments": [[0, 1, "boil it"]]}}
    (tmp_path / "youcook2_asr_steps.json.gz").write_bytes(gzip.compress(json.dumps(said).encode()))
    text = "Melt butter in a pan add 2 cups of flour and mix it with salt and butter the dish"
    videos = {"v_a": {"sentences": ["boil it"]}, "v_b": {"sentences": [text, "some salt"]}}
    (tmp_path / "yc2_train.json").write_text(json.dumps(videos), "utf-8")
    assert marked(tmp_path) == ["add two cups of flour", "butter the dish", "melt butter in a pan", "mix it with salt"]


def test_what_is_done_in_kitchens_becomes_imperatives(tmp_path: Path) -> None:
    steps = [[0, 9, "Kneads the dough.", "essential", [[0, 1, "mash the 2 eggs"], [1, 2, "walks out"]]]]
    videos = [
        {"category": "COOKING:BREAD", "steps": steps},
        {"category": "CRAFT", "steps": [[0, 1, "add glue", "", []]]},
    ]
    (tmp_path / "g.json.gz").write_bytes(gzip.compress(json.dumps(videos).encode()))
    assert labelled(tmp_path / "g.json.gz", {"knead", "mash", "add"}) == ["knead the dough", "mash the two eggs"]


def test_names_of_the_dev_half_were_read() -> None:
    names = read_names()
    assert len(names) > 800 and 50 < sum(absurd for _, absurd in names) < 70
    assert ("take the cook", True) in names and ("whisk the eggs", False) in names
