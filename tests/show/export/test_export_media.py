"""What needs the video: clips, chapters in a copy, contact sheet; and what ffmpeg and mkvmerge make of our files."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import av
import numpy as np
import pytest
import webvtt
from export_timelines import nasty, pancakes
from export_videos import make_video, number_of, numbers_in
from PIL import Image

from stepformer import Step, Timeline
from stepformer.errors import InputError
from stepformer.show import export
from stepformer.show.export.video import _slug
from stepformer.show.writing import spans, step_names

RATE, GOP = 25, 50


@pytest.fixture(scope="module")
def video(tmp_path_factory) -> Path:
    return make_video(tmp_path_factory.mktemp("video") / "how to.mp4", 12, RATE, GOP)


def timeline_of(video: Path) -> Timeline:
    steps = (
        Step(0.5, 2.5, "crack the eggs"),
        Step(3.0, 3.0, "no length"),
        Step(4.02, 6.98, "whisk: fast/slow"),
        Step(9.0, 30.0, "too long"),
        Step(40.0, 41.0, "past the end"),
    )
    return Timeline(str(video), 12.0, steps)


def copied_packets(path: Path) -> list[tuple[str, bytes]]:
    with av.open(str(path)) as container:
        packets = [p for p in container.demux() if p.size and p.stream.type in ("video", "audio")]
        return sorted((p.stream.type, bytes(p)) for p in packets)


# ---- clips -------------------------------------------------------------------------------------------------------


def test_clips_have_exactly_their_frames(video, tmp_path):
    written = export.write(timeline_of(video), f"{tmp_path / 'clips'}/")
    files = sorted(p.name for p in (tmp_path / "clips").iterdir())
    assert files == ["01_crack-the-eggs.mp4", "03_whisk-fast-slow.mp4", "04_too-long.mp4"]
    # a frame n comes on screen at n / 25: from the first at or after the start to the last before the end
    assert numbers_in(tmp_path / "clips" / files[0]) == list(range(13, 63))
    assert numbers_in(tmp_path / "clips" / files[1]) == list(range(101, 175))
    assert numbers_in(tmp_path / "clips" / files[2]) == list(range(225, 300))
    assert [n.split(":")[0] for n in written.notes] == [
        "step 4 ends at 30 s, past the end of the video", "step 5 starts at 40 s, past the end of the video",
        "step 2 has no length",
    ]  # fmt: skip
    with av.open(str(tmp_path / "clips" / files[1])) as container:
        sound = container.streams.audio[0]
        assert float(sound.duration * sound.time_base) == pytest.approx(2.96, abs=0.05)


def test_clips_of_a_video_without_sound_and_other_containers(tmp_path):
    video = make_video(tmp_path / "silent.mkv", 6, RATE, GOP, sound=False)
    timeline = Timeline(str(video), 6, (Step(2, 4, "الخطوة"), Step(4, 5, None)))
    export.write(timeline, f"{tmp_path / 'a'}/")
    assert sorted(p.name for p in (tmp_path / "a").iterdir()) == ["01_الخطوة.mp4", "02_step-2.mp4"]
    assert numbers_in(tmp_path / "a" / "01_الخطوة.mp4") == list(range(50, 100))


def test_clips_need_the_video(tmp_path):
    with pytest.raises(InputError, match="--video"):
        export.write(pancakes(), f"{tmp_path / 'clips'}/")
    assert not (tmp_path / "clips").exists()
    broken = tmp_path / "broken.mp4"
    broken.write_bytes(b"not a video" * 100)
    with pytest.raises(InputError):
        export.write(pancakes(), f"{tmp_path / 'clips'}/", video=str(broken))


@pytest.mark.parametrize("name", ["../../etc/passwd", "a" * 500, "翻" * 200, "...", "CON", "a\x00b", "c:\\x"])
def test_slugs_are_file_names(name, tmp_path):
    slug = _slug(name)
    assert slug and "/" not in slug and "\\" not in slug and "." not in slug
    (tmp_path / f"01_{slug}.mp4").write_bytes(b"")


# ---- chapters in a copy --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".mp4", ".mkv", ".mov"])
def test_chapters_in_a_copy(video, tmp_path, suffix):
    target = tmp_path / f"copy{suffix}"
    timeline = timeline_of(video)
    written = export.write(timeline, target)
    with av.open(str(target)) as container:
        chapters = [
            (round(float(c["start"] * c["time_base"]), 3), c["metadata"]["title"]) for c in container.chapters()
        ]
    want = [(0.5, "crack the eggs"), (3.0, "no length"), (4.02, "whisk: fast/slow"), (9.0, "too long")]
    assert chapters == (want if suffix == ".mkv" else [(0.0, "Intro"), *want])
    assert copied_packets(target) == copied_packets(video)
    assert numbers_in(target) == numbers_in(video)
    assert len(written.notes) == 2
    assert export.read(target).steps[-1].label == "too long"


def test_copy_over_the_source_itself(video, tmp_path):
    own = tmp_path / "own.mp4"
    shutil.copy(video, own)
    export.write(timeline_of(own), own)
    assert numbers_in(own) == numbers_in(video)
    assert len(export.read(own)) == 5


def test_overlapping_chapters_are_cut(video, tmp_path):
    steps = (Step(0, 5, "a"), Step(2, 3, "b"), Step(2, 4, "c"), Step(6, 8, "d"))
    written = export.write(Timeline(str(video), 12, steps), tmp_path / "x.mkv")
    back = export.read(tmp_path / "x.mkv")
    assert [(s.start_s, s.end_s, s.label) for s in back] == [(0, 2, "a"), (2, 4, "c"), (6, 8, "d")]
    assert written.notes == ("step 1 overlaps the next: cut there", "step 2 overlaps the next: left out")


# ---- contact sheet ---------------------------------------------------------------------------------------------------


def test_contact_sheet(video, tmp_path):
    timeline = timeline_of(video)
    written = export.write(timeline, tmp_path / "x.sheet.png")
    sheet = Image.open(tmp_path / "x.sheet.png")
    assert json.loads(sheet.text["Description"])["video"] == str(video)
    pixels = np.asarray(sheet.convert("RGB"))
    tall, wide = 180, 320
    for i, middle in enumerate([1.5, 3.0, 5.5, 10.5]):
        left, top = 24 + (i % 2) * (wide + 18), 24 + 44 + (i // 2) * (tall + 52 + 18)
        thumb = pixels[top : top + tall, left : left + wide]
        assert number_of(thumb) == int(middle * RATE), i
    assert len(written.notes) == 2


def test_contact_sheet_jpeg_empty_and_short_video(video, tmp_path):
    export.write(Timeline(str(video), 12), tmp_path / "empty.jpg")
    assert Image.open(tmp_path / "empty.jpg").format == "JPEG"
    # a timeline that says the video is longer than it is
    written = export.write(Timeline(str(video), 99, (Step(1, 2, "翻转煎饼"), Step(50, 60, "b"))), tmp_path / "x.jpg")
    assert written.notes == ("step 2: the video has no picture there",)


# ---- the tools the files are for -------------------------------------------------------------------------------------


def tool(name: str, package: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not on this machine (apt-get install {package})")
    return found


def ffprobe_chapters(path: Path) -> list[tuple[int, int, str]]:
    command = [tool("ffprobe", "ffmpeg"), "-v", "error", "-show_chapters", "-of", "json", str(path)]
    data = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return [
        (round(float(c["start_time"]) * 1000), round(float(c["end_time"]) * 1000), c["tags"]["title"])
        for c in data["chapters"]
    ]


def want(timeline: Timeline) -> list[tuple[int, int, str]]:
    return [(s.start, s.end, n) for s, n in zip(spans(timeline, 1000), step_names(timeline), strict=True)]


@pytest.fixture(scope="module")
def long_video(tmp_path_factory) -> Path:
    return make_video(tmp_path_factory.mktemp("long") / "long.mkv", 400, rate=2, gop=20, sound=False)


@pytest.mark.slow
def test_ffmpeg_reads_ffmetadata(long_video, tmp_path):
    export.write(nasty(), tmp_path / "c.ffmeta")
    command = [
        tool("ffmpeg", "ffmpeg"), "-v", "error", "-i", str(long_video),
        "-f", "ffmetadata", "-i", str(tmp_path / "c.ffmeta"),
        "-map_chapters", "1", "-map", "0", "-c", "copy", str(tmp_path / "out.mkv"),
    ]  # fmt: skip
    subprocess.run(command, check=True)
    assert ffprobe_chapters(tmp_path / "out.mkv") == want(nasty())


@pytest.mark.slow
def test_mkvmerge_reads_matroska_xml(long_video, tmp_path):
    export.write(nasty(), tmp_path / "c.chapters.xml")
    command = [tool("mkvmerge", "mkvtoolnix"), "-q", "-o", str(tmp_path / "out.mkv"),
               "--chapters", str(tmp_path / "c.chapters.xml"), str(long_video)]  # fmt: skip
    subprocess.run(command, check=True)
    assert ffprobe_chapters(tmp_path / "out.mkv") == want(nasty())


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".mkv", ".mp4"])
def test_ffprobe_reads_chapters_of_the_copy(long_video, tmp_path, suffix):
    export.write(nasty(), tmp_path / f"out{suffix}", video=str(long_video))
    found = ffprobe_chapters(tmp_path / f"out{suffix}")
    assert [(a, n) for a, _, n in found] == [(a, n) for a, _, n in want(nasty())]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["vtt", "srt"])
def test_ffmpeg_reads_captions(tmp_path, name):
    export.write(nasty(), tmp_path / f"c.{name}")
    command = [tool("ffmpeg", "ffmpeg"), "-v", "error", "-i", str(tmp_path / f"c.{name}"), "-f", "webvtt", "-"]
    out = subprocess.run(command, check=True, capture_output=True).stdout.decode()
    cues = webvtt.from_string(out).captions
    found = [(round(c.start_in_seconds * 1000), round(c.end_in_seconds * 1000)) for c in cues]
    assert found == [(s.start, s.end) for s in spans(nasty(), 1000)]
    assert cues[0].text == "crack the eggs" and "🥞" in cues[8].text


@pytest.mark.slow
def test_ffmpeg_decodes_clips_without_errors(video, tmp_path):
    export.write(timeline_of(video), f"{tmp_path / 'clips'}/")
    for clip in (tmp_path / "clips").iterdir():
        command = [tool("ffmpeg", "ffmpeg"), "-v", "error", "-i", str(clip), "-f", "null", "-"]
        done = subprocess.run(command, check=True, capture_output=True)
        assert not done.stderr, (clip, done.stderr)
