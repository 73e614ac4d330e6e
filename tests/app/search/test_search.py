"""The index: what is planted is found, graphs agree with exact search, updates and kills leave it whole."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from stepformer.app.discover.stepformer import StepFormer
from stepformer.app.naming import PhraseBank
from stepformer.app.search import HERE, open_index, update_index
from stepformer.app.search.index import (
    FOLDER,
    IndexedVideo,
    IndexInfo,
    IndexWriter,
    generation_folder,
    read_info,
    uncentred,
    unit,
)
from stepformer.cli import main
from stepformer.core.checkpoint import load_checkpoint
from stepformer.data.store import StoredVideo, StoreInfo, StoreWriter
from stepformer.encoders.clip import PictureStatistics
from stepformer.errors import InputError, UsageError

sys.path.insert(0, str(Path(__file__).parents[1] / "discover"))
from discover_parts import ColourEncoder, tiny_checkpoint, tiny_model

DIM = 32


def library(count=30, steps=5, seed=0):
    """Videos whose step j of video i is a direction of its own, and the directions (count, steps, DIM)."""
    rng = np.random.default_rng(seed)
    kinds = unit(rng.standard_normal((count, steps, DIM)))
    videos = []
    for i in range(count):
        frames = np.repeat(kinds[i], 10, 0) + 0.3 * unit(rng.standard_normal((steps * 10, DIM)))
        spans = np.stack((np.arange(steps) * 10.0, np.arange(1, steps + 1) * 10.0), 1)
        labels = tuple(f"step {j} of {i}" for j in range(steps))
        videos.append(IndexedVideo(f"v{i}", steps * 10.0, spans, labels, kinds[i], frames, 1.0, f"stamp{i}"))
    return videos, kinds


def write(folder, videos, old=None):
    writer = IndexWriter(folder, old or IndexInfo("sentence", "test", DIM), np.zeros((3, DIM), np.float32))
    writer.add(videos)
    return writer.commit()


def test_every_planted_step_is_the_first_hit(tmp_path):
    videos, kinds = library()
    info = write(tmp_path, videos)
    assert (info.videos, info.steps, info.moments) == (30, 150, 30 * 5 * 3)
    index = open_index(tmp_path)
    for i in (0, 7, 29):
        for j in range(5):
            hit = index.search_vector(kinds[i, j], top=3)[0]
            assert (hit.video, hit.label) == (f"v{i}", f"step {j} of {i}")
            assert (hit.start_s, hit.end_s) == (j * 10, j * 10 + 10)
            assert hit.start_s <= hit.at_s < hit.end_s
            assert hit.score > 3


def test_what_fits_worse_than_unrelated_phrases_is_not_here(tmp_path):
    videos, kinds = library()
    rng = np.random.default_rng(5)
    pictures = PictureStatistics.of(rng.standard_normal((4000, DIM)), rank=4)
    bank = PhraseBank(tuple(map(str, range(200))), unit(rng.standard_normal((200, DIM))), pictures=pictures)
    means = np.stack([unit(video.frames).mean(0) for video in videos[:3]])
    writer = IndexWriter(tmp_path, IndexInfo("sentence", "test", DIM), means, bank=bank)
    writer.add(videos)
    writer.commit()
    index = open_index(tmp_path)
    index.__dict__["encoder"] = SimpleNamespace(pictures=pictures)
    assert index.fit_share(kinds[3, 2]) == 1.0  # what is shown fits better than any phrase of the bank
    none = unit(kinds.reshape(-1, DIM)).mean(0)
    frames = np.concatenate([unit(video.frames) for video in videos])
    far = min((unit(rng.standard_normal(DIM)) for _ in range(300)), key=lambda x: float((frames @ x).max()))
    assert index.fit_share(far) < HERE and index.fit_share(-none) < 1.0
    write(tmp_path, videos)
    assert open_index(tmp_path).fit_share(kinds[3, 2]) is None  # nothing is known of pictures at large


def test_stored_vectors_give_their_pictures_back():
    pictures = unit(np.random.default_rng(0).standard_normal((50, DIM)) + 0.4)
    mean = pictures.mean(0)
    assert np.allclose(uncentred(unit(pictures - mean), mean), pictures, atol=1e-5)


def test_graph_and_exact_search_agree_and_places_are_not_repeated(tmp_path):
    videos, kinds = library(60, seed=1)
    write(tmp_path, videos)
    index = open_index(tmp_path)
    for i in range(0, 60, 7):
        fast, exact = index.search_vector(kinds[i, 2], 10), index.search_vector(kinds[i, 2], 10, exact=True)
        assert len({(h.video, h.start_s) for h in fast}) == len(fast) == 10
        assert len({(h.video, h.start_s) for h in fast} & {(h.video, h.start_s) for h in exact}) >= 9
        assert [h.score for h in fast] == sorted((h.score for h in fast), reverse=True)
    assert max(sum(h.video == v for h in index.search_vector(kinds[0, 0], 20, per_video=1)) for v in ("v0", "v1")) <= 1


def test_moments_stop_at_the_edges_of_steps():
    frames = np.arange(11 * DIM, dtype=np.float32).reshape(11, DIM)
    spans = np.array([(2.0, 5.0), (5.0, 10.0)])
    video = IndexedVideo("v", 11.0, spans, (None, None), np.ones((2, DIM), np.float32), frames)
    entries, means = video.moments(4.0)
    assert entries["start_s"].tolist() == [0, 2, 5, 9, 10]
    assert entries["end_s"].tolist() == [2, 5, 9, 10, 11]
    assert entries["step"].tolist() == [-1, 0, 1, 1, -1]
    assert means[1] == pytest.approx(frames[2:5].mean(0))


def test_videos_can_be_taken_out_and_put_in(tmp_path):
    videos, kinds = library()
    old = write(tmp_path, videos[:20])
    writer = IndexWriter(tmp_path, old)
    assert writer.remove(["v3", "v4", "nobody"]) == 2
    writer.add(videos[20:])
    info = writer.commit()
    assert (info.generation, info.videos) == (2, 28)
    index = open_index(tmp_path)
    assert all(hit.video not in ("v3", "v4") for hit in index.search_vector(kinds[3, 0], 20))
    assert index.search_vector(kinds[25, 1])[0].video == "v25"
    assert sorted(p.name for p in (tmp_path / FOLDER).iterdir()) == ["000002", "index.json"]


def test_a_kill_before_the_rename_leaves_the_old_index(tmp_path, monkeypatch):
    videos, kinds = library()
    old = write(tmp_path, videos[:5])

    def killed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("stepformer.app.search.index.write_json", killed)
    writer = IndexWriter(tmp_path, old)
    writer.add(videos[5:])
    with pytest.raises(KeyboardInterrupt):
        writer.commit()
    monkeypatch.undo()
    index = open_index(tmp_path)
    assert index.info.videos == 5
    assert index.search_vector(kinds[2, 2])[0].video == "v2"


def test_bad_input_is_told(tmp_path):
    with pytest.raises(InputError, match=r"no search index yet.*--update"):
        open_index(tmp_path)
    with pytest.raises(InputError, match="no folder"):
        open_index(tmp_path / "nowhere")
    videos, _ = library(3)
    write(tmp_path, videos)
    with pytest.raises(UsageError, match="width"):
        open_index(tmp_path).search_vector(np.ones(5))
    with pytest.raises(UsageError, match="empty"):
        open_index(tmp_path).search("  ")
    (tmp_path / FOLDER / "000001" / "steps.usearch").write_bytes(b"broken")
    with pytest.raises(InputError, match="--rebuild"):
        open_index(tmp_path)
    with pytest.raises(InputError, match="needs a span"):
        IndexedVideo("v", 1.0, np.zeros((2, 2)), ("a",), np.ones((2, DIM)), np.ones((3, DIM)))


def forge(folder, name, change, **facts):
    """Changes a file of an index (its bytes), or facts of index.json, and makes its checksum right again."""
    info = read_info(folder)
    place, file = generation_folder(folder, info.generation), folder / FOLDER / "index.json"
    for path in place.glob(name):
        path.write_bytes(change(path.read_bytes()))
    kept = asdict(info) | facts
    known = replace(info, **{key: type(getattr(info, key))(value) for key, value in facts.items()})
    file.write_text(json.dumps(json.loads(file.read_text()) | kept | {"checksum": known.checked(place)}))


def links_lead_nowhere(graph):
    return graph[:-256] + b"\0\0\0\x10" * 64  # they lie at the end


def run_apart(words, cwd, **environment):
    environment = {name: value for name, value in os.environ.items() if name != "STEPFORMER_PLUGINS"} | environment
    return subprocess.run(
        [sys.executable, *words], cwd=cwd, check=False, capture_output=True, text=True, env=environment
    )


def test_a_forged_graph_costs_a_question_one_sentence(tmp_path):
    """Its checksum is right and its links lead nowhere: walking it crashes."""
    videos, _ = library(6)
    write(tmp_path, videos)
    forge(tmp_path, "*.usearch", links_lead_nowhere, encoder="ones")
    (tmp_path / "ones.py").write_text(
        "import numpy; from types import SimpleNamespace; from stepformer import encoders\n"
        f"ones = SimpleNamespace(name='ones', dim={DIM}, encode_text=lambda texts: numpy.ones((len(texts), {DIM})))\n"
        "encoders.ENCODERS.register('ones', lambda: ones)\n"
    )
    walk = f"from stepformer.app.search import open_index; open_index('.').search_vector([1.0] * {DIM})"
    crash = run_apart(["-c", walk], tmp_path)
    answer = run_apart(["-m", "stepformer", "search", ".", "whisk", "--plugin", "ones.py"], tmp_path)
    assert crash.returncode  # SIGSEGV with the library as pinned; else nothing is shown
    assert (answer.returncode, answer.stderr.count("\n")) == (3, 1)
    # what the links lead to is chance: the library crashes there, or takes it for a size and asks for that much memory
    assert re.match("stepformer: the search index of . (is damaged|cannot be read): ", answer.stderr), answer.stderr


def test_a_forged_graph_costs_an_update_one_sentence_and_loses_nothing(tmp_path):
    """As above, where the graph is not walked by a question but changed."""
    store, models = tmp_path / "store", tmp_path / "models"
    fill(store, [f"v{i}" for i in range(8)])
    tiny_checkpoint(models / "tiny.safetensors")
    parts = Path(__file__).parents[1] / "discover"
    (tmp_path / "colours.py").write_text(
        f"import sys; sys.path.insert(0, {str(parts)!r})\nfrom discover_parts import ColourEncoder\n"
        "from stepformer import encoders; encoders.ENCODERS['colours'] = ColourEncoder\n"
    )
    given = {"STEPFORMER_MODELS": str(models), "STEPFORMER_MODEL": "tiny", "STEPFORMER_PLUGINS": "colours.py"}
    words = ["-m", "stepformer", "search", "store", "--update", "--json", "-q"]
    model = StepFormer(load_checkpoint(models / "tiny.safetensors"), "tiny", ColourEncoder())
    update_index(store, model)
    fill(store, ["v0", "v9"], seed=1)
    second = run_apart(words, tmp_path, **given)  # a good graph is changed where a forged one would crash
    assert json.loads(second.stdout)["update"] | {"failed": 0} == {
        "added": 1, "replaced": 1, "removed": 0, "kept": 7, "failed": 0, "videos": 9,
        "steps": read_info(store).steps, "moments": read_info(store).moments,
    }  # fmt: skip
    forge(store, "*.usearch", links_lead_nowhere)
    before = {path: path.read_bytes() for path in (store / FOLDER).rglob("*") if path.is_file()}
    fill(store, [f"v{i}" for i in range(6)], seed=2)
    crash = "import colours, stepformer as sf; sf.search.update_index('store', sf.load_model('tiny'))"
    assert run_apart(["-c", crash], tmp_path, **given).returncode < 0  # the Python function, which has no process
    forged = run_apart(words, tmp_path, **given)
    assert (forged.returncode, forged.stdout, forged.stderr.count("\n")) == (3, "", 1), forged.stderr
    assert "the search index of store cannot be read" in forged.stderr and "--update --rebuild" in forged.stderr
    assert before.items() <= {path: path.read_bytes() for path in (store / FOLDER).rglob("*") if path.is_file()}.items()
    assert update_index(store, model, rebuild=True).added == 9


def saved(array):
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def rows(**values):
    """Entries with other values."""

    def change(data):
        entries = np.load(io.BytesIO(data))
        for name, value in values.items():
            entries[name] = value
        return saved(entries)

    return change


def lines(**values):
    return lambda data: b"".join(json.dumps(json.loads(x) | values).encode() + b"\n" for x in data.splitlines())


@pytest.mark.parametrize(
    ("name", "change", "facts"),
    [
        ("moments.npy", rows(video=99), {}),
        ("moments.npy", rows(step=99), {}),
        ("moments.npy", rows(start_s=np.nan), {}),
        ("moments.npy", lambda data: saved(np.load(io.BytesIO(data))[:3]), {}),
        ("moments.npy", lambda data: saved(np.load(io.BytesIO(data))[None]), {}),
        ("videos.jsonl", lambda data: b"5\n" * 6, {}),
        ("videos.jsonl", lambda data: b"null\n" * 6, {}),
        ("videos.jsonl", lambda data: b"\n", {}),
        ("videos.jsonl", lines(labels=[[]] * 5), {}),
        ("videos.jsonl", lines(labels=["a"]), {}),
        ("videos.jsonl", lines(spans_s=[["a", "b"]] * 5), {}),
        ("videos.jsonl", lines(spans_s=[[float("inf"), 1]] * 5), {}),
        ("videos.jsonl", lines(video=7), {}),
        ("videos.jsonl", lines(stamp=None), {}),
        ("means.npy", lambda data: saved(np.full((3, DIM), np.nan, np.float32)), {}),
        ("sample-*.npy", lambda data: saved(np.full((3, DIM), np.inf, np.float32)), {}),
        ("*.usearch", lambda data: data[: len(data) // 2], {}),
        ("none", None, {"moment_s": 1e308}),
        ("none", None, {"dim": 10**12}),
        ("none", None, {"generation": 10**300}),
    ],
)
def test_whatever_is_forged_is_one_error(tmp_path, name, change, facts):
    """A question and an update, each of which may also do without what was forged."""
    videos, kinds = library(6)
    write(tmp_path, videos)
    forge(tmp_path, name, change, **facts)
    told = 0
    for use in (
        lambda: open_index(tmp_path).search_vector(kinds[2, 2]),
        lambda: change_all(tmp_path, videos),
    ):
        try:
            use()
        except InputError as error:
            assert "--update --rebuild" in str(error)
            told += 1
    assert told


def change_all(folder, videos):
    """What an update does with an index."""
    writer = IndexWriter(folder, read_info(folder))
    writer.remove([name for name in writer.stamps() if name != "v2"])
    writer.add(videos[3:])
    writer.commit()


def test_damage_of_any_file_is_noticed_before_a_graph_is_opened(tmp_path):
    """One bit in ten of a graph crashed the process that opened it; the others gave other answers in silence."""
    videos, _ = library(6)
    write(tmp_path, videos)
    rng = np.random.default_rng(0)
    for path in sorted(path for path in (tmp_path / FOLDER).rglob("*") if path.is_file()):
        good = path.read_bytes()
        for at in rng.integers(len(good), size=20):
            path.write_bytes(good[:at] + bytes([good[at] ^ 1 << int(rng.integers(8))]) + good[at + 1 :])
            with pytest.raises(InputError, match="--rebuild"):
                open_index(tmp_path)
        path.write_bytes(good)
    assert open_index(tmp_path).info.videos == 6


# -- from a feature store, with a model ---------------------------------------------------------------------------


def fill(folder, names, seed=0):
    encoder = ColourEncoder()
    info = StoreInfo(encoder.name, encoder.fingerprint, encoder.dim)
    rng = np.random.default_rng(seed)
    with StoreWriter(folder, info) as writer:
        for name in names:
            words = encoder.encode_text([f"{name} {i}" for i in range(4)])
            frames = np.repeat(words, 12, 0) + 0.1 * rng.standard_normal((48, encoder.dim)).astype(np.float32)
            writer.append(StoredVideo(name, frames, 1.0, 48.0, meta={"seed": seed}), replace=True)


@pytest.fixture(scope="module")
def model():
    return tiny_model()


def test_a_store_is_indexed_found_and_brought_up_to_date(tmp_path, model):
    store = tmp_path / "store"
    fill(store, ["alpha", "beta", "gamma"])
    first = update_index(store, model)
    assert (first.added, first.kept, first.failed) == (3, 0, ())
    hit = open_index(store).search_vector(model.encoder.encode_text(["beta 2"])[0])[0]
    assert hit.video == "beta"
    assert 24 <= hit.at_s < 36
    assert update_index(store, model).kept == 3
    fill(store, ["gamma", "delta"], seed=1)
    second = update_index(store, model)
    assert (second.added, second.replaced, second.kept, second.info.videos) == (1, 1, 2, 4)
    assert open_index(store).search_vector(model.encoder.encode_text(["delta 0"])[0])[0].video == "delta"


def test_the_command(tmp_path, model, monkeypatch, capsys):
    store = tmp_path / "store"
    fill(store, ["alpha", "beta"])
    monkeypatch.setattr("stepformer.load_model", lambda *a, **k: model, raising=False)
    monkeypatch.setattr("stepformer.encoders.load", lambda name: model.encoder)
    assert main(["search", str(store), "alpha 1"]) == 3
    assert "no search index yet" in capsys.readouterr().err
    assert main(["search", str(store)]) == 2
    assert main(["search", str(tmp_path / "nowhere"), "x"]) == 3
    assert main(["search", str(store), "--update", "--quiet"]) == 0
    assert "2 videos" in capsys.readouterr().out
    assert main(["search", str(store), " "]) == 2
    assert "the query is empty" in capsys.readouterr().err
    assert main(["search", str(store), "alpha 1", "--json", "--top", "2"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["hits"][0]["video"] == "alpha"
    assert 12 <= result["hits"][0]["at_s"] < 24
    assert result["seconds"] < 5
    assert main(["search", str(store), "alpha 1"]) == 0
    assert "alpha" in capsys.readouterr().out
    empty = tmp_path / "empty"
    empty.mkdir()
    assert main(["search", str(empty), "--update"]) == 3
    assert "prepare features" in capsys.readouterr().err


def test_the_bench_measures_a_small_library(tmp_path):
    from stepformer.bench.search import measure

    def encode(texts):
        return ColourEncoder().encode_text(texts)

    result = measure(tmp_path, encode, videos=40, queries=10, threads=1)
    assert result["recall_at_10"]["steps"] > 0.9
    assert result["recall_at_10"]["moments"] > 0.9
    assert result["any_of_10_right"] > 5 * result["first_by_chance"]


def test_a_folder_of_timelines_alone_says_what_is_missing(tmp_path):
    (tmp_path / "notes.json").write_text("[]")
    with pytest.raises(InputError, match="no videos and no feature store"):
        update_index(tmp_path, tiny_model())
