"""The sound track: 16 kHz, mono, float32, and every sample at its second."""

import numpy as np
import pytest

from benchmarks.timecode import write_clip
from stepformer import media as video
from stepformer.errors import InputError, UsageError

TIMES = [i / 10 for i in range(60)]


def pitch_hz(samples, rate=16000):
    spectrum = np.abs(np.fft.rfft(samples * np.hanning(len(samples))))
    return np.argmax(spectrum) * rate / len(samples)


@pytest.mark.parametrize(
    ("name", "codec"),
    [
        ("a.mp4", "aac"),
        ("a.mkv", "libopus"),
        ("a.mkv", "flac"),
        ("a.avi", "libmp3lame"),
        ("a.mov", "pcm_s16le"),
        ("a.ts", "aac"),
    ],
)
def test_a_tone_comes_back(tmp_path, name, codec):
    path = tmp_path / name
    options = {"codec": "mpeg4", "constant_rate": True, "rate_hz": 10} if name.endswith("avi") else {}
    write_clip(path, TIMES, tone_s=6.0, sound_codec=codec, **options)
    samples = video.read_audio(path)
    assert samples.dtype == np.float32
    assert len(samples) / 16000 == pytest.approx(6.0, abs=0.12)
    assert pitch_hz(samples[16000:80000]) == pytest.approx(440, abs=2)
    assert np.quantile(np.abs(samples[16000:80000]), 0.95) == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize("name", ["late.mp4", "late.mkv"])
def test_sound_that_starts_late_is_preceded_by_silence(tmp_path, name):
    path = tmp_path / name
    write_clip(path, TIMES, tone_s=3.0, tone_start_s=2.0)
    samples = video.read_audio(path)
    loud = np.abs(samples) > 0.2
    assert np.argmax(loud) / 16000 == pytest.approx(2.0, abs=0.06)
    assert len(samples) / 16000 == pytest.approx(5.0, abs=0.1)


def test_odd_start_time_does_not_move_the_sound(tmp_path):
    path = tmp_path / "odd.mkv"
    write_clip(path, TIMES, tone_s=3.0, tone_start_s=1.0, start_s=9.7)
    samples = video.read_audio(path)
    assert np.argmax(np.abs(samples) > 0.2) / 16000 == pytest.approx(1.0, abs=0.06)


def test_blocks_are_the_whole_in_pieces(tmp_path):
    path = tmp_path / "a.mp4"
    write_clip(path, TIMES, tone_s=6.0)
    blocks = list(video.audio_blocks(path, block_s=1.7))
    assert [len(b) for b in blocks[:-1]] == [27200] * (len(blocks) - 1)
    np.testing.assert_array_equal(np.concatenate(blocks), video.read_audio(path))


def test_a_truncated_file_gives_the_sound_it_has(tmp_path):
    path = tmp_path / "a.mkv"
    write_clip(path, TIMES, tone_s=6.0)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    samples = video.read_audio(path)
    assert 1.5 < len(samples) / 16000 < 4.5


def test_no_sound_and_wrong_calls(tmp_path):
    path = tmp_path / "silent.mp4"
    write_clip(path, TIMES)
    assert video.probe(path).audio_tracks == 0
    with pytest.raises(InputError, match="no sound track"):
        video.read_audio(path)
    with pytest.raises(UsageError):
        next(video.audio_blocks(path, block_s=0))
