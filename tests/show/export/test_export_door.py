"""The door: formats by suffix and name, options, errors, atomic files, and the command."""

from __future__ import annotations

import io
import json
import subprocess
import sys

import pytest
from export_timelines import pancakes

import stepformer as sf
from stepformer import Step, Timeline
from stepformer.cli import main
from stepformer.errors import InputError, StepFormerError, UsageError
from stepformer.show import export


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("a.json", "json"), ("A.JSON", "json"), ("a.labelstudio.json", "labelstudio"), ("a.fiftyone.json", "fiftyone"),
        ("a.coin.json", "coin"), ("a.csv", "csv"), ("a.crosstask.csv", "crosstask"), ("a.tsv", "tsv"), ("a.vtt", "vtt"),
        ("a.srt", "srt"), ("a.txt", "youtube"), ("a.ffmeta", "ffmetadata"), ("a.psc", "podlove"),
        ("a.psc.xml", "podlove"), ("a.chapters.xml", "matroska"), ("a.eaf", "elan"), ("a.otio", "otio"),
        ("a.edl", "edl"), ("a.html", "html"), ("a.png", "plot"), ("a.sheet.png", "sheet"), ("a.jpg", "sheet"),
        ("a.mp4", "media"), ("a.mkv", "media"), ("clips/", "clips"), (".vtt", "vtt"),
    ],
)  # fmt: skip
def test_format_of(path, name):
    assert export.format_of(path).name == name


@pytest.mark.parametrize("path", ["a", "a.foo", "a.xml", "json", ""])
def test_unknown_suffix_lists_formats(path):
    with pytest.raises(UsageError, match="cannot be determined") as error:
        export.format_of(path)
    assert all(name in str(error.value) for name in export.FORMATS)


@pytest.mark.parametrize(("path", "meant"), [("a.vt", ".vtt"), ("a.b/A.JSN", ".json"), ("a.sr", ".srt")])
def test_a_misspelt_suffix(path, meant):
    with pytest.raises(UsageError) as error:
        export.format_of(path)
    assert str(error.value) == f"the format cannot be determined from {path!r}; did you mean {meant}?"


def test_no_option_is_advised_that_a_command_lacks(tmp_path, capsys):
    (tmp_path / "afile").touch()
    assert main(["view", str(tmp_path / "afile")]) == 2
    err = capsys.readouterr().err
    assert "use a suffix of: json (.json)" in err and "--format" not in err


def test_unknown_format_and_option(tmp_path):
    with pytest.raises(UsageError, match="no export format 'x'"):
        sf.export.write(pancakes(), tmp_path / "a.vtt", format="x")
    with pytest.raises(TypeError, match="colour"):
        sf.export.write(pancakes(), tmp_path / "a.vtt", colour="red")
    for bad in ({"fps": 0}, {"fps": float("nan")}):
        with pytest.raises(UsageError):
            sf.export.write(pancakes(), tmp_path / "a.vtt", **bad)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("name", "path"), [("plot", "a.vtt"), ("plot", "a"), ("sheet", "a.gif"), ("media", "a.avi")])
def test_named_format_with_a_suffix_it_cannot_have(tmp_path, name, path):
    from export_videos import make_video

    video = make_video(tmp_path / "v.mp4", 1, sound=False)
    with pytest.raises(UsageError, match=r"\.(png|mp4)"):
        export.write(pancakes(), tmp_path / path, format=name, video=str(video))
    assert [p.name for p in tmp_path.iterdir()] == ["v.mp4"]


def test_every_format_has_its_functions():
    for entry in export.FORMATS.values():
        assert callable(export._code(entry, "write")), entry.name
        assert entry.reader is None or callable(export._code(entry, "read")), entry.name


def test_named_format_beats_suffix(tmp_path):
    written = sf.export.write(pancakes(), tmp_path / "chapters.vtt", format="youtube")
    assert written.format == "youtube" and written.notes
    assert (tmp_path / "chapters.vtt").read_text().startswith("0:00 crack the eggs")


def test_a_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(StepFormerError):
        export.write(Timeline("v", 5), path)  # too few chapters for YouTube
    target = tmp_path / "b.mp4"
    target.write_text("old")
    (tmp_path / "bad.mp4").write_bytes(b"no video")
    with pytest.raises(InputError):
        export.write(pancakes(), target, video=str(tmp_path / "bad.mp4"))
    assert path.read_text() == "old" and target.read_text() == "old"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.txt", "b.mp4", "bad.mp4"]


