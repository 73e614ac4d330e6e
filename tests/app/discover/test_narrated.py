"""What is said takes part in finding and naming: spoken steps get the narrator's words, and are not dropped."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from discover_parts import WIDTH, planted, tiny_model

from stepformer.app.discover import stepformer as module
from stepformer.app.discover.heard import Heard
from stepformer.app.discover.options import DiscoverOptions
from stepformer.app.naming import Name
from stepformer.core.inference import find_steps
from stepformer.core.options import DEFAULT_INFERENCE
from stepformer.encoders.clip import PictureStatistics
from stepformer.encoders.reading import Features
from stepformer.errors import MissingError
from stepformer.narration import Cue, Narration, Phrase


@pytest.fixture
def said(monkeypatch):
    """Narration without the parser: every cue is a phrase."""

    def phrases(self, options=None):
        return [
            Phrase(
                cue.text,
                cue.start_s,
                cue.end_s,
                "subscribe" in cue.text,
                1.0,
                cue.text.split()[0],
                object=cue.text.partition(" ")[2],
            )
            for cue in self.cues
        ]

    monkeypatch.setattr(Narration, "phrases", phrases)

    def make(*lines):
        return Narration(tuple(Cue(start, start + 2.0, text) for start, text in lines), "beside", "talk.srt")

    return make


@pytest.fixture
def alike(monkeypatch):
    """A classifier to which all names are good but those with a spoon."""

    def classify(texts):
        return np.array([[0.9, 0, 0, 0.1] if "spoon" in text.split(" [SEP] ")[0] else [0, 0, 0, 1.0] for text in texts])

    monkeypatch.setattr("stepformer.encoders.name_classifier.default_name_classifier", lambda: classify)


def test_spoken_steps_are_named_by_the_narrator(said, alike):
    model = tiny_model()
    vectors, _, edges = planted(noise=0.25)
    texts = [f"{verb} the eggs" for verb in ("crack", "whisk", "pour", "fry", "serve")]
    lines = [(edge + 2.0, text) for edge, text in zip(edges, texts, strict=False)]
    found = model.find(Features(vectors), narration=said(*lines)).timeline
    assert [step.label for step in found] == texts
    assert all(step.meta["source"] == "spoken" and not step.meta["guess"] for step in found)
    assert found.meta["narration"] == {"source": "beside", "where": "talk.srt"}


def test_a_name_that_is_hardly_right_is_not_shown(said, alike):
    model = tiny_model()
    vectors, _, edges = planted(noise=0.25)
    texts = ["crack the eggs", "whisk the eggs", "pour the spoon into onions", "fry the eggs", "serve the eggs"]
    lines = [(edge + 2.0, text) for edge, text in zip(edges, texts, strict=False)]
    found = model.find(Features(vectors), narration=said(*lines)).timeline
    assert {step.label for step in found if step.meta.get("source") == "spoken"} == {*texts} - {texts[2]}


def test_what_is_said_keeps_steps_that_would_be_background(said, monkeypatch):
    """A stretch that the frames alone take for background is a step where the narration speaks of one."""
    model = tiny_model()
    vectors, _, edges = planted(noise=0.25)
    asked = []
    engine = module.find_steps
    monkeypatch.setattr(module, "find_steps", lambda *a, **k: (asked.append(k["evidence"]), engine(*a, **k))[1])
    model.find(Features(vectors), narration=said((edges[1] + 2.0, "whisk the eggs"), (edges[3], "subscribe now")))
    (given,) = asked
    assert given.shape == (1, len(vectors)) and float(given[0, edges[1] + 4]) > 0 > float(given[0, edges[3] + 4])
    model.find(Features(vectors))
    model.find(Features(vectors), DiscoverOptions(use="structure"), narration=said((5.0, "whisk the eggs")))
    assert asked[1:] == [None, None]


def test_a_typed_step_is_found_where_it_is_said(said):
    model = tiny_model()
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((80, 64)).astype(np.float32)  # pictures that say nothing
    lines = [(10.0, "crack the eggs"), (40.0, "whisk the milk"), (65.0, "fry the onions")]
    found = model.place(Features(vectors), ["whisk the milk"], narration=said(*lines), all_present=True).timeline
    (step,) = found.steps
    assert step.start_s <= 45.0 and step.end_s >= 40.0 and step.meta["source"] == "typed"


def test_without_the_classifier_nothing_that_is_said_is_a_name(said, monkeypatch):
    def missing():
        raise MissingError("no weights here")

    monkeypatch.setattr("stepformer.encoders.name_classifier.default_name_classifier", missing)
    found = tiny_model().find(Features(planted()[0]), narration=said((5.0, "crack the eggs"))).timeline
    assert "the narration names no steps: no weights here" in found.meta["notes"]


def test_words_that_cannot_be_parsed_are_a_note(monkeypatch):
    def missing(self, options=None):
        raise MissingError("no parser here")

    monkeypatch.setattr(Narration, "phrases", missing)
    model, features = tiny_model(), Features(planted()[0])
    found = model.find(features, narration=Narration((Cue(0, 1, "x"),), "speech", "speech"), labels="none")
    assert any("no parser here" in note for note in found.timeline.meta["notes"])
    with pytest.raises(MissingError):
        model.find(features, narration=Narration((Cue(0, 1, "x"),), "file", "given.srt"))


def test_a_typed_step_is_placed_where_the_narrator_speaks_of_it(said):
    """Texts are compared with whole sentences, by meaning where the encoder has one apart from looks."""
    model = tiny_model()
    meanings = {"open": [1.0, 0.0], "close": [0.0, 1.0], "talk": [0.7, 0.7]}
    model.encoder.encode_sentences = lambda texts: np.array([meanings[text.split()[0]] for text in texts])
    grey = Features(np.tile(planted()[0].mean(0), (60, 1)))  # nothing to see
    narration = said((2.0, "talk a bit"), (8.0, "open it"), (20.0, "close it"), (40.0, "talk on"), (50.0, "talk more"))
    found = model.place(grey, ["open the box", "close the box"], all_present=True, narration=narration).timeline
    first, second = found
    assert first.start_s <= 11.0 < first.end_s <= 23.0 < second.end_s
    silent = model.place(grey, ["open the box", "close the box"], all_present=True).timeline
    assert [step.start_s for step in silent] == [0.0, 30.0]


def test_a_silent_video_is_named_by_sight_only_from_a_bank_of_ones_own(monkeypatch):
    model, features = tiny_model(), Features(planted()[0])
    monkeypatch.setattr(module, "guess", lambda steps, bank, video: [Name("stir", "seen", False, 1.0)] * len(steps))
    assert all(step.label for step in model.find(features).timeline)  # nothing is known of pictures in this space
    monkeypatch.setattr(type(model.encoder), "pictures", PictureStatistics.of(features.vectors), raising=False)
    model._banks.clear()
    assert not any(step.label for step in model.find(features).timeline)
    assert all(step.label for step in model.find(features, bank=["stir"]).timeline)


def test_a_change_of_topic_cuts_where_the_picture_tells_nothing():
    """A fixed camera: noise alone. What is talked about changes halfway."""
    rng = np.random.default_rng(0)
    seen = Features(rng.standard_normal((120, WIDTH)).astype(np.float32))
    phrases = [Phrase("x", 5.0 * i, 5.0 * i + 2, groundability=1.0, verb="x") for i in range(24)]
    first, second = np.eye(WIDTH, dtype=np.float32)[:2]
    vectors = np.stack([first if p.start_s < 57 else second for p in phrases])
    structure = Heard((), phrases, vectors).structure(seen)
    mask = torch.ones(1, 120, dtype=torch.bool)
    output = tiny_model().run(seen.vectors)
    config = replace(DEFAULT_INFERENCE, step_weight=0.0)
    cut = find_steps(output, mask, config, structure=structure, steps=2).segments[0][0].last
    assert abs(cut - 60) <= 3
    # without it the noise decides
    alone = find_steps(output, mask, config, structure=torch.from_numpy(seen.vectors)[None], steps=2).segments[0][0]
    assert abs(alone.last - 60) > 3


def test_two_spoken_steps_are_two_though_the_picture_hardly_changes(said, alike):
    vectors, _, _ = planted(lengths=(20, 24, 20), noise=0.25)
    vectors[30:44] += 0.15 * vectors[50]  # within the second step there is a slight change
    lines = [(4.0, "crack the eggs"), (23.0, "whisk the eggs"), (33.0, "salt the eggs"), (48.0, "fry the eggs")]
    found = tiny_model().find(Features(vectors), narration=said(*lines)).timeline
    assert [step.label for step in found] == [text for _, text in lines]
    assert [step.start_s for step in found] == pytest.approx([0, 20, 30, 44], abs=1)
    # where one thing is spoken of, nothing is cut
    found = tiny_model().find(Features(vectors), narration=said(*lines[:2], lines[3])).timeline
    assert [step.start_s for step in found] == [0, 20, 44]


def test_a_step_is_cut_between_what_is_spoken_of_though_it_changes_more_elsewhere(said, alike):
    vectors, _, _ = planted(lengths=(20, 24, 20), noise=0.25)
    vectors[23:44] += 0.2 * vectors[10]  # before anything is said
    vectors[36:44] += 0.1 * vectors[50]
    lines = [(4.0, "crack the eggs"), (28.0, "whisk the eggs"), (38.0, "salt the eggs"), (48.0, "fry the eggs")]
    found = tiny_model().find(Features(vectors), narration=said(*lines)).timeline
    assert [step.label for step in found] == [text for _, text in lines]
    assert found.steps[2].start_s == pytest.approx(36, abs=3)


def test_what_is_said_during_a_step_names_no_later_one(said, alike):
    vectors, _, _ = planted(lengths=(20, 24, 20, 20), noise=0.25)
    vectors[30:44] += 0.15 * vectors[50]
    lines = [(4.0, "crack the eggs"), (23.0, "whisk the eggs"), (40.0, "salt the eggs"), (66.0, "fry the eggs")]
    found = tiny_model().find(Features(vectors), narration=said(*lines)).timeline
    assert [step.label for step in found] == [*(text for _, text in lines[:3]), None, "fry the eggs"]
    assert [step.start_s for step in found] == pytest.approx([0, 20, 30, 44, 64], abs=1)
