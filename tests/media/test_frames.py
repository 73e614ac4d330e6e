"""Pictures come from the right second: generated clips show their own time, and the tests read it back."""

import itertools
import subprocess
import sys

import av
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.timecode import draw_time, read_time_s, write_clip
from stepformer import media as video
from stepformer.errors import InputError, UsageError
from stepformer.media.decode import TOLERANCE_S
from stepformer.media.picture import FrameSpec

STEADY = [i / 25 for i in range(25 * 6)]
# a phone that drops frames, then a slide show: gaps from 20 ms to 2.5 s
UNEVEN = np.cumsum([0.0, *np.random.default_rng(5).choice([0.02, 0.033, 0.1, 0.4, 2.5], 60)]).round(3).tolist()
FAST_VP = {"deadline": "realtime", "cpu-used": "8"}
HIDDEN = {"deadline": "good", "cpu-used": "5", "auto-alt-ref": "1", "lag-in-frames": "16"}

CLIPS = {
    "h264.mp4": {},
    "h264-open-groups.mp4": {"options": {"x264-params": "open-gop=1:bframes=5:keyint=40"}},
    "h264-b-pyramid.mkv": {"options": {"x264-params": "bframes=8:b-pyramid=normal:keyint=60"}},
    "h264-all-key.mp4": {"group": 1},
    "h264.ts": {},
    "h264.flv": {},
    "h264-10bit.mp4": {"pixel_format": "yuv420p10le"},
    "hevc.mp4": {"codec": "libx265", "options": {"x265-params": "log-level=none"}},
    "vp9.mkv": {"codec": "libvpx-vp9", "options": FAST_VP},
    "vp9.webm": {"codec": "libvpx-vp9", "options": {**FAST_VP, "deadline": "good", "lag-in-frames": "16"}},
    "vp8-hidden-frames.webm": {"codec": "libvpx", "options": HIDDEN},
    "mpeg4.avi": {"codec": "mpeg4", "constant_rate": True},
    "mjpeg.avi": {"codec": "mjpeg", "constant_rate": True, "pixel_format": "yuvj420p"},
    "mpeg2.ts": {"codec": "mpeg2video", "constant_rate": True, "options": {"bf": "2"}},
    "mpeg2.mpg": {"codec": "mpeg2video", "constant_rate": True, "container_format": "vob"},
    "prores.mov": {"codec": "prores_ks", "pixel_format": "yuv422p10le"},
    "ffv1.mkv": {"codec": "ffv1"},
    "wmv2.wmv": {"codec": "wmv2"},
    "flv1.flv": {"codec": "flv1"},
    "gif.gif": {"codec": "gif", "pixel_format": "rgb8"},
    "no-times-at-all.h264": {"container_format": "h264"},
    "turned-90.mov": {"rotation_deg": 90},
    "turned-270.mp4": {"rotation_deg": -90},
    "turned-180.mov": {"rotation_deg": 180},
    "turned-90.mkv": {"rotation_deg": 90},
    "odd-start.mp4": {"start_s": 7.3},
    "odd-start.mkv": {"start_s": 7.3},
    "odd-start.ts": {"start_s": 4321.5},
    "uneven.mp4": {"times_s": UNEVEN},
    "uneven.mkv": {"times_s": UNEVEN},
    "uneven.webm": {"times_s": UNEVEN, "codec": "libvpx-vp9", "options": FAST_VP},
    "sound.mp4": {"tone_s": 6.0},
    "sound.mkv": {"tone_s": 6.0, "sound_codec": "libopus"},
    "sound.webm": {"tone_s": 6.0, "sound_codec": "libopus", "codec": "libvpx-vp9", "options": FAST_VP},
}  # fmt: skip


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clips")

    def make(name):
        path = folder / name
        options = dict(CLIPS[name])
        times_s = options.pop("times_s", STEADY)
        if not path.exists():
            write_clip(path, times_s, **options)
        return path, times_s

    return make


def on_screen(times_s, second):
    """What a viewer sees: the last frame that came on screen, the first one before any did."""
    return max((t for t in times_s if t <= second + TOLERANCE_S), default=times_s[0])


