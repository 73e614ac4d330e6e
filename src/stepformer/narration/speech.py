"""Speech to text for videos without subtitles, through faster-whisper; the result is kept beside the video."""

from __future__ import annotations

import functools
import json
import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from stepformer.base import files
from stepformer.errors import InputError, MissingError, StepFormerError, missing_extra
from stepformer.narration.cues import Cue
from stepformer.narration.readers import parse_subtitles


def transcript_path(video: str | os.PathLike[str]) -> Path:
    """Where the transcript of a video is kept: ``talk.mp4`` -> ``talk.mp4.whisper.json``."""
    video = Path(video)
    return video.with_name(video.name + ".whisper.json")


def transcribe(
    video: str | os.PathLike[str],
    model: str | os.PathLike[str] = "whisper-base",
    *,
    language: str | None = "en",
    keep: bool = True,
) -> list[Cue]:
    """Cues with word times of a video's speech. A transcript made before from the same file and model is read.

    ``model`` is a name known to ``stepformer models list`` or a folder with CTranslate2 weights; ``language`` None
    lets the model find it. ``keep`` writes the transcript beside the video (Whisper's JSON).

    Raises:
        InputError: the video cannot be read or has no sound.
        MissingError: the extra or the weights are not here.
    """
    video = Path(video)
    try:
        state = video.stat()
    except OSError as error:
        raise InputError(f"{video}: cannot be read: {error.strerror or error}") from error
    made_from = {"model": str(model), "language": language, "bytes": state.st_size, "modified_ns": state.st_mtime_ns}
    kept = transcript_path(video)
    found = _kept(kept, made_from)
    if found is not None:
        return found
    segments = _listen(video, str(model), language)
    text = json.dumps({"made_from": made_from, "segments": segments}, ensure_ascii=False)
    if keep:
        try:
            files.write_text(kept, text + "\n")
        except OSError as error:
            raise InputError(
                f"{kept}: the transcript cannot be written ({error.strerror or error}); use keep=False"
            ) from error
    return parse_subtitles(text, str(kept), "whisperx") if segments else []


def _kept(path: Path, made_from: Mapping[str, object]) -> list[Cue] | None:
    """Cues of a transcript that was made from just this; None if there is none that can be used."""
    try:
        text = path.read_text(encoding="utf-8")
        value = json.loads(text)
        if not isinstance(value, dict) or value.get("made_from") != made_from:
            return None
        return parse_subtitles(text, str(path), "whisperx") if value["segments"] else []
    except (OSError, ValueError, KeyError, StepFormerError):
        return None


@functools.lru_cache(maxsize=1)
def _load(folder: str) -> Any:
    try:
        from faster_whisper import WhisperModel
    except ImportError as error:
        raise missing_extra("faster-whisper", "whisper", "speech to text") from error
    try:
        return WhisperModel(folder, device="auto", compute_type="default", local_files_only=True)
    except Exception as error:
        raise MissingError(
            f"{folder}: faster-whisper cannot load these weights ({error}); see: stepformer models list"
        ) from error


def _folder(model: str) -> str:
    if Path(model).is_dir():
        return model
    from stepformer.base import weights

    return str(weights.pull(model))


def _listen(video: Path, model: str, language: str | None) -> list[dict[str, Any]]:
    try:
        import faster_whisper  # noqa: F401  # before the weights, so that what is missing is said first
    except ImportError as error:
        raise missing_extra("faster-whisper", "whisper", "speech to text") from error
    engine = _load(_folder(model))
    try:
        segments, _ = engine.transcribe(
            str(video), language=language, word_timestamps=True, condition_on_previous_text=False, vad_filter=False
        )
        return list(_plain(segments))
    except StepFormerError:
        raise
    except Exception as error:
        raise InputError(f"{video}: no speech could be read from it ({type(error).__name__}: {error})") from error


def _plain(segments: Iterable[Any]) -> Iterable[dict[str, Any]]:
    for segment in segments:
        words = [
            {"word": word.word.strip(), "start": round(word.start, 3), "end": round(word.end, 3)}
            for word in segment.words or ()
            if math.isfinite(word.start) and math.isfinite(word.end)
        ]
        yield {
            "start": round(segment.start, 3),
            "end": round(segment.end, 3),
            "text": segment.text.strip(),
            "words": words,
        }
