"""Speech to text: parts with a voice in them, a transcript kept in the cache, and real speech through real weights."""

from __future__ import annotations

import shutil
import subprocess
import sys
import types
import wave

import numpy as np
import pytest

from stepformer.base.cache import cache_folder
from stepformer.errors import InputError, MissingError, UsageError
from stepformer.narration import speech

RATE = speech.SAMPLE_RATE_HZ


class _Word:
    def __init__(self, word: str, start: float, end: float, probability: float) -> None:
        self.word, self.start, self.end, self.probability = word, start, end, probability


class _Segment:
    def __init__(self, start: float, end: float, words: list[_Word]) -> None:
        self.start, self.end, self.words = start, end, words
        self.text = "".join(word.word for word in words)


@pytest.fixture
def fake(monkeypatch, tmp_path):
    """A stand-in for faster-whisper that counts its calls; a voice is where the sound is loud."""
    calls: list[int] = []
    module, vad = types.ModuleType("faster_whisper"), types.ModuleType("faster_whisper.vad")

    class WhisperModel:
        supported_languages = ("en", "de")

        def __init__(self, folder: str, **_: object) -> None:
            pass

        def detect_language(self, sound, vad_filter: bool):
            english = float(sound.max() > 0.3)  # what is said quietly is German
            return ("en", 0.9, [("en", 0.9)]) if english else ("de", 0.8, [("de", 0.8), ("en", 0.05)])

        def transcribe(self, sound, **options: object):
            assert options["language"] == "en" and options["task"] == "transcribe"
            calls.append(len(sound))
            if np.abs(sound).max() > 0.95:
                raise ValueError("it broke")
            words = [
                _Word(" Crack", 0.1, 0.5, 0.5),
                _Word(" the", 0.5, 0.7, 0.98765),
                _Word(" eggs.", 0.7, 1.5, float("nan")),
            ]
            return iter([_Segment(0, 2, words)]), None

    def spans(sound, options):
        loud = np.abs(sound) > 0.2
        edges = np.flatnonzero(np.diff(np.concatenate([[False], loud, [False]]).astype(int)))
        return [{"start": int(a), "end": int(b)} for a, b in zip(edges[::2], edges[1::2], strict=True)]

    module.WhisperModel = WhisperModel  # type: ignore[attr-defined]
    vad.get_speech_timestamps, vad.VadOptions = spans, lambda: None  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "faster_whisper", module)
    monkeypatch.setitem(sys.modules, "faster_whisper.vad", vad)
    monkeypatch.setitem(sys.modules, "ctranslate2", types.SimpleNamespace(get_cuda_device_count=lambda: 0))
    monkeypatch.setenv("STEPFORMER_CACHE", str(tmp_path / "cache"))
    speech._load.cache_clear()
    yield calls
    speech._load.cache_clear()


def write_wav(path, *pieces):
    """Pieces of (seconds, level) one behind the other."""
    sound = np.concatenate([np.full(round(s * RATE), level * 32767, np.int16) for s, level in pieces])
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes(sound.tobytes())
    return path


def test_the_transcript_is_kept_and_made_again_when_the_sound_changes(fake, tmp_path) -> None:
    talk = write_wav(tmp_path / "talk.wav", (1, 0), (4, 0.5), (1, 0))
    (cue,) = speech.transcribe(talk, model=tmp_path)
    assert cue.text == "Crack the eggs." and [word.start_s for word in cue.words] == [0.1, 0.5, 0.7]
    assert [word.certainty for word in cue.words] == [0.5, 0.988, 1.0]  # of no number nothing is known
    assert speech.transcribe(talk, model=tmp_path) == [cue] and len(fake) == 1
    assert speech.transcribe(talk, model=tmp_path, cache=False) == [cue] and len(fake) == 2
    assert [path.name for path in tmp_path.glob("talk*")] == ["talk.wav"]  # nothing is written beside the video
    (kept,) = cache_folder("speech").iterdir()
    kept.write_text("{ broken")
    assert speech.transcribe(talk, model=tmp_path) == [cue] and len(fake) == 3
    write_wav(talk, (5, 0.5))
    assert speech.transcribe(talk, model=tmp_path) == [cue] and len(fake) == 4


def test_another_language_is_not_written_down_as_english(fake, tmp_path) -> None:
    from stepformer.narration.listening import Listening, narration_of

    talk = write_wav(tmp_path / "talk.wav", (4, 0.25))
    for _ in range(2):  # heard, then read from the cache
        with pytest.raises(speech.OtherLanguageError, match=r"sounds like de.*--language de"):
            speech.transcribe(talk, model=tmp_path)
    assert not fake
    narration = narration_of(talk, Listening(speech_model=str(tmp_path)))
    assert narration.cues == () and "not English" in narration.notes[0]