def shown(frames):
    return [(t, read_time_s(picture)) for t, _, picture in frames]


def first_pictures(path, count, **how):
    return np.stack([picture for _, _, picture in itertools.islice(video.VideoReader(path).seconds(2.0, **how), count)])


@pytest.mark.parametrize("name", CLIPS)
def test_every_container_and_codec_shows_the_right_second(clip, name):
    path, times_s = clip(name)
    reader = video.VideoReader(path)
    assert (reader.info.width, reader.info.height) == (256, 128)
    assert reader.info.duration_s == pytest.approx(times_s[-1], abs=0.6)
    for rate_hz in (1.0, 3.7, 0.31):
        for sparse in (True, False):
            got = shown(reader.seconds(rate_hz, size=(64, 128), resize="fit", sparse=sparse))
            assert len(got) >= int(times_s[-1] * rate_hz - 0.5)
            for second, seen in got:
                assert seen == pytest.approx(on_screen(times_s, second), abs=0.0011)
    assert not reader.problems


@pytest.mark.slow
def test_av1(tmp_path):
    write_clip(tmp_path / "av1.mp4", STEADY, codec="libsvtav1", options={"preset": "8"})
    for second, seen in shown(video.VideoReader(tmp_path / "av1.mp4").seconds(2.0)):
        assert seen == pytest.approx(on_screen(STEADY, second), abs=0.0011)


@pytest.mark.parametrize(
    "name", ["h264-open-groups.mp4", "uneven.mkv", "turned-90.mov", "mpeg2.ts", "vp8-hidden-frames.webm"]
)
def test_any_seconds_in_any_order(clip, name):
    path, times_s = clip(name)
    whole = dict(shown(video.VideoReader(path).frames_at(times_s, sparse=False)))
    assert list(whole) == [t for t in times_s if t in whole]

    @settings(deadline=None, max_examples=15)
    @given(st.lists(st.floats(0, times_s[-1]), min_size=1, max_size=6))
    def check(seconds):
        found = video.VideoReader(path).pictures_at(seconds, size=(64, 128))
        for second, (stamp, picture) in zip(seconds, found, strict=True):
            expected = on_screen(times_s, second)
            assert read_time_s(picture) == pytest.approx(expected, abs=0.0011)
            assert stamp == pytest.approx(expected, abs=0.0011)

    check()


@pytest.fixture(scope="module")
def long_clip(tmp_path_factory):
    """Ten minutes, five frames per second, a key frame every 50 s."""
    folder = tmp_path_factory.mktemp("long")

    def make(name, **options):
        path = folder / name
        if not path.exists():
            write_clip(path, [i / 5 for i in range(3000)], size=(32, 64), **options)
        return path

    return make


@pytest.mark.parametrize("name", ["long.mp4", "long.mkv", "long.ts"])
def test_far_seconds_are_sought_and_right(long_clip, name):
    reader = video.VideoReader(long_clip(name))
    got = shown(reader.frames_at([3.0, 100.07, 333.33, 599.5]))
    assert got == [(3.0, 3.0), (100.07, 100.0), (333.33, 333.2), (599.5, 599.4)]
    # a transport stream has no index: a jump may land too early to be worth another
    assert reader.stats["seeks"] == (1 if name.endswith(".ts") else 3)
    assert reader.stats["decoded"] < 600
    assert not reader.problems
    # without end: the reader must find out where the video ends although it jumps
    assert [t for t, _ in shown(reader.seconds(0.01))] == [50, 150, 250, 350, 450, 550]
    assert reader.end_s == pytest.approx(600, abs=0.3)


@pytest.mark.parametrize("name", ["long.mp4", "long.mkv", "long.ts"])
def test_a_later_start_is_sought_and_gives_the_same(long_clip, name):
    wants = FrameSpec(size=(32, 64), frames=4, fps=2.0)
    first, later = video.VideoReader(long_clip(name)), video.VideoReader(long_clip(name))
    whole = np.concatenate(list(first.clips(wants, 1.0)))
    assert np.array_equal(np.concatenate(list(later.clips(wants, 1.0, start=480))), whole[480:])
    assert later.end_s == first.end_s and later.stats["decoded"] < first.stats["decoded"] / 3


