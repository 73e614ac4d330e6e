"""Broken files give as many good seconds as there are and say where they broke; files that are no video say so."""

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from benchmarks.timecode import read_time_s, write_clip
from stepformer import media as video
from stepformer.errors import InputError
from stepformer.media.picture import FrameSpec

TIMES = [i / 25 for i in range(25 * 20)]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    made = {}
    for name, options in {
        "index-first.mp4": {"tone_s": 20.0},
        "silent.mkv": {},
        "sound.mkv": {"tone_s": 20.0, "sound_codec": "libopus"},
        "stream.ts": {},
    }.items():
        path = folder / name
        write_clip(path, TIMES, size=(128, 256), group=50, **options)
        if name == "index-first.mp4":
            _index_first(path)
        made[name] = path
    return made


def _index_first(path):
    """Moves the index to the front, as on the web, so that a download that breaks off is still readable."""
    import av

    slow = path.with_name("slow.mp4")
    path.rename(slow)
    with av.open(str(slow)) as a, av.open(str(path), "w", options={"movflags": "faststart"}) as b:
        tracks = {s.index: b.add_stream_from_template(s) for s in a.streams}
        for packet in a.demux():
            if packet.size:
                packet.stream = tracks[packet.stream_index]
                b.mux(packet)


@pytest.mark.parametrize("name", ["index-first.mp4", "silent.mkv", "sound.mkv"])
@pytest.mark.parametrize("share", [0.3, 0.75])
def test_truncated(whole, tmp_path, name, share):
    data = whole[name].read_bytes()
    path = tmp_path / name
    path.write_bytes(data[: int(len(data) * share)])
    reader = video.VideoReader(path)
    with pytest.warns(video.VideoWarning, match=rf"{name} breaks off at [\d.]+ s of 20\.0 s"):
        got = [(t, read_time_s(p)) for t, _, p in reader.seconds(2.0)]
    assert all(t - seen <= 0.05 for t, seen in got[:-1])
    assert got[-1][0] - got[-1][1] <= 0.2  # the last pictures wait for one that never came
    assert len(got) == pytest.approx(20 * share * 2, abs=5)
    assert [p.kind for p in reader.problems][:1] == ["truncated"]
    assert reader.problems[0].at_s == pytest.approx(got[-1][0], abs=0.6)
    # and the clips for an encoder end there too
    with pytest.warns(video.VideoWarning):
        clips = np.concatenate(list(video.VideoReader(path).clips(FrameSpec((64, 128)), 1.0)))
    assert len(clips) == pytest.approx(reader.problems[0].at_s, abs=0.51)


