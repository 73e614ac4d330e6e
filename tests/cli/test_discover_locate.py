"""`stepformer discover` and `stepformer locate` as people run them, with a tiny model and an encoder of colours."""

from __future__ import annotations

import io
import itertools
import json
import os
import shutil
import subprocess
import sys
from importlib import resources
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "app" / "discover"))

from discover_parts import tiny_checkpoint, write_video

from stepformer import encoders
from stepformer.cli import main, over_videos
from stepformer.cli.inputs import find_inputs
from stepformer.data.store import StoreInfo, StoreWriter
from stepformer.timeline import Timeline

RED, GREEN, BLUE, WHITE = (220, 20, 20), (20, 200, 30), (20, 30, 220), (235, 235, 235)


@pytest.fixture(autouse=True)
def product(tmp_path, monkeypatch):
    """A cache, a model and an encoder of our own, in a folder of our own."""
    monkeypatch.setenv("STEPFORMER_CACHE", str(tmp_path / "cache"))
    tiny_checkpoint(tmp_path / "models" / "tiny.safetensors")
    monkeypatch.setenv("STEPFORMER_MODELS", str(tmp_path / "models"))
    monkeypatch.setenv("STEPFORMER_MODEL", "tiny")
    monkeypatch.setitem(encoders.ENCODERS, "colours", "discover_parts:ColourEncoder")
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


def test_without_names_the_steps_are_the_same(video, capsys):
    """Narration is evidence for steps, named or not."""
    Path("talk.srt").write_text("1\n00:00:05,000 --> 00:00:07,000\nnow crack the eggs into the bowl\n")
    assert main(["discover", "talk.mp4", "--json", "--no-labels"]) == 0
    timeline = Timeline.from_json(capsys.readouterr().out)
    assert timeline.meta["narration"]["source"] == "beside" and all(step.label is None for step in timeline)


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


def test_a_store_without_a_video_is_not_passed_over_in_silence(video, capsys):
    with StoreWriter("store", StoreInfo("colours", "colours-1", 64)):
        pass
    assert main(["discover", "store"]) == 3
    assert "the feature store store holds no video" in capsys.readouterr().err


def test_names_are_taken_as_they_are(video, capsys, monkeypatch):
    """Bytes that are no UTF-8, blanks and a # are part of a name; on a list a # starts a comment."""
    for name in ("\udcff.mp4", "#1 .mp4"):
        shutil.copy("talk.mp4", name)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"#1 .mp4\n\xff.mp4\n"), "utf-8"))
    assert [video.path.name for video in find_inputs(["-", "#1 .mp4"])] == ["\udcff.mp4", "#1 .mp4"]
    assert main(["locate", "talk.mp4", "--step", "\udcff whisk", "--json", "-q", "--all-present"]) == 0
    assert json.loads(capsys.readouterr().out)["steps"][0]["label"] == "\\udcff whisk"


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (["discover"], 2, "name at least one video"),
        (["discover", "gone.mp4"], 3, "there is no file gone.mp4"),
        (["discover", ""], 2, "the name of a video is empty"),
        (["discover", "x" * 300], 3, "is not a readable video or folder of videos: File name too long"),
        (["discover", "*.avi"], 3, "no file matches"),
        (["discover", "talk.mp4", "--steps", "3", "--detail", "0.5"], 2, "steps and detail"),
        (["discover", "talk.mp4", "--detail", "3"], 2, "from 0 to 1"),
        (["discover", "talk.mp4", "--model", "nothing"], 4, "no model is called"),
        (["discover", "talk.mp4", "--format", "nothing"], 2, "no export format"),
        (["discover", "talk.mp4", "--write", "steps.xyz"], 2, "the format cannot be determined"),
        (["discover", "talk.mp4", "--subtitles", "gone.vtt"], 3, "no subtitle file"),
        (["discover", "talk.mp4", "--skip-existing"], 2, "needs files to look for"),
        (["discover", "talk.mp4", "--jobs", "0"], 2, "--jobs"),
        (["discover", "talk.mp4", "--config", "gone.toml"], 3, "no config file"),
        (["locate", "talk.mp4"], 2, "give the steps"),
        (["locate", "talk.mp4", "--step", " "], 2, "has no text"),
        (["locate", "talk.mp4", "--steps-file", "gone.txt"], 3, "there is no steps file gone.txt"),
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


