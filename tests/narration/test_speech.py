"""Speech to text: a transcript kept beside the video, and real speech through real weights where they are."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import types

import pytest

from stepformer.errors import InputError, MissingError
from stepformer.narration import speech


class _Word:
    def __init__(self, word: str, start: float, end: float) -> None:
        self.word, self.start, self.end = word, start, end


class _Segment:
    def __init__(self, start: float, end: float, words: list[_Word]) -> None:
        self.start, self.end, self.words = start, end, words
        self.text = "".join(word.word for word in words)


@pytest.fixture
def fake(monkeypatch, tmp_path):
    """A stand-in for faster-whisper that counts its calls."""
    calls: list[str] = []
    module = types.ModuleType("faster_whisper")

    class WhisperModel:
        def __init__(self, folder: str, **_: object) -> None:
            pass

        def transcribe(self, path: str, **_: object):
            calls.append(path)
            if path.endswith("broken.mp4"):
                raise ValueError("no audio stream")
            return iter(
                [_Segment(0.0, 2.0, [_Word(" Crack", 0.1, 0.5), _Word(" the", 0.5, 0.7), _Word(" eggs.", 0.7, 1.5)])]
            ), None

    module.WhisperModel = WhisperModel  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "faster_whisper", module)
    speech._load.cache_clear()
    yield calls
    speech._load.cache_clear()


def test_the_transcript_is_kept_and_made_again_when_the_video_changes(fake, tmp_path) -> None:
    video = tmp_path / "talk.mp4"
    video.write_bytes(b"film")
    (cue,) = speech.transcribe(video, model=tmp_path)
    assert cue.text == "Crack the eggs." and [word.start_s for word in cue.words] == [0.1, 0.5, 0.7]
    assert speech.transcribe(video, model=tmp_path) == [cue] and len(fake) == 1
    kept = speech.transcript_path(video)
    assert json.loads(kept.read_text())["segments"][0]["words"][0]["word"] == "Crack"
    video.write_bytes(b"another film")
    assert speech.transcribe(video, model=tmp_path) == [cue] and len(fake) == 2
    kept.write_text("{ broken")
    assert speech.transcribe(video, model=tmp_path) == [cue] and len(fake) == 3


def test_no_sound_and_no_file(fake, tmp_path) -> None:
    (tmp_path / "broken.mp4").write_bytes(b"x")
    with pytest.raises(InputError, match="no speech could be read"):
        speech.transcribe(tmp_path / "broken.mp4", model=tmp_path)
    with pytest.raises(InputError, match="cannot be read"):
        speech.transcribe(tmp_path / "none.mp4", model=tmp_path)


def test_without_the_extra(monkeypatch, tmp_path) -> None:
    monkeypatch.setitem(sys.modules, "faster_whisper", None)
    (tmp_path / "a.mp4").write_bytes(b"x")
    with pytest.raises(MissingError, match=r"stepformer\[whisper\]"):
        speech.transcribe(tmp_path / "a.mp4")


@pytest.mark.slow
def test_real_speech_to_phrases(parser, tmp_path) -> None:
    if shutil.which("espeak-ng") is None:
        pytest.skip("espeak-ng is not installed")
    pytest.importorskip("faster_whisper", reason="faster-whisper is not installed")
    from stepformer.base import weights
    from stepformer.narration import extract_phrases

    folder = weights.find("whisper-base")
    if folder is None:
        try:
            folder = weights.pull("whisper-base")
        except MissingError as error:
            pytest.skip(f"no Whisper weights here: {error}")
    sound = tmp_path / "talk.wav"
    text = "First, crack the eggs into a bowl. Then whisk them with a fork. Finally, pour the milk into the pan."
    subprocess.run(["espeak-ng", "-v", "en-us", "-s", "140", "-w", str(sound), text], check=True)
    cues = speech.transcribe(sound, model=folder)
    assert all(cue.words for cue in cues)
    phrases = [phrase for phrase in extract_phrases(cues) if not phrase.chatter]
    verbs = [phrase.verb for phrase in phrases]
    # a synthetic voice is hard on a small model: two of the three must come through, in order
    assert len([verb for verb in ("crack", "whisk", "pour") if verb in verbs]) >= 2
    assert [p.start_s for p in phrases] == sorted(p.start_s for p in phrases)
    assert speech.transcript_path(sound).is_file()