def test_a_language_with_a_region_is_heard_and_one_that_nobody_knows_is_an_error(fake, tmp_path) -> None:
    talk = write_wav(tmp_path / "talk.wav", (4, 0.5))
    assert speech.transcribe(talk, model=tmp_path, language="en-US") == speech.transcribe(talk, model=tmp_path)
    assert len(fake) == 1
    with pytest.raises(UsageError, match="does not know the language 'xx'; there are: de, en"):
        speech.transcribe(talk, model=tmp_path, language="xx")


def test_silence_costs_nothing_and_is_kept_too(fake, tmp_path, monkeypatch) -> None:
    quiet = write_wav(tmp_path / "quiet.wav", (3, 0.0), (1, 0.5), (3, 0.0))  # one second of voice is a shout
    assert speech.transcribe(quiet, model="no such weights") == [] and not fake
    monkeypatch.setattr(speech, "speech_spans", lambda sound: pytest.fail("heard again"))
    assert speech.transcribe(quiet, model="no such weights") == []
    monkeypatch.undo()
    assert speech.speech_spans(np.full(RATE, 1e-5, np.float32)) == []


def test_long_sound_is_heard_in_parts_that_end_in_a_pause(fake, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(speech, "_PART_S", 60.0)
    monkeypatch.setattr(speech, "_BLOCK_S", 10.0)
    talk = write_wav(tmp_path / "long.wav", (48, 0.5), (2, 0), (30, 0.5), (60, 0), (10, 0.5))
    seen: list[tuple[float, float]] = []
    parts = [(start, len(sound) / RATE) for start, sound in speech.parts_with_speech(talk, lambda *x: seen.append(x))]
    assert parts[0] == (0.0, pytest.approx(49.0))  # the middle of the pause
    assert [start for start, _ in parts] == sorted(start for start, _ in parts)
    assert parts[-1][0] + parts[-1][1] == pytest.approx(150.0)
    assert seen[-1] == (pytest.approx(150.0), pytest.approx(150.0)) and len(seen) >= 3
    cues = speech.transcribe(talk, model=tmp_path)
    assert [cue.words[0].start_s for cue in cues] == [pytest.approx(start + 0.1, abs=2e-3) for start, _ in parts]


def test_no_sound_no_file_and_weights_that_fail(fake, tmp_path) -> None:
    with pytest.raises(InputError, match="no speech could be read"):
        speech.transcribe(write_wav(tmp_path / "broken.wav", (5, 0.99)), model=tmp_path)
    with pytest.raises(InputError, match="cannot be read"):
        speech.transcribe(tmp_path / "none.mp4", model=tmp_path)
    with pytest.raises(UsageError, match="base, small"):
        speech.transcribe(write_wav(tmp_path / "talk.wav", (5, 0.5)), model="whisper-enormous")


@pytest.fixture(scope="module")
def omelette(tmp_path_factory):
    """Half a minute of a synthetic voice."""
    if shutil.which("espeak-ng") is None:
        pytest.skip("espeak-ng is not installed")
    sound = tmp_path_factory.mktemp("speech") / "talk.wav"
    text = "First, crack the eggs into a bowl. Then whisk them with a fork. Finally, pour the milk into the pan."
    subprocess.run(["espeak-ng", "-v", "en-us", "-s", "140", "-w", str(sound), text], check=True)
    return sound


def test_the_real_voice_check(omelette) -> None:
    pytest.importorskip("faster_whisper")
    from stepformer.media import read_audio

    voice = read_audio(omelette)
    assert sum(end - start for start, end in speech.speech_spans(voice)) > 0.8 * len(voice) / RATE
    rng, times = np.random.default_rng(0), np.arange(10 * RATE) / RATE
    chord = sum(np.sin(2 * np.pi * hz * times) for hz in (220, 277, 330)) / 6 * (times * 2 % 1 < 0.8)
    for sound in (chord, 0.1 * rng.standard_normal(len(times))):
        assert speech.speech_spans(sound.astype(np.float32)) == []


@pytest.mark.slow
@pytest.mark.parametrize("model", speech.MODELS)
def test_real_speech_to_phrases(parser, omelette, model) -> None:
    from stepformer.narration import extract_phrases

    try:
        cues = speech.transcribe(omelette, model, cache=False)
    except MissingError as error:
        pytest.skip(f"no Whisper weights here: {error}")
    assert all(cue.words for cue in cues)
    phrases = [phrase for phrase in extract_phrases(cues) if not phrase.chatter]
    verbs = [phrase.verb for phrase in phrases]
    # a synthetic voice is hard on a small model: two of the three must come through, in order
    assert len([verb for verb in ("crack", "whisk", "pour") if verb in verbs]) >= 2
    assert [p.start_s for p in phrases] == sorted(p.start_s for p in phrases)