def test_a_cut_transport_stream_is_just_shorter(whole, tmp_path):
    """It has no header to contradict."""
    data = whole["stream.ts"].read_bytes()
    path = tmp_path / "cut.ts"
    path.write_bytes(data[: len(data) // 2])
    reader = video.VideoReader(path)
    got = [(t, read_time_s(p)) for t, _, p in reader.seconds(1.0)]
    assert 7 <= len(got) <= 12
    assert all(t - seen <= 0.05 for t, seen in got)


@pytest.mark.parametrize("name", ["index-first.mp4", "silent.mkv", "stream.ts"])
def test_damaged_in_the_middle_goes_on_after_it(whole, tmp_path, name):
    data = bytearray(whole[name].read_bytes())
    middle, length = len(data) // 2, len(data) // 20
    data[middle : middle + length] = np.random.default_rng(1).integers(0, 256, length, np.uint8).tobytes()
    path = tmp_path / name
    path.write_bytes(data)
    reader = video.VideoReader(path)
    seen, unreadable = {}, 0
    with pytest.warns(video.VideoWarning, match="is damaged"):
        for time_s, _, picture in reader.seconds(2.0):
            try:
                seen[time_s] = read_time_s(picture)
            except InputError:
                unreadable += 1
    assert len(seen) + unreadable == 40
    assert unreadable <= 8
    for time_s, value in seen.items():
        if not 7 < time_s < 15:
            assert time_s - value <= 0.05
    damage = [p for p in reader.problems if p.kind == "damaged"]
    assert damage
    assert 6 < damage[0].at_s < 15


def test_a_still_picture_under_longer_sound_is_not_broken(tmp_path):
    path = tmp_path / "slide.mp4"
    write_clip(path, [0.0, 0.04, 0.08], tone_s=15.0)
    reader = video.VideoReader(path)
    got = [read_time_s(p) for _, _, p in reader.seconds(1.0)]
    assert got == [0.08] * 15
    assert not reader.problems


def test_an_index_that_calls_every_frame_a_key_frame(tmp_path):
    """A file that lies about its key frames must not be jumped about in."""
    path = tmp_path / "liar.mp4"
    write_clip(path, TIMES, group=100, options={"x264-params": "scenecut=0"})
    data = path.read_bytes()
    at = data.index(b"stss")  # the table of key frames: without it, every frame counts as one
    path.write_bytes(data[:at] + b"free" + data[at + 4 :])
    got = [(t, read_time_s(p)) for t, _, p in video.VideoReader(path).seconds(1.0)]
    assert len(got) == 20
    assert all(t - seen <= 0.05 for t, seen in got)


def read_through(path):
    """Everything a command does with a video: (clips at one per second, seconds of sound)."""
    clips = sum(len(batch) for batch in video.VideoReader(path).clips(FrameSpec((32, 32)), 1.0))
    sound = sum(len(block) for block in video.audio_blocks(path)) / video.SAMPLE_RATE_HZ
    return clips, sound


@pytest.fixture(scope="module")
def four_seconds(tmp_path_factory):
    """A small video of four seconds with sound, one per container."""
    folder = tmp_path_factory.mktemp("four")
    vp9 = {"codec": "libvpx-vp9", "sound_codec": "libopus", "options": {"deadline": "realtime", "cpu-used": "8"}}
    kinds = {"mp4": {}, "mkv": {}, "ts": {}, "webm": vp9, "avi": {"codec": "mpeg4", "sound_codec": "mp3"}}
    for kind, options in kinds.items():
        constant = kind == "avi"
        write_clip(
            folder / f"a.{kind}", TIMES[:100], size=(64, 128), group=25, tone_s=4.0, constant_rate=constant, **options
        )
    return folder


@pytest.mark.filterwarnings("ignore::stepformer.media.VideoWarning")
@pytest.mark.parametrize("kind", ["mp4", "mkv", "ts", "webm", "avi"])
def test_changed_bytes_never_make_a_short_video_long(four_seconds, tmp_path, kind):
    """Headers and indexes lie at both ends; a size of 100 KB bears out at most 35 minutes (BYTES_PER_S)."""
    import random
    import time

    data = (four_seconds / f"a.{kind}").read_bytes()
    chance = random.Random(kind)
    for case in range(40):
        changed = bytearray(data)
        at = chance.randrange(1500) if case % 2 else len(data) - 1 - chance.randrange(1500)
        changed[at] ^= 1 << chance.randrange(8) if case % 3 else 0xFF
        path = tmp_path / f"a.{kind}"
        path.write_bytes(changed)
        began = time.process_time()
        try:
            clips, sound = read_through(path)
        except InputError:
            clips, sound = 0, 0.0
        assert max(clips, sound) <= 60 + len(data) / 50 + 10, f"byte {at}"
        assert time.process_time() - began < 5, f"byte {at}"


@pytest.mark.filterwarnings("ignore::stepformer.media.VideoWarning")
def test_damaged_time_stamps_are_found_out(four_seconds, tmp_path):
    def changed(kind, mark, offset, value):
        data = bytearray((four_seconds / f"a.{kind}").read_bytes())
        at = data.index(mark) + offset
        data[at : at + len(value)] = value
        path = tmp_path / f"{mark.decode()}.{kind}"
        path.write_bytes(data)
        return video.VideoReader(path)

    # an AVI's and an mp4's seconds per frame: far too long
    avi = changed("avi", b"strh", 28 + 3, b"\x7f")
    mp4 = changed("mp4", b"stts", 17, b"\x80")
    for reader in (avi, mp4):
        assert reader.info.duration_s == pytest.approx(4.0, abs=0.2)
        assert sum(len(batch) for batch in reader.clips(FrameSpec((32, 32)), 1.0)) == 4
    assert "its pictures cover" in avi.problems[0].text


def test_one_wild_time_stamp_does_not_move_the_others():
    from stepformer.media.container import Clock

    clock = Clock(4.0, 25.0)
    assert [clock.time_s(t) for t in (0.0, 0.04, 17e9, 0.12, None, 0.2)] == pytest.approx(
        [0, 0.04, 0.08, 0.12, 0.16, 0.2]
    )
    assert clock.time_s(9.0) == 9.0  # a file may be somewhat longer than its header says
    moved = Clock(4.0, 25.0)
    assert [moved.time_s(t) for t in (1e6, 1e6 + 0.04, 1e6 + 0.08)] == pytest.approx([0, 0.04, 0.08])


def test_files_that_are_no_video(tmp_path):
    def refused(path, match):
        with pytest.raises(InputError, match=match) as error:
            video.VideoReader(path)
        assert str(path) in str(error.value)

    refused(tmp_path / "missing.mp4", "there is no file")
    refused(tmp_path, "is a folder")
    empty = tmp_path / "empty.mp4"
    empty.touch()
    refused(empty, "is empty")
    text = tmp_path / "letter.mp4"
    text.write_text("Dear all,\n" * 50)
    refused(text, "not a video")
    plain = tmp_path / "letter.txt"
    plain.write_text("Dear all,\n" * 50)
    refused(plain, "not a video")
    noise = tmp_path / "noise.mp4"
    noise.write_bytes(np.random.default_rng(0).integers(0, 256, 50_000, np.uint8).tobytes())
    refused(noise, "video")
    subtitles = tmp_path / "talk.srt"
    subtitles.write_text("1\n00:00:01,000 --> 00:00:02,000\nhello\n")
    refused(subtitles, "not a video container")
    headless = tmp_path / "headless.mp4"
    write_clip(headless, TIMES[:50])
    headless.write_bytes(headless.read_bytes()[:2000])  # an mp4 whose index, at its end, is lost
    refused(headless, "video")


def test_sound_alone_and_a_cover_picture(tmp_path):
    import av

    path = tmp_path / "song.m4a"
    with av.open(str(path), "w", format="mp4") as out:
        stream = out.add_stream("aac", rate=48000)
        frame = av.AudioFrame.from_ndarray(np.zeros((2, 1024), np.float32), format="fltp", layout="stereo")
        frame.sample_rate = 48000
        for i in range(20):
            frame.pts = i * 1024
            out.mux(stream.encode(frame))
        out.mux(stream.encode(None))
    with pytest.raises(InputError, match=r"no video track \(it holds: audio\)"):
        video.probe(path)
    picture = tmp_path / "picture.png"
    from PIL import Image

    Image.new("RGB", (64, 64)).save(picture)
    with pytest.raises(InputError, match="not a video"):
        video.probe(picture)


def test_a_playlist_does_not_reach_the_network(tmp_path):
    playlist = tmp_path / "list.m3u8"
    playlist.write_text("#EXTM3U\n#EXT-X-TARGETDURATION:5\n#EXTINF:5,\nhttp://127.0.0.1:9/a.ts\n#EXT-X-ENDLIST\n")
    with pytest.raises(InputError):
        video.probe(playlist)


@pytest.mark.parametrize("absolute", [False, True])
@pytest.mark.parametrize("kind", ["ffconcat", "m3u8"])
def test_a_list_does_not_open_other_files(tmp_path, kind, absolute):
    """Whatever it is called: a video from a stranger never reads the videos beside it, nor any other file."""
    beside = tmp_path / "beside.ts"
    write_clip(beside, TIMES[:50])
    named = str(beside) if absolute else beside.name
    text = {
        "ffconcat": f"ffconcat version 1.0\nfile '{named}'\n",
        "m3u8": f"#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXTINF:2,\n{named}\n#EXT-X-ENDLIST\n",
    }[kind]
    for name in ("talk.mp4", f"talk.{kind}"):
        path = tmp_path / name
        path.write_text(text)
        with pytest.raises(InputError, match="not a video"):
            video.probe(path)
        with pytest.raises(InputError, match="not a video"):
            video.read_audio(path)


def test_a_pipe_is_not_waited_for(tmp_path):
    import os

    path = tmp_path / "pipe.mp4"
    os.mkfifo(path)
    with pytest.raises(InputError, match="is a device or a pipe"):
        video.probe(path)


def test_a_name_that_looks_like_a_protocol(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_clip("plain.mp4", TIMES[:50])
    (tmp_path / "plain.mp4").rename(tmp_path / "12:30 how to?.mp4")
    assert video.probe("12:30 how to?.mp4").duration_s == pytest.approx(2.0, abs=0.05)


def test_a_damaged_vp9_frame_after_a_jump_does_not_crash_the_decoder():
    """Found by fuzzing: with several frames decoded at once, FFmpeg's VP9 decoder crashed in five of five runs."""
    script = (
        "from stepformer import media; import sys, warnings; warnings.simplefilter('ignore')\n"
        "list(media.VideoReader(sys.argv[1]).frames_at([0.0, 1.0], size=(16, 16)))"
    )
    crash = Path(__file__).parents[1] / "fuzz" / "corpus" / "crash.webm"
    done = subprocess.run([sys.executable, "-c", script, str(crash)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_time_stamps_that_go_far_back_do_not_send_the_reader_round_in_circles():
    """Found by fuzzing: from the third picture on, stamps lie 46 hours before the first, and each jump led back."""
    reader = video.VideoReader(Path(__file__).parents[1] / "fuzz" / "corpus" / "back.mp4")
    began = time.process_time()
    clips = sum(len(batch) for batch in reader.clips(FrameSpec((32, 32)), 1.0))
    assert clips == 2 and time.process_time() - began < 5
    assert reader.stats["packets"] < 200


@pytest.mark.parametrize("kind", ["avi", "mkv", "ts"])
def test_nothing_but_zeros_behind_a_video_is_waited_for_once(tmp_path, monkeypatch, kind):
    """As a download leaves it that was stopped after its room was made: 50 GB take minutes to look through."""
    from stepformer.media import container

    file = tmp_path / f"a.{kind}"
    file.write_bytes((Path(__file__).parents[1] / "fuzz" / "corpus" / file.name).read_bytes())
    os.truncate(file, 50 << 30)
    monkeypatch.setattr(container, "_WAIT_S", 0.3)
    began = time.monotonic()
    assert sum(len(batch) for batch in video.VideoReader(file).clips(FrameSpec((32, 32)), 1.0)) == 2
    assert sum(len(block) for block in video.audio_blocks(file)) > 8000
    assert time.monotonic() - began < 64 * 0.3
