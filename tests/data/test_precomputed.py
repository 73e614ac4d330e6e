"""Features people already have: every format, any dimension and rate, and what is refused."""

import numpy as np
import pytest
from safetensors.numpy import save_file

from stepformer import encoders
from stepformer.data.precomputed import PrecomputedEncoder
from stepformer.errors import InputError, UsageError

X = np.random.default_rng(0).normal(size=(7, 5)).astype(np.float32)
S = np.ones((7, 3), np.float32)


@pytest.mark.parametrize("kind", ["npy", "npz", "npz_named", "npz_other", "safetensors", "half", "batch"])
def test_every_format_gives_the_same(tmp_path, kind):
    if kind == "npy":
        np.save(tmp_path / "v.npy", X)
    elif kind == "npz":
        np.savez(tmp_path / "v.npz", X)
    elif kind == "npz_named":
        np.savez(tmp_path / "v.npz", features=X, times=np.arange(7))
    elif kind == "npz_other":
        np.savez(tmp_path / "v.npz", whatever=X)
    elif kind == "safetensors":
        save_file({"features": X}, tmp_path / "v.safetensors")
    elif kind == "half":
        np.save(tmp_path / "v.npy", X.astype(np.float16))
    else:
        np.save(tmp_path / "v.npy", X[None])
    encoder = PrecomputedEncoder(tmp_path, rate_hz=2.5)
    out = encoder.features("videos/v.mp4")
    np.testing.assert_allclose(out.vectors, X, atol=2e-3)
    assert out.vectors.dtype == np.float32 and out.structure is None
    assert (encoder.dim, encoder.rate_hz, encoder.structure_dim) == (5, 2.5, 0)


def test_structure_comes_along(tmp_path):
    np.savez(tmp_path / "v.npz", features=X, structure=S)
    out = PrecomputedEncoder(tmp_path).features("v")
    assert np.array_equal(out.structure, S)


def test_a_name_with_dots_and_a_single_file(tmp_path):
    np.save(tmp_path / "a.b.npy", X)
    assert len(PrecomputedEncoder(tmp_path).features("a.b").vectors) == 7
    assert len(PrecomputedEncoder(tmp_path / "a.b.npy").features("anything.mp4").vectors) == 7


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros(3), r"\(N, D\)"),
        (np.zeros((0, 4)), "there are no vectors"),
        (np.array([["a"]]), r"\(N, D\)"),
        (np.array([[1.0], [np.nan], [np.inf]]), r"\[1, 0\] is nan; 2 rows"),
    ],
)
def test_what_is_no_matrix_of_numbers_is_refused(tmp_path, array, message):
    np.save(tmp_path / "v.npy", array)
    with pytest.raises(InputError, match=message):
        PrecomputedEncoder(tmp_path)


def test_pickled_arrays_are_not_unpickled(tmp_path):
    np.save(tmp_path / "v.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(InputError, match="pickled objects, which are never read"):
        PrecomputedEncoder(tmp_path)


def test_other_dimensions_and_missing_videos_are_said(tmp_path):
    np.save(tmp_path / "a.npy", X)
    np.save(tmp_path / "b.npy", X[:, :3])
    encoder = PrecomputedEncoder(tmp_path)
    with pytest.raises(InputError, match=r"3 dimensions.*5"):
        encoder.features("b")
    with pytest.raises(InputError, match="no features of c"):
        encoder.features("c")
    with pytest.raises(InputError, match="no features at"):
        PrecomputedEncoder(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="rate_hz"):
        PrecomputedEncoder(tmp_path, rate_hz=0)


def test_an_archive_of_many_arrays_wants_a_name(tmp_path):
    np.savez(tmp_path / "v.npz", one=X, two=X)
    with pytest.raises(InputError, match="one, two"):
        PrecomputedEncoder(tmp_path)


def test_texts_from_a_table(tmp_path):
    (tmp_path / "f").mkdir()
    np.save(tmp_path / "f" / "v.npy", X)
    np.savez(tmp_path / "t.npz", text=np.array(["Crack egg", "whisk"]), emb=2 * np.eye(5)[:2])
    encoder = PrecomputedEncoder(tmp_path / "f", text=str(tmp_path / "t.npz"))
    np.testing.assert_allclose(encoder.encode_text(["whisk", "crack egg "]), np.eye(5)[[1, 0]])
    with pytest.raises(InputError, match="'fry'"):
        encoder.encode_text(["whisk", "fry"])
    np.savez(tmp_path / "u.npz", text=np.array(["a"]), emb=np.eye(4)[:1])
    with pytest.raises(UsageError, match=r"5 dimensions.*4"):
        PrecomputedEncoder(tmp_path / "f", text=str(tmp_path / "u.npz"))


def test_one_word_says_it_all_on_a_command_line(tmp_path):
    (tmp_path / "f").mkdir()
    np.save(tmp_path / "f" / "v.npy", X)
    np.savez(tmp_path / "t.npz", text=np.array(["Crack egg", "whisk"]), emb=2 * np.eye(5)[:2])
    encoder = encoders.load(f"precomputed:{tmp_path / 'f'}?rate_hz=2.5&text={tmp_path / 't.npz'}")
    assert encoder.rate_hz == 2.5
    assert encoder.encode_text(["whisk"]).shape == (1, 5)
    with pytest.raises(UsageError, match="rate_hz"):
        encoders.load(f"precomputed:{tmp_path / 'f'}?rate_hz=fast")
    with pytest.raises(UsageError, match="unexpected keyword argument 'rate'"):
        encoders.load(f"precomputed:{tmp_path / 'f'}?rate=2")


def test_without_a_text_side_texts_are_refused(tmp_path):
    np.save(tmp_path / "v.npy", X)
    with pytest.raises(UsageError, match="no text side"):
        PrecomputedEncoder(tmp_path).encode_text(["a"])


def test_fingerprints_tell_origins_apart(tmp_path):
    for name, array in (("one", X), ("two", X), ("three", X[:, :3])):
        (tmp_path / name).mkdir()
        np.save(tmp_path / name / "v.npy", array)
    prints = {PrecomputedEncoder(tmp_path / name).fingerprint for name in ("one", "two", "three")}
    assert len(prints) == 3
    assert PrecomputedEncoder(tmp_path / "one", rate_hz=2).fingerprint not in prints


def test_a_feature_store_is_read_with_its_own_rate_and_fingerprint(tmp_path):
    from stepformer.data.store import StoredVideo, StoreInfo, StoreWriter

    with StoreWriter(tmp_path / "s", StoreInfo("concepts", "print", dim=5, structure_dim=3, rate_hz=2.0)) as writer:
        writer.append(StoredVideo(video="v", features=X, rate_hz=2.0, duration_s=3.5, structure=S))
    encoder = PrecomputedEncoder(tmp_path / "s")
    assert (encoder.fingerprint, encoder.rate_hz, encoder.structure_dim) == ("print", 2.0, 3)
    np.testing.assert_allclose(encoder.features("some/v.mp4").vectors, X, atol=2e-3)
    with pytest.raises(UsageError, match="not 1"):
        PrecomputedEncoder(tmp_path / "s", rate_hz=1.0)
    with pytest.raises(InputError, match="no video 'w'"):
        encoder.features("w.mp4")
