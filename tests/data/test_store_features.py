"""``prepare features``: a folder of videos to a store, row by row the right second, whatever happens on the way."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from benchmarks.timecode import read_time_s, write_clip
from stepformer import cli, encoders
from stepformer.base.cache import cache_folder
from stepformer.data import features
from stepformer.data.features import Settings, find_sources, prepare_features
from stepformer.data.store import FeatureStore
from stepformer.encoders.base import Encoded
from stepformer.errors import InputError
from stepformer.media.picture import FrameSpec
from stepformer.narration import Narration


class ClockEncoder:
    """Reads the time a picture shows and gives it as its vector: a store of it proves which seconds were decoded."""

    name, license, dim, rate_hz, structure_dim = "clock", "none", 2, 1.0, 1
    fingerprint = "clock-1"
    wants = FrameSpec((64, 128))

    def encode_video(self, frames):
        times = np.array([[read_time_s(picture), 1.0] for picture in frames], np.float32)
        return Encoded(times, times[:, :1])

    def encode_text(self, texts):
        return np.array([[len(text), 1.0] for text in texts], np.float32).reshape(len(texts), 2)


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    monkeypatch.setitem(encoders.ENCODERS, "clock", f"{__name__}:ClockEncoder")
    monkeypatch.setitem(sys.modules, __name__, sys.modules[__name__])
    features._start.cache_clear()


@pytest.fixture
def phrases(monkeypatch):
    """Phrases without the parser: every cue is one."""
    monkeypatch.setattr(features, "extract_phrases", lambda cues, options=None: [])
    monkeypatch.setattr(Narration, "phrases", lambda self, options=None: [_Phrase(cue) for cue in self.cues])


class _Phrase:
    def __init__(self, cue):
        self.text, self.start_s, self.end_s, self.chatter = cue.text, cue.start_s, cue.end_s, "subscribe" in cue.text


VTT = "WEBVTT\n\n00:01.000 --> 00:02.000\ncrack the eggs\n\n00:02.500 --> 00:03.000\nsubscribe\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("videos")
    steady = [i / 10 for i in range(52)]
    uneven = np.cumsum([0.0, *np.random.default_rng(2).choice([0.02, 0.3, 1.1], 20)]).round(3).tolist()
    fast = {"deadline": "realtime", "cpu-used": "8"}
    write_clip(root / "talk.mp4", steady, tone_s=5.2)
    (root / "talk.en.vtt").write_text(VTT)
    (root / "deeper").mkdir()
    write_clip(root / "deeper" / "turned.mov", steady, rotation_deg=90)
    write_clip(root / "same.mkv", steady, codec="libvpx-vp9", options=fast)
    write_clip(root / "same.webm", uneven, codec="libvpx", options=fast)
    write_clip(root / "old.avi", steady, codec="mpeg4", constant_rate=True, rate_hz=10)
    write_clip(root / "uneven.mp4", uneven)
    write_clip(root / "late.mkv", steady, start_s=7.3)
    (root / "broken.mp4").write_bytes(b"nothing of the kind" * 100)
    (root / "empty.mkv").touch()
    (root / ".hidden.mp4").write_bytes(b"left by another tool")
    return root, {"steady": steady, "uneven": uneven}


def run(*words):
    return cli.main(["prepare", "features", *map(str, words)])


def test_all_containers_at_the_right_seconds(folder, tmp_path, capsys, phrases):
    root, times = folder
    code = run(root, tmp_path / "store", "--encoder", "clock", "--jobs", 1, "--json", "--quiet")
    out, err = capsys.readouterr()
    report = json.loads(out)
    assert code == 5
    assert sorted(Path(entry["video"]).name for entry in report["failed"]) == ["broken.mp4", "empty.mkv"]
    assert "broken.mp4" in err
    assert "empty.mkv is empty" in err
    assert report["videos"] == 7
    assert report["x_real_time"] > 0
    store = FeatureStore(tmp_path / "store")
    assert set(store.ids) == {"talk", "deeper/turned", "same.mkv", "same.webm", "old", "uneven", "late"}
    for video in store:
        shown = times["uneven" if "webm" in video.video or "uneven" in video.video else "steady"]
        assert len(video.features) == pytest.approx(shown[-1], abs=1)
        for second, (seen, _) in enumerate(video.features):
            expected = max(t for t in shown if t <= second + 0.5)
            assert seen == pytest.approx(expected, abs=0.005)
        np.testing.assert_array_equal(video.structure, video.features[:, :1])
    talk = store["talk"]
    assert [(p.text, p.start_s, p.chatter) for p in talk.phrases] == [
        ("crack the eggs", 1.0, False),
        ("subscribe", 2.5, True),
    ]
    np.testing.assert_array_equal(talk.phrase_vectors, [[14, 1], [9, 1]])
    assert talk.meta["subtitles"]["file"] == "talk.en.vtt"
    assert store["late"].phrase_vectors.shape == (0, 2)
    assert store.info.meta["license"] == "none"

    # again: only what failed is tried again
    assert run(root, tmp_path / "store", "--encoder", "clock", "--jobs", 1, "--json", "--quiet") == 5
    report = json.loads(capsys.readouterr().out)
    assert (report["videos"], report["skipped"], len(report["failed"])) == (0, 7, 2)


def test_changed_files_are_done_again(tmp_path, phrases):
    videos = tmp_path / "videos"
    videos.mkdir()
    write_clip(videos / "a.mp4", [i / 10 for i in range(30)])
    write_clip(videos / "b.mp4", [i / 10 for i in range(30)])
    settings = Settings(str(tmp_path / "store"), "clock")

    def done():
        *_, (summary, _) = prepare_features(find_sources(videos), settings)
        return sorted(one.name for one in summary.done)

    assert done() == ["a", "b"]
    assert done() == []
    write_clip(videos / "a.mp4", [i / 10 for i in range(80)])
    (videos / "b.srt").write_text("1\n00:00:01,000 --> 00:00:02,000\nwhisk\n")
    assert done() == ["a", "b"]
    store = FeatureStore(tmp_path / "store")
    assert len(store["a"].features) == 8
    assert [p.text for p in store["b"].phrases] == ["whisk"]
    assert len(store) == 2


def test_a_video_in_work_when_stopped_goes_on_where_it_was(tmp_path, monkeypatch, phrases):
    write_clip(tmp_path / "a.mp4", [i / 2 for i in range(80)])
    monkeypatch.setattr(features, "_FRAMES_AT_ONCE", 8)
    settings, (source,) = Settings(str(tmp_path / "store"), "clock"), find_sources(tmp_path / "a.mp4")
    encode, seen = ClockEncoder.encode_video, []

    def stopping(self, frames):
        if len(seen) == 2:
            seen.append(0)
            raise KeyboardInterrupt
        seen.append(len(frames))
        return encode(self, frames)

    monkeypatch.setattr(ClockEncoder, "encode_video", stopping)
    with pytest.raises(KeyboardInterrupt):
        features._encode(source, settings)
    *_, (summary, _) = prepare_features([source], settings)
    assert not summary.failed and sum(seen) == 40  # no picture twice
    assert len(FeatureStore(tmp_path / "store")["a"].features) == 40
    assert not list(cache_folder("features").rglob("*.partial"))


def test_a_truncated_video_is_stored_as_far_as_it_goes(tmp_path, capsys):
    path = tmp_path / "cut.mkv"
    write_clip(path, [i / 25 for i in range(25 * 20)])
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    assert run(path, tmp_path / "store", "--encoder", "clock", "--jobs", 1, "--quiet") == 0
    assert "warning: " in capsys.readouterr().out
    stored = FeatureStore(tmp_path / "store")["cut"]
    assert 6 <= len(stored.features) <= 14
    assert "breaks off at" in stored.meta["problems"][0]


def test_another_encoder_is_refused(tmp_path, capsys, monkeypatch):
    write_clip(tmp_path / "a.mp4", [0.0, 0.1, 0.2])
    assert run(tmp_path / "a.mp4", tmp_path / "store", "--encoder", "clock", "--jobs", 1, "--quiet") == 0
    monkeypatch.setattr(ClockEncoder, "fingerprint", "clock-2")
    features._start.cache_clear()
    assert run(tmp_path / "a.mp4", tmp_path / "store", "--encoder", "clock", "--jobs", 1, "--quiet") == 3
    assert "never mixed" in capsys.readouterr().err


def test_lists_names_and_subtitles(tmp_path):
    for name in ("a.mp4", "b.mkv", "sub/a.mp4", "b.srt", "b.en.vtt", "x.srt", "talk.part.mp4", "talk.part.de.srt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "list.txt").write_text("# mine\na.mp4\tx.srt\n\nsub/a.mp4\nb.mkv\ngone.mp4\n")
    found = find_sources(tmp_path / "list.txt")
    assert [s.name for s in found] == ["a", "sub/a", "b", "gone"]
    assert [s.subtitles.name if s.subtitles else None for s in found] == ["x.srt", None, "b.srt", None]
    assert [s.name for s in find_sources(tmp_path)] == ["a", "b", "sub/a", "talk.part"]
    assert [s.name for s in find_sources(tmp_path / "**" / "a.*")] == ["a", "sub/a"]
    assert find_sources(tmp_path, "de")[-1].subtitles.name == "talk.part.de.srt"
    with pytest.raises(InputError, match="there is no file"):
        find_sources(tmp_path / "none")
    (tmp_path / "bare").mkdir()
    with pytest.raises(InputError, match="holds no video"):
        find_sources(tmp_path / "bare")
    (tmp_path / "twice.txt").write_text("a.mp4\na.mp4\n")
    with pytest.raises(InputError, match="twice"):
        find_sources(tmp_path / "twice.txt")


def test_usage_errors(tmp_path, capsys):
    assert run(tmp_path, tmp_path / "s", "--jobs", 0) == 2
    assert run(tmp_path, tmp_path / "s", "--captions", "c.json") == 2
    assert run(tmp_path, tmp_path / "s", "--from", "arrays") == 2
    assert run(tmp_path, tmp_path / "s", "--encoder", "nobody") == 3  # no videos there
    write_clip(tmp_path / "a.mp4", [0.0])
    assert run(tmp_path, tmp_path / "s", "--encoder", "nobody") == 2
    assert "no encoder 'nobody'" in capsys.readouterr().err


def _many_small(root, count):
    """Videos in name only: the precomputed encoder reads the arrays of the same name."""
    videos, arrays = root / "videos", root / "arrays"
    videos.mkdir()
    arrays.mkdir()
    for i in range(count):
        (videos / f"v{i:03}.mp4").write_bytes(b"x")
        np.save(arrays / f"v{i:03}.npy", np.full((5, 8), i, np.float32))
    return videos, f"precomputed:{arrays}"


@pytest.mark.slow
def test_many_processes_killed_and_continued(tmp_path):
    """The whole group is killed while it works; what was finished is not done again and nothing is lost."""
    count = 150
    videos, encoder = _many_small(tmp_path, count)
    store = tmp_path / "store"
    words = [sys.executable, "-m", "stepformer", "prepare", "features", videos, store, "--encoder", encoder]
    words = [str(word) for word in [*words, "--jobs", 2, "--json", "--quiet"]]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(words, stdout=subprocess.PIPE, start_new_session=True, env=env)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        if len(list((store / "spool").glob("[!.]*.safetensors"))) >= 10:
            break
        time.sleep(0.002)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    before = len(list((store / "spool").glob("[!.]*.safetensors"))) or len(FeatureStore(store))
    assert before >= 10
    out = subprocess.run(words, capture_output=True, text=True, check=True, env=env).stdout
    report = json.loads(out)
    assert report["videos"] + report["skipped"] == count
    assert report["skipped"] >= before
    assert not report["failed"]
    found = FeatureStore(store)
    assert len(found) == count
    for i in range(count):
        assert (found[f"v{i:03}"].features == i).all()
