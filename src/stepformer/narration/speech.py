"""Speech to text for videos without subtitles, through faster-whisper; what was heard is kept in the cache.

A voice check comes first (Silero's, which faster-whisper carries): it costs about a hundredth of a second per second
of sound, and only parts with speech are transcribed. Sound is read in parts that end in a pause, so that a
day of it fits in memory.
"""

from __future__ import annotations

import functools
import itertools
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from stepformer.base import files, weights
from stepformer.base.cache import kept_file
from stepformer.base.defaults import LANGUAGE, SPEECH_MODEL
from stepformer.errors import InputError, MissingError, StepFormerError, UsageError, near
from stepformer.media import SAMPLE_RATE_HZ, audio_blocks
from stepformer.media.audio import Samples
from stepformer.media.container import opened
from stepformer.narration.cues import Cue
from stepformer.narration.readers import parse_subtitles

MODELS = ("base", "small")
"""Names of speech models, pinned and fetched by ``stepformer models``."""
_VERSION = "3"  # of what is kept
_BLOCK_S = 30.0
_PART_S = 600.0  # sound held at once
_LEAST_SPEECH_S = 2.0  # in a part; less is a shout or a mistake of the voice check
_SILENT = 1e-4  # of full scale: where no sample is louder there is nothing to listen to

Report = Callable[[float, float], None]
"""Called while sound is heard, with seconds done and seconds in all."""


class OtherLanguageError(InputError):
    """There is speech, but not in the language that was expected."""


def transcribe(
    video: str | os.PathLike[str],
    model: str | os.PathLike[str] = SPEECH_MODEL,
    *,
    language: str = LANGUAGE,
    cache: bool = True,
    report: Report | None = None,
) -> list[Cue]:
    """Cues with word times of a video's speech; [] without speech. What was kept from before is read.

    ``model`` is "base", "small" or a folder with CTranslate2 weights. ``language`` is what is spoken; what is not
    English is translated, because phrases are found in English; of "en-US" the first part counts.

    Raises:
        InputError: the video cannot be read or has no sound.
        UsageError: the speech model knows no such language.
        OtherLanguageError: another language than English is spoken, and ``language`` does not name it.
        MissingError: the weights are not here.
    """
    language = language.lower().partition("-")[0]
    try:
        kept = kept_file("speech", Path(video), _VERSION, str(model), language, suffix=".json")
    except OSError as error:
        raise InputError(f"{video}: cannot be read: {error.strerror or error}") from error
    if cache and (found := _read_kept(kept)) is not None:
        return found
    segments: list[dict[str, Any]] = []
    others: set[str] = set()
    for start_s, sound in parts_with_speech(video, report):
        heard, other = _listen(sound, start_s, str(model), language, str(video))
        segments += heard
        others |= other
    text = json.dumps({"segments": segments, "other": " ".join(sorted(others))}, ensure_ascii=False)
    if cache:
        with suppress(OSError):  # a full or read-only disk costs the second look its speed, nothing else
            files.write_text(kept, text + "\n")
    return _cues(text, str(kept))


def _read_kept(path: Path) -> list[Cue] | None:
    try:
        return _cues(path.read_text(encoding="utf-8"), str(path))
    except OtherLanguageError:
        raise
    except (OSError, ValueError, StepFormerError):
        return None  # not there, or damaged: it is made again


def _cues(text: str, name: str) -> list[Cue]:
    value = json.loads(text)
    if not isinstance(value, Mapping) or not isinstance(value.get("segments"), list):
        raise InputError(f"{name}: expected a transcript")
    if not value["segments"] and (other := str(value.get("other") or "")):
        code = other.split(maxsplit=1)[0]
        raise OtherLanguageError(f"the speech is not English (it sounds like {other}): --language {code} translates it")
    return parse_subtitles(text, name, "whisperx") if value["segments"] else []


# -- is there a voice ---------------------------------------------------------------------------------------------


def speech_spans(sound: Samples) -> list[tuple[float, float]]:
    """(start_s, end_s) of the stretches of ``sound`` (S,), 16 kHz, with speech."""
    if np.abs(sound).max(initial=0.0) < _SILENT:
        return []
    from faster_whisper import vad

    found = vad.get_speech_timestamps(np.ascontiguousarray(sound, np.float32), vad.VadOptions())
    return [(one["start"] / SAMPLE_RATE_HZ, one["end"] / SAMPLE_RATE_HZ) for one in found]


