"""Chapters go into a copy and come back, and not one frame is encoded again."""

import hashlib

import pytest

from benchmarks.timecode import read_time_s, write_clip
from stepformer import Step, Timeline
from stepformer import media as video
from stepformer.errors import InputError, UsageError

TIMES = [i / 25 for i in range(25 * 8)]
STEPS = Timeline(
    "a", 8.0, (Step(0.5, 2.25, "crack the eggs"), Step(2.25, 4, None), Step(5, 8, 'fold – 折る \'n "taste"'))
)


def packets(path, kind):
    """A hash of every packet of a kind: equal means copied bit for bit."""
    import av

    with av.open(str(path)) as container:
        return [hashlib.sha256(bytes(p)).hexdigest() for p in container.demux(**{kind: 0}) if p.size]


@pytest.mark.parametrize(
    ("source", "target", "options"),
    [
        ("a.mp4", "b.mp4", {"tone_s": 8.0}),
        ("a.mov", "b.mov", {"tone_s": 8.0, "rotation_deg": 90}),
        ("a.mkv", "b.mkv", {"tone_s": 8.0, "sound_codec": "libopus"}),
        ("a.webm", "b.webm", {"codec": "libvpx-vp9", "options": {"deadline": "realtime", "cpu-used": "8"}}),
        ("a.mp4", "b.mkv", {"tone_s": 8.0}),
        ("a.mkv", "b.mp4", {"start_s": 7.3}),
        ("a.mp4", "b.m4v", {"start_s": 7.3}),
    ],
)
def test_round_trip(tmp_path, source, target, options):
    source, target = tmp_path / source, tmp_path / target
    write_clip(source, TIMES, **options)
    info = video.write_chapters(source, target, STEPS)
    found = video.probe(target).chapters
    assert found == info.chapters
    if target.suffix in (".mp4", ".m4v", ".mov"):
        assert found[0] == Step(0.0, 0.5, "Intro")
        found = found[1:]
    else:
        assert [c.end_s for c in found] == pytest.approx([2.25, 4.0, 8.0], abs=0.002)
    assert [c.label for c in found] == ["crack the eggs", "Step 2", 'fold – 折る \'n "taste"']
    assert [c.start_s for c in found] == pytest.approx([0.5, 2.25, 5.0], abs=0.002)
    before = video.probe(source)
    assert (info.width, info.height, info.rotation_deg) == (before.width, before.height, before.rotation_deg)
    assert info.duration_s == pytest.approx(before.duration_s, abs=0.1)
    assert info.start_s == pytest.approx(0.0, abs=0.03)
    assert packets(source, "video") == packets(target, "video")
    if options.get("tone_s"):
        assert packets(source, "audio") == packets(target, "audio")
    # and the picture is where it was
    for path in (source, target):
        seen = [read_time_s(picture) for _, picture in video.VideoReader(path).pictures_at([1.0, 6.5], (64, 128))]
        # Matroska has no negative times: sound that starts 21 ms early moves everything by as much
        assert seen == pytest.approx([1.0, 6.48], abs=0.045)


def test_in_place_and_replacing_old_chapters(tmp_path):
    path = tmp_path / "a.mp4"
    write_clip(path, TIMES)
    video.write_chapters(path, path, STEPS)
    video.write_chapters(path, path, [Step(0, 8, "all of it")])
    assert [c.label for c in video.probe(path).chapters] == ["all of it"]
    assert None not in video.VideoReader(path).pictures_at([1.0, 7.9])
    video.write_chapters(path, path, [])
    assert video.probe(path).chapters == ()
    assert [p.name for p in tmp_path.iterdir()] == ["a.mp4"]


def test_what_cannot_be_done_leaves_the_target_alone(tmp_path):
    source = tmp_path / "a.mkv"
    write_clip(source, TIMES[:50], codec="ffv1")
    target = tmp_path / "b.mp4"
    target.write_text("precious")
    with pytest.raises(UsageError, match=r"not into \.avi"):
        video.write_chapters(source, tmp_path / "b.avi", STEPS)
    with pytest.raises(InputError, match="there is no file"):
        video.write_chapters(tmp_path / "none.mp4", target, STEPS)
    with pytest.raises(InputError, match=r"try \.mkv"):
        video.write_chapters(source, tmp_path / "c.webm", STEPS)
    assert target.read_text() == "precious"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.mkv", "b.mp4"]
