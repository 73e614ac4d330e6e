"""Features people have already: the released code's tars and folders of arrays."""

import gzip
import io
import json
import pickle
import tarfile

import numpy as np
import pytest
import torch

from stepformer import cli
from stepformer.data.features import array_samples, find_tars, import_features, released_sample, released_samples
from stepformer.data.store import FeatureStore, StoredPhrase
from stepformer.encoders.base import Encoded
from stepformer.errors import InputError


def sample(name, n=7, phrases=3, torch_side=False):
    rng = np.random.default_rng(len(name))
    video, text = rng.standard_normal((n, 768), np.float32), rng.standard_normal((phrases, 768), np.float32)
    said = {
        "phrases": [f"step {i}" for i in range(phrases)],
        "start": [float(i) for i in range(phrases)],
        "end": [i + 0.5 for i in range(phrases)],
    }
    if torch_side:
        video, text = torch.from_numpy(video), torch.from_numpy(text)
    return {"name": name, "json": said, "text_features": text, "video_features": video}


def write_tar(path, members):
    with tarfile.open(path, "w") as tar:
        for name, data in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))


class Evil:
    def __reduce__(self):
        return (print, ("this must never run",))


def test_released_tars(tmp_path, capsys):
    tar = tmp_path / "train-000.tar"
    members = {
        "a.pyd": pickle.dumps(sample("a")),
        "b.pyd": pickle.dumps(sample("b", torch_side=True)),
        "evil.pyd": pickle.dumps({"name": Evil()}),
        "odd.pyd": pickle.dumps({**sample("odd"), "json": {"phrases": ["x"], "start": [], "end": []}}),
        "list.pyd": pickle.dumps([1, 2]),
        "noise.pyd": b"\x80\x04garbage",
        "c.pyd": pickle.dumps({**sample("c", phrases=0), "json": json.dumps({"phrases": [], "start": [], "end": []})}),
    }  # fmt: skip
    write_tar(tar, members)
    code = cli.main(
        ["prepare", "features", str(tar), str(tmp_path / "store"), "--from", "released", "--json", "--quiet"]
    )
    out, err = capsys.readouterr()
    report = json.loads(out)
    assert code == 5
    assert report["videos"] == 3
    assert "this must never run" not in out + err
    assert sorted(entry["video"] for entry in report["failed"]) == [
        f"train-000.tar:{n}.pyd" for n in ("evil", "list", "noise", "odd")
    ]
    assert any("print" in entry["error"] for entry in report["failed"])
    store = FeatureStore(tmp_path / "store")
    assert (store.info.encoder, store.info.fingerprint, store.info.dim) == ("univl", "univl-released", 768)
    for name in ("a", "b", "c"):
        given = sample(name, phrases=0 if name == "c" else 3)
        np.testing.assert_allclose(store[name].features, given["video_features"], atol=2e-3, rtol=1e-3)
        np.testing.assert_allclose(store[name].phrase_vectors, given["text_features"], atol=2e-3, rtol=1e-3)
    assert [(p.text, p.start_s, p.end_s) for p in store["a"].phrases] == [
        ("step 0", 0, 0.5),
        ("step 1", 1, 1.5),
        ("step 2", 2, 2.5),
    ]
    # again: nothing is done twice
    cli.main(["prepare", "features", str(tar), str(tmp_path / "store"), "--from", "released", "--json", "--quiet"])
    report = json.loads(capsys.readouterr().out)
    assert (report["videos"], report["skipped"]) == (0, 3)


def numpy_file(value, version=(1, 0), old_names=False):
    """The bytes of a NumPy file of a zero-dimensional object array, by its format's description."""
    array = np.empty((), dtype=object)
    array[()] = value
    header = b"{'descr': '|O', 'fortran_order': False, 'shape': (), }"
    size = 10 if version == (1, 0) else 12
    header += b" " * (-(len(header) + size + 1) % 64) + b"\n"
    length = len(header).to_bytes(2 if version == (1, 0) else 4, "little")
    body = pickle.dumps(array, protocol=3)
    if old_names:  # protocol 3 writes module names as lines of text; NumPy before 2 had no underscore
        body = body.replace(b"cnumpy._core.multiarray\n", b"cnumpy.core.multiarray\n")
        assert b"_core" not in body
    return b"\x93NUMPY" + bytes(version) + length + header + body


