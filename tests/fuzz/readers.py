"""Every reader of what a stranger wrote, with a seed that it reads: the list that fuzzing walks.

A reader takes a path. It may succeed or raise a :class:`StepFormerError`; anything else, more than ``TIME_S`` seconds
or more than ``MEMORY_BYTES`` of new memory is a fault.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import gzip
import io
import json
import pickle
import sys
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path += [str(Path(__file__).parents[2]), str(Path(__file__).parents[1] / "core" / "training")]  # benchmarks/

from stepformer import Step, Timeline
from stepformer.errors import StepFormerError

CORPUS = Path(__file__).parent / "corpus"
TIME_S = 5.0
MEMORY_BYTES = 512 << 20


@dataclass(frozen=True)
class Reader:
    """One reader: what it is called, the name its file needs, a good file, and the function.

    ``slow``: a case takes tens of milliseconds, not one or two, so a soak has fewer of it.
    """

    name: str
    file: str
    seed: bytes
    read: Callable[[Path], object]
    slow: bool = False

    def try_on(self, data: bytes, folder: Path) -> str:
        """ "ok" or "refused"; anything else is raised."""
        path = folder / self.file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        try:
            self.read(path)
        except StepFormerError as error:
            said = str(error)
            assert said.strip() and "\n" not in said and len(said) < 2000, f"no sentence: {said[:200]!r}"
            return "refused"
        return "ok"


TIMELINE = Timeline(
    "a.mp4", 60.0, (Step(0, 14, "crack the eggs", 0.5, 1), Step(14.5, 32, "whisk & pour"), Step(35, 60, "fry"))
)


def _npy(array: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def _npz(**arrays: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.savez_compressed(out, **arrays)
    return out.getvalue()


def _tensors(arrays: dict[str, np.ndarray]) -> bytes:
    from safetensors.numpy import save

    return save(arrays)


def _torch(arrays: dict[str, np.ndarray]) -> bytes:
    import torch

    out = io.BytesIO()
    torch.save({name: torch.from_numpy(array) for name, array in arrays.items()}, out)
    return out.getvalue()


def _zip(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(zipfile.ZipInfo(name), data)  # of no date: the same seed whenever it is made
    return out.getvalue()


def _tar(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return gzip.compress(out.getvalue(), mtime=0)


def _subtitles(text: str, name: str) -> Reader:
    from stepformer.narration import read_subtitles

    return Reader(f"subtitles {Path(name).suffix}", name, text.encode(), read_subtitles)


def _crosstask(files: dict[str, bytes]) -> list[Reader]:
    """The files of a release that is a folder, each with the others beside it."""
    from stepformer.data import read_crosstask

    def reader(name: str) -> Reader:
        above = len(Path(name).parts) - 1
        others = {"../" * above + other: data for other, data in files.items() if other != name}
        return Reader(f"CrossTask {name}", name, files[name],
                      _beside(others, lambda path: read_crosstask(path.parents[above])))  # fmt: skip

    return [reader(name) for name in files]


def _timeline(format: str, suffix: str) -> Reader:
    from stepformer.show import export

    text = export.render(TIMELINE, format).text
    return Reader(f"timeline {format}", "t" + suffix, text.encode(), export.read)


def _checkpoint(folder: Path) -> bytes:
    from stepformer.core.checkpoint import save_checkpoint
    from stepformer.core.model import StepDecoder, preset
    from stepformer.core.options import InferenceConfig

    model = StepDecoder(preset("default", feature_dim=8, dim=8, heads=2, feedforward=8, slots=4, layers=1))
    save_checkpoint(folder / "c.safetensors", model, "none", inference=InferenceConfig())
    return (folder / "c.safetensors").read_bytes()


def _made(folder: Path, name: str, write: Callable[[Path], object]) -> bytes:
    """What a writer of ours makes of a file."""
    write(folder / name)
    return (folder / name).read_bytes()


def _beside(files: dict[str, bytes], read: Callable[[Path], object]) -> Callable[[Path], object]:
    """A reader of a file that needs others around it; names are relative to the folder of the case."""

    def all_of_it(path: Path) -> object:
        for name, data in files.items():
            other = path.parent / name
            if not other.exists():
                other.parent.mkdir(parents=True, exist_ok=True)
                other.write_bytes(data)
        return read(path)

    return all_of_it


def _watch(path: Path) -> object:
    """All that a command does with a video; what it holds must not seem longer than its bytes bear out."""
    import warnings

    from stepformer import media
    from stepformer.media.container import bearable_s
    from stepformer.media.picture import FrameSpec
    from stepformer.narration.listening import Listening, narration_of

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        reader = media.VideoReader(path)
        clips = sum(len(batch) for batch in reader.clips(FrameSpec((32, 32)), 1.0))
        narration_of(path, Listening(speech=False))
        sound = 0.0
        with contextlib.suppress(StepFormerError):
            sound = sum(len(block) for block in media.audio_blocks(path)) / media.SAMPLE_RATE_HZ
        media.VideoReader(path).pictures_at([0.0, reader.info.duration_s / 2], (16, 16))
    assert max(clips, sound) <= bearable_s(path) + 3600, (clips, sound)
    return None


def _videos() -> list[Reader]:
    return [
        Reader(f"video .{kind}", f"a.{kind}", (CORPUS / f"a.{kind}").read_bytes(), _watch, slow=True)
        for kind in ("mp4", "mkv", "ts", "webm", "avi", "subtitles.mkv")
    ]


def _procel_mat() -> Reader:
    """Forked from here, where the product asks a server to: which starts in no time; all else is as it is there."""
    import multiprocessing
    from unittest.mock import patch

    from scipy.io import loadmat

    from stepformer.base import many
    from stepformer.data.procel import read_procel

    loadmat(CORPUS / "data.mat")  # here, so that no fork imports it again

    def read(path: Path) -> object:
        with patch.object(many, "_context", lambda preload: multiprocessing.get_context("fork")):
            return read_procel(path)

    return Reader("ProceL .mat", "tea/data.mat", (CORPUS / "data.mat").read_bytes(), read, slow=True)


def make_corpus() -> None:
    """Writes the seeds that libraries make, whose bytes another version of them would not repeat."""
    from scipy.io import savemat

    from benchmarks.timecode import write_clip

    sys.path.append(str(Path(__file__).parents[1] / "narration"))
    from test_listening import write_with_subtitles

    vp9 = {"codec": "libvpx-vp9", "sound_codec": "libopus", "options": {"deadline": "realtime", "cpu-used": "8"}}
    kinds = {"mp4": {}, "mkv": {}, "ts": {}, "webm": vp9, "avi": {"codec": "mpeg4", "sound_codec": "mp3"}}
    times = [i / 10 for i in range(20)]
    for kind, options in kinds.items():
        write_clip(CORPUS / f"a.{kind}", times, size=(32, 64), rate_hz=10, group=7, tone_s=0.5,
                   constant_rate=kind == "avi", **options)  # fmt: skip

    write_with_subtitles(CORPUS / "a.subtitles.mkv", "srt", [("eng", [(0.5, "crack the eggs"), (1.5, "whisk them")])])

    def cells(*items: object) -> np.ndarray:
        row = np.empty((1, len(items)), object)
        row[0, :] = items
        return row

    savemat(
        CORPUS / "data.mat",
        {
            "grammar": cells("boil", "pour"),
            "key_steps_time": cells(cells(np.array([[1.0, 3.0]]), np.array([[4.0, 6.0]]))),
            "segment_time": cells(np.array([[0.0, 9.0]])),
            "caption": cells(cells("boil it", "pour it")),
            "caption_time": cells(cells(np.array([[0.0, 2.0]]), np.array([[3.0, 5.0]]))),
        },
        do_compression=True,
    )


def _search(folder: Path) -> list[Reader]:
    """The files of a search index, each read as a search reads it: first with its checksum, then without."""
    from stepformer.app.search.index import (
        FOLDER,
        IndexedVideo,
        IndexInfo,
        IndexWriter,
        load_entries,
        open_index,
        read_videos,
    )

    library = folder / "library"
    writer = IndexWriter(library, IndexInfo("toy", "toy-1", 4), np.zeros((3, 4), np.float32))
    spans, vectors = np.array([[0.0, 2.0], [2.0, 4.0]]), np.eye(4, dtype=np.float32)
    writer.add([IndexedVideo("v1", 4.0, spans, ("whisk", None), vectors[:2], vectors)])
    writer.commit()
    files = [path.relative_to(library) for path in library.rglob("*") if path.is_file()]
    parts = {str(name): (library / name).read_bytes() for name in files}

    def search(name: str) -> Reader:
        above = len(Path(name).parts) - 1
        others = {"../" * above + other: data for other, data in parts.items() if other != name}
        read = _beside(others, lambda path: open_index(path.parents[above]).search_vector(vectors[0]))
        return Reader(f"search {Path(name).name}", name, parts[name], read)

    place = f"{FOLDER}/000001"
    return [
        *(search(name) for name in (f"{FOLDER}/index.json", f"{place}/steps.usearch")),
        Reader("search videos", "videos.jsonl", parts[f"{place}/videos.jsonl"], read_videos),
        Reader("search entries", "steps.npy", parts[f"{place}/steps.npy"], load_entries),
    ]


def _stores(folder: Path) -> list[Reader]:
    """A feature store's index and shard, opened and read whole."""
    from stepformer.data.store import (
        INDEX_FILE,
        INFO_FILE,
        FeatureStore,
        StoredPhrase,
        StoredVideo,
        StoreInfo,
        StoreWriter,
    )

    store = folder / "a_store"
    with StoreWriter(store, StoreInfo("toy", "toy-1", dim=4)) as writer:
        for name in ("v1", "v2"):
            said = (StoredPhrase("whisk", 0.0, 1.0),)
            vectors = np.ones((3, 4), np.float32)
            writer.append(StoredVideo(name, vectors, 1.0, 3.0, None, said, np.ones((1, 4), np.float32)))
    shard = "shards/00000.safetensors"
    parts = {name: (store / name).read_bytes() for name in (INFO_FILE, INDEX_FILE, shard)}

    def read(path: Path) -> object:
        root = path.parents[1] if path.parent.name == "shards" else path.parent
        opened = FeatureStore(root)
        return [(opened.read(video), opened.arrays(video)) for video in opened.ids]

    def others(name: str, up: str) -> dict[str, bytes]:
        return {f"{up}{other}": data for other, data in parts.items() if other != name}

    return [
        Reader("store index", INDEX_FILE, parts[INDEX_FILE], _beside(others(INDEX_FILE, ""), read)),
        Reader("store shard", shard, parts[shard], _beside(others(shard, "../"), read)),
    ]


