"""Every reader of what a stranger wrote, with a seed that it reads: the list that fuzzing walks.

A reader takes a path. It may succeed or raise a :class:`StepFormerError`; anything else, more than ``TIME_S`` seconds
or more than ``MEMORY_BYTES`` of new memory is a fault.
"""

from __future__ import annotations

import gzip
import io
import json
import pickle
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from stepformer import Step, Timeline
from stepformer.errors import StepFormerError

TIME_S = 5.0
MEMORY_BYTES = 512 << 20


@dataclass(frozen=True)
class Reader:
    """One reader: what it is called, the name its file needs, a good file, and the function."""

    name: str
    file: str
    seed: bytes
    read: Callable[[Path], object]

    def try_on(self, data: bytes, folder: Path) -> str:
        """ "ok" or "refused"; anything else is raised."""
        path = folder / self.file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        try:
            self.read(path)
        except StepFormerError as error:
            assert str(error).strip(), "an error without a sentence"
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


def _tar(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def _subtitles(text: str, name: str) -> Reader:
    from stepformer.narration import read_subtitles

    return Reader(f"subtitles {Path(name).suffix}", name, text.encode(), read_subtitles)


def _timeline(format: str, suffix: str) -> Reader:
    from stepformer.show import export

    text = export.render(TIMELINE, format).text
    return Reader(f"timeline {format}", "t" + suffix, text.encode(), export.read)


def _checkpoint(folder: Path) -> bytes:
    from stepformer.core.checkpoint import save_checkpoint
    from stepformer.core.inference import InferenceConfig
    from stepformer.core.model import StepDecoder, preset

    model = StepDecoder(preset("default", feature_dim=8, dim=8, heads=2, feedforward=8, slots=4, layers=1))
    save_checkpoint(folder / "c.safetensors", model, "none", inference=InferenceConfig())
    return (folder / "c.safetensors").read_bytes()


def readers(folder: Path) -> list[Reader]:
    """All of them; ``folder`` is for making seeds."""
    from stepformer.base.safe_pickle import load_restricted
    from stepformer.core.checkpoint import load_checkpoint
    from stepformer.core.config import read_config
    from stepformer.data import read_coin, read_crosstask
    from stepformer.data.howto100m import read_howto100m
    from stepformer.data.precomputed import read_features
    from stepformer.data.store import read_info
    from stepformer.data.store_import import released_samples
    from stepformer.encoders.captions import read_captions
    from stepformer.evaluation.predictions import read_prediction

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
            read_config,
        ),
        Reader("COIN", "COIN.json", json.dumps(coin).encode(), read_coin),
        Reader("COIN gzipped", "COIN.json.gz", gzip.compress(json.dumps(coin).encode()), read_coin),
        Reader("CrossTask", "crosstask_release.tar.gz", _tar(crosstask), read_crosstask),
        Reader("HowTo100M", "caption.json", json.dumps(captions).encode(), lambda path: read_howto100m(path.parent)),
        Reader("features .npy", "f.npy", _npy(np.ones((4, 3), np.float32)), read_features),
        Reader("features .npz", "f.npz", _npz(features=np.ones((4, 3), np.float32)), read_features),
        Reader("prediction .npy", "p.npy", _npy(np.array([0, 0, 1, -1])), read_prediction),
        Reader("prediction .npz", "p.npz", _npz(ids=np.array([0, 1]), rate_hz=np.array(2.0)), read_prediction),
        Reader("prediction .csv", "p.csv", b"step,start,end\n1,0.5,3\n2,4,5\n", read_prediction),
        Reader("prediction .txt", "p.txt", b"0 0 1 -1 2\n", read_prediction),
        Reader("captions", "c.json", json.dumps(said).encode(), read_captions),
        Reader(
            "released tar",
            "t.tar.gz",
            _tar({"v1.npy": pickle.dumps(sample)}),
            lambda path: list(released_samples(path)),
        ),
        Reader("pickle", "p.pkl", pickle.dumps(sample), load_restricted),
        Reader("feature store", "store.json", json.dumps(store).encode(), lambda path: read_info(path.parent)),
    ]
