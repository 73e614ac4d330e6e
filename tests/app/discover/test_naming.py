"""Names from a bank."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepformer.app.naming import (
    PRESENT_SEEN,
    Name,
    PhraseBank,
    best_fit,
    guess,
    load_bank,
    read_bank,
    tell_apart,
    topic_of,
)
from stepformer.base.arrays import unit
from stepformer.encoders.clip import PictureStatistics, clip_pictures
from stepformer.errors import InputError, UsageError


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
    present = best_fit(np.stack([bank.raw[1], bank.raw[2], -bank.raw[5]]), video, bank.pictures) >= PRESENT_SEEN
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


def test_a_text_is_compared_with_the_phrases_of_the_bank():
    bank, shared = seen_world()
    looks = unit(shared + 0.4 * bank.raw[[2, 6]])
    shares = bank.shares_below(bank.raw[[2, 6, 0]], looks)
    assert shares.shape == (2, 3) and shares[0].argmax() == 0 and shares[1].argmax() == 1
    assert shares[0, 0] == pytest.approx(0.9)  # all of ten but itself


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