def _datasets(folder: Path) -> list[Reader]:
    from stepformer.data.plain import read_plain
    from stepformer.data.procel import read_procel

    procel = {
        "task": "tea",
        "grammar": ["boil", "pour"],
        "videos": [{"index": 1, "duration": 9.0, "key_steps": [[0, 1.0, 3.0]], "captions": [[0.0, 2.0, "boil it"]]}],
    }
    return [
        Reader("ProceL JSON", "tea.json", json.dumps(procel).encode(), read_procel),
        *(Reader(f"plain {name}", name, seed, _beside({"annotations/v1.csv": b"step,start,end\n1,1,3\n"},
                 lambda path: read_plain(path.parent)))
          for name, seed in {"steps.txt": b"boil water\npour\n", "mapping.txt": b"0 boil\n1 pour water\n"}.items()),
        Reader("plain annotations", "annotations/v1.csv", b"step,start,end\npour,1,3\n",
               lambda path: read_plain(path.parents[1])),
        Reader("plain features", "features/v1.npy", _npy(np.ones((4, 3), np.float32)),
               _beside({"../annotations/v1.csv": b"step,start,end\npour,1,3\n"},
                       lambda path: read_plain(path.parents[1]))),
    ]  # fmt: skip


@functools.cache
def _discover_parser() -> argparse.ArgumentParser:
    from stepformer.cli import command_parser

    return command_parser("discover")


