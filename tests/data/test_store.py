"""The feature store: what is written comes back, whatever moment the writing is killed at."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepformer.data.store import FeatureStore, StoredPhrase, StoredVideo, StoreInfo, StoreWriter, open_stores, spool
from stepformer.errors import InputError, NonFiniteError, UsageError, WriteError

INFO = StoreInfo("toy", "toy-1", dim=4, rate_hz=1.0, structure_dim=3, meta={"license": "none"})


def a_video(name="a", n=5, phrases=2, info=INFO, seed=0):
    rng = np.random.default_rng([seed, *name.encode()])
    said = [StoredPhrase(f"phrase {i} of {name}", i, i + 0.5, chatter=i == 1) for i in range(phrases)]
    return StoredVideo(
        name,
        rng.standard_normal((n, info.dim), dtype=np.float32),
        info.rate_hz,
        float(n),
        rng.standard_normal((n, info.structure_dim), dtype=np.float32) if info.structure_dim else None,
        tuple(said),
        rng.standard_normal((phrases, info.dim), dtype=np.float32),
        {"source": f"{name}.mp4"},
    )


def assert_same(found, given_):
    assert found.video == given_.video
    assert found.features.dtype == np.float32
    np.testing.assert_array_equal(found.features, given_.features.astype(np.float16).astype(np.float32))
    if given_.structure is None:
        assert found.structure is None
    else:
        np.testing.assert_array_equal(found.structure, given_.structure.astype(np.float16).astype(np.float32))
    assert found.phrases == given_.phrases
    np.testing.assert_array_equal(found.phrase_vectors, given_.phrase_vectors.astype(np.float16).astype(np.float32))
    assert found.duration_s == given_.duration_s
    assert found.meta == given_.meta


def test_round_trip_over_several_shards(tmp_path):
    videos = [a_video(f"video {i}", n=3 + i, phrases=i % 3) for i in range(20)]
    with StoreWriter(tmp_path / "s", INFO, shard_bytes=2000) as writer:
        for video in videos:
            writer.append(video)
    store = FeatureStore(tmp_path / "s")
    assert len(list((tmp_path / "s" / "shards").iterdir())) > 3
    assert not list((tmp_path / "s" / "spool").iterdir())
    assert sorted(store.ids) == sorted(v.video for v in videos)
    assert len(store) == 20
    assert store.info == INFO
    for video in videos:
        assert_same(store[video.video], video)
        assert store.entry(video.video).n == len(video.features)
    assert [v.video for v in store] == list(store.ids)
    assert store[0].video == store.ids[0]
    assert [v.video for v in store[1:3]] == list(store.ids[1:3])
    with pytest.raises(IndexError):
        store[20]
    with pytest.raises(InputError, match="no video 'nobody'"):
        store["nobody"]


@settings(deadline=None, max_examples=25)
@given(
    st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\n"), min_size=1),
    st.text(st.characters(exclude_categories=("Cs",))),
)
def test_any_name_and_any_phrase_text(tmp_path_factory, name, text):
    path = tmp_path_factory.mktemp("any")
    video = StoredVideo(name, np.ones((2, 4)), 1.0, 2.0, np.ones((2, 3)), (StoredPhrase(text, 0, 1),), np.ones((1, 4)))
    with StoreWriter(path / "s", INFO) as writer:
        writer.append(video)
    found = FeatureStore(path / "s")
    assert found.ids == (name,)
    assert found[name].phrases[0].text == text


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(WriteError, match=r"file/s cannot be written: .*file is not a folder$"):
        StoreWriter(tmp_path / "file" / "s", INFO)


def test_a_name_that_looks_like_the_index_itself(tmp_path):
    tricky = 'x", "phrases": [], "n": 9|features'
    with StoreWriter(tmp_path / "s", INFO) as writer:
        writer.append(a_video(tricky))
    assert_same(FeatureStore(tmp_path / "s")[tricky], a_video(tricky))


def test_no_text_side_no_structure(tmp_path):
    info = StoreInfo("toy", "toy-2", dim=4)
    video = StoredVideo("a", np.ones((2, 4)), 1.0, 2.0, phrases=(StoredPhrase("cut", 0, 1),))
    with StoreWriter(tmp_path / "s", info) as writer:
        writer.append(video)
        writer.append(StoredVideo("b", np.ones((2, 4)), 1.0, 2.0))
    store = FeatureStore(tmp_path / "s")
    assert store["a"].phrase_vectors is None
    assert store["a"].structure is None
    assert store["b"].phrase_vectors.shape == (0, 4)


def test_another_encoder_is_refused(tmp_path):
    with StoreWriter(tmp_path / "s", INFO) as writer:
        writer.append(a_video())
    other = StoreInfo("toy", "toy-9", dim=4, structure_dim=3)
    with pytest.raises(InputError, match="never mixed"):
        StoreWriter(tmp_path / "s", other)
    with StoreWriter(tmp_path / "t", other) as writer:
        writer.append(a_video(info=other))
    with pytest.raises(InputError, match=r"toy-9.*toy-1"):
        open_stores([tmp_path / "s", tmp_path / "t"])
    assert len(open_stores([tmp_path / "s", tmp_path / "s"])) == 2
    with pytest.raises(InputError, match="toy-1"):
        FeatureStore(tmp_path / "s").require_encoder("toy-9", "mine")
    FeatureStore(tmp_path / "s").require_encoder("toy-1")
    with pytest.raises(InputError, match="rate_hz"):
        StoreWriter(tmp_path / "s", StoreInfo("toy", "toy-1", dim=4, rate_hz=2.0, structure_dim=3))


def test_bad_input_is_refused_and_nothing_is_stored(tmp_path):
    with StoreWriter(tmp_path / "s", INFO) as writer:
        bad = a_video()
        bad.features[1, 1] = np.nan
        with pytest.raises(NonFiniteError):
            writer.append(bad)
        big = a_video()
        big.features[0, 0] = 1e6
        with pytest.raises(InputError, match="65504"):
            writer.append(big)
        with pytest.raises(InputError, match="columns"):
            writer.append(StoredVideo("w", np.ones((2, 9)), 1.0, 2.0, np.ones((2, 3))))
        with pytest.raises(InputError, match="structure"):
            writer.append(StoredVideo("w", np.ones((2, 4)), 1.0, 2.0))
        with pytest.raises(InputError, match="per second"):
            writer.append(StoredVideo("w", np.ones((2, 4)), 2.0, 2.0, np.ones((2, 3))))
        assert "a" not in writer
        writer.append(a_video())
        with pytest.raises(InputError, match="already has"):
            writer.append(a_video())
    assert FeatureStore(tmp_path / "s").ids == ("a",)
    with pytest.raises(InputError, match="shape"):
        StoredVideo("a", np.ones((2, 4)), 1.0, 2.0, phrases=(StoredPhrase("x", 0, 1),), phrase_vectors=np.ones((2, 4)))
    with pytest.raises(InputError, match="no features"):
        StoredVideo("a", np.ones((0, 4)), 1.0, 2.0)
    with pytest.raises(InputError, match="start_s"):
        StoredPhrase("x", 2, 1)
    with pytest.raises(UsageError):
        StoreInfo("toy", "", dim=4)


def test_replacing_a_video(tmp_path):
    with StoreWriter(tmp_path / "s", INFO) as writer:
        writer.append(a_video("a"))
        writer.append(a_video("b"))
    with StoreWriter(tmp_path / "s", INFO) as writer:
        assert writer.meta("a") == {"source": "a.mp4"}
        writer.append(a_video("a", n=9, seed=7), replace=True)
    store = FeatureStore(tmp_path / "s")
    assert sorted(store.ids) == ["a", "b"]
    assert_same(store["a"], a_video("a", n=9, seed=7))


def test_not_a_store(tmp_path):
    with pytest.raises(InputError, match="not a feature store"):
        FeatureStore(tmp_path)
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(InputError, match="other files"):
        StoreWriter(tmp_path, INFO)
    (tmp_path / "store.json").write_text('{"format": "stepformer-feature-store", "version": 99}')
    with pytest.raises(InputError, match="version 99"):
        FeatureStore(tmp_path)
    (tmp_path / "store.json").write_text("[1]")
    with pytest.raises(InputError, match="does not describe"):
        FeatureStore(tmp_path)


def test_damaged_shard_says_which(tmp_path):
    with StoreWriter(tmp_path / "s", INFO) as writer:
        writer.append(a_video())
    shard = tmp_path / "s" / "shards" / "00000.safetensors"
    shard.write_bytes(shard.read_bytes()[:40])
    with pytest.raises(InputError, match=r"00000\.safetensors"):
        FeatureStore(tmp_path / "s")["a"]


def test_an_index_that_counts_other_phrases_than_there_are_is_refused(tmp_path):
    """Room for a batch is made by what the index counts, before anything is read."""
    with StoreWriter(tmp_path / "s", INFO) as writer:
        writer.append(a_video())
    index = tmp_path / "s" / "index.jsonl"
    good = index.read_text()
    assert FeatureStore(tmp_path / "s").arrays("a").phrases.shape == (2, 4)
    for count, sentence in ((5, "are not those that the index counts"), (10**9, "counts 1000000000 phrases")):
        index.write_text(good.replace('"n_phrases": 2', f'"n_phrases": {count}'))
        with pytest.raises(InputError, match=sentence):
            FeatureStore(tmp_path / "s").arrays("a")


def test_one_writer_at_a_time(tmp_path):
    with StoreWriter(tmp_path / "s", INFO), pytest.raises(InputError, match="another process"):
        StoreWriter(tmp_path / "s", INFO)
    StoreWriter(tmp_path / "s", INFO).close()


class Kill(BaseException):
    """Stands in for a kill: nothing catches it."""


@pytest.mark.parametrize("moment", ["before shard", "before index", "within index", "before removal"])
def test_a_kill_at_each_moment_loses_nothing(tmp_path, monkeypatch, moment):
    path = tmp_path / "s"
    with StoreWriter(path, INFO) as writer:
        writer.append(a_video("first"))
    writer = StoreWriter(path, INFO)
    for name in ("a", "b", "c"):
        writer.append(a_video(name))

    def die(*args, **kwargs):
        raise Kill

    with monkeypatch.context() as patch:
        if moment == "before shard":
            patch.setattr("safetensors.numpy.save_file", die)
        elif moment == "before index":
            patch.setattr("stepformer.data.store._dump", die)
        else:
            patch.setattr("pathlib.Path.unlink", die)
        with pytest.raises(Kill):
            writer.close()
    if moment == "within index":
        index = path / "index.jsonl"
        index.write_bytes(index.read_bytes()[:-30])
    assert "first" in FeatureStore(path)
    with StoreWriter(path, INFO) as writer:
        assert all(name in writer for name in ("first", "a", "b", "c"))
        writer.append(a_video("d"))
    store = FeatureStore(path)
    assert sorted(store.ids) == ["a", "b", "c", "d", "first"]
    for name in store.ids:
        assert_same(store[name], a_video(name))
    assert not list((path / "spool").iterdir())


_VICTIM = """
import sys, numpy as np
from stepformer.data.store import StoredVideo, StoreInfo
from stepformer.data.store import StoreWriter
with StoreWriter(sys.argv[1], StoreInfo("toy", "toy-1", dim=4), shard_bytes=3000) as writer:
    for i in range(100000):
        name = str(i)
        if name not in writer:
            writer.append(StoredVideo(name, np.full((5, 4), i % 100), 1.0, 5.0))
            print(name, flush=True)