def test_a_format_that_refuses_a_video_is_a_warning_and_stops_no_folder(video, capsys):
    write_video(Path("other.mp4"), [WHITE, RED])
    assert main(["discover", ".", "--format", "csv,youtube", "--no-labels"]) == 0
    out, err = capsys.readouterr()
    assert "talk.mp4  0:16  4 steps" in out and Path("talk.steps.csv").is_file() and Path("other.steps.csv").is_file()
    assert err.count("stepformer: talk.steps.txt is not written: YouTube") == 1 and not Path("talk.steps.txt").exists()
    assert "without 1 of its files" in err and "2 done, 0 skipped, 0 failed" in err
    # a video of which nothing could be written has failed
    assert main(["discover", "talk.mp4", "--format", "youtube", "--no-labels"]) == 1
    assert main(["discover", "talk.mp4", "other.mp4", "--format", "youtube", "--no-labels", "--keep-going"]) == 5


def test_a_format_that_refuses_all_of_a_video_stops_no_folder_either(video, capsys):
    run = ["discover", "talk.mp4", "twin.mp4", "--format", "youtube", "--no-labels"]
    shutil.copy("talk.mp4", run[2])
    assert main(run) == 1  # nothing is written
    err = capsys.readouterr().err
    assert "stopped with" not in err and "0 done, 0 skipped, 2 failed" in err
    write_video(Path("long.mp4"), [RED, GREEN, BLUE, WHITE], seconds_each=12)
    assert main(["discover", "talk.mp4", "long.mp4", *run[3:], "--steps", "4"]) == 5
    err = capsys.readouterr().err
    assert err.count("stepformer: talk.steps.txt is not written: YouTube") == 1 and "1 done, 0 skipped" in err
    assert Path("long.steps.txt").read_text().startswith("0:00 ")


@pytest.mark.parametrize("overwrite", [[], ["--overwrite"]])
def test_a_file_that_can_never_be_there_is_refused_before_the_work(video, capsys, overwrite):
    Path("folder.vtt").mkdir()
    Path("file").touch()
    run = ["discover", "talk.mp4", "--model", "nothing", *overwrite, "--write"]  # a model would be looked for
    for path, why in (("folder.vtt", "it is a folder"), ("file/x.vtt", "file is not a folder"),
                      ("file/a/x.vtt", "file is not a folder"), ("file/", "file is not a folder")):  # fmt: skip
        assert main([*run, path]) == 1
        said = f"stepformer: {path.rstrip('/')} cannot be written: {why}\n"
        assert capsys.readouterr().err == said


def test_files_of_another_run_are_not_overwritten_unless_asked(video, capsys):
    run = ["discover", "talk.mp4", "--format", "csv,json", "--out", "o", "--quiet"]
    assert main(run) == 0
    before = Path("o/talk.steps.csv").read_bytes()
    assert main([*run, "--jobs", "1"]) == 0  # the same run again
    assert main([*run, "--steps", "2", "--model", "nothing"]) == 2  # said before any work
    assert "o/talk.steps.csv (and 1 more) already exists, from another run; use --over" in capsys.readouterr().err
    assert Path("o/talk.steps.csv").read_bytes() == before
    assert main([*run, "--steps", "2", "--overwrite"]) == 0
    assert Path("o/talk.steps.csv").read_bytes() != before
    Path("mine.vtt").write_text("by hand")
    assert main(["discover", "talk.mp4", "--write", "mine.vtt"]) == 2
    assert main(["export", "o/talk.steps.json", "mine.vtt"]) == 2
    assert Path("mine.vtt").read_text() == "by hand"
    assert main(["discover", "talk.mp4", "--write", "mine.vtt", "--skip-existing"]) == 0


def test_what_a_video_lacks_is_written_where_the_rest_is_there(video, capsys):
    assert main(["discover", "talk.mp4", "--format", "csv", "--quiet"]) == 0
    before = Path("talk.steps.csv").stat().st_mtime_ns
    assert main(["discover", "talk.mp4", "--format", "csv,vtt", "--skip-existing", "--quiet"]) == 0
    assert Path("talk.steps.csv").stat().st_mtime_ns == before and Path("talk.steps.vtt").is_file()