def _settings(path: Path) -> object:
    from stepformer.cli.options import resolve

    return resolve(_discover_parser(), "discover", ["a.mp4", "--config", str(path)])


def _unpack(path: Path) -> object:
    from stepformer.base.weights import File, Piece
    from stepformer.base.weights.install import unpack

    return unpack((File("data/", "", (Piece(0, "a/"),)),), [path], path.parent / "unpacked")


def _released(path: Path) -> object:
    """A tar of the released code; what it calls a failure of one sample is a refusal here."""
    from stepformer.data.features import released_samples

    for _, sample in released_samples(path):
        if isinstance(sample, StepFormerError):
            raise sample
    return None


def _training_state(folder: Path) -> Reader:
    """The state that ``train --resume`` reads, of a run of two steps."""
    from training_runs import make_store

    from stepformer.app.training import make_trainer
    from stepformer.core.config import make_config

    make_store(folder / "stored", count=4, width=8)
    small = {"layers": 1, "heads": 1, "dim": 8, "feedforward": 8, "slots": 3}
    data = {"store": str(folder / "stored"), "held_out": 0.0, "max_frames": 25}
    config = make_config({"steps": 1, "batch": 2, "model": small, "data": data, "validation": {"every": 0}})
    trainer = make_trainer(config, folder / "run", device="cpu", quiet=True)
    trainer.run()

    def read(path: Path) -> object:
        trainer.out = path.parent
        trainer._load_state()
        return None

    return Reader("training state", "state.safetensors", (folder / "run" / "state.safetensors").read_bytes(), read)