def as_numpy(array):
    return array


def as_strided_tensor(array):
    whole = torch.zeros(array.shape[1], array.shape[0] + 2)  # a transposed view that starts inside its storage
    whole[:, 2:] = torch.from_numpy(array).T
    return whole[:, 2:].T


TENSORS = {
    "numpy": as_numpy,
    "numpy-half": lambda a: a.astype(np.float16),
    "numpy-double": lambda a: a.astype(np.float64),
    "numpy-big-endian": lambda a: a.astype(">f4"),
    "numpy-fortran": np.asfortranarray,
    "torch": torch.from_numpy,
    "torch-half": lambda a: torch.from_numpy(a).half(),
    "torch-bfloat16": lambda a: torch.from_numpy(a).bfloat16(),
    "torch-double": lambda a: torch.from_numpy(a).double(),
    "torch-view": as_strided_tensor,
    "torch-parameter": lambda a: torch.nn.Parameter(torch.from_numpy(a)),
}


@pytest.mark.parametrize("kind", TENSORS)
@pytest.mark.parametrize("old_names", [False, True])
def test_released_members_are_numpy_files(tmp_path, capsys, kind, old_names):
    """What the released loader reads: WebDataset members with the key npy, each a NumPy file of one dictionary."""
    given = {name: sample(name, n=5) for name in ("a", "bb")}
    written = {name: {**one, "video_features": TENSORS[kind](one["video_features"]),
                      "text_features": TENSORS[kind](one["text_features"])} for name, one in given.items()}  # fmt: skip
    members = {
        "000.npy": numpy_file(written["a"], old_names=old_names),
        "000.json": b"{}",  # another member of the same sample
        "001.npy": numpy_file(written["bb"], version=(2, 0), old_names=old_names),
    }
    write_tar(tmp_path / "t.tar", members)
    code = cli.main(["prepare", "features", str(tmp_path / "t.tar"), str(tmp_path / "s"), "--from", "released"])
    assert code == 0, capsys.readouterr()
    store = FeatureStore(tmp_path / "s")
    assert sorted(video.video for video in store) == ["a", "bb"]
    exact = 1e-2 if "bfloat16" in kind else 2e-3
    for name, one in given.items():
        np.testing.assert_allclose(store[name].features, one["video_features"], atol=exact, rtol=exact)
        np.testing.assert_allclose(store[name].phrase_vectors, one["text_features"], atol=exact, rtol=exact)
        assert [p.text for p in store[name].phrases] == one["json"]["phrases"]


def test_what_numpy_writes_itself_is_read():
    array = np.empty((), dtype=object)
    array[()] = sample("a", torch_side=True)
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=True)
    assert len(released_sample(buffer.getvalue(), "x").phrases) == 3


def test_a_numpy_file_runs_no_code_and_must_hold_a_sample(capfd):
    with pytest.raises(InputError, match="print"):
        released_sample(numpy_file({"name": Evil()}), "x")
    assert "this must never run" not in "".join(capfd.readouterr())
    plain = io.BytesIO()
    np.save(plain, np.ones(3))
    for data in (numpy_file([1]), plain.getvalue(), numpy_file({})[:40], numpy_file(sample("a"))[:-50]):
        with pytest.raises(InputError):
            released_sample(data, "x")