def test_a_file_with_one_key_frame_is_read_once(long_clip):
    path = long_clip("one-key.mp4", options={"x264-params": "keyint=infinite:scenecut=0"})
    reader = video.VideoReader(path)
    assert shown(reader.frames_at([3.0, 100.07, 333.33])) == [(3.0, 3.0), (100.07, 100.0), (333.33, 333.2)]
    # one jump is tried and lands at the start again; after that, and after the last wanted second, there are no more
    assert reader.stats["seeks"] == 1
    assert reader.stats["packets"] < 4000


def test_sparse_decoding_decodes_less(clip):
    path, _ = clip("h264.mp4")
    counts = {}
    for sparse in (True, False):
        reader = video.VideoReader(path)
        list(reader.seconds(1.0, sparse=sparse))
        counts[sparse] = reader.stats["decoded"]
    assert counts[False] == len(STEADY)
    assert counts[True] < 0.7 * counts[False]


@pytest.mark.parametrize("codec", ["libx264", "libx265"])
def test_pictures_made_much_smaller_are_decoded_roughly(tmp_path, codec):
    options = {"crf": "48"} | ({"x265-params": "log-level=none"} if codec == "libx265" else {})
    write_clip(tmp_path / "v.mp4", [i / 25 for i in range(50)], codec=codec, options=options)
    exact = first_pictures(tmp_path / "v.mp4", 4, size=(64, 128), resize="fit")
    rough = next(video.VideoReader(tmp_path / "v.mp4").clips(FrameSpec((64, 128), resize="fit"), 2.0))
    difference = np.abs(exact.astype(int) - rough)
    assert 0 < difference.mean() < 5.0  # of 255, at the worst quality there is
    large = next(video.VideoReader(tmp_path / "v.mp4").clips(FrameSpec((128, 256)), 2.0))
    np.testing.assert_array_equal(large, first_pictures(tmp_path / "v.mp4", len(large)))


def test_clips_for_video_encoders(clip):
    path, times_s = clip("uneven.mp4")
    for wants in (FrameSpec((64, 128), 16, 16.0), FrameSpec((64, 128), 32, 10.0), FrameSpec((64, 128), 5, 7.0, "fit")):
        batches = list(video.VideoReader(path).clips(wants, rate_hz=1.0, batch=3))
        clips = np.concatenate(batches)
        assert clips.shape[1:] == (wants.frames, 64, 128, 3)
        assert max(len(batch) for batch in batches) == 3
        assert len(clips) == pytest.approx(times_s[-1], abs=1.0)
        for index, pictures in enumerate(clips):
            for second, picture in zip(wants.times_s(index, 1.0), pictures, strict=True):
                expected = on_screen(times_s, min(max(second, 0.0), times_s[-1]))
                assert read_time_s(picture) == pytest.approx(expected, abs=0.0011)