def _index_page() -> Reader:
    """What a package index answers."""
    from contextlib import contextmanager
    from unittest.mock import patch

    from stepformer.base.weights import install

    def read(path: Path) -> object:
        class Answer(io.BytesIO):
            def geturl(self) -> str:
                return "https://index.invalid/simple/a/"

        @contextmanager
        def opened(*_: object, **__: object):
            yield Answer(path.read_bytes())

        with patch.object(install, "open_url", opened), patch.object(install, "index_urls", lambda: ["https://i"]):
            return install.find_file("a", "a-1.whl")

    html = b'<html><body><a href="../a-1.whl#sha256=0">a-1.whl</a></body></html>'
    return Reader("index page", "page.html", html, read)


def _worlds_data() -> list[Reader]:
    """The datasets that a world is built from."""
    from benchmarks.world import DatasetBuilder
    from stepformer.base.guard import reading

    youcook = {"v_a": {"timestamps": [[0, 2], [2, 4], [5, 6]], "sentences": ["a", "b", "c"], "duration": 9.0}}
    goalstep = [{"video": "a", "start_s": 0, "end_s": 9, "steps": [[i, i + 1, "do it", 0, None] for i in range(3)]}]
    wikihow = [{"title": "Make tea", "steps": ["boil", "pour", "stir"]}]

    def built(name: str, *given: object) -> Callable[[Path], object]:
        def read(path: Path) -> object:
            with reading(path, "dataset"):
                return getattr(DatasetBuilder(), name)(path, *given)

        return read

    return [
        Reader("YouCook2", "yc2_train.json", json.dumps(youcook).encode(), built("from_youcook2")),
        Reader("GoalStep", "g.json.gz", gzip.compress(json.dumps(goalstep).encode(), mtime=0), built("from_goalstep")),
        Reader("wikiHow", "w.json.gz", gzip.compress(json.dumps(wikihow).encode(), mtime=0),
               built("from_wikihow", 1.0)),
    ]  # fmt: skip


def _kept_runs() -> list[Reader]:
    """Results of ``reproduce`` that another machine made."""
    from stepformer.reproduce.execute import RunStore

    known = {"id": "r", "spec": {}, "scores": {"crosstask": {"f1": 0.1}}}
    units = _npz(**{"crosstask|locate": np.ones((2, 4), np.float32), "crosstask|tasks": np.arange(2)})
    return [
        Reader("kept run", "r.json", json.dumps(known).encode(), lambda p: RunStore(p.parent).missing("r", ["x"])),
        Reader("kept scores", "r.npz", units, lambda p: RunStore(p.parent).units("r", "crosstask")),
    ]


def _shown(path: Path) -> object:
    """A stranger's timeline in every format that is text, and on the terminal."""
    from stepformer.show import export
    from stepformer.show.terminal import draw

    timeline = export.read(path)
    refused = []
    for format in export.FORMATS.values():
        if format.kind != "text" or format.needs_video:
            continue
        try:
            export.render(timeline, format.name)
        except StepFormerError as error:
            refused.append(error)
    assert len(draw(timeline)) < 1 << 20
    if refused:
        raise refused[0]
    return None


def _similarity(path: Path) -> object:
    """A plot with a similarity map from elsewhere."""
    from stepformer.base.guard import load_array
    from stepformer.show import export

    return export.write(TIMELINE, path.with_suffix(".png"), similarity=load_array(path))