def test_a_near_name_is_offered(video, capsys):
    assert main(["discover", "tolk.mp4"]) == 3
    assert "there is no file tolk.mp4; did you mean talk.mp4?" in capsys.readouterr().err
    assert main(["discover", "talk.mp4", "--formatt", "vtt"]) == 2
    assert "there is no option --formatt; did you mean --format?" in capsys.readouterr().err
    assert main(["discover", "talk.mp4", "--format", "yuotube"]) == 2
    assert "did you mean youtube?" in capsys.readouterr().err


def test_nothing_is_said_of_progress_for_a_file_that_cannot_be_opened(capsys, monkeypatch):
    from stepformer.base import progress

    monkeypatch.setattr(progress, "_PLAIN_EVERY_S", -1.0)  # every step of progress is a line
    broken()
    assert main(["discover", "broken.mp4", "--model", "nothing"]) == 3  # no model is loaded for it either
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("stepformer: broken.mp4")


def test_a_folder_that_cannot_be_written_is_one_sentence(video, capsys):
    Path("o").write_text("a file, no folder")
    assert main(["discover", "talk.mp4", "--format", "csv", "--out", "o"]) == 1
    assert capsys.readouterr().err == "stepformer: o cannot be written: o is not a folder\n"


def test_how_much_is_said(video, capsys):
    assert main(["discover", "talk.mp4", "--quiet", "--log-file", "all.log"]) == 0
    assert capsys.readouterr().err == ""
    assert main(["discover", "talk.mp4", "-v"]) == 0
    err = capsys.readouterr().err
    assert "model comes from environment" in err and "talk.mp4: features were cached; model 0." in err
    assert main(["discover", "gone.mp4", "--log-file", "all.log"]) == 3
    lines = Path("all.log").read_text().splitlines()
    assert any("DEBUG talk.mp4: decode 0." in line for line in lines)
    assert lines[-1].endswith("ERROR there is no file gone.mp4")


# -- features -----------------------------------------------------------------------------------------------------


@pytest.fixture
def features():
    """Features of six videos of two tasks in a folder, and their annotations as a plain dataset."""
    import numpy as np
    from discover_parts import planted

    for task in ("tea", "toast"):
        Path("data", task, "annotations").mkdir(parents=True)
        for v in range(3):
            vectors, _, cuts = planted(lengths=(12, 20, 8), seed=v)
            Path("features").mkdir(exist_ok=True)
            np.save(f"features/{task}_{v}.npy", vectors)
            rows = [f"{i + 1},{start},{end}" for i, (start, end) in enumerate(itertools.pairwise(cuts))]
            Path("data", task, "annotations", f"{v}.csv").write_text("\n".join(rows) + "\n")
    return Path("features")


def evaluated(capsys, *more):
    assert main(["evaluate", "data", "--json", "--predictions", *more]) == 0
    return json.loads(capsys.readouterr().out)


def test_features_become_predictions_that_evaluate_reads(features, capsys):
    assert main(["discover", "features", "--out", "found", "--quiet"]) == 0
    assert len(list(Path("found").glob("*.steps.json"))) == 6
    capsys.readouterr()
    report = evaluated(capsys, "found")
    assert report["videos"] == 6 and report["ids"] == "segments"  # their vectors are there, to be clustered
    rows = {(row["task"], row["video"]): row for row in report["per_video"]}
    assert len(rows) == 6 and rows["tea", "0"]["seconds"] == 40
    assert rows["tea", "0"]["per-video"]["f1"] > 0.8 and set(rows["tea", "0"]["table2"]) >= {"iou", "mof"}
    mean = sum(row["per-video"]["f1"] for row in rows.values()) / 6
    assert mean == pytest.approx(report["results"]["per-video"]["values"]["f1"])


def test_features_at_another_rate_and_of_another_width(features, capsys):
    import numpy as np

    assert main(["discover", "features/tea_0.npy", "--rate", "2", "--json"]) == 0
    assert Timeline.from_json(capsys.readouterr().out).duration_s == 20
    np.save("features/wide.npy", np.zeros((5, 7), np.float32))
    assert main(["discover", "features", "--out", "found", "--keep-going"]) == 5
    assert "features/wide.npy: model tiny takes (N, 64) vectors, got (5, 7)" in capsys.readouterr().err


