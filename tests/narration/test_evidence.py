"""What is said as evidence for steps: near it more, chatter less, and little where it does not fit the pictures."""

from __future__ import annotations

import numpy as np
import pytest

from stepformer.narration import Phrase
from stepformer.narration.evidence import OPTIONS, agreement, frame_evidence, text_evidence

RATE = 1.0


def said(start_s: float, text: str = "chop the onion", **how) -> Phrase:
    return Phrase(text, start_s, start_s + 2.0, **{"groundability": 1.0, "verb": "chop", **how})


def test_a_phrase_speaks_for_a_step_a_little_later() -> None:
    found = frame_evidence([said(30.0)], 60, RATE)
    assert found.shape == (60,) and found.min() >= 0.0
    assert abs(int(found.argmax()) - round(31.0 + OPTIONS.later_s)) <= 1
    assert found[37] > found[42] > found[55] and found[0] < 1e-3 * OPTIONS.step
    assert frame_evidence([said(30.0, groundability=0.4)], 60, RATE)[37] < found[37]


def test_chatter_speaks_against_a_step_unless_one_is_spoken_of_too() -> None:
    chatter = said(5.0, chatter=True)
    found = frame_evidence([chatter, said(40.0)], 60, RATE)
    assert found[8] < 0 < found[43]
    assert frame_evidence([chatter, said(5.0)], 60, RATE)[8] > 0
    assert not frame_evidence([chatter], 60, RATE).any()  # talk alone says nothing of where steps are
    assert not frame_evidence([], 60, RATE).any() and not frame_evidence([said(3.0, negated=True)], 60, RATE).any()


@pytest.fixture
def world():
    """Six steps of 20 s, each with a direction of its own, and a phrase about each."""
    rng = np.random.default_rng(0)
    steps = rng.standard_normal((6, 32))
    frames = np.repeat(steps, 20, axis=0) + 0.5 * rng.standard_normal((120, 32))
    phrases = [said(20.0 * k + 7.0) for k in range(6)]
    return phrases, steps + 0.5 * rng.standard_normal((6, 32)), frames, rng


def test_narration_that_does_not_fit_weighs_less(world) -> None:
    phrases, vectors, frames, rng = world
    right = agreement(phrases, vectors, frames, RATE)
    shuffled = agreement(phrases, vectors[[3, 4, 5, 0, 1, 2]], frames, RATE)
    foreign = np.mean([agreement(phrases, rng.standard_normal((6, 32)), frames, RATE) for _ in range(20)])
    assert right > 0.9 and shuffled < 0.5 and foreign < 0.6
    both = {"phrase_vectors": vectors, "frame_vectors": frames}
    wrong = {**both, "phrase_vectors": vectors[[3, 4, 5, 0, 1, 2]]}
    assert frame_evidence(phrases, 120, RATE, **both).max() > 2 * frame_evidence(phrases, 120, RATE, **wrong).max()


def test_a_text_gains_where_it_is_said() -> None:
    spans_s = [(10.0, 12.0), (50.0, 52.0), (90.0, 92.0)]
    found = text_evidence(spans_s, np.array([[0.9, 0.1, 0.2], [0.2, 0.8, 0.1]]), 120, RATE)
    assert found.shape == (2, 120)
    assert found.argmax(1) - OPTIONS.text_later_s == pytest.approx([11, 51], abs=1)
    assert found[0, 93] < 0.05 * found[0].max()  # a sentence below the average speaks for nothing
    assert not text_evidence(spans_s[:1], np.ones((2, 1)), 20, RATE).any()