def test_a_phrase_without_a_start_is_dropped_alone():
    one = sample("a", phrases=5)
    one["json"]["start"] = [0.0, None, 2.0, float("nan"), 4.0]
    one["json"]["end"] = [0.5, 1.5, None, 3.5, 1.0]
    video = released_sample(numpy_file(one), "x")
    assert [(p.text, p.start_s, p.end_s) for p in video.phrases] == [
        ("step 0", 0, 0.5), ("step 2", 2, 2), ("step 4", 4, 4),
    ]  # fmt: skip
    np.testing.assert_array_equal(video.phrase_vectors, one["text_features"][[0, 2, 4]])
    silent = {**sample("a", phrases=0), "text_features": torch.empty(0)}
    assert released_sample(numpy_file(silent), "x").phrases == ()


def test_tars_lie_in_folders_and_may_be_packed(tmp_path):
    (tmp_path / "deep" / "er").mkdir(parents=True)
    write_tar(tmp_path / "deep" / "er" / "a.tar", {"a.npy": numpy_file(sample("a"))})
    packed = tmp_path / "b.tar.gz"
    packed.write_bytes(gzip.compress((tmp_path / "deep" / "er" / "a.tar").read_bytes()))
    found = find_tars(tmp_path)
    assert [tar.name for tar in found] == ["b.tar.gz", "a.tar"]
    assert [[name for name, _ in released_samples(tar)] for tar in found] == [["a"], ["a"]]
    packed.write_bytes(packed.read_bytes()[:300])
    assert any(isinstance(value, InputError) for _, value in released_samples(packed))


def test_cut_tar_gives_what_it_has(tmp_path):
    tar = tmp_path / "cut.tar"
    write_tar(tar, {"a.pyd": pickle.dumps(sample("a")), "b.pyd": pickle.dumps(sample("b"))})
    tar.write_bytes(tar.read_bytes()[:45_000])
    found = dict(released_samples(tar))
    assert found["a"].features.shape == (7, 768)
    assert any(isinstance(value, InputError) for value in found.values())


def test_shapes_are_checked():
    wrong = {**sample("a"), "video_features": np.zeros((7, 512), np.float32)}
    with pytest.raises(InputError, match=r"\(N, 768\)"):
        released_sample(pickle.dumps(wrong), "x")
    with pytest.raises(InputError, match="KeyError"):
        released_sample(pickle.dumps({"name": "a"}), "x")


def test_not_a_tar(tmp_path, capsys):
    (tmp_path / "a.tar").write_text("no")
    assert (
        cli.main(["prepare", "features", str(tmp_path / "a.tar"), str(tmp_path / "s"), "--from", "released", "--quiet"])
        == 5
    )
    assert cli.main(["prepare", "features", str(tmp_path / "b.tar"), str(tmp_path / "s"), "--from", "released"]) == 3
    assert (
        cli.main(
            ["prepare", "features", str(tmp_path), str(tmp_path / "s"), "--from", "released", "--encoder", "univl"]
        )
        == 2
    )
    capsys.readouterr()


class Doubler:
    """An encoder whose finish doubles the width, as UniVL's turns 1024 columns into 768."""

    name, license, fingerprint, dim, rate_hz, structure_dim = "doubler", "none", "doubler-1", 6, 1.0, 0

    def finish(self, whole):
        return Encoded(np.concatenate([whole.vectors, whole.vectors], axis=1))

    def encode_text(self, texts):
        return np.ones((len(texts), 6), np.float32)