def test_results_are_printed_as_they_come_whatever_the_terminal_shows(features, capsys, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    work, lines, before = over_videos._work, [], []

    def watched(job):
        lines.extend(capsys.readouterr().out.splitlines())
        before.append(len(lines))
        return work(job)

    monkeypatch.setattr(over_videos, "_work", watched)
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    assert main(["discover", "features", "--json"]) == 0
    assert before == [0, 1, 2, 3, 4, 5]
    lines += capsys.readouterr().out.splitlines()
    assert len([json.loads(line) for line in lines]) == 6
    assert "\x1b[" in terminal.getvalue()  # the bar was there


def test_a_video_that_fails_stops_those_after_it(features, capsys):
    import numpy as np

    np.save("features/a_wide.npy", np.zeros((5, 7), np.float32))
    assert main(["discover", "features", "--out", "found"]) == 2
    assert "stopped with 6 to go" in capsys.readouterr().err
    assert not Path("found").exists()


def test_the_same_command_goes_on_after_it_was_interrupted(features, capsys, monkeypatch):
    work, jobs = over_videos._work, []

    def interrupted(job):
        jobs.append(job)
        if len(jobs) == 3:
            raise KeyboardInterrupt
        return work(job)

    command = ["discover", "features", "--out", "found", "--quiet"]
    with monkeypatch.context() as context:
        context.setattr(over_videos, "_work", interrupted)
        assert main(command) == 130
    assert len(list(Path("found").glob("*.steps.json"))) == 2
    assert main(command) == 0
    assert len(list(Path("found").glob("*.steps.json"))) == 6


def test_a_feature_store_is_discovered(features, capsys):
    import numpy as np

    from stepformer.data.store import StoredVideo, StoreInfo, StoreWriter

    with StoreWriter(Path("store"), StoreInfo("colours", "colours-1", 64, 1.0, 0, {})) as writer:
        for path in sorted(features.iterdir()):
            vectors = np.load(path)
            writer.append(StoredVideo(path.stem, vectors, 1.0, float(len(vectors))))
    assert main(["discover", "store", "--format", "json"]) == 2
    assert "give another folder with --out" in capsys.readouterr().err
    assert main(["discover", "store", "--out", "found", "--no-labels", "--quiet"]) == 0
    capsys.readouterr()
    assert evaluated(capsys, "found")["videos"] == 6
    assert main(["discover", "store", "--out", "other", "--encoder", "colours", "--quiet"]) == 0


FORMATS = ["json", "csv", "tsv", "vtt", "srt", "ffmetadata", "podlove", "matroska"]


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("option", ["--format", "--write"])
def test_evaluate_reads_what_discover_writes(features, capsys, name, option):
    from stepformer.show.export import FORMATS as ALL

    suffix = ALL[name].suffixes[0]
    what = [name, "--out", "found"] if option == "--format" else [f"found/{{name}}{suffix}"]
    assert main(["discover", "features", option, *what, "--quiet"]) == 0
    capsys.readouterr()
    written = evaluated(capsys, "found", "--ids", "clusters")
    assert main(["discover", "features", "--out", "as-json", "--quiet"]) == 0
    capsys.readouterr()
    plain = evaluated(capsys, "as-json", "--ids", "clusters")
    for a, b in zip(written["per_video"], plain["per_video"], strict=True):
        assert a["per-video"] == pytest.approx(b["per-video"], abs=0.02)


def test_every_format_that_evaluate_can_read_back_is_tried_above():
    from stepformer.show.export import FORMATS as ALL

    readable = {name for name, entry in ALL.items() if entry.reader and entry.kind == "text"}
    assert readable == {*FORMATS, "youtube"}  # YouTube has no ends of chapters: it is read, not equal


def test_several_formats_in_one_folder_are_one_prediction_each(features, capsys):
    assert main(["discover", "features", "--format", "vtt,json,csv,coin,html,plot", "--out", "found", "--quiet"]) == 0
    capsys.readouterr()
    assert evaluated(capsys, "found")["ids"] == "segments"  # the JSON with its vectors


def test_a_dry_run_does_nothing(video, capsys):
    assert main(["discover", "talk.mp4", "--format", "json", "--dry-run", "--model", "nothing"]) == 0
    assert "would write talk.steps.json" in capsys.readouterr().out
    assert not Path("talk.steps.json").exists() and not Path("stepformer.options.json").exists()


def test_a_dry_run_over_many_videos_lists_their_folder_a_few_times(monkeypatch, capsys):
    """Once for all of them, not once for each."""
    Path("many").mkdir()
    for i in range(1000):
        Path("many", f"v{i}.mp4").touch()
    os.utime("many", (1e9, 1e9))
    listed = []
    for name in ("iterdir", "glob", "rglob"):
        real = getattr(Path, name)
        monkeypatch.setattr(Path, name, lambda self, *a, real=real: listed.append(self) or real(self, *a))
    scan, walk = os.scandir, os.listdir
    monkeypatch.setattr(os, "scandir", lambda *a: listed.append(a) or scan(*a))
    monkeypatch.setattr(os, "listdir", lambda *a: listed.append(a) or walk(*a))
    assert main(["discover", "many", "--out", "o", "--format", "json,vtt", "--dry-run", "--json"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1000
    assert len(listed) < 50


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
    assert "failed: " in err and "2 done, 0 skipped, 1 failed" in err
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
    assert timeline.meta["absent"] == [] and timeline.meta["method"] == "text"
    assert timeline.meta["options"]["ordered"] is True
    assert main(["locate", "talk.mp4", "--step", "stir", "--unordered", "--method", "text", "--all-present"]) == 0
    assert "stir" in capsys.readouterr().out


def test_the_demo_shows_a_silent_and_a_narrated_run(video, capsys, monkeypatch):
    from stepformer.base import weights
    from stepformer.media import VideoReader, read_audio
    from stepformer.media.audio import add_sound
    from stepformer.narration import Narration, Phrase

    # the demo's own voice, put over a silent video
    with resources.as_file(resources.files("stepformer.cli") / "demo_voice.ogg") as voice:
        add_sound("talk.mp4", voice, "said.mp4")
    assert len(read_audio("said.mp4")) / 16_000 == pytest.approx(21.0, abs=0.3)
    first, same = (VideoReader(path).pictures_at([0.5], (32, 32))[0][1] for path in ("talk.mp4", "said.mp4"))
    assert (first == same).all()
    Path("said.mp4").unlink()
    # without the parser: every cue is a phrase
    monkeypatch.setattr(
        Narration,
        "phrases",
        lambda self, options=None: [Phrase(c.text, c.start_s, c.end_s, groundability=1.0) for c in self.cues],
    )
    good = "stepformer.encoders.name_classifier.default_name_classifier"
    monkeypatch.setattr(good, lambda: lambda texts: np.tile([0.0, 0.0, 0.0, 1.0], (len(texts), 1)))
    pull = weights.pull
    monkeypatch.setattr(
        weights, "pull", lambda name, **k: Path("talk.mp4") if name == "demo-video" else pull(name, **k)
    )
    Path("shown").mkdir()
    Path("shown/washing-hands.srt").write_text("1\n00:00:01,000 --> 00:00:03,000\nadd red paint\n")
    assert main(["demo", "--out", "shown", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert {step["meta"]["source"] for step in shown["silent"]["steps"]} == {"seen"}
    spoken = [step for step in shown["discovered"]["steps"] if step["label"] == "add red paint"]
    assert spoken and spoken[0]["meta"]["source"] == "spoken"
    # a gap between what is said is not filled with a phrase of the bank
    assert not any(step.get("meta", {}).get("source") == "seen" for step in shown["discovered"]["steps"])
    assert Path("shown/silent.json").is_file() and Path("shown/steps.html").is_file()


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


def test_a_video_that_takes_too_long_is_given_up_and_the_rest_is_done(capsys):
    """A decoder or an encoder that hangs; in a process of its own, so the encoder comes from a plugin."""
    for name, colours in {"a.mp4": [RED, BLUE], "white.mp4": [WHITE, WHITE], "z.mp4": [BLUE, RED]}.items():
        write_video(Path(name), colours)
    parts = Path(__file__).parents[1] / "app" / "discover"
    Path("sleepy.py").write_text(
        f"""import sys, time
sys.path.insert(0, {str(parts)!r})
from discover_parts import ColourEncoder
from stepformer import encoders

class Sleepy(ColourEncoder):
    name = fingerprint = "sleepy"

    def encode_video(self, clips):
        if clips.min() > 200:
            time.sleep(600)
        return super().encode_video(clips)

encoders.ENCODERS["sleepy"] = Sleepy
"""
    )
    plain = ["--plugin", "sleepy.py", "--encoder", "sleepy", "--no-labels", "--json", "--keep-going"]
    assert main(["discover", "a.mp4", "white.mp4", "z.mp4", "--time-limit", "8", *plain]) == 5
    out, err = capsys.readouterr()
    assert [Path(json.loads(line)["video"]).name for line in out.splitlines()] == ["a.mp4", "z.mp4"]
    assert "white.mp4: it was given up after 8 s, the time limit" in err
    assert "2 done, 0 skipped, 1 failed" in err


@pytest.mark.parametrize("command", ["discover", "prepare", "search"])
def test_a_decoder_that_crashes_costs_its_own_video_even_of_one_job(command):
    """As a user runs it, without options: here the crash is an encoder's, from a plugin."""
    Path("videos").mkdir()
    for name, colours in {"a.mp4": [RED, BLUE], "white.mp4": [WHITE, WHITE], "z.mp4": [BLUE, RED]}.items():
        write_video(Path("videos", name), colours)
    parts = Path(__file__).parents[1] / "app" / "discover"
    Path("crashing.py").write_text(
        f"""import os, sys
sys.path.insert(0, {str(parts)!r})
from discover_parts import ColourEncoder
from stepformer import encoders

class Crashing(ColourEncoder):
    name = fingerprint = "crashing"

    def encode_video(self, clips):
        if clips.min() > 200:
            os.abort()
        return super().encode_video(clips)

encoders.ENCODERS["crashing"] = Crashing
"""
    )
    given = {
        "discover": ["discover", "videos", "--no-labels", "--json", "--keep-going"],
        "prepare": ["prepare", "features", "videos", "store", "--no-text", "--json"],
        "search": ["search", "videos", "--update", "--json"],
    }[command]
    words = [sys.executable, "-m", "stepformer", *given, "--plugin", "crashing.py", "--encoder", "crashing"]
    clean = {name: value for name, value in os.environ.items() if name != "STEPFORMER_PLUGINS"}
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=300, env=clean)
    assert done.returncode == 5, done.stderr
    assert "white.mp4: the process that worked on it died (out of memory, or a decoder crash)" in done.stderr
    if command == "discover":
        assert [Path(json.loads(line)["video"]).name for line in done.stdout.splitlines()] == ["a.mp4", "z.mp4"]
    else:
        found = json.loads(done.stdout)
        assert found.get("update", found)["videos"] == 2


def test_strange_file_names_and_pipes():
    """Names that are no UTF-8, steer a terminal or hold a line end; a pipe that is called a video."""
    Path("videos").mkdir()
    for name in ("a\udcff.mp4", "a\x1b[31mred.mp4", "a\nb.mp4", "\u202egpj.mp4"):
        write_video(Path("videos", name), [RED, BLUE])
    parts = Path(__file__).parents[1] / "app" / "discover"
    Path("colours.py").write_text(
        f"import sys\nsys.path.insert(0, {str(parts)!r})\nfrom discover_parts import ColourEncoder\n"
        "from stepformer import encoders\nencoders.ENCODERS['colours'] = ColourEncoder\n"
    )
    words = [sys.executable, "-m", "stepformer", "discover", "--plugin", "colours.py", "--encoder", "colours"]
    clean = {name: value for name, value in os.environ.items() if name != "STEPFORMER_PLUGINS"}
    given = {"capture_output": True, "timeout": 300, "env": clean | {"PYTHONIOENCODING": "utf-8"}}
    done = subprocess.run([*words, "videos", "--no-labels", "--out", "o", "--format", "json,vtt"], check=False, **given)
    assert done.returncode == 0, done.stderr
    assert len(list(Path("o").glob("*.steps.json"))) == len(list(Path("o").glob("*.steps.vtt"))) == 4
    assert b"\x1b[31m" not in done.stdout + done.stderr and b"\\udcff" in done.stdout
    words[3:4] = ["prepare", "features", "videos", "store", "--no-text"]
    done = subprocess.run(words, check=False, **given)
    assert done.returncode == 5 and b"needs a name of one line" in done.stderr
    from stepformer.data.store import FeatureStore

    assert any("\\udcff" in name for name in FeatureStore("store").ids)
    words[3:8] = ["search", "videos", "--update", "--json"]
    done = subprocess.run(words, check=False, **given)
    assert done.returncode == 0 and json.loads(done.stdout)["update"]["videos"] == 4, done.stderr
    words[3:7] = ["discover"]
    os.mkfifo("pipe.mp4")
    done = subprocess.run([*words, "pipe.mp4", "--no-labels"], check=False, **given)
    assert done.returncode == 3 and b"pipe.mp4 is a device or a pipe, not a file that can be read" in done.stderr
