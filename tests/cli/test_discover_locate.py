"""`stepformer discover` and `stepformer locate` as people run them, with a tiny model and an encoder of colours."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "app" / "discover"))

from discover_parts import tiny_checkpoint, write_video

from stepformer import encoders
from stepformer.cli import main
from stepformer.timeline import Timeline

RED, GREEN, BLUE, WHITE = (220, 20, 20), (20, 200, 30), (20, 30, 220), (235, 235, 235)


@pytest.fixture(autouse=True)
def product(tmp_path, monkeypatch):
    """A cache, a model and an encoder of our own, in a folder of our own."""
    monkeypatch.setenv("STEPFORMER_CACHE", str(tmp_path / "cache"))
    tiny_checkpoint(tmp_path / "models" / "tiny.safetensors")
    monkeypatch.setenv("STEPFORMER_MODELS", str(tmp_path / "models"))
    monkeypatch.setenv("STEPFORMER_MODEL", "tiny")
    monkeypatch.setitem(encoders.ENCODERS, "colours", ("discover_parts", "ColourEncoder", "for tests"))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")


@pytest.fixture
def video():
    return write_video(Path("talk.mp4"), [RED, GREEN, BLUE, WHITE])


def broken():
    Path("broken.mp4").write_bytes(b"this is no video at all, whatever its name says")
    return Path("broken.mp4")


def test_a_video_is_drawn(video, capsys):
    assert main(["discover", "talk.mp4"]) == 0
    out, err = capsys.readouterr()
    assert "talk.mp4  0:16  4 steps" in out and "(guess" in out
    assert "x real time" in err and "16/16" in err


def test_json_is_a_timeline_with_provenance(video, capsys):
    assert main(["discover", "talk.mp4", "--json", "--steps", "4", "--no-labels"]) == 0
    timeline = Timeline.from_json(capsys.readouterr().out)
    assert len(timeline) == 4 and all(step.label is None for step in timeline)
    assert timeline.meta["model"]["name"] == "tiny" and len(timeline.meta["model"]["hash"]) == 64
    assert timeline.meta["encoder"] == {"name": "colours", "fingerprint": "colours-1"}
    assert timeline.meta["options"]["steps"] == 4


def test_many_videos_are_json_lines(video, capsys):
    write_video(Path("other.mkv"), [WHITE, RED])
    assert main(["discover", ".", "--json", "--quiet"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [Path(json.loads(line)["video"]).name for line in lines] == ["other.mkv", "talk.mp4"]


def test_patterns_and_a_list_on_stdin(video, capsys, monkeypatch):
    assert main(["discover", "*.mp4", "--json", "--quiet"]) == 0
    monkeypatch.setattr(sys, "stdin", io.StringIO("# a comment\ntalk.mp4\n\ntalk.mp4\n"))
    assert main(["discover", "-", "--json", "--quiet"]) == 0
    first, second = capsys.readouterr().out.strip().split("}\n{")
    assert "talk.mp4" in first and "talk.mp4" in second


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (["discover"], 2, "name at least one video"),
        (["discover", "gone.mp4"], 3, "there is no file gone.mp4"),
        (["discover", "*.avi"], 3, "no file matches"),
        (["discover", "talk.mp4", "--steps", "3", "--detail", "0.5"], 2, "steps and detail"),
        (["discover", "talk.mp4", "--detail", "3"], 2, "from 0 to 1"),
        (["discover", "talk.mp4", "--model", "nothing"], 4, "no model is called"),
        (["discover", "talk.mp4", "--format", "nothing"], 2, "no export format"),
        (["discover", "talk.mp4", "--write", "steps.xyz"], 2, "cannot tell a format"),
        (["discover", "talk.mp4", "--subtitles", "gone.vtt"], 3, "no subtitle file"),
        (["discover", "talk.mp4", "--skip-existing"], 2, "needs files to look for"),
        (["discover", "talk.mp4", "--jobs", "0"], 2, "--jobs"),
        (["discover", "talk.mp4", "--config", "gone.toml"], 3, "no config file"),
        (["locate", "talk.mp4"], 2, "give the steps"),
        (["locate", "talk.mp4", "--step", " "], 2, "has no text"),
        (["locate", "talk.mp4", "--steps-file", "gone.txt"], 3, "cannot be read"),
    ],
)
def test_what_cannot_be_done_is_said(video, capsys, args, code, says):
    assert main(args) == code
    assert says in capsys.readouterr().err


def test_files_are_written_with_the_options_beside_them(video, capsys):
    assert main(["discover", "talk.mp4", "--write", "a/{name}.csv", "--format", "vtt", "--plot", "--out", "b"]) == 0
    assert Path("a/talk.csv").is_file() and Path("b/talk.steps.png").read_bytes().startswith(b"\x89PNG")
    assert Path("b/talk.steps.vtt").read_text().startswith("WEBVTT")
    for folder in "ab":
        saved = json.loads(Path(folder, "stepformer.options.json").read_text())
        assert saved["command"] == "discover" and saved["options"]["plot"] is True
        assert saved["sources"]["plot"] == "flag" and saved["sources"]["model"] == "environment"
    assert "b/talk.steps.vtt  vtt" in capsys.readouterr().out


def test_a_format_that_cannot_be_written_costs_not_the_result(video, capsys):
    args = ["discover", "talk.mp4", "--format", "csv", "--format", "youtube", "--no-labels"]
    assert main(args) != 0
    out, err = capsys.readouterr()
    assert "talk.mp4  0:16  4 steps" in out and Path("talk.steps.csv").is_file()
    assert "YouTube" in err and not Path("talk.steps.txt").exists()


def test_a_dry_run_does_nothing(video, capsys):
    assert main(["discover", "talk.mp4", "--format", "json", "--dry-run", "--model", "nothing"]) == 0
    assert "would write talk.steps.json" in capsys.readouterr().out
    assert not Path("talk.steps.json").exists() and not Path("stepformer.options.json").exists()


def test_what_is_there_is_skipped(video, capsys):
    assert main(["discover", "talk.mp4", "--format", "json", "--quiet"]) == 0
    before = Path("talk.steps.json").stat().st_mtime_ns
    assert main(["discover", "talk.mp4", "--format", "json", "--skip-existing", "--model", "nothing", "--quiet"]) == 0
    assert Path("talk.steps.json").stat().st_mtime_ns == before


def test_one_bad_video_among_good_ones(video, capsys):
    broken()
    write_video(Path("zoo.mp4"), [GREEN, RED])
    assert main(["discover", ".", "--json"]) == 3  # the first fails, nothing was done
    assert "--keep-going" in capsys.readouterr().err
    assert main(["discover", ".", "--json", "--keep-going"]) == 5
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 2
    assert "failed: " in err and "2 done, 0 left as they were, 1 failed" in err
    assert main(["discover", "broken.mp4", "--keep-going"]) == 3


def test_two_videos_cannot_go_into_one_file(video, capsys):
    write_video(Path("other.mp4"), [WHITE, RED])
    assert main(["discover", "talk.mp4", "other.mp4", "--write", "steps.csv"]) == 2
    assert "{name}" in capsys.readouterr().err
    Path("sub").mkdir()
    write_video(Path("sub/talk.mp4"), [WHITE, RED])
    assert main(["discover", "talk.mp4", "sub/talk.mp4", "--format", "csv", "--out", "o"]) == 2
    assert "would both be written" in capsys.readouterr().err


def test_config_environment_flags(video, capsys, monkeypatch):
    Path("stepformer.toml").write_text('no_labels = true\n[discover]\nsteps = 2\n[locate]\nstep = ["a"]\n')

    def steps(*more):
        assert main(["discover", "talk.mp4", "--json", "--quiet", *more]) == 0
        return Timeline.from_json(capsys.readouterr().out)

    assert len(steps()) == 2 and steps()[0].label is None
    monkeypatch.setenv("STEPFORMER_STEPS", "3")
    assert len(steps()) == 3
    assert len(steps("--steps", "4")) == 4
    monkeypatch.setenv("STEPFORMER_STEPS", "many")
    assert main(["discover", "talk.mp4"]) == 2
    assert "STEPFORMER_STEPS: expected a whole number" in capsys.readouterr().err
    monkeypatch.delenv("STEPFORMER_STEPS")
    Path("stepformer.toml").write_text("[discover]\nstpes = 2\n")
    assert main(["discover", "talk.mp4"]) == 2
    assert "no option 'stpes'" in capsys.readouterr().err
    Path("stepformer.toml").write_text('[discover]\nsteps = "two"\n')
    assert main(["discover", "talk.mp4"]) == 2
    Path("stepformer.toml").write_text("steps = = 2")
    assert main(["discover", "talk.mp4"]) == 3


def test_given_steps(video, capsys):
    Path("recipe.txt").write_text("# pancakes\nadd red paint\n\nadd green paint\n")
    assert main(["locate", "talk.mp4", "--steps-file", "recipe.txt", "--step", "stir", "--all-present", "--json"]) == 0
    timeline = Timeline.from_json(capsys.readouterr().out)
    assert [step.label for step in timeline] == ["stir", "add red paint", "add green paint"]
    assert timeline.meta["absent"] == [] and timeline.meta["method"] == "slots+text"
    assert timeline.meta["options"]["ordered"] is True
    assert main(["locate", "talk.mp4", "--step", "stir", "--unordered", "--method", "text", "--all-present"]) == 0
    assert "stir" in capsys.readouterr().out


def test_help_starts_with_examples(capsys):
    for command in ("discover", "locate"):
        assert main([command, "--help"]) == 0
        assert f"examples:\n  stepformer {command} pancakes.mp4" in capsys.readouterr().out


@pytest.mark.slow
def test_jobs_in_processes(video, capsys, monkeypatch):
    """Each in a process of its own; the encoder must be one that a fresh process knows."""
    write_video(Path("other.mp4"), [WHITE, RED])
    import numpy as np

    Path("features").mkdir()
    for stem in ("talk", "other"):
        np.save(f"features/{stem}.npy", np.random.default_rng(0).standard_normal((30, 64)).astype(np.float32))
    args = [
        "discover",
        "talk.mp4",
        "other.mp4",
        "gone",
        "--encoder",
        "precomputed:features",
        "--no-labels",
        "--jobs",
        "2",
    ]
    assert main([*args, "--json", "--keep-going"]) == 5
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 2 and "no features of gone" in err
