"""The protocol that all encoders stand behind, and the sentence encoder with its real weights."""

import numpy as np
import pytest

from stepformer import encoders
from stepformer.base import weights
from stepformer.encoders.base import Encoded, check_frames
from stepformer.encoders.reading import Kept
from stepformer.errors import InputError, UsageError
from stepformer.media.picture import FrameSpec


def test_every_encoder_of_the_table_can_be_imported():
    assert all(callable(maker) for maker in encoders.ENCODERS.values())


def test_an_unknown_encoder_is_a_usage_error_that_lists_them():
    with pytest.raises(UsageError, match="univl"):
        encoders.load("nothing")


def test_the_pictures_of_a_vector_lie_around_its_middle():
    assert FrameSpec((2, 2)).times_s(3, 1.0) == [3.5]
    assert FrameSpec((2, 2), frames=4, fps=4.0).times_s(0, 1.0) == [0.125, 0.375, 0.625, 0.875]
    assert FrameSpec((2, 2), frames=2, fps=1.0).times_s(1, 0.5) == [2.5, 3.5]
    for bad in ({"size": (0, 2)}, {"size": (2, 2), "frames": 0}, {"size": (2, 2), "fps": 0.0}):
        with pytest.raises(InputError):
            FrameSpec(**bad)


def test_frames_of_another_shape_are_refused_with_both_shapes():
    wants = FrameSpec((4, 6), frames=2)
    good = np.zeros((3, 2, 4, 6, 3), np.uint8)
    assert check_frames(good, wants, "x") is good
    for bad in (good[:, 0], good.astype(np.float32), [1, 2]):
        with pytest.raises(InputError, match=r"\(N, 2, 4, 6, 3\), got"):
            check_frames(bad, wants, "x")


def test_batches_of_one_video_join():
    kept = Kept(100)
    for count in (2, 1):
        kept.add(Encoded(np.full((count, 2), count, np.float32), np.ones((count, 1), np.float32)))
    out = kept.taken()
    assert out.vectors.tolist() == [[2, 2], [2, 2], [1, 1]] and out.structure.tolist() == [[1], [1], [1]]
    with pytest.raises(InputError, match="no frames"):
        Kept(100).taken()
    with pytest.raises(InputError, match="does not match"):
        Encoded(np.zeros((2, 2), np.float32), np.zeros((3, 2), np.float32))


@pytest.mark.slow
def test_the_sentence_encoder_gives_its_published_similarities():
    if weights.find("minilm") is None:
        pytest.skip("weights are not here: stepformer models pull minilm")
    from stepformer.encoders.sentence import SentenceEncoder

    encoder = SentenceEncoder()
    texts = ["That is a happy person", "That is a happy dog", "That is a very happy person", "Today is a sunny day"]
    vectors = encoder.encode_text(texts)
    # the numbers that the model's own card shows for these sentences
    np.testing.assert_allclose(vectors[0] @ vectors[1:].T, [0.695, 0.943, 0.257], atol=1e-3)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    mixed = ["a " * 400, "", *texts]
    np.testing.assert_allclose(encoder.encode_text(mixed)[2:], vectors, atol=1e-5)
    assert encoder.encode_text([]).shape == (0, 384)


def test_what_was_said_is_read_with_the_words_around_it():
    if weights.find("minilm") is None:
        pytest.skip("weights are not here: stepformer models pull minilm")
    from stepformer.encoders.name_classifier import LABELS, NameClassifier, as_read
    from stepformer.encoders.sentence import SentenceEncoder

    encoder = SentenceEncoder()
    before = encoder.encode_text(["rinse the lentils"])
    classify = NameClassifier(encoder)
    texts = (
        as_read("rinse the lentils", ("Okay, first of all, I'm going to", "rinse the lentils", "under cold water")),
        as_read("rinse the lentils", ("my grandmother never even", "rinsed the lentils", "back on the farm")),
        as_read("rinse the lens ones", ("Okay, first of all, I'm going to", "rinse the lens ones", "under cold water")),
    )
    chances = classify(texts)
    assert chances.shape == (3, len(LABELS))
    np.testing.assert_allclose(chances.sum(1), 1, atol=1e-5)
    right = chances[:, 2:].sum(1)
    assert right[0] > 0.5 > max(right[1:])
    assert (encoder.encode_text(["rinse the lentils"]) == before).all()  # vectors of meaning are what they were
    assert classify([]).shape == (0, len(LABELS))
