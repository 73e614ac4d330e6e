"""Where narration is found: the file given, beside the video, inside it, else in its sound; what fails is a note."""

from __future__ import annotations

import json
from fractions import Fraction

import numpy as np
import pytest

from stepformer.errors import InputError, MissingError, UsageError
from stepformer.media.finding import is_language, read_subtitle_stream, subtitle_streams
from stepformer.narration import Listening, extract_phrases, listening, narration_of, read_subtitles

SRT = "1\n00:00:01,000 --> 00:00:03,000\nCrack the eggs into the bowl.\n"
_ASS = (
    b"[Script Info]\nScriptType: v4.00+\n\n[V4+ Styles]\nFormat: Name, Fontname, Fontsize\nStyle: Default,Arial,16\n\n"
    b"[Events]\nFormat: Layer, Start, End, Style, Name, MarginL, MarginR, MarginV, Effect, Text\n"
)


def write_with_subtitles(path, codec, streams):
    """A grey video of three seconds with subtitle streams of (language, lines); a line is (start_s, text)."""
    import av
    from av.subtitles.subtitle import SubtitleSet

    with av.open(str(path), "w") as file:
        picture = file.add_stream("libvpx" if path.suffix == ".webm" else "mpeg4", rate=10)
        picture.width = picture.height = 64
        picture.pix_fmt = "yuv420p"
        tracks = []
        for language, _ in streams:
            track = file.add_stream(codec)
            track.codec_context.subtitle_header = _ASS
            if language:
                track.metadata["language"] = language
            tracks.append(track)
        for _ in range(30):
            file.mux(picture.encode(av.VideoFrame.from_ndarray(np.full((64, 64, 3), 90, np.uint8), format="rgb24")))
        file.mux(picture.encode(None))
        for track, (_, lines) in zip(tracks, streams, strict=True):
            for number, (start_s, text) in enumerate(lines):
                said = f"{number},0,Default,,0,0,0,,{text}".encode()
                packet = track.codec_context.encode_subtitle(SubtitleSet.create(said, 0, 900, round(start_s * 1000)))
                packet.stream, packet.time_base = track, Fraction(1, 1000)
                packet.pts = packet.dts = round(start_s * 1000)
                packet.duration = 900
                file.mux(packet)
    return path


@pytest.fixture
def deaf(monkeypatch):
    """Fails where anybody listens to the sound."""
    monkeypatch.setattr(listening, "transcribe", lambda *_, **__: pytest.fail("the sound was listened to"))


@pytest.mark.parametrize(
    ("name", "codec"), [("a.mkv", "srt"), ("a.mp4", "mov_text"), ("b.mkv", "ass"), ("a.webm", "webvtt")]
)
def test_subtitles_inside_a_video(tmp_path, name, codec, deaf) -> None:
    lines = [(0.5, "crack the {\\i1}eggs{\\i0}"), (1.5, "whisk them\\Nwell")]
    video = write_with_subtitles(tmp_path / name, codec, [("ger", [(0.5, "Eier aufschlagen")]), ("eng", lines)])
    german, english = subtitle_streams(video)
    assert (german.language, english.language) == ("ger", "eng") and english.text and not english.forced
    assert read_subtitle_stream(video, english.index) == [
        (pytest.approx(0.5, abs=0.02), pytest.approx(1.4, abs=0.02), "crack the eggs"),
        (pytest.approx(1.5, abs=0.02), pytest.approx(2.4, abs=0.02), "whisk them well"),
    ]
    heard = narration_of(video)
    assert heard.source == "inside" and [cue.text for cue in heard.cues] == ["crack the eggs", "whisk them well"]
    assert "ger" in heard.notes[0] and "eng" in heard.notes[0]  # all are listed
    assert [cue.text for cue in narration_of(video, Listening(language="de")).cues] == ["Eier aufschlagen"]
    with pytest.raises(InputError, match="no subtitle stream 9"):
        read_subtitle_stream(video, 9)


def test_the_order_in_which_narration_is_looked_for(tmp_path, monkeypatch) -> None:
    video = write_with_subtitles(tmp_path / "talk.mkv", "srt", [("eng", [(0.5, "pour the milk")])])
    (tmp_path / "talk.en.srt").write_text(SRT)
    (tmp_path / "given.srt").write_text(SRT.replace("Crack the eggs into", "Wash"))
    given = Listening(tmp_path / "given.srt")
    assert narration_of(video, given).cues[0].text == "Wash the bowl." and narration_of(video, given).source == "file"
    assert narration_of(video).source == "beside"
    (tmp_path / "talk.en.srt").write_text("no subtitles at all")
    spoilt = narration_of(video)
    assert spoilt.source == "inside" and spoilt.cues[0].text == "pour the milk"
    heard = [listening.Cue(0.0, 1.0, "stir the soup")]
    monkeypatch.setattr(listening, "transcribe", lambda *_, **__: heard)
    assert narration_of(video, Listening(beside=False)).source == "speech"
    assert narration_of(video, Listening(beside=False, speech=False)).source == "none"
    with pytest.raises(InputError, match="there is no file"):
        narration_of(video, Listening(tmp_path / "gone.srt"))


def test_what_cannot_be_heard_is_a_note(tmp_path, monkeypatch) -> None:
    def missing(*_, **__):
        raise MissingError("no weights here")

    video = write_with_subtitles(tmp_path / "a.mkv", "srt", [("jpn", [(0.5, "x")])])
    monkeypatch.setattr(listening, "transcribe", missing)
    found = narration_of(video)
    assert found.cues == () and "no weights here" in found.notes[-1] and "jpn" in found.notes[0]
    monkeypatch.undo()
    assert narration_of(video).source == "none"  # no sound track: a silent video, nothing to say of it
    assert narration_of(tmp_path / "not a file") == listening.Narration()
    with pytest.raises(UsageError, match="language"):
        Listening(language="english (US)")


def test_narration_that_is_not_english_gives_no_phrases_and_a_note(tmp_path, deaf) -> None:
    text = "Zuerst schlagen wir die Eier in die Schüssel und verrühren sie gut mit dem Schneebesen bis alles glatt ist "
    (tmp_path / "a.srt").write_text(SRT.replace("Crack the eggs into the bowl.", text * 2))
    found = narration_of(tmp_path / "a.mp4")
    assert found.source == "beside" and "English" in found.notes[0] and found.phrases() == []


def test_language_codes() -> None:
    assert is_language("en-US", "en") and is_language("eng", "en") and is_language("ger", "de")
    assert not is_language("", "en") and not is_language("enm", "en") and not is_language("de", "en")


def test_what_phrases_prints_is_read_as_subtitles(tmp_path, parser, capsys) -> None:
    from stepformer.cli import main

    (tmp_path / "a.srt").write_text(SRT)
    assert main(["phrases", str(tmp_path / "a.srt"), "--json"]) == 0
    (tmp_path / "phrases.json").write_text(printed := capsys.readouterr().out)
    cues = read_subtitles(tmp_path / "phrases.json")
    assert [p.to_dict() for p in extract_phrases(cues)] == json.loads(printed)["phrases"] != []


def test_phrases_of_a_video(tmp_path, parser, capsys) -> None:
    from stepformer.cli import main

    video = write_with_subtitles(tmp_path / "a.mkv", "srt", [("eng", [(0.5, "crack the eggs into the bowl")])])
    assert main(["phrases", str(video)]) == 0
    assert "crack the eggs into the bowl" in capsys.readouterr().out
    assert main(["phrases", str(video), "--no-subtitles"]) == 3
    assert "no subtitles and no speech" in capsys.readouterr().err