@pytest.mark.parametrize("name", CLIPS)
def test_clips_from_a_later_start_are_the_same_clips(clip, name):
    path, _ = clip(name)
    for wants, rate_hz in ((FrameSpec(size=(32, 64), frames=8, fps=5.0), 1.0), (FrameSpec((32, 64)), 4.0)):
        first = video.VideoReader(path)
        whole = np.concatenate(list(first.clips(wants, rate_hz, batch=4)))
        for start in (0, 1, len(whole) // 2, len(whole) - 1):
            later = video.VideoReader(path)
            later.longest_gap_s = first.longest_gap_s
            assert np.array_equal(np.concatenate(list(later.clips(wants, rate_hz, 4, start=start))), whole[start:])
            assert later.end_s == first.end_s


def test_frames_for_image_encoders_and_odd_rates(clip):
    path, times_s = clip("h264.mp4")
    for rate_hz in (1.0, 2.0, 0.3):
        frames = np.concatenate(list(video.VideoReader(path).clips(FrameSpec((64, 128)), rate_hz=rate_hz)))
        assert len(frames) == sum((i + 0.5) / rate_hz < 6.0 for i in range(100))
        for index, picture in enumerate(frames):
            assert read_time_s(picture) == pytest.approx(on_screen(times_s, (index + 0.5) / rate_hz), abs=0.0011)


def test_a_very_short_video_has_one_clip(tmp_path):
    write_clip(tmp_path / "short.mp4", [0.0, 0.04])
    frames = np.concatenate(list(video.VideoReader(tmp_path / "short.mp4").clips(FrameSpec((64, 128), 16, 16.0))))
    assert frames.shape == (1, 16, 64, 128, 3)
    assert read_time_s(frames[0, 0]) == 0.0
    assert read_time_s(frames[0, -1]) == 0.04


def test_crop_fit_and_whole(tmp_path):
    """White in the middle third, black outside: a centre crop to a square keeps the white, a fit squeezes all in."""
    import av

    path = tmp_path / "wide.mp4"
    with av.open(str(path), "w") as out:
        stream = out.add_stream("libx264", rate=5)
        stream.width, stream.height, stream.pix_fmt = 384, 128, "yuv420p"
        picture = np.zeros((128, 384, 3), np.uint8)
        picture[:, 128:256] = 255
        for _ in range(5):
            out.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        out.mux(stream.encode(None))
    reader = video.VideoReader(path)
    ways = {"crop": (64, 64), "fit": (64, 64), "whole": (224, 224)}
    crop, fit, whole = (reader.pictures_at([0.5], size, resize)[0][1] for resize, size in ways.items())
    own = reader.pictures_at([0.5])[0][1]
    assert whole.shape == (80, 224, 3)  # a third of 224, to the nearest multiple of 16
    assert whole[:, :66].max() < 60 and whole[:, 84:140].min() > 200
    assert crop[:, 4:-4].min() > 200
    assert fit[:, :18].max() < 60
    assert fit[:, 26:38].min() > 200
    assert own.shape == (128, 384, 3)


def test_pixels_that_are_not_square(tmp_path):
    """A 128 x 128 picture with pixels twice as wide as high is shown 256 x 128."""
    import av

    path = tmp_path / "wide-pixels.mkv"
    with av.open(str(path), "w") as out:
        stream = out.add_stream("libx264", rate=5)
        stream.width, stream.height, stream.pix_fmt = 128, 128, "yuv420p"
        stream.codec_context.sample_aspect_ratio = 2
        frame = av.VideoFrame.from_ndarray(draw_time(0.0, 128, 128), format="rgb24")
        out.mux(stream.encode(frame))
        out.mux(stream.encode(None))
    info = video.probe(path)
    assert (info.width, info.height) == (256, 128)
    assert video.VideoReader(path).pictures_at([0.0])[0][1].shape == (128, 256, 3)


def test_a_header_without_a_length(tmp_path):
    write_clip(tmp_path / "live.mkv", STEADY, container_format="matroska")
    # what a recording that was cut off leaves behind: written to a pipe, a Matroska file has no length and no index
    script = (
        "import av, sys\n"
        "live = {'format': 'matroska', 'options': {'live': '1'}}\n"
        "with av.open(sys.argv[1]) as a, av.open(sys.stdout.buffer, 'w', **live) as b:\n"
        "    s = b.add_stream_from_template(a.streams.video[0])\n"
        "    for p in a.demux(video=0):\n"
        "        if p.size:\n"
        "            p.stream = s\n"
        "            b.mux(p)\n"
    )
    data = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "live.mkv")], capture_output=True, check=True
    ).stdout
    (tmp_path / "headless.mkv").write_bytes(data)
    reader = video.VideoReader(tmp_path / "headless.mkv")
    assert not reader.info.duration_known
    assert reader.info.duration_s == pytest.approx(6.0, abs=0.05)
    assert len(shown(reader.seconds(1.0))) == 6
    assert not reader.problems