def test_arrays_with_captions(tmp_path, monkeypatch):
    monkeypatch.setattr("stepformer.narration.listening.extract_phrases", lambda cues, options=None: list(cues))
    arrays = tmp_path / "arrays"
    arrays.mkdir()
    np.save(arrays / "a.npy", np.full((4, 6), 2.0, np.float32))
    np.save(arrays / "b.npy", np.full((5, 3), 3.0, np.float32))
    np.save(arrays / "c.npy", np.full((5, 4), 3.0, np.float32))
    np.save(arrays / "d.npy", np.array(["x"]))
    captions = {
        "a": {"start": [0.0, 2.0], "end": [1.0, 3.0], "text": ["cut it", "stir it"]},
        "z": {"start": [], "end": [], "text": []},
    }
    (tmp_path / "caption.json").write_text(json.dumps(captions))
    found = dict(array_samples(arrays, Doubler(), tmp_path / "caption.json"))
    assert [p.text for p in found["a"].phrases] == ["cut it", "stir it"]
    assert found["a"].phrase_vectors.shape == (2, 6)
    assert found["b"].features.shape == (5, 6)
    assert "but encoder" in str(found["c"])
    assert isinstance(found["d"], InputError)
    (tmp_path / "nothing").mkdir()
    with pytest.raises(InputError, match="no feature file"):
        list(array_samples(tmp_path / "nothing", Doubler()))
    with pytest.raises(InputError, match="not a folder"):
        list(array_samples(tmp_path / "caption.json", Doubler()))

    # what is there already is not made again; with other captions it is another sample
    sources = {"a": found["a"].meta["source"], "b": found["b"].meta["source"]}
    monkeypatch.setattr(
        "stepformer.data.features.extract_phrases", lambda cues, options=None: pytest.fail("made again")
    )
    again = dict(array_samples(arrays, Doubler(), tmp_path / "caption.json", have=lambda n, s: sources.get(n) == s))
    assert again["a"] is None and again["b"] is None
    without = dict(array_samples(arrays, Doubler(), have=lambda n, s: sources.get(n) == s))
    assert without["a"] is not None and without["b"] is None


@pytest.fixture
def spoken(monkeypatch):
    """Every cue is a phrase, so that no parser is needed."""

    def phrases(cues, options=None):
        return [StoredPhrase(cue.text, cue.start_s, cue.end_s) for cue in cues]

    monkeypatch.setattr("stepformer.narration.listening.extract_phrases", phrases)


def written(path, rows=4, width=6):
    path.parent.mkdir(parents=True, exist_ok=True)
    np.save(path, np.ones((rows, width), np.float32))


def test_names_agree_up_to_the_endings_of_videos_and_in_any_folder(tmp_path, spoken):
    for name in ("a.mp4.npy", "deep/er/b.WEBM.npy", "105222_c.npy", "x/d.npy", "y/d.npy", ".hidden.npy"):
        written(tmp_path / "f" / name)
    said = {"start": [0.0], "end": [1.0], "text": ["stir it"]}
    (tmp_path / "caption.json").write_text(json.dumps({"a": said, "b.mp4": said, "c": said, "d": said, "z": said}))
    notes = []
    found = dict(array_samples(tmp_path / "f", Doubler(), tmp_path / "caption.json", notes=notes))
    assert sorted(found) == ["105222_c", "a", "b", "x/d", "y/d"]
    assert all([p.text for p in video.phrases] == ["stir it"] for video in found.values())
    assert notes == []


def test_captions_in_a_folder_one_file_per_video(tmp_path, spoken):
    """CSV as pandas writes it, with an index and quoted text; other formats beside it."""
    for name in "abcd":
        written(tmp_path / "f" / f"{name}.npy")
    folder = tmp_path / "captions" / "part1"
    folder.mkdir(parents=True)
    (folder / "a.csv").write_text(
        ',end,start,text\n0,2.5,1.0,"peel, then cut it"\n1,,3.0,stir it\n2,9,,unsaid\n3,9,8,\n'
    )
    (folder / "b.vtt").write_text("WEBVTT\n\n00:01.000 --> 00:02.000\nfold it\n")
    (folder / "c.csv").write_text("start,end,text\n")
    notes = []
    found = dict(array_samples(tmp_path / "f", Doubler(), tmp_path / "captions", notes=notes))
    assert [(p.start_s, p.end_s, p.text) for p in found["a"].phrases] == [
        (1.0, 2.5, "peel, then cut it"), (3.0, 3.0, "stir it"),
    ]  # fmt: skip
    assert [p.text for p in found["b"].phrases] == ["fold it"]
    assert found["c"].phrases == () and found["d"].phrases == ()
    assert [sentence.partition(",")[0] for sentence in notes] == [
        "1 of 4 feature files have no captions", "1 subtitle files cannot be read",
    ]  # fmt: skip


