"""The offline default with its real weights, on a real video; and the protocol without any."""

import numpy as np
import pytest
import torch

from stepformer import encoders
from stepformer.base import weights
from stepformer.encoders.base import Encoded, check_frames, finished
from stepformer.encoders.concepts import class_names
from stepformer.errors import InputError, UsageError
from stepformer.media.picture import FrameSpec

NEEDED = ("minilm", "i3d-kinetics400", "efficientnet-lite2")


def need(*names: str) -> None:
    missing = [name for name in names if weights.find(name) is None]
    if missing:
        pytest.skip(f"weights are not here: stepformer models pull {' '.join(missing)}")


def test_class_names_are_whole_and_distinct():
    actions, objects = class_names("kinetics400"), class_names("imagenet1k")
    assert (len(set(actions)), len(set(objects))) == (400, 1000)
    assert actions == sorted(actions) and "washing hands" in actions
    assert (objects[0], objects[896], objects[999]) == ("tench", "washbasin", "toilet tissue")


def test_every_encoder_of_the_table_can_be_imported():
    assert all(callable(maker) for maker in encoders.ENCODERS.values())


def test_unknown_encoders_and_efforts_are_usage_errors():
    with pytest.raises(UsageError, match="concepts"):
        encoders.load("nothing")
    with pytest.raises(UsageError, match="fast, full"):
        encoders.load("concepts:slower")


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


def test_batches_of_one_video_join_and_a_whole_video_step_runs_once():
    class Two:
        calls = 0

        def encode_video(self, frames):
            return Encoded(np.full((len(frames), 2), len(frames), np.float32), np.ones((len(frames), 1), np.float32))

        def finish(self, whole):
            self.calls += 1
            return Encoded(whole.vectors * 10, whole.structure)

    encoder = Two()
    out = finished(encoder, [encoder.encode_video(part) for part in [np.zeros((2, 1)), np.zeros((1, 1))]])
    assert out.vectors[:, 0].tolist() == [20, 20, 10] and out.structure.shape == (3, 1) and encoder.calls == 1
    with pytest.raises(InputError, match="no frames"):
        finished(encoder, [encoder.encode_video(part) for part in []])
    with pytest.raises(InputError, match="does not go with"):
        Encoded(np.zeros((2, 2), np.float32), np.zeros((3, 2), np.float32))


@pytest.fixture(scope="module")
def second_of_washing():
    """One real second, hands under the tap, as the default encoder wants it."""
    need(*NEEDED, "demo-video")
    from stepformer.media import frames_at

    encoder = encoders.load("concepts")
    times = encoder.wants.times_s(17, 1.0)
    return encoder, frames_at(weights.find("demo-video"), times, size=encoder.wants.size).pictures[None]


@pytest.mark.slow
def test_a_real_second_is_named_for_what_it_shows(second_of_washing):
    encoder, clip = second_of_washing
    actions, objects, _ = encoder.look(clip)
    assert class_names("kinetics400")[int(actions.argmax())] == "washing hands"
    assert class_names("imagenet1k")[int(objects.argmax())] == "washbasin"
    encoded = encoder.encode_video(clip)
    assert encoded.vectors.shape == (1, encoder.dim) and encoded.structure.shape == (1, encoder.structure_dim)
    texts = ["rinse the hands under the tap", "change the car tire", "knead the dough", "sew on the button"]
    assert int((encoder.encode_text(texts) @ encoded.vectors[0]).argmax()) == 0


@pytest.mark.slow
def test_integers_and_floats_agree(second_of_washing):
    fast, clip = second_of_washing
    full = encoders.load("concepts:full")
    first, second = fast.encode_video(clip), full.encode_video(clip)
    assert float((first.structure * second.structure).sum()) > 0.99
    assert float((first.vectors * second.vectors).sum()) > 0.97
    assert fast.fingerprint == full.fingerprint
    assert torch.equal(fast.look(clip)[1], full.look(clip)[1])  # the object network is the same


@pytest.mark.slow
def test_batches_do_not_change_a_vector(second_of_washing):
    encoder, clip = second_of_washing
    other = np.ascontiguousarray(clip[:, :, :, ::-1])
    both = encoder.encode_video(np.concatenate([clip, other, clip]))
    np.testing.assert_allclose(both.vectors[2], encoder.encode_video(clip).vectors[0], atol=1e-4)
    assert encoder.encode_video(clip[:0]).vectors.shape == (0, encoder.dim)


@pytest.mark.slow
def test_the_sentence_encoder_gives_its_published_similarities():
    need("minilm")
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
