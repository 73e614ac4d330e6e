"""Names from narration: the right form of what is said, for the step that it is said in."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from stepformer.app.spoken import HEARD, SHOWN_SAID, SURE_SAID, Candidates, candidates, heard
from stepformer.narration import Cue, Phrase
from stepformer.narration.cues import Word, words_around


def phrase(text, at, chatter=False, negated=False, **more):
    verb, _, thing = text.partition(" ")
    return Phrase(text, at, at + 1.0, chatter, 1.0, verb, object=thing, negated=negated, **more)


def found(scores):
    """Candidates said one second after each key."""
    return Candidates(
        tuple(name for name, _ in scores.values()),
        tuple(phrase(name, at) for at, (name, _) in scores.items()),
        np.array([score for _, score in scores.values()]),
    )


def texts(names):
    return [name and name.text for name in names]


def test_what_is_said_there_names_the_step():
    names = found({4: ("crack the eggs", 0.95), 12: ("whisk the eggs", 0.8), 90: ("pour the oil", 0.99)}).of_steps(
        [(0.0, 10.0), (10.0, 20.0), (40.0, 50.0)]
    )
    assert texts(names) == ["crack the eggs", "whisk the eggs", None]
    assert names[0].meta()["guess"] is False and names[0].said_s == 4 and names[0].score == pytest.approx(0.95)
    assert names[1].meta()["guess"] is True and SHOWN_SAID < names[1].score < SURE_SAID


def test_what_is_hardly_right_names_nothing():
    assert texts(found({4: ("crack the exes", SHOWN_SAID - 0.01)}).of_steps([(0.0, 10.0)])) == [None]


def test_a_step_may_be_spoken_of_before_it_begins_but_hardly_when_it_is_over():
    one = found({9: ("whisk the eggs", 0.99)})  # its middle is at 9.5 s
    assert texts(one.of_steps([(10.0, 20.0)])) == ["whisk the eggs"]
    assert texts(one.of_steps([(0.0, 8.4), (20.0, 30.0)])) == [None, None]
    two = found({9.75: ("whisk the eggs", 0.99), 19.75: ("pour the oil", 0.99)})
    steps = [(5.0, 10.0), (10.0, 15.0), (15.0, 20.0), (20.0, 25.0)]
    assert texts(two.of_steps(steps)) == [None, "whisk the eggs", None, "pour the oil"]


def test_steps_and_names_keep_their_order():
    names = found({12: ("whisk the eggs", 0.9), 13: ("fry the eggs", 0.9)}).of_steps([(10.0, 13.0), (13.0, 20.0)])
    assert texts(names) == ["whisk the eggs", "fry the eggs"]


def test_pictures_decide_between_what_is_said_at_once():
    two = found({2: ("stir the soup", 0.8), 3: ("slice the bread", 0.8)})
    for shares, name in (([[0.9, 0.2]], "stir the soup"), ([[0.2, 0.9]], "slice the bread"), ([[0.1, 0.1]], None)):
        assert texts(two.of_steps([(0, 10)], np.array(shares))) == [name]  # the last: pictures speak against both


def test_of_the_forms_of_a_phrase_the_right_one_is_taken():
    said = [phrase("whisk the eggs", 4.0, said_object="them"), phrase("subscribe to my channel", 6.0, chatter=True)]
    said.append(phrase("do not stir it", 8.0, negated=True))
    asked = []

    def classify(texts):
        asked.extend(texts)
        return np.array([[0, 0, 0.9, 0.1] if text.startswith("whisk them") else [0, 0.1, 0.2, 0.7] for text in texts])

    cues = [Cue(0.0, 4.0, "Two eggs."), Cue(4.0, 5.0, "Whisk them."), Cue(5.0, 9.0, "Subscribe!")]
    one = candidates(said, cues, classify)
    assert asked == [
        f"{name} [SEP] Two eggs. [SEP] Whisk them. [SEP] Subscribe!" for name in ("whisk them", "whisk the eggs")
    ]
    assert one.names == ("whisk the eggs",) and one.scores == pytest.approx([0.8])  # clear, though less likely right
    assert one.phrases == (said[0],)


def test_nothing_said():
    assert candidates([], [], lambda texts: np.zeros((len(texts), 4))) is None
    assert found({1: ("a b", 1.0)}).of_steps([]) == []


def test_the_words_around_are_those_said_before_and_behind():
    cues = [Cue(0.0, 2.0, "one two three four"), Cue(2.0, 4.0, "five six seven eight")]
    assert words_around(cues, [(2.0, 2.9)], 2, 1) == [("three four", "five six", "seven")]
    assert words_around(cues, [(0.0, 0.1), (9.0, 9.5)], 2, 1) == [("", "one", "two"), ("seven eight", "", "")]


def talk(*certainties):
    """ "Now peel the carrots and rush the potatoes", a second per word, and how certain each was."""
    texts = ["Now", "peel", "the", "carrots", "and", "rush", "the", "potatoes"]
    certain = certainties or [1.0] * len(texts)
    words = tuple(Word(float(at), at + 1.0, text, c) for at, (text, c) in enumerate(zip(texts, certain, strict=True)))
    return [Cue(0.0, 8.0, " ".join(texts), words)]


def scores_of(cues):
    said = [replace(phrase("peel the carrots", 1.0), end_s=4.0), replace(phrase("rush the potatoes", 5.0), end_s=8.0)]
    one = candidates(said, cues, lambda texts: np.tile([0.0, 0.0, 0.1, 0.9], (len(texts), 1)))
    return dict(zip(one.names, one.scores, strict=True))


def test_a_name_that_was_heard_with_little_certainty_loses_its_place():
    known = scores_of(talk(0.1, 0.99, 0.1, 0.98, 0.1, 0.2, 0.9, 0.9))
    assert known["peel the carrots"] > SURE_SAID  # small words and those around it do not count
    assert known["rush the potatoes"] < SHOWN_SAID
    carrots = [scores_of(talk(1, 1, 1, c, 1, 1, 1, 1))["peel the carrots"] for c in (0.0, 0.4, 0.5, HEARD, 1.0)]
    assert carrots == pytest.approx([0.0, 0.95 * 0.4 / HEARD, 0.95 * 0.5 / HEARD, 0.95, 0.95])


def test_without_certainties_names_are_what_they_were():
    usual = {0.5 * 0.1 + 0.9}
    assert set(scores_of(talk()).values()) == usual
    assert set(scores_of([replace(cue, words=()) for cue in talk()]).values()) == usual


def test_words_of_a_name_are_found_in_their_other_forms_and_where_a_reference_was_resolved():
    texts = ["the", "eggs", "are", "here", "so", "we", "are", "beating", "them", "the", "eggs"]
    words = [Word(float(at), at + 1.0, text, 0.1 + at / 100) for at, text in enumerate(texts)]
    said = replace(phrase("beat the eggs", 7.0), end_s=9.0)
    starts = [word.start_s for word in words]
    assert [word.start_s for word in heard("beat the eggs", said, words, starts)] == [7.0, 10.0]
    assert heard("fry it", said, words, starts) == []