def test_a_path_that_is_not_utf8_is_written_and_read_back(tmp_path):
    timeline = Timeline("caf\udce9.mp4", 5, (Step(0, 1, "a"),))
    export.write(timeline, tmp_path / "a.json")
    assert export.read(tmp_path / "a.json") == timeline
    for name in ("a.vtt", "a.csv", "a.eaf", "a.html", "a.otio"):
        export.write(timeline, tmp_path / name, **({"fps": 25} if name == "a.otio" else {}))


def test_read_errors(tmp_path):
    with pytest.raises(InputError, match="there is no file"):
        export.read(tmp_path / "nope.json")
    (tmp_path / "a.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="UTF-8"):
        export.read(tmp_path / "a.json")
    (tmp_path / "b.json").write_text("{}")
    with pytest.raises(InputError, match=r"b\.json.*steps"):
        export.read(tmp_path / "b.json")
    with pytest.raises(UsageError, match="cannot be read back"):
        export.read(_touch(tmp_path / "a.eaf"))
    with pytest.raises(UsageError, match="not text"):
        export.parse("", "media")
    with pytest.raises(UsageError, match="not text"):
        export.render(pancakes(), "clips")


def _touch(path):
    path.write_text("")
    return path


@pytest.mark.parametrize("suffix", [".json", ".csv", ".tsv", ".vtt", ".srt", ".ffmeta", ".psc", ".chapters.xml"])
def test_read_what_was_written(tmp_path, suffix):
    export.write(pancakes(), tmp_path / f"a{suffix}")
    back = export.read(tmp_path / f"a{suffix}")
    assert [(s.start_s, s.label or "Step 3") for s in back] == [(s.start_s, s.label or "Step 3") for s in pancakes()]
    if suffix != ".psc":
        assert [s.end_s for s in back] == [s.end_s for s in pancakes()]


# ---- the command -------------------------------------------------------------------------------------------------


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "t.json"
    path.write_text(pancakes().to_json())
    return path


def test_command_writes_and_tells(saved, tmp_path, capsys):
    assert main(["export", str(saved), str(tmp_path / "a.vtt"), "--title", "x", str(tmp_path / "b.txt")]) == 0
    out, err = capsys.readouterr()
    assert out.split() == [str(tmp_path / "a.vtt"), "vtt", str(tmp_path / "b.txt"), "youtube"]
    assert "moved from 0:02 to 0:00" in err


def test_command_json(saved, tmp_path, capsys):
    assert main(["export", str(saved), str(tmp_path / "b.txt"), "--json", "--overwrite"]) == 0
    (result,) = json.loads(capsys.readouterr().out)
    assert result["format"] == "youtube" and "moved" in result["notes"][0]


def test_command_stdout_and_formats(saved, capsys):
    assert main(["export", str(saved), "-", "--format", "srt"]) == 0
    assert capsys.readouterr().out.startswith("1\n00:00:02,000 --> ")
    assert main(["export", "--formats"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(export.FORMATS)
    assert main(["export", "--formats", "--json"]) == 0
    assert {row["format"] for row in json.loads(capsys.readouterr().out)} == set(export.FORMATS)


def test_command_draws(saved, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    assert main(["export", str(saved)]) == 0
    out = capsys.readouterr().out
    assert "whisk  (guess, 0.41)" in out and "\x1b" not in out
    assert main(["export", str(saved), "--json"]) == 0
    assert Timeline.from_json(capsys.readouterr().out) == pancakes()


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["a.foo"], 2, "cannot be determined"),
        (["a.vtt", "--format", "nope"], 2, "no export format"),
        (["-"], 2, "--format"),
        (["a.vtt", "--format", "vtt,srt"], 2, "every OUT is written once"),
        (["clips/"], 3, "--video"),
        (["a.crosstask.csv", "--task-steps", "nope.txt"], 3, "nope.txt"),
    ],
)
def test_command_errors(saved, tmp_path, capsys, monkeypatch, arguments, code, said):
    monkeypatch.chdir(tmp_path)
    assert main(["export", str(saved), *arguments]) == code
    assert said in capsys.readouterr().err
    assert [p.name for p in tmp_path.iterdir()] == ["t.json"]


def test_formats_alone_are_written_beside_the_timeline(saved, tmp_path, capsys):
    assert main(["export", str(saved), "--format", "vtt,srt", "--format", "csv"]) == 0
    written = [tmp_path / f"t.steps.{suffix}" for suffix in ("vtt", "srt", "csv")]
    assert capsys.readouterr().out.split()[::2] == [*map(str, written)]
    assert export.read(written[0]).steps[0].start_s == 2.0
    assert main(["export", str(written[0]), "--format", "json"]) == 0 and (tmp_path / "t.steps.json").is_file()
    assert sf.media.subtitles_beside(tmp_path / "t.mp4") is None  # what we wrote is not what is said
    assert main(["export", "-", "--format", "vtt"]) == 2


def test_a_format_that_refuses_does_not_keep_others_from_being_written(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.json").write_text(Timeline("v.mp4", 60, (Step(0, 20, "one"), Step(20, 60, "two"))).to_json())
    assert main(["export", "t.json", "a.txt", "b.vtt", "--json"]) == 1
    out, err = capsys.readouterr()
    refused, written = json.loads(out)
    assert "at least 3" in refused["error"] and "error" not in written and (tmp_path / "b.vtt").is_file()
    assert err.startswith("stepformer: a.txt is not written: YouTube") and not (tmp_path / "a.txt").exists()


def test_clips_that_cannot_be_written_are_not_blamed_on_the_video(tmp_path, monkeypatch):
    from export_videos import make_video

    monkeypatch.chdir(tmp_path)
    make_video(tmp_path / "v.mp4")
    (tmp_path / "t.json").write_text(Timeline("v.mp4", 2, (Step(0, 1, "one"),)).to_json())
    (tmp_path / "file").touch()
    command = [sys.executable, "-m", "stepformer", "export", "t.json", "file/clips/"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "stepformer: file/clips cannot be written: file is not a folder\n")


def test_a_folder_or_stdin_that_is_no_timeline_is_named(tmp_path, monkeypatch, capsys):
    assert main(["export", str(tmp_path)]) == 3
    assert f"{tmp_path} is not a file" in capsys.readouterr().err
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    assert main(["export", "-"]) == 3
    assert capsys.readouterr().err.startswith("stepformer: stdin: not JSON")


def test_command_without_anything(capsys):
    assert main(["export"]) == 2
    assert main(["export", "nope.json", "a.vtt"]) == 3
    capsys.readouterr()


def test_command_skips_and_dry_runs(saved, tmp_path, capsys):
    (tmp_path / "a.vtt").write_text("mine")
    paths = [str(tmp_path / "a.vtt"), str(tmp_path / "b.vtt")]
    assert main(["export", str(saved), *paths, "--dry-run"]) == 0
    assert not (tmp_path / "b.vtt").exists()
    assert main(["export", str(saved), *paths, "--skip-existing"]) == 0
    assert (tmp_path / "a.vtt").read_text() == "mine" and (tmp_path / "b.vtt").exists()
    assert "already exists" in capsys.readouterr().out


def test_command_reads_stdin_and_numbers_by_the_task(tmp_path, capsys):
    (tmp_path / "steps.txt").write_text("whisk\n\nflip the pancake\ncrack the eggs\n")
    command = [sys.executable, "-m", "stepformer", "export", "-", "-", "--format", "crosstask",
               "--task-steps", str(tmp_path / "steps.txt")]  # fmt: skip
    done = subprocess.run(command, input=pancakes().to_json().encode(), capture_output=True, check=True)
    assert [line.split(",")[0] for line in done.stdout.decode().split()] == ["3", "1", "4", "2"]


def test_bytes_on_stdin_that_are_no_text_are_one_sentence(capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"video": "\xff"}'), "utf-8"))
    assert main(["export", "-"]) == 3
    assert "stdin is not readable UTF-8 text" in capsys.readouterr().err


def test_command_finds_the_video_beside_the_timeline(tmp_path, monkeypatch, capsys):
    from export_videos import make_video

    (tmp_path / "folder").mkdir()
    make_video(tmp_path / "folder" / "v.mp4", 4, sound=False)
    timeline = Timeline("/elsewhere/v.mp4", 4, (Step(0, 2, "a"), Step(2, 4, "b")))
    (tmp_path / "folder" / "t.json").write_text(timeline.to_json())
    monkeypatch.chdir(tmp_path)
    outs = ["x.sheet.png", "x.html", "x.png", "x.mkv"]
    assert main(["export", "folder/t.json", *outs]) == 0
    assert all((tmp_path / name).stat().st_size > 1000 for name in outs)
    assert 'src="folder/v.mp4"' in (tmp_path / "x.html").read_text()
