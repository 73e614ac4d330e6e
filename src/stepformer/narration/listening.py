"""What is said in a video, wherever it is: a file that is given, subtitles beside or inside the video, or its sound."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Literal

from stepformer.base.defaults import LANGUAGE, SPEECH_MODEL
from stepformer.errors import InputError, MissingError, UsageError
from stepformer.media.finding import is_language, read_subtitle_stream, subtitle_streams, subtitles_beside
from stepformer.narration.cleaning import is_english
from stepformer.narration.cues import Cue, cue_at
from stepformer.narration.phrases import Phrase, PhraseOptions
from stepformer.narration.pipeline import extract_phrases
from stepformer.narration.readers import read_subtitles, tidy
from stepformer.narration.speech import OtherLanguageError, Report, transcribe

Source = Literal["file", "beside", "inside", "speech", "none"]


@dataclass(frozen=True, slots=True)
class Listening:
    """How narration is found. The defaults take subtitles where there are any and listen where there are none.

    Attributes:
        subtitles: A file instead of all else.
        beside: Look for subtitles beside and inside the video.
        speech: Turn speech into text where there are no subtitles.
        speech_model: "base", "small" or a folder.
        language: Of the subtitles that are preferred, and of the speech.
        cache: Keep what was heard.
    """

    subtitles: str | os.PathLike[str] | None = None
    beside: bool = True
    speech: bool = True
    speech_model: str = SPEECH_MODEL
    language: str = LANGUAGE
    cache: bool = True

    def __post_init__(self) -> None:
        if not self.language.replace("-", "").isalpha():
            raise UsageError(f"a language is a code such as en or de; got {self.language!r}")


@dataclass(frozen=True, slots=True)
class Narration:
    """What is said in one video.

    Attributes:
        cues: What is said, and when.
        source: Which kind of source it is from.
        where: The same in words.
        notes: What a user should know of it.
    """

    cues: tuple[Cue, ...] = ()
    source: Source = "none"
    where: str = ""
    notes: tuple[str, ...] = ()

    def phrases(self, options: PhraseOptions | None = None) -> list[Phrase]:
        """The verb phrases said, chatter marked; [] for narration that is not English."""
        return extract_phrases(self.cues, options) if self.cues and is_english(self.cues) is not False else []


def narration_of(
    video: str | os.PathLike[str], how: Listening | None = None, report: Report | None = None
) -> Narration:
    """What is said in a video: the subtitles given, else those beside it, those inside it, else its speech.

    What is missing is a note, not an error, unless it was named: a video is still a video without its words.

    Args:
        video: The file.
        how: Where narration is looked for.
        report: Called while sound is heard, with seconds done and seconds in all.

    Raises:
        InputError: the subtitle file that was given cannot be read.

    Examples:
        >>> narration_of("talk.mp4").where          # subtitles lie beside this video
        'talk.vtt'
    """
    found = _found(video, how or Listening(), report)
    if is_english(found.cues) is not False:
        return found
    note = f"{found.where} does not look like English, the only language that phrases are found in"
    return replace(found, notes=(*found.notes, note))


def _found(video: str | os.PathLike[str], how: Listening, report: Report | None) -> Narration:
    if how.subtitles is not None:
        return Narration(tuple(read_subtitles(how.subtitles)), "file", os.fspath(how.subtitles))
    notes: list[str] = []
    if how.beside:
        beside = subtitles_beside(video, how.language)
        if beside is not None:
            try:
                return Narration(tuple(read_subtitles(beside)), "beside", str(beside))
            except InputError as error:
                notes.append(f"the subtitles beside the video are left out: {error}")
        if (inside := _inside(video, how.language, notes)) is not None:
            return inside
    if how.speech:
        try:
            cues = transcribe(video, how.speech_model, language=how.language, cache=how.cache, report=report)
            if cues:
                where = f"speech heard by Whisper {how.speech_model}"
                return Narration(tuple(cues), "speech", where, tuple(notes))
        except MissingError as error:
            notes.append(f"there is speech, but it could not be transcribed: {error}")
        except OtherLanguageError as error:
            notes.append(str(error))
        except InputError:
            pass  # no sound track, or one that cannot be decoded: a silent video
    return Narration(notes=tuple(notes))


def _inside(video: str | os.PathLike[str], language: str, notes: list[str]) -> Narration | None:
    """The narration of the subtitle stream that was chosen; where there are several, ``notes`` lists them."""
    try:
        streams = subtitle_streams(video)
    except (InputError, MissingError):
        return None  # not a file that can be opened: an id of stored features, or what decoding will complain of
    readable = [stream for stream in streams if stream.text and not stream.forced]
    wanted = [stream for stream in readable if is_language(stream.language, language)]
    chosen = next(iter([*wanted, *(stream for stream in readable if not stream.language)]), None)
    if len(streams) > 1 or (streams and chosen is None):
        listed = ", ".join(str(stream) for stream in streams)
        taken = "none is taken" if chosen is None else f"{chosen.index} is taken"
        notes.append(f"subtitle streams: {listed}; {taken} for language {language!r} (--language)")
    if chosen is None:
        return None
    try:
        cues = tidy([cue_at(*line) for line in read_subtitle_stream(video, chosen.index)])
    except InputError as error:
        notes.append(str(error))
        return None
    return Narration(tuple(cues), "inside", f"subtitle stream {chosen}", tuple(notes)) if cues else None
