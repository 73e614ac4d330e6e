"""Finding videos and their subtitles: one answer for every command, and never what we wrote ourselves."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepformer.errors import InputError
from stepformer.media import find_videos, subtitles_beside
from stepformer.media.finding import is_ours


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def touch(*names: str) -> None:
    for name in names:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text("x")


def names(paths) -> list[str]:
    return [path.as_posix() for path in paths]


def test_a_folder_gives_the_videos_in_and_below_it_but_not_ours_nor_hidden_ones(folder):
    touch("b.MP4", "a.mkv", "sub/deep/c.webm", "notes.txt", ".hidden.mp4", ".cache/x.mp4")
    touch("a.steps.mkv", "a.chapters.mp4", "a.steps/01 whisk.mp4", "steps.mp4", "two.steps.later.mp4")
    assert names(find_videos(["."])) == ["a.mkv", "b.MP4", "steps.mp4", "sub/deep/c.webm", "two.steps.later.mp4"]


def test_a_hidden_folder_that_is_named_is_looked_into(folder):
    touch(".videos/a.mp4", "talk.steps/01 whisk.mp4")
    assert names(find_videos([".videos"])) == [".videos/a.mp4"]
    assert names(find_videos(["talk.steps"])) == ["talk.steps/01 whisk.mp4"]


def test_a_file_that_is_named_is_taken_whatever_it_is_and_once(folder):
    touch("a.steps.mp4", "clip.bin", "b.mp4")
    assert names(find_videos(["a.steps.mp4", "clip.bin", "b.mp4", ".", Path("b.mp4")])) == [
        "a.steps.mp4", "clip.bin", "b.mp4",
    ]  # fmt: skip


def test_patterns_leave_out_what_is_no_video_unless_nothing_else_matches(folder):
    touch("a.mp4", "a.txt", "a.steps.mp4", "sub/b.mp4")
    assert names(find_videos(["a*"])) == ["a.mp4"]
    assert names(find_videos(["**/*.mp4"])) == ["a.mp4", "sub/b.mp4"]
    assert names(find_videos(["*.txt"])) == ["a.txt"]


def test_a_name_that_leads_to_nothing_is_named(folder):
    touch("empty/notes.txt")
    for name, message in (("nope.mp4", "no file nope.mp4"), ("*.mp4", r"no file matches \*"), ("empty", "no video")):
        with pytest.raises(InputError, match=message):
            find_videos([name])
    assert names(find_videos(["Wz3x"], ids=True)) == ["Wz3x"]


def test_subtitles_that_we_wrote_are_not_what_was_said(folder):
    touch("talk.mp4", "talk.steps.vtt", "talk.chapters.srt", "talk.info.json", "talk.live_chat.json3", "talks.vtt")
    assert subtitles_beside("talk.mp4") is None
    assert subtitles_beside(Path("nowhere") / "talk.mp4") is None
    assert is_ours(Path("stepformer.options.json")) and is_ours(Path("more/procedure.json"))
    assert is_ours(Path("talk.steps.vtt")) and not is_ours(Path("talk.en.vtt"))


@pytest.mark.parametrize(
    ("files", "language", "expected"),
    [
        (["talk.de.vtt", "talk.en.srt"], "en", "talk.en.srt"),  # English before the better-trusted kind
        (["talk.de.vtt", "talk.en-US.srt"], "en", "talk.en-US.srt"),
        (["talk.de.vtt"], "en", "talk.de.vtt"),  # better than nothing
        (["talk.srt", "talk.en.vtt"], "en", "talk.srt"),
        (["talk.srt", "talk.vtt"], "en", "talk.vtt"),
        (["talk.de.vtt", "talk.en.srt"], "de", "talk.de.vtt"),
        (["talk.fr.srt", "talk.zh-Hant.vtt"], "zh", "talk.zh-Hant.vtt"),
        (["talk.deu.vtt", "talk.en.srt"], "de", "talk.deu.vtt"),
        (["talk.srt", "talk.en.vtt"], "de", "talk.srt"),  # it does not say which language it is
    ],
)
def test_which_subtitles_belong_to_a_video(folder, files, language, expected):
    touch("talk.mp4", *files)
    found = subtitles_beside("talk.mp4", language)
    assert (found and found.name) == expected


def test_a_dot_in_the_name_is_no_language(folder):
    touch("talk.part.mp4", "talk.part.de.srt", "talk.mp4")
    assert subtitles_beside("talk.part.mp4") == Path("talk.part.de.srt")
    assert subtitles_beside("talk.mp4") is None


@pytest.mark.parametrize("files", [["talk.steps.vtt"], ["talk.de.vtt", "talk.en.srt"], ["talk.vtt"], []])
def test_every_command_takes_the_same_subtitles(folder, files):
    """discover, procedure and prepare once had three answers: training could run on names that we had guessed."""
    from stepformer.data.features import find_sources
    from stepformer.narration.listening import Listening, narration_of

    touch("talk.mp4")
    for name in files:
        Path(name).write_text(f"WEBVTT\n\n00:00.000 --> 00:02.000\nsaid in {name}\n")
    expected = subtitles_beside("talk.mp4")
    assert find_sources(".")[0].subtitles == expected
    heard = narration_of(Path("talk.mp4"), Listening(speech=False)) if expected else None
    assert (heard.cues[0].text if heard else None) == (f"said in {expected.name}" if expected else None)


def test_subtitles_of_a_folder_by_video(folder):
    """The same rule where no video lies beside them."""
    from stepformer.media.finding import subtitles_of

    touch("other.de.vtt", "other.en.vtt", "sub/other.srt", "talk.live_chat.json3", "talk.info.json", "talk.steps.vtt")
    touch(
        "talk.steps/clip.vtt", "x.csv", "x.fr.csv", "y.csv", "y.fr.srt", "how.to.srt", "how.srt", "en.vtt", "notes.md"
    )
    (folder / "folder.vtt").mkdir()
    root = Path()

    def found(*args, **options):
        return {name: path.as_posix() for name, path in subtitles_of(root.rglob("*"), root, *args, **options).items()}

    plain = {"en": "en.vtt", "how": "how.srt", "other": "other.en.vtt", "sub/other": "sub/other.srt", "y": "y.fr.srt"}
    assert found() == plain
    assert list(found()) == sorted(plain)
    assert found("de") == {**plain, "other": "other.de.vtt"}
    assert found(also=(".csv", ".json")) == {**plain, "x": "x.csv", "y": "y.csv"}
    assert found(known={"how.to"}) == {**plain, "how.to": "how.to.srt"}


def test_a_folder_is_listed_once_for_all_its_videos(tmp_path, monkeypatch):
    import os

    from stepformer.media.finding import subtitles_beside

    for i in range(50):
        (tmp_path / f"v{i}.en.srt").touch()
    os.utime(tmp_path, (1e9, 1e9))
    listed = []
    real = Path.iterdir
    monkeypatch.setattr(Path, "iterdir", lambda self: listed.append(self) or real(self))
    assert all(subtitles_beside(tmp_path / f"v{i}.mp4") == tmp_path / f"v{i}.en.srt" for i in range(50))
    assert len(listed) == 1
    (tmp_path / "new.srt").touch()  # seen at once
    assert subtitles_beside(tmp_path / "new.mp4") == tmp_path / "new.srt"