"""


def test_real_kills_lose_no_finished_video(tmp_path):
    path = tmp_path / "s"
    finished = []
    for _ in range(3):
        process = subprocess.Popen([sys.executable, "-c", _VICTIM, str(path)], stdout=subprocess.PIPE, text=True)
        for _ in range(40):
            finished.append(process.stdout.readline().strip())
        process.send_signal(signal.SIGKILL)
        rest, _ = process.communicate()
        finished += rest.split()
    assert len(set(finished)) == len(finished), "a finished video was done again"
    with StoreWriter(path, StoreInfo("toy", "toy-1", dim=4)):
        pass
    store = FeatureStore(path)
    assert set(finished) <= set(store.ids)
    for name in finished:
        assert (store[name].features == int(name) % 100).all()


def _feed(path, names):
    for name in names:
        spool(path, a_video(name))


def test_many_processes_feed_one_writer(tmp_path):
    path = tmp_path / "s"
    groups = [[f"{worker}-{i}" for i in range(15)] for worker in range(3)]
    with StoreWriter(path, INFO, shard_bytes=3000) as writer:
        context = multiprocessing.get_context("fork")
        workers = [context.Process(target=_feed, args=(path, names)) for names in groups]
        for worker in workers:
            worker.start()
        while any(worker.is_alive() for worker in workers):
            writer.collect()
            time.sleep(0.01)
        assert all(worker.exitcode == 0 for worker in workers)
    store = FeatureStore(path)
    assert sorted(store.ids) == sorted(name for names in groups for name in names)
    for name in store.ids:
        assert_same(store[name], a_video(name))


def test_readable_with_safetensors_and_json_alone(tmp_path):
    """The format is a promise: this reads a store without the product."""
    with StoreWriter(tmp_path / "s", INFO) as writer:
        writer.append(a_video("a b|c"))
    script = f"""
import json, sys
from safetensors.numpy import load_file
root = {str(tmp_path / "s")!r}
line = json.loads(open(root + "/index.jsonl").readline())
shard = load_file(root + f"/shards/{{line['shard']:05d}}.safetensors")
print(line["id"], shard["a b|c|features"].shape, shard["a b|c|structure"].shape, shard["a b|c|phrases"].shape)
assert not any(name.startswith("stepformer") for name in sys.modules)
"""
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "a b|c (5, 4) (5, 3) (2, 4)"
    assert json.loads((tmp_path / "s" / "store.json").read_text())["rate_hz"] == 1.0


def test_reading_needs_neither_av_nor_pyarrow(tmp_path):
    with StoreWriter(tmp_path / "s", INFO) as writer:
        writer.append(a_video())
    script = (
        "import sys; sys.modules['av'] = sys.modules['pyarrow'] = sys.modules['spacy'] = None\n"
        "from stepformer.data.store import FeatureStore\n"
        f"print(FeatureStore({str(tmp_path / 's')!r})[0].features.shape)"
    )
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=env).stdout
    assert out.strip() == "(5, 4)"
