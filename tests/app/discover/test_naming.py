"""Names from narration and from a bank."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepformer.app.naming import (
    SENSE,
    SENSE_MARKED,
    SHOWN_MARKED,
    SURE_SAID,
    Name,
    PhraseBank,
    as_in_kitchen,
    candidates,
    guess,
    load_bank,
    present_texts,
    read_bank,
    says_enough,
    spoken,
    tell_apart,
    topic_of,
)
from stepformer.base.arrays import unit
from stepformer.encoders.clip import PictureStatistics, clip_pictures
from stepformer.errors import InputError, UsageError
from stepformer.narration import Phrase


def bank_of(width=16, count=30):
    rng = np.random.default_rng(0)
    return PhraseBank(tuple(f"do thing {i}" for i in range(count)), rng.standard_normal((count, width)).astype("f4"))


def test_the_nearest_phrase_is_guessed():
    bank = bank_of(width=64)
    names = guess(bank.vectors[[4, 9, 2]], bank)
    assert [name.text for name in names] == ["do thing 4", "do thing 9", "do thing 2"]
    assert all(not name.sure and name.score == pytest.approx(1.0, abs=1e-5) for name in names)
    assert names[0].meta() == {"source": "seen", "guess": True, "name_score": 1.0}


def seen_world():
    """Pictures share a direction; phrase "hub" is near to it and so to all. Three topics of three phrases."""
    rng = np.random.default_rng(1)
    places = {"cooking": np.eye(3, 24), "pets": np.eye(3, 24, 3), "garden": np.eye(3, 24, 6)}
    shared = np.eye(1, 24, 20)[0]
    pictures = unit(rng.standard_normal((4000, 24)) * 0.1 + shared)
    topic = {name: np.eye(1, 24, 10 + i)[0] for i, name in enumerate(places)}
    texts, vectors, topics = ["hub"], [shared], ["cooking"]
    for name, rows in places.items():
        for i, row in enumerate(rows):
            texts, vectors, topics = [*texts, f"{name} {i}"], [*vectors, row + topic[name]], [*topics, name]
    bank = PhraseBank(tuple(texts), unit(vectors).astype("f4"), tuple(topics), PictureStatistics.of(pictures, rank=4))
    return bank, shared


def test_a_phrase_that_is_near_everything_is_not_guessed():
    bank, shared = seen_world()
    look = unit(shared + 0.4 * bank.raw[[2, 6]])
    assert (bank.raw @ look.T).argmax(0).tolist() == [0, 0]  # the nearest by cosine is the hub
    assert [name.text for name in guess(look, bank)] == ["cooking 1", "pets 2"]
    assert not any(name.sure for name in guess(look, bank))


def test_no_name_where_nothing_fits():
    bank, shared = seen_world()
    looks = unit(shared + 0.5 * np.stack([np.eye(1, 24, 15)[0], bank.raw[3]]))  # of the first, no phrase says anything
    assert [name and name.text for name in guess(looks, bank)] == [None, "cooking 2"]


def test_the_topic_of_the_whole_video_decides_between_phrases():
    bank, shared = seen_world()
    between = unit(shared + 0.4 * (bank.raw[2] + 1.05 * bank.raw[5]))
    cooking, pets = unit(shared + bank.raw[1:4].mean(0)), unit(shared + bank.raw[4:7].mean(0))
    assert bank.texts[bank.agreement(between[None], cooking)[0].argmax()] == "cooking 1"
    assert bank.texts[bank.agreement(between[None], pets)[0].argmax()] == "pets 1"
    assert topic_of(cooking, bank) == "cooking" and topic_of(pets, bank) == "pets"
    assert topic_of(unit(shared + bank.raw[1:].mean(0)), bank) is None
    assert topic_of(cooking, bank_of()) is None  # no topics, no pictures


def test_absent_is_what_fits_no_look_better_than_pictures_at_large():
    bank, shared = seen_world()
    video = unit(shared + 0.4 * np.repeat(bank.raw[[1, 2]], 6, 0))
    present = present_texts(np.stack([bank.raw[1], bank.raw[2], -bank.raw[5]]), np.zeros((2, 24)), video, bank)
    assert present.tolist() == [True, True, False]


def test_statistics_give_mean_and_spread_of_any_text():
    pictures = unit(np.random.default_rng(0).standard_normal((3000, 12)) * np.arange(1, 13) + 2.0)
    text = unit(np.random.default_rng(1).standard_normal((5, 12)))
    statistics = PictureStatistics.of(pictures, rank=12)
    standard = statistics.standard(pictures, statistics.scaled(text))
    assert np.allclose(standard.mean(0), 0, atol=1e-3) and np.allclose(standard.std(0), 1, atol=1e-3)
    assert clip_pictures().mean.shape == (512,) and clip_pictures().rest.min() >= 0


@given(picks=st.lists(st.integers(0, 3), min_size=1, max_size=12))
def test_neighbours_never_share_a_guess(picks):
    bank = bank_of(count=4)
    names = [name.text for name in guess(bank.vectors[picks], bank)]
    assert all(a != b for a, b in itertools.pairwise(names))


@given(texts=st.lists(st.sampled_from(["stir", "pour", None]), max_size=12))
def test_no_name_three_times_in_a_row(texts):
    names = tell_apart([None if t is None else Name(t, "spoken", True, 0.5) for t in texts])
    shown = [None if n is None else n.text for n in names]
    assert all(a is None or a != b for a, b in itertools.pairwise(shown))
    assert [None if s is None else s.split(" (")[0] for s in shown] == texts


def test_a_bank_of_one_phrase_is_numbered_not_repeated():
    bank = PhraseBank(("stir",), np.ones((1, 4), np.float32))
    names = tell_apart(guess(np.ones((3, 4)), bank))
    assert [name.text for name in names] == ["stir", "stir (2)", "stir (3)"]


def phrase(text, at, chatter=False, negated=False):
    return Phrase(text, at, at + 1.0, chatter=chatter, negated=negated, groundability=1.0)


class Texts:
    """Vectors of some texts."""

    def __init__(self, **vectors):
        self.known = {text.replace("_", " "): np.asarray(x, np.float32) for text, x in vectors.items()}

    def encode_text(self, texts):
        return np.stack([self.known[text] for text in texts])


EGGS = Texts(crack_the_eggs=[1, 0.3, 0], whisk_the_eggs=[1, 0, 0.3], pour_the_oil=[0.8, 0.5, 0.5])


def test_what_is_said_there_names_the_step():
    spans = [(0.0, 10.0), (10.0, 20.0), (40.0, 50.0)]
    phrases = [
        phrase("crack the eggs", 4), phrase("subscribe to my channel", 6, chatter=True), phrase("whisk the eggs", 12),
        phrase("do not stir it", 14, negated=True), phrase("pour the oil", 90),
    ]  # fmt: skip
    names = spoken(spans, phrases, EGGS.encode_text)
    assert [None if n is None else n.text for n in names] == ["crack the eggs", "whisk the eggs", None]
    assert names[0].meta()["guess"] is False and names[0].said_s == 4 and names[0].score > SURE_SAID


def test_what_is_said_when_a_step_is_over_names_the_next():
    phrases = [phrase("whisk the eggs", 9.75), phrase("pour the oil", 19.75)]
    names = spoken([(5.0, 10.0), (10.0, 15.0), (15.0, 20.0), (20.0, 25.0)], phrases, EGGS.encode_text)
    assert [n and n.text for n in names] == [None, "whisk the eggs", None, "pour the oil"]


def test_pictures_decide_between_what_is_said_at_once():
    two = Texts(stir_the_soup=[1, 0, 1], slice_the_bread=[0, 1, 1])
    phrases = [phrase("stir the soup", 2), phrase("slice the bread", 3)]
    for shares, name in (([[0.9, 0.2]], "stir the soup"), ([[0.2, 0.9]], "slice the bread"), ([[0.1, 0.1]], None)):
        found = spoken([(0, 10)], phrases, two.encode_text, sight=lambda names, s=shares: np.array(s))
        assert [n and n.text for n in found] == [name]  # the last: the pictures speak against both


def test_a_text_is_compared_with_the_phrases_of_the_bank():
    bank, shared = seen_world()
    looks = unit(shared + 0.4 * bank.raw[[2, 6]])
    shares = bank.shares_below(bank.raw[[2, 6, 0]], looks)
    assert shares.shape == (2, 3) and shares[0].argmax() == 0 and shares[1].argmax() == 1
    assert shares[0, 0] == pytest.approx(0.9)  # all of ten but itself


def test_what_has_nothing_in_common_with_the_rest_names_nothing():
    said = [phrase("fry the onions", 2), phrase("open the window", 14), phrase("brown the onions", 26)]
    texts = Texts(fry_the_onions=[1, 0.1, 0], open_the_window=[0, 0, 1], brown_the_onions=[1, 0, 0])
    names = spoken([(0.0, 10.0), (12.0, 20.0), (24.0, 30.0)], said, texts.encode_text)
    assert [n and n.text for n in names] == ["fry the onions", None, "brown the onions"]


def test_nothing_said():
    assert spoken([(0, 1)], [], EGGS.encode_text) == [None]
    assert spoken([], [phrase("a", 0)], EGGS.encode_text) == []


KITCHEN = [
    "chop the onion", "add the garlic", "fry the chicken in the pan", "add salt and pepper", "stir the sauce",
    "boil the water", "cut the tomatoes", "serve with rice",
]  # fmt: skip


@pytest.mark.parametrize(
    ("heard", "name"),
    [
        ("toss it with the salad weather", "toss it with the salad"),
        ("add the lentils to the frying pan ticket", "add the lentils to the frying pan"),
        ("stir two spoons of curry paste dinner", "stir two spoons of curry paste"),
        ("slide it into the oven four fifty", "slide it into the oven"),
        ("peel the carrots onions celery", "peel the carrots"),
        ("peel carrots onions and celery", "peel carrots, onions and celery"),
        ("add two teaspoons mustard seeds", "add two teaspoons of mustard seeds"),
        ("soak them in water overnight black beans", "soak them in water overnight"),
        ("fold in the flour mixture", "fold in the flour mixture"),
        ("make the dough sticky", "make the dough sticky"),
        ("let the soup boil for a minute", "let the soup boil for a minute"),
        ("look at the gravy", None),
        ("select half a teaspoon of cumin", None),
        ("choose a carrot", None),
    ],
)
def test_a_recipes_name_ends_where_the_next_sentence_begins(heard, name):
    assert as_in_kitchen(heard) == name


def test_words_that_are_said_together_twice_are_one_thing():
    assert as_in_kitchen("pour the lentil tonic") == "pour the lentil"
    assert as_in_kitchen("pour the lentil tonic", {("lentil", "tonic")}) == "pour the lentil tonic"


def test_a_recipes_name_that_makes_no_sense_is_no_candidate():
    asked = []

    def sense(names):
        asked.append(names)
        return np.array([SENSE - 0.1 if name == "stir the sauce" else SENSE for name in names])

    def encode(names):
        return np.ones((len(names), 2))

    said = [phrase(text, i) for i, text in enumerate(KITCHEN)]
    kept = candidates(said, encode, sense)
    assert kept is not None and set(kept.names) == {*KITCHEN} - {"stir the sauce"} and set(KITCHEN) <= {*asked[0]}
    assert candidates(said, encode, lambda names: np.full(len(names), SENSE - 1)) is None
    workshop = [
        phrase(text, i) for i, text in enumerate(("loosen the lug nuts", "jack up the car", "remove the wheel"))
    ]
    other = candidates(workshop, encode, sense)
    assert other is not None and len(other.names) == 3 and len(asked) == 1  # it knows recipes only


def test_a_talk_with_marks_needs_less():
    def named(mark):
        said = [replace(phrase(text, i), sentence=f"now {text}{mark}") for i, text in enumerate(KITCHEN)]
        return candidates(said, lambda names: np.ones((len(names), 2)), lambda names: np.zeros(len(names)))

    assert named("") is None and SENSE > 0 > SENSE_MARKED
    marked = named(".")
    assert marked is not None and set(marked.names) == {*KITCHEN} and marked.shown == SHOWN_MARKED


def test_a_name_ends_where_it_stops_to_make_sense():
    def names(text, *senseless):
        said = [phrase(text, 9), *(phrase(one, i) for i, one in enumerate(KITCHEN))]
        found = candidates(
            said,
            lambda names: np.ones((len(names), 2)),
            lambda names: np.array([SENSE - any(word in name for word in senseless) for name in names]),
        )
        assert found is not None
        return {*found.names} - {*KITCHEN}

    assert names("whisk the eggs in the bowl") == {"whisk the eggs in the bowl"}
    assert names("whisk the eggs in the bowl", "bowl") == {"whisk the eggs"}
    assert names("whisk the eggs in the bowl", "bowl", "eggs") == set()
    assert names("fry the onions and garlic with oil", "oil") == {"fry the onions and garlic"}
    assert names("put the eggs in the bowl", "bowl") == set()  # where says what is done
    assert names("cut it in slices", "slices") == set()  # what is left says too little
    assert names("add two cups of water", "water") == set()


def test_banks_of_ones_own(tmp_path, monkeypatch):
    monkeypatch.setenv("STEPFORMER_CACHE", str(tmp_path))
    calls = []

    class Encoder:
        fingerprint = "e"

        def encode_text(self, texts):
            calls.append(len(texts))
            return np.eye(len(texts), 5, dtype=np.float32)

    (tmp_path / "bank.txt").write_text("knead the dough\n\nbake the bread\nknead the dough\n", encoding="utf-8")
    texts = read_bank(tmp_path / "bank.txt")
    first, second = load_bank(Encoder(), texts), load_bank(Encoder(), texts)
    assert first.texts == ("knead the dough", "bake the bread") and calls == [2]
    assert np.array_equal(first.vectors, second.vectors)
    with pytest.raises(UsageError, match="empty"):
        load_bank(Encoder(), ["  "])
    with pytest.raises(InputError, match="there is no file"):
        read_bank(tmp_path / "gone.txt")


def test_the_bank_that_ships_is_large():
    from stepformer.data.grammar import phrase_bank

    assert len(phrase_bank()) > 1000


def test_a_word_that_is_said_often_is_heard_rightly():
    paste = Phrase("add the gochujang", 0.0, 1.0, verb="add", object="the gochujang")
    assert not says_enough(paste, "add the gochujang")
    assert says_enough(paste, "add the gochujang", frozenset(["gochujang"]))
    assert says_enough(paste, "add the gochujang", None)  # a talk with marks is hardly misheard
    flip = Phrase("flip it over", 0.0, 1.0, verb="flip", particle="over", object="it")
    assert says_enough(flip, "flip it over", None) and not says_enough(flip, "flip it over")
    assert as_in_kitchen("divide the beef into three ounce balls") == "divide the beef into three ounce balls"


def test_what_was_misheard_or_says_nothing_names_no_step():
    def heard(text):
        return says_enough(Phrase(text, 0.0, 1.0, verb=text.split()[0]), text)

    assert all(map(heard, ["brush the top with butter", "whisk", "add two cups of flour", "cut the onions"]))
    assert not any(
        map(heard, ["make it", "pull those out", "football the stuff", "add a teaspoon", "turn carol forsan"])
    )
    assert not heard("put sauce and two minutes on the pan")  # a time is no thing
    assert all(map(heard, ["put sauce and two cups of stock in the pan", "cook the sauce for two minutes"]))