def test_captions_in_a_folder_are_chosen_as_those_beside_a_video(tmp_path, spoken):
    for name in ("talk", "how.to", "x/same", "y/same"):
        written(tmp_path / "f" / f"{name}.npy")
    files = ("talk.de.vtt", "talk.en.vtt", "talk.live_chat.json3", "other.steps.vtt", "how.to.vtt", "x/same.en.vtt",
             "y/same.vtt")  # fmt: skip
    for name in files:
        (tmp_path / "c" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "c" / name).write_text(f"WEBVTT\n\n00:01.000 --> 00:02.000\nsaid in {name}\n")
    found = dict(array_samples(tmp_path / "f", Doubler(), tmp_path / "c"))
    assert {name: [p.text for p in video.phrases] for name, video in found.items()} == {
        "talk": ["said in talk.en.vtt"], "how.to": ["said in how.to.vtt"],
        "x/same": ["said in x/same.en.vtt"], "y/same": ["said in y/same.vtt"],
    }  # fmt: skip
    written(tmp_path / "g" / "other.npy")
    (tmp_path / "ours").mkdir()
    (tmp_path / "c" / "other.steps.vtt").rename(tmp_path / "ours" / "other.steps.vtt")
    with pytest.raises(InputError, match="captions of 0 videos"):
        list(array_samples(tmp_path / "g", Doubler(), tmp_path / "ours"))


class Structured(Doubler):
    """As CLIP, whose own features come with structure for boundaries."""

    structure_dim = 3


def test_plain_vectors_of_an_encoder_with_structure(tmp_path, monkeypatch):
    """512 columns of CLIP are what most people have."""
    monkeypatch.setattr("stepformer.encoders.load", lambda name: Structured())
    written(tmp_path / "plain" / "b.npy")
    np.save(tmp_path / "plain" / "a.npy", np.array(["x"]))  # cannot be read, and decides nothing
    summary = import_features(tmp_path / "plain", tmp_path / "s", "structured")
    assert [one.name for one in summary.done] == ["b"] and [name for name, _ in summary.failed] == ["a"]
    store = FeatureStore(tmp_path / "s")
    assert store.info.structure_dim == 0 and store["b"].structure is None and store["b"].features.shape == (4, 6)
    assert import_features(tmp_path / "plain", tmp_path / "s", "structured").skipped == 1

    whole = {"features": np.ones((4, 6)), "structure": np.ones((4, 3))}
    (tmp_path / "whole").mkdir()
    np.savez(tmp_path / "whole" / "a.npz", **whole)
    written(tmp_path / "whole" / "b.npy")
    summary = import_features(tmp_path / "whole", tmp_path / "t", "structured")
    assert FeatureStore(tmp_path / "t")["a"].structure.shape == (4, 3)
    ((name, error),) = summary.failed
    assert name == "b" and "the video has none: give an .npz" in error
    np.savez(tmp_path / "plain" / "c.npz", **whole)
    failed = dict(import_features(tmp_path / "plain", tmp_path / "s", "structured").failed)
    assert "no structure columns, the video has some: fill another folder" in failed["c"]
    with pytest.raises(InputError, match=r"structure_dim 3, not 0.*fill another folder"):
        import_features(tmp_path / "plain", tmp_path / "t", "structured")


def test_captions_that_go_with_no_features_are_an_error_with_counts(tmp_path, capsys):
    written(tmp_path / "f" / "video_a.npy")
    (tmp_path / "caption.json").write_text(json.dumps({"b": {"start": [0], "end": [1], "text": ["stir it"]}, "c": {}}))
    (tmp_path / "empty").mkdir()
    np.savez(tmp_path / "texts.npz", text=np.array(["stir it"]), emb=np.ones((1, 6)))
    command = ["prepare", "features", str(tmp_path / "f"), str(tmp_path / "s"), "--from", "arrays",
               "--encoder", f"precomputed:{tmp_path / 'f'}?text={tmp_path / 'texts.npz'}"]  # fmt: skip
    assert cli.main([*command, "--captions", str(tmp_path / "caption.json")]) == 3
    said = capsys.readouterr().err
    assert "captions of 2 videos, for instance 'b', but of none of the 1 feature files, for instance 'video_a'" in said
    assert cli.main([*command, "--captions", str(tmp_path / "empty")]) == 3
    assert "captions of 0 videos" in capsys.readouterr().err
    # an encoder without a text side: said once, before anything is done
    command[-1] = f"precomputed:{tmp_path / 'f'}"
    assert cli.main([*command, "--captions", str(tmp_path / "caption.json")]) == 2
    assert capsys.readouterr().err.count("have no text side") == 1