def parts_with_speech(video: str | os.PathLike[str], report: Report | None = None) -> Iterator[tuple[float, Samples]]:
    """(start_s, sound) of the parts of a video with at least two seconds of speech."""
    total_s = 0.0
    if report is not None:
        with opened(video) as container:
            total_s = float(container.duration or 0) / 1e6
    waiting: list[Samples] = []
    held, done = 0, 0  # samples
    for block in itertools.chain(audio_blocks(video, _BLOCK_S), [None]):  # None: the end
        if block is not None:
            waiting.append(block)
            held += len(block)
        if not held or (block is not None and held < _PART_S * SAMPLE_RATE_HZ):
            continue
        sound = np.concatenate(waiting)
        spans = speech_spans(sound)
        size = held if block is None else _end_of_part(spans, held)
        spoken_s = sum(min(end, size / SAMPLE_RATE_HZ) - start for start, end in spans if start * SAMPLE_RATE_HZ < size)
        if spoken_s >= _LEAST_SPEECH_S:
            yield done / SAMPLE_RATE_HZ, sound[:size]
        done += size
        if report is not None:
            report(done / SAMPLE_RATE_HZ, max(total_s, done / SAMPLE_RATE_HZ))
        waiting, held = ([sound[size:]], held - size) if size < held else ([], 0)


def _end_of_part(spans: Sequence[tuple[float, float]], held: int) -> int:
    """Samples up to the middle of the longest pause in the last third of a part; all of it without a pause."""
    end_s = held / SAMPLE_RATE_HZ
    edges = [0.0, *(edge for span in spans for edge in span), end_s]
    pauses = [(b - a, (a + b) / 2) for a, b in zip(edges[::2], edges[1::2], strict=True)]
    late = [(length, middle) for length, middle in pauses if middle > end_s * 2 / 3 and length > 0.2]
    return round(max(late)[1] * SAMPLE_RATE_HZ) if late else held


# -- words --------------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=1)
def _load(model: str) -> Any:
    import ctranslate2
    import faster_whisper

    on_gpu = ctranslate2.get_cuda_device_count() > 0
    try:
        # on a CPU 8 bits are twice as fast as 32 and no worse: see stepformer bench speech
        return faster_whisper.WhisperModel(
            _folder(model), device="cuda" if on_gpu else "cpu", compute_type="default" if on_gpu else "int8"
        )
    except StepFormerError:
        raise
    except Exception as error:
        raise MissingError(f"faster-whisper cannot load the speech model {model!r} ({error})") from error


def _folder(model: str) -> str:
    if Path(model).is_dir():
        return model
    if model not in MODELS:
        raise UsageError(f"there is no speech model {model!r}; there are {', '.join(MODELS)}, or give a folder")
    return str(weights.pull(f"whisper-{model}"))


def _listen(
    sound: Samples, start_s: float, model: str, language: str, video: str
) -> tuple[list[dict[str, Any]], set[str]]:
    """Segments of one part of the sound, in seconds of the video; or none, and the code of another language."""
    engine = _load(model)
    if language != "en" and language not in engine.supported_languages:
        raise UsageError(f"the speech model does not know the language {near(language, engine.supported_languages)}")
    try:
        if language == "en":  # with language="en" Whisper makes up English for any language
            best, chance, chances = engine.detect_language(sound, vad_filter=True)
            if chance >= 0.5 and dict(chances).get("en", 0.0) < 0.1:
                return [], {str(best)}
        segments, _ = engine.transcribe(
            sound, language=language, task="transcribe" if language == "en" else "translate",
            word_timestamps=True, condition_on_previous_text=False, vad_filter=True,
        )  # fmt: skip
        return list(_plain(segments, start_s)), set()
    except StepFormerError:
        raise
    except Exception as error:
        raise InputError(f"{video}: no speech could be read from it ({type(error).__name__}: {error})") from error


def _plain(segments: Iterable[Any], start_s: float) -> Iterator[dict[str, Any]]:
    for segment in segments:
        words = [
            {
                "word": word.word.strip(),
                "start": round(start_s + word.start, 3),
                "end": round(start_s + word.end, 3),
                "probability": round(word.probability, 3),
            }
            for word in segment.words or ()
            if math.isfinite(word.start) and math.isfinite(word.end)
        ]
        yield {
            "start": round(start_s + segment.start, 3),
            "end": round(start_s + segment.end, 3),
            "text": segment.text.strip(),
            "words": words,
        }