def _world(folder: Path) -> bytes:
    import hashlib

    from stepformer.data.world import build_world

    def words(texts: list[str]) -> np.ndarray:
        seeds = [int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "little") for text in texts]
        return np.stack([np.random.default_rng(seed).standard_normal(8).astype(np.float32) for seed in seeds])

    world = build_world(words, grammar_procedures=20, encoder="words")
    return _made(folder, "world.safetensors", world.save)


def readers(folder: Path) -> list[Reader]:
    """All of them; ``folder`` is for making seeds."""
    from stepformer.app.naming import read_bank
    from stepformer.base.guard import read_text, toml_of
    from stepformer.base.safe_pickle import load_restricted
    from stepformer.cli.inputs import lines_of
    from stepformer.core.checkpoint import load_checkpoint
    from stepformer.core.config import make_config
    from stepformer.core.training import _cut_metrics
    from stepformer.data import read_coin, read_crosstask
    from stepformer.data.howto100m import read_howto100m
    from stepformer.data.precomputed import TextTable, read_features
    from stepformer.data.store import read_info
    from stepformer.data.world import load_world
    from stepformer.encoders.captions import read_captions
    from stepformer.encoders.checkpoints import read_checkpoint
    from stepformer.encoders.milnce import read_dictionary
    from stepformer.evaluation.predictions import read_prediction
    from stepformer.narration.readers.structured import iter_captions

    coin = {
        "database": {
            "v1": {
                "class": "MakeTea",
                "duration": 30.0,
                "recipe_type": 1,
                "subset": "testing",
                "start": 0,
                "end": 30,
                "video_url": "x",
                "annotation": [{"id": "1", "segment": [1.0, 4.0], "label": "pour"}],
            }
        }
    }
    crosstask = {
        "tasks_primary.txt": b"1\nMake tea\nurl\n2\nboil water,pour\n\n",
        "videos.csv": b"1,v1,url\n",
        "videos_val.csv": b"1,v1,url\n",
        "annotations/1_v1.csv": b"1,0.5,3.5\n2,4,9\n",
    }
    captions = {"v1": {"start": [0, 3], "end": [2, 5], "text": ["crack the eggs", "whisk them"]}}
    sample = {
        "name": "v1",
        "json": {"phrases": ["whisk"], "start": [1.0], "end": [2.0]},
        "text_features": np.ones((1, 768), np.float32),
        "video_features": np.ones((3, 768), np.float32),
    }
    worded = json.dumps(sample["json"])
    said = {"duration": 9.0, "captions": [{"start": 0.0, "end": 4.0, "text": "whisk"}]}
    store = {
        "format": "stepformer-feature-store",
        "version": 1,
        "encoder": "clip",
        "fingerprint": "x",
        "dim": 8,
        "rate_hz": 1.0,
    }
    vtt = "WEBVTT\n\n00:00.000 --> 00:02.000\ncrack the <i>eggs</i>\n\n00:02.000 --> 00:04.000\nwhisk\n"
    return [
        _subtitles(vtt, "a.vtt"),
        _subtitles(
            "1\n00:00:00,000 --> 00:00:02,000\ncrack the eggs\n\n2\n00:00:02,000 --> 00:00:04,000\nwhisk\n", "a.srt"
        ),
        _subtitles(
            '<tt><body><div><p begin="0s" end="2s">crack</p><p begin="2s" dur="1s">a<br/>b</p></div></body></tt>',
            "a.ttml",
        ),
        _subtitles(
            json.dumps({"events": [{"tStartMs": 0, "dDurationMs": 2000, "segs": [{"utf8": "crack"}]}]}), "a.json3"
        ),
        _subtitles(json.dumps({"segments": [{"start": 0.0, "end": 2.0, "text": "crack the eggs"}]}), "a.json"),
        _subtitles("start,end,text\n0,2,crack\n2,4,whisk\n", "a.csv"),
        _subtitles("0:00\ncrack the eggs\n0:05\nwhisk\n", "a.txt"),
        _timeline("json", ".json"),
        _timeline("vtt", ".vtt"),
        _timeline("srt", ".srt"),
        _timeline("csv", ".csv"),
        _timeline("youtube", ".txt"),
        _timeline("ffmetadata", ".ffmeta"),
        _timeline("podlove", ".psc"),
        _timeline("matroska", ".chapters.xml"),
        Reader("checkpoint", "c.safetensors", _checkpoint(folder), load_checkpoint),
        Reader(
            "config",
            "run.toml",
            b'preset = "paper"\nsteps = 10\n[optim]\nlr = 1e-3\n[data]\nworld = "w"\n',
            lambda path: make_config(toml_of(read_text(path), path)),
        ),
        Reader("COIN", "COIN.json", json.dumps(coin).encode(), read_coin),
        Reader("COIN gzipped", "COIN.json.gz", gzip.compress(json.dumps(coin).encode(), mtime=0), read_coin),
        Reader("CrossTask", "crosstask_release.tar.gz", _tar(crosstask), read_crosstask),
        *_crosstask(crosstask),
        Reader("HowTo100M", "caption.json", json.dumps(captions).encode(), lambda path: read_howto100m(path.parent)),
        Reader("features .npy", "f.npy", _npy(np.ones((4, 3), np.float32)), read_features),
        Reader("features .npz", "f.npz", _npz(features=np.ones((4, 3), np.float32)), read_features),
        Reader("prediction .npy", "p.npy", _npy(np.array([0, 0, 1, -1])), read_prediction),
        Reader("prediction .npz", "p.npz", _npz(ids=np.array([0, 1]), rate_hz=np.array(2.0)), read_prediction),
        Reader("prediction .csv", "p.csv", b"step,start,end\n1,0.5,3\n2,4,5\n", read_prediction),
        Reader("prediction .txt", "p.txt", b"0 0 1 -1 2\n", read_prediction),
        Reader("captions", "c.json", json.dumps(said).encode(), read_captions),
        Reader("released tar", "t.tar.gz", _tar({"v1.npy": pickle.dumps(sample)}), _released),
        Reader("released sample", "t.tar", _tar({"v1.pyd": pickle.dumps(sample | {"json": worded})}), _released),
        Reader("pickle", "p.pkl", pickle.dumps(sample), load_restricted),
        *_videos(),
        _procel_mat(),
        *_stores(folder),
        *_search(folder),
        *_datasets(folder),
        Reader(
            "settings", "stepformer.toml", b'model = "default"\n[discover]\nsteps = 5\nno_labels = true\n', _settings
        ),
        Reader("phrase bank", "bank.txt", b"crack the eggs\nwhisk\n", read_bank),
        Reader(
            "captions gzipped",
            "caption.json.gz",
            gzip.compress(json.dumps(captions).encode(), mtime=0),
            lambda path: list(iter_captions(path)),
        ),
        Reader(
            "HowTo100M list",
            "HowTo100M_v1.csv",
            b"video_id,category_1,category_2,rank,task_id\nv1,a,b,1,7\n",
            lambda path: read_howto100m(path.parent),
        ),
        Reader(
            "features safetensors", "f.safetensors", _tensors({"features": np.ones((4, 3), np.float32)}), read_features
        ),
        Reader("text vectors", "t.npz", _npz(text=np.array(["a", "b"]), emb=np.ones((2, 3), np.float32)), TextTable),
        Reader("dictionary", "s3d_dict.npy", _npy(np.array(["a", "b"])), read_dictionary),
        Reader("torch checkpoint", "w.pth", _torch({"a": np.ones((2, 2), np.float32)}), read_checkpoint),
        Reader("wheel", "w.whl", _zip({"a/b.txt": b"hello" * 9, "a/c.npy": _npy(np.ones(3))}), _unpack),
        Reader("tar of weights", "w.tar", gzip.decompress(_tar({"a/b.txt": b"hello" * 9})), _unpack),
        Reader("world", "w.safetensors", _world(folder), load_world),
        _training_state(folder),
        Reader(
            "metrics",
            "metrics.jsonl",
            b'{"step": 1, "loss": 2.5}\n{"step": 2, "loss": 2.4}\n',
            lambda path: _cut_metrics(path, 1),
        ),
        Reader(
            "list of steps",
            "steps.txt",
            b"# steps\ncrack the eggs\n\nwhisk\n",
            lambda path: lines_of(str(path), "steps file"),
        ),
        _index_page(),
        *_worlds_data(),
        *_kept_runs(),
        Reader("similarity map", "s.npy", _npy(np.ones((3, 60), np.float32)), _similarity, slow=True),
        Reader("timeline shown", "t.json", _timeline("json", ".json").seed, _shown, slow=True),
        Reader("feature store", "store.json", json.dumps(store).encode(), lambda path: read_info(path.parent)),
    ]


if __name__ == "__main__":
    make_corpus()