def test_wrong_calls(clip, tmp_path):
    path, _ = clip("h264.mp4")
    reader = video.VideoReader(path)
    with pytest.raises(UsageError, match="increase"):
        list(reader.frames_at([2.0, 1.0]))
    with pytest.raises(UsageError, match="finite"):
        list(reader.frames_at([float("nan")]))
    with pytest.raises(UsageError, match="positive"):
        reader.seconds(0.0)
    before, behind = reader.pictures_at([1.0, 99.0])
    assert before is not None and behind is None and reader.end_s == pytest.approx(6.0)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, (1 << 26) - 1), st.integers(0, 3))
def test_time_code_is_read_only_where_it_stands_upright(value, turns):
    picture = np.rot90(draw_time(value / 1000), turns)
    try:
        seen = round(read_time_s(picture) * 1000)
    except InputError:
        assert turns
        return
    # six check bits let one in 64 turned pictures pass; then it must not show the same time
    assert seen == value or turns


def test_importing_the_door_is_cheap():
    script = "import stepformer.media, sys; print([m for m in ('av', 'torch', 'pyarrow') if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"


@pytest.mark.slow
def test_twelve_hours_at_a_picture_a_second_need_bounded_memory(tmp_path):
    path = tmp_path / "day.mkv"
    hours = 12
    # the last picture stands at 12 h and has no length of its own
    write_clip(path, (float(i) for i in range(3600 * hours + 1)), size=(64, 128), options={"preset": "ultrafast"})
    script = f"""
import itertools, resource
from stepformer import media as video
from stepformer.media.picture import FrameSpec
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
clips = video.VideoReader({str(path)!r}).clips(FrameSpec((64, 128)), batch=64)
first = sum(len(b) for b in itertools.islice(clips, 10)); early = peak()
rest = sum(len(b) for b in clips); late = peak()
print(first + rest, early, late)
"""
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert int(out[0]) == 3600 * hours
    assert float(out[2]) - float(out[1]) < 60, out


@pytest.mark.slow
def test_a_long_file_needs_bounded_memory(tmp_path):
    """Two hours at 10 frames per second with one key frame: the worst case for what is buffered."""
    path = tmp_path / "hours.mkv"
    minutes = 120
    one_key = {"preset": "ultrafast", "x264-params": "keyint=infinite:scenecut=0"}
    times_s = (i / 10 for i in range(600 * minutes))
    write_clip(path, times_s, size=(64, 128), options=one_key, tone_s=60.0 * minutes, sound_codec="libopus")
    script = f"""
import resource, sys
from stepformer import media as video
from stepformer.media.picture import FrameSpec
import itertools
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
clips = video.VideoReader({str(path)!r}).clips(FrameSpec((64, 128), 16, 16.0), batch=8)
first = sum(len(b) for b in itertools.islice(clips, 20)); early = peak()
rest = sum(len(b) for b in clips); late = peak()
samples = sum(len(b) for b in video.audio_blocks({str(path)!r})); sound = peak()
print(first + rest, samples, early, late, sound)
"""
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    count, samples, early, late, sound = int(out[0]), int(out[1]), *map(float, out[2:])
    assert count == 60 * minutes
    assert samples / 16000 == pytest.approx(60 * minutes, abs=1)
    assert late - early < 60, (early, late)
    assert sound - late < 60


def test_frames_are_lazy(clip):
    path, _ = clip("h264.mp4")
    frames = video.VideoReader(path).frames_at(i / 10 for i in itertools.count())
    assert [next(frames)[0], next(frames)[0]] == [0.0, 0.1]
    frames.close()


def test_colours_of_a_small_picture_are_as_sharp_as_its_greys():
    """Left alone, the scaler gives two neighbours one colour, which an encoder takes for another picture."""
    from stepformer.media.picture import Painter

    small = np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    frame = av.VideoFrame.from_ndarray(np.repeat(np.repeat(small, 4, 0), 4, 1), format="rgb24")
    seen = Painter((32, 32))(frame.reformat(format="yuv420p"))
    assert np.abs(seen.astype(int) - small).mean() < 25  # 42 where colours are shared
