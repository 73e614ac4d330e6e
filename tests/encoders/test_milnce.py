"""MIL-NCE: a checkpoint and a dictionary in the published layout, filled with made-up weights, round trip."""

import numpy as np
import pytest
import torch
from published import filled, layout
from safetensors.torch import save_file

from stepformer import encoders
from stepformer.encoders import milnce
from stepformer.encoders.base import Encoder
from stepformer.encoders.checkpoints import load_published, read_checkpoint
from stepformer.encoders.milnce import MilNceEncoder
from stepformer.errors import InputError, MissingError
from stepformer.media.picture import FrameSpec


class Small(MilNceEncoder):
    """On clips that take less time."""

    wants = FrameSpec((64, 64), 8, 8.0)


WORDS = ["the", "egg", "whisk", "pan", "don't", "pour"]


@pytest.fixture(scope="module")
def state():
    return filled(layout())


@pytest.fixture(scope="module")
def folder(tmp_path_factory, state):
    path = tmp_path_factory.mktemp("milnce")
    torch.save(state, path / "s3d_howto100m.pth")
    np.save(path / "s3d_dict.npy", np.array(WORDS))
    return path


@pytest.fixture(scope="module")
def encoder(folder):
    return Small(folder)


def test_keeps_the_protocol(encoder):
    assert isinstance(encoder, Encoder)
    assert (encoder.name, encoder.dim, encoder.rate_hz, encoder.structure_dim) == ("milnce", 512, 1.0, 0)
    assert encoder.license == "Apache-2.0"
    assert encoder.fingerprint.startswith("milnce-1-")


def test_trained_clip_by_default(folder):
    wants = encoders.load(f"milnce:{folder}").wants
    assert (wants.frames, wants.fps, wants.size) == (32, 10.0, (224, 224))


def test_words_to_ids(encoder):
    assert encoder.word_ids("Whisk the EGG, don't pour!")[:6].tolist() == [3, 1, 2, 5, 6, 0]
    assert encoder.word_ids("zzz unknown").tolist() == [0] * 16
    assert encoder.word_ids("egg " * 40).tolist() == [2] * 16


def test_text_vectors(encoder):
    vectors = encoder.encode_text(["whisk the egg", "the egg whisk", "pour", "zzz"])
    assert vectors.shape == (4, 512)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(vectors[0], vectors[1], atol=1e-6)  # a bag of words has no order
    assert np.abs(vectors[0] - vectors[2]).max() > 0.01
    assert encoder.encode_text([]).shape == (0, 512)


def test_video_vectors_do_not_depend_on_the_batch(encoder, state):
    frames = np.random.default_rng(0).integers(0, 256, (5, 8, 64, 64, 3), np.uint8)
    whole = encoder.encode_video(frames).vectors
    assert whole.shape == (5, 512)
    parts = np.concatenate([encoder.encode_video(part).vectors for part in (frames[:1], frames[1:])])
    np.testing.assert_allclose(whole, parts, rtol=1e-3, atol=1e-3)
    model = milnce.S3D().eval()
    load_published(model, state, "x")
    with torch.inference_mode():
        direct = model(torch.from_numpy(frames[:1]).permute(0, 4, 1, 2, 3) / 255.0).numpy()
    np.testing.assert_allclose(whole[:1], direct, rtol=1e-3, atol=1e-3)
    with pytest.raises(InputError, match="uint8"):
        encoder.encode_video(frames.astype(np.float32))


def test_a_pickle_and_safetensors_of_it_are_the_same_encoder(folder, encoder, tmp_path):
    save_file(read_checkpoint(folder / "s3d_howto100m.pth"), tmp_path / "s3d_howto100m.safetensors")
    (tmp_path / "s3d_dict.npy").symlink_to(folder / "s3d_dict.npy")
    again = Small(tmp_path)
    assert again.fingerprint == encoder.fingerprint
    np.testing.assert_array_equal(again.encode_text(["pour"]), encoder.encode_text(["pour"]))


def test_fingerprint_changes_with_whatever_changes_the_vectors(folder, encoder, tmp_path):
    assert MilNceEncoder(folder).fingerprint != encoder.fingerprint
    (tmp_path / "s3d_howto100m.pth").symlink_to(folder / "s3d_howto100m.pth")
    np.save(tmp_path / "s3d_dict.npy", np.array([*WORDS[::-1]]))
    assert Small(tmp_path).fingerprint != encoder.fingerprint


def test_missing_and_wrong_files(tmp_path, monkeypatch):
    with pytest.raises(MissingError, match=r"s3d_howto100m.*antoine77340.*--encoder milnce:FOLDER"):
        MilNceEncoder(tmp_path)
    monkeypatch.setenv("STEPFORMER_CACHE", str(tmp_path / "cache"))
    with pytest.raises(MissingError, match="s3d_howto100m"):
        MilNceEncoder()
    with pytest.raises(InputError, match="no folder"):
        MilNceEncoder(tmp_path / "nowhere")
    torch.save({"fc.weight": torch.zeros(2)}, tmp_path / "s3d_howto100m.pth")
    with pytest.raises(MissingError, match=r"s3d_dict\.npy"):
        MilNceEncoder(tmp_path)
    np.save(tmp_path / "s3d_dict.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(InputError, match="pickled objects"):
        MilNceEncoder(tmp_path)
    np.save(tmp_path / "s3d_dict.npy", np.array(WORDS))
    with pytest.raises(InputError, match="not the published checkpoint"):
        MilNceEncoder(tmp_path)


class _Evil:
    def __reduce__(self):
        return (print, ("this must never run",))


def test_a_checkpoint_with_code_in_it_is_refused(tmp_path, capsys):
    torch.save({"fc.weight": _Evil()}, tmp_path / "s3d_howto100m.pth")
    np.save(tmp_path / "s3d_dict.npy", np.array(WORDS))
    with pytest.raises(InputError):
        MilNceEncoder(tmp_path)
    assert "never run" not in capsys.readouterr().out
