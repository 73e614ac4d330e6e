"""UniVL: the published key names load, made-up weights round trip, long videos go through windows."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from published import OUTPUTS, filled, layout

from stepformer import encoders
from stepformer.encoders.base import Encoded, Encoder
from stepformer.encoders.checkpoints import load_published
from stepformer.encoders.univl import _UNUSED, UniVL, UniVLEncoder, windows
from stepformer.errors import InputError, MissingError

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "whisk", "the", "egg", "##s", "pour"]


def small_layout(text_layers):
    """The published layout with fewer text layers, so that the tests stay fast; the video tower is whole."""
    keep = tuple(f"bert.encoder.layer.{i}." for i in range(text_layers))
    return {
        key: shape
        for key, shape in layout("univl_pretrained").items()
        if not key.startswith("bert.encoder.layer.") or key.startswith(keep)
    }


@pytest.fixture(scope="module")
def state():
    return filled(small_layout(1))


@pytest.fixture(scope="module")
def folder(tmp_path_factory, state):
    path = tmp_path_factory.mktemp("univl")
    others = {
        "cross.pooler.dense.bias": torch.zeros(3),
        "decoder.classifier.weight": torch.zeros(2),
        "similarity_dense.bias": torch.zeros(1),
    }
    torch.save({**state, **others}, path / "univl.pretrained.bin")
    torch.save(filled(layout()), path / "s3d_howto100m.pth")
    (path / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    return path


@pytest.fixture(scope="module")
def encoder(folder):
    return encoders.load(f"univl:{folder}")


def test_layout_is_the_published_one():
    with torch.device("meta"):
        model = UniVL()
    own = {key: tuple(value.shape) for key, value in model.state_dict().items()}
    assert own == {key: shape for key, shape in layout("univl_pretrained").items() if ".pooler." not in key}
    assert own["visual.embeddings.word_embeddings.weight"] == (768, 1024)
    assert sum(key.startswith("visual.encoder.layer.") for key in own) == 6 * 16


def test_outputs_agree_with_a_second_transcription():
    model = UniVL(2, 6).eval()
    load_published(model, filled(small_layout(2)), "x", _UNUSED)
    rng = np.random.default_rng(7)
    seconds = torch.from_numpy(rng.standard_normal((2, 20, 1024), dtype=np.float32))
    ids = torch.tensor([[101, 2000, 3000, 102, 0, 0], [101, 5, 6, 7, 8, 102]])
    mask = torch.tensor([[1, 1, 1, 1, 0, 0], [1] * 6]).bool()
    with torch.inference_mode():
        got = model.encode_seconds(seconds)
        assert got.shape == (2, 20, 768)
        torch.testing.assert_close(got[:, [0, 10, 19], :6], torch.tensor(OUTPUTS["seconds"]), rtol=1e-3, atol=1e-3)
        texts = model.encode_tokens(ids, mask)
    torch.testing.assert_close(texts[:, :8], torch.tensor(OUTPUTS["tokens"]), rtol=1e-3, atol=1e-3)


def test_keeps_the_protocol(encoder):
    assert isinstance(encoder, Encoder)
    assert (encoder.name, encoder.dim, encoder.rate_hz, encoder.structure_dim) == ("univl", 768, 1.0, 0)
    assert (encoder.wants.frames, encoder.wants.fps, encoder.wants.size) == (16, 16.0, (224, 224))


def test_video_from_frames_to_vectors(encoder):
    frames = np.random.default_rng(0).integers(0, 256, (2, 16, 224, 224, 3), np.uint8)
    clips = encoder.encode_video(frames)
    assert clips.vectors.shape == (2, 1024)
    parts = [encoder.encode_video(part).vectors for part in (frames[:1], frames[1:])]
    whole = encoder.finish(Encoded(np.concatenate(parts)))
    assert whole.vectors.shape == (2, 768)
    np.testing.assert_allclose(whole.vectors, encoder.finish(clips).vectors, rtol=1e-3, atol=1e-3)


def test_text(encoder):
    vectors = encoder.encode_text(["whisk the eggs", "pour", "whisk the eggs"])
    assert vectors.shape == (3, 768)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(vectors[0], vectors[2], atol=1e-6)
    np.testing.assert_allclose(vectors[1:2], encoder.encode_text(["pour"]), atol=1e-5)  # padding says nothing
    assert np.abs(vectors[0] - vectors[1]).max() > 0.01
    assert encoder.encode_text([]).shape == (0, 768)


def test_long_videos_go_through_windows(encoder):
    seconds = np.random.default_rng(1).standard_normal((130, 1024)).astype(np.float32)
    got = encoder.finish(Encoded(seconds)).vectors
    assert got.shape == (130, 768)
    # a second in the middle of a window is what that window alone gives
    for first, last, keep_first, keep_last in windows(130, 48):
        alone = encoder.finish(Encoded(seconds[first:last])).vectors
        np.testing.assert_allclose(got[keep_first:keep_last], alone[keep_first - first : keep_last - first], atol=1e-4)
    with pytest.raises(InputError, match="1024 columns"):
        encoder.finish(Encoded(np.zeros((3, 5), np.float32)))


@settings(deadline=None)
@given(st.integers(0, 3000), st.integers(1, 512))
def test_windows_tile_the_video(count, size):
    made = windows(count, size)
    assert [second for *_, first, last in made for second in range(first, last)] == list(range(count))
    for first, last, keep_first, keep_last in made:
        assert 0 <= first <= keep_first < keep_last <= last <= count
        assert last - first == min(size, count)
        if size >= 4 and count > size:
            # whatever is kept has a quarter of a window before and behind it, except at the ends of the video
            assert keep_first == 0 or keep_first - first >= size // 4
            assert keep_last == count or last - keep_last >= size // 4


def test_missing_and_wrong_files(tmp_path, folder, state):
    with pytest.raises(MissingError, match=r"univl\.pretrained.*microsoft/UniVL"):
        UniVLEncoder(tmp_path)
    (tmp_path / "univl.pretrained.bin").symlink_to(folder / "univl.pretrained.bin")
    with pytest.raises(MissingError, match="s3d_howto100m"):
        UniVLEncoder(tmp_path)
    model = UniVL(1, 6)
    with pytest.raises(InputError, match=r"lacks 1 tensors, for instance normalize_video"):
        lacking = {k: v for k, v in state.items() if k != "normalize_video.visual_norm2d.bias"}
        load_published(model, lacking, "x", _UNUSED)
    with pytest.raises(InputError, match="do not belong, for instance surprise"):
        load_published(model, {**state, "surprise": torch.zeros(1)}, "x", _UNUSED)