def test_vectors_for_some_phrases_only_are_one_line(tmp_path, spoken, capsys):
    said = {}
    for name in "abc":
        written(tmp_path / "f" / f"{name}.npy")
        said[name] = {"start": [0, 1, 2], "end": [1, 2, 3], "text": ["Stir it", f"cut {name}", "fold it"]}
    (tmp_path / "caption.json").write_text(json.dumps(said))
    np.savez(tmp_path / "texts.npz", text=np.array(["stir it", "fold it", "cut a"]), emb=np.eye(3, 6))
    command = ["prepare", "features", str(tmp_path / "f"), str(tmp_path / "s"), "--from", "arrays", "--encoder",
               f"precomputed:{tmp_path / 'f'}?text={tmp_path / 'texts.npz'}",
               "--captions", str(tmp_path / "caption.json")]  # fmt: skip
    assert cli.main([*command, "--json"]) == 0
    out, err = capsys.readouterr()
    note = "2 of 9 phrases have no vector and are left out, for instance 'cut b'"
    assert json.loads(out)["notes"] == [note] and json.loads(out)["phrases"] == 7
    assert err.count("no vector") == 1
    store = FeatureStore(tmp_path / "s")
    assert [p.text for p in store["a"].phrases] == ["Stir it", "cut a", "fold it"]
    assert [p.text for p in store["b"].phrases] == ["Stir it", "fold it"]
    assert store["b"].phrase_vectors.shape == (2, 6)


def test_a_bad_sample_does_not_stop_the_tar(tmp_path, capsys):
    """Found only where it is written: the reader has no say in what a store takes."""
    nan = sample("nan")
    nan["video_features"][2, 3] = np.nan
    narrow = {**sample("narrow"), "text_features": np.zeros((3, 512), np.float32)}
    timed = sample("timed")
    timed["json"]["start"][0] = "soon"
    parts = [sample("a"), nan, narrow, timed, {**sample("a"), "video_features": np.ones((2, 768))}, sample("z")]
    write_tar(tmp_path / "t.tar", {f"{i}.pyd": pickle.dumps(part) for i, part in enumerate(parts)})
    command = ["prepare", "features", str(tmp_path / "t.tar"), str(tmp_path / "s"), "--from", "released", "--quiet"]
    for _ in range(2):  # the second run finds the same
        assert cli.main(command) == 5
        said = capsys.readouterr()
        for what in ("not finite", r"text features have the shape (3, 512)", "'soon'", "another sample is called 'a'"):
            assert what in said.out + said.err
    store = FeatureStore(tmp_path / "s")
    assert sorted(video.video for video in store) == ["a", "z"]
    assert len(store["a"].features) == 7  # the first of the name


def test_captions_of_features_are_read_as_prepare_phrases_reads_them(tmp_path):
    """Rolling captions repeat what was said before, and stay on the screen while the next line is spoken."""
    from stepformer.data.features import _caption_entries

    entry = {"start": [2, 0], "end": [9, 6], "text": ["whisk them", "crack the eggs"]}
    (tmp_path / "caption.json").write_text(json.dumps({"v": entry}))
    ((video, read),) = _caption_entries(tmp_path / "caption.json")
    assert video == "v"
    assert [(cue.start_s, cue.end_s, cue.text) for cue in read()] == [(0, 2, "crack the eggs"), (2, 9, "whisk them")]
