"""One options layer: each flag means one thing everywhere, every default is stated, and four places can set it."""

from __future__ import annotations

import argparse
import dataclasses
from collections import defaultdict
from pathlib import Path

import pytest

from stepformer.cli import COMMANDS, command_parser, main, train
from stepformer.cli.options import Several, key_of, resolve
from stepformer.core.config import TrainConfig
from stepformer.errors import InputError, UsageError


def options_of(command):
    return [a for a in command_parser(command)._actions if a.option_strings and a.dest != "help"]


@pytest.fixture(autouse=True)
def alone(tmp_path, monkeypatch):
    """No config file above, no variable set."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("platformdirs.user_config_dir", lambda *args, **more: str(tmp_path / "user"))


def resolved(*argv, command="discover"):
    return resolve(command_parser(command), command, list(argv), train.FIELDS if command == "train" else ())


@pytest.mark.parametrize(("flag", "variable", "in_file", "verbose"), [
    ("-q", "", "verbose", False), ("-v", "", "quiet", True), ("", "QUIET", "verbose", False), ("-v", "QUIET", "", True),
])  # fmt: skip
def test_how_much_is_said_follows_the_stronger_source(monkeypatch, flag, variable, in_file, verbose):
    if in_file:
        Path("stepformer.toml").write_text(f"{in_file} = true\n")
    if variable:
        monkeypatch.setenv(f"STEPFORMER_{variable}", "1")
    args = resolved(*filter(None, ["a.mp4", flag]))
    assert (args.verbose, args.quiet) == (verbose, not verbose)


def test_a_flag_wins_over_what_excludes_it_in_a_file(monkeypatch, capsys):
    Path("stepformer.toml").write_text("steps = 3\n")
    Path("a.npy").write_bytes(b"")
    assert main(["discover", "a.npy", "--detail", "0.2", "--dry-run"]) == 0
    assert main(["discover", "a.npy", "--detail", "0.2", "--steps", "3", "--dry-run"]) == 2
    assert "got steps and detail" in capsys.readouterr().err
    monkeypatch.setenv("STEPFORMER_DETAIL", "0.2")
    assert main(["discover", "a.npy", "--dry-run"]) == 0


# -- one meaning, and its default ---------------------------------------------------------------------------------


def test_a_flag_means_one_thing_in_every_command():
    seen = defaultdict(dict)
    for command in COMMANDS:
        for action in options_of(command):
            says = action.help.partition(" (default")[0].partition(" (required")[0]
            meaning = (type(action), action.type, action.nargs, says)
            for flag in action.option_strings:
                seen[flag].setdefault(meaning, []).append(command)
    clashes = {flag: meanings for flag, meanings in seen.items() if len(meanings) > 1}
    assert not clashes


@pytest.mark.parametrize("command", COMMANDS)
def test_help_states_every_default(command):
    text = " ".join(command_parser(command).format_help().split())
    for action in options_of(command):
        if action.nargs == 0 and not isinstance(action, argparse.BooleanOptionalAction):
            assert action.default is False, f"{command} {action.option_strings}: a switch is off unless given"
            continue
        assert action.required or "(default: " in action.help, f"{command} {action.option_strings}"
        if action.required:
            continue
        states = ("yes" if action.default else "no") if action.nargs == 0 else action.default
        given = states if isinstance(states, list) else [states]
        for value in given:
            assert value is None or str(value) in action.help.partition("(default: ")[2], f"{command} {action.dest}"
    assert "Switches are off unless given" in text
    if command in ("discover", "locate"):  # files of --format need no --out
        assert "results (default: beside each video)" in text


@pytest.mark.parametrize("command", COMMANDS)
def test_the_attribute_is_the_name_of_the_flag(command):
    for action in options_of(command):
        assert action.dest.rstrip("_") == key_of(action)
        assert Several is type(action) or action.nargs not in ("+", "*"), "a list is action=Several"


def test_a_training_config_in_a_file_has_the_fields_of_a_run():
    assert set(train.FIELDS) == {field.name for field in dataclasses.fields(TrainConfig)}


# -- four places --------------------------------------------------------------------------------------------------


def test_flag_environment_file_default(monkeypatch):
    own = 'steps = 2\nno_labels = true\nformat = "vtt,srt"'
    Path("stepformer.toml").write_text(f'model = "of-file"\n[discover]\n{own}\n')
    args = resolved("a.mp4")
    assert (args.model, args.steps, args.no_labels, args.format) == ("of-file", 2, True, ["vtt", "srt"])
    assert args.jobs == 1 and args.sources["jobs"] == "default" and "stepformer.toml" in args.sources["steps"]
    monkeypatch.setenv("STEPFORMER_STEPS", "3")
    monkeypatch.setenv("STEPFORMER_NO_LABELS", "no")
    monkeypatch.setenv("STEPFORMER_FORMAT", "csv, json")
    monkeypatch.setenv("STEPFORMER_STEP", "cut, then fry\nserve")
    assert resolve(command_parser("locate"), "locate", ["a.mp4"]).step == ["cut, then fry", "serve"]
    args = resolved("a.mp4")
    assert (args.steps, args.no_labels, args.format) == (3, False, ["csv", "json"])
    assert args.sources["steps"] == args.sources["format"] == "environment"
    args = resolved("a.mp4", "--steps", "4", "--format", "edl,otio", "--format", "json")
    assert (args.steps, args.format, args.sources["steps"]) == (4, ["edl", "otio", "json"], "flag")


def test_a_misspelt_variable_is_warned_of_once(monkeypatch, capsys):
    for name in ("STEPFORMER_MODLE", "STEPFORMER_MODELS", "STEPFORMER_MIN_SHARE", "STEPFORMER_BATCHES", "STEPFORMER_X"):
        monkeypatch.setenv(name, "tiny")
    assert main(["models", "list", "--json"]) == 0
    said = "stepformer: STEPFORMER_MODLE is set, but there is no such option; did you mean STEPFORMER_MODEL?"
    assert capsys.readouterr().err.splitlines() == [said]


def test_the_nearest_file_upwards_counts(tmp_path, monkeypatch):
    (tmp_path / "stepformer.toml").write_text("steps = 2\n")
    (tmp_path / "a" / "b").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "a" / "b")
    assert resolved("x.mp4").steps == 2
    (tmp_path / "a" / "stepformer.toml").write_text("steps = 3\n")
    assert resolved("x.mp4").steps == 3
    (tmp_path / "mine.toml").write_text("steps = 4\n")
    assert resolved("x.mp4", "--config", str(tmp_path / "mine.toml")).steps == 4


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_of_every_command_can_be_set_by_the_environment_and_a_file(command, monkeypatch):
    """Each option in turn, with a value of its kind, reaches the command from both places."""
    needed = [a for a in command_parser(command)._actions if not a.option_strings and a.nargs in (None, "+")]
    words = [str(next(iter(a.choices))) if a.choices else "x" for a in needed]
    for action in options_of(command):
        if action.dest in ("config", "log_file"):
            continue
        text = "true" if action.nargs == 0 else str(next(iter(action.choices))) if action.choices else "1"
        required = [a for a in options_of(command) if a.required and a.dest != action.dest]
        rest = [*words, *(part for a in required for part in (a.option_strings[-1], "1"))]
        monkeypatch.setenv(f"STEPFORMER_{key_of(action).upper()}", text)
        args = resolved(*rest, command=command)
        assert args.sources[key_of(action)] == "environment"
        monkeypatch.delenv(f"STEPFORMER_{key_of(action).upper()}")
        value = text if action.nargs == 0 else f'"{text}"'
        Path("stepformer.toml").write_text(f"[{'.'.join(command.split())}]\n{key_of(action)} = {value}\n")
        again = resolved(*rest, command=command)
        Path("stepformer.toml").unlink()
        assert again.sources[key_of(action)].endswith("stepformer.toml")
        assert getattr(again, action.dest) == getattr(args, action.dest)


def test_a_group_has_a_section_of_its_own():
    Path("stepformer.toml").write_text("[models]\nall = true\n[models.pull]\nquiet = true\n")
    args = resolved("minilm", command="models pull")
    assert args.all and args.quiet


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("stepz = 8", "no command has the option 'stepz'; did you mean steps?"),
        ("[discovr]\nsteps = 3", "no section is called 'discovr'; did you mean discover?"),
        ("discover = 5", r"discover is a section, \[discover\], not 5"),
        ("[discover]\nmethod = 'text'", r"\[discover\] has no option 'method'"),
        ("[discover]\nstpes = 2", r"\[discover\] has no option 'stpes'; did you mean steps\?"),
        ("steps = 2.5", "steps: expected a whole number of at least 1, got '2.5'"),
        ("detail = 3", "detail: expected a number from 0 to 1, got '3'"),
        ("no_labels = 1", "no_labels must be true or false, got 1"),
        ("[discover]\nuse = 'all'", "use: invalid choice: 'all'"),
        ("[discover.model]\nx = 1", "no section is called 'model'"),
    ],
)
def test_a_slip_in_a_file_gets_a_sentence(text, says):
    Path("mine.toml").write_text(text)
    with pytest.raises(UsageError, match=says):
        resolved("a.mp4", "--config", "mine.toml")


def test_a_file_that_is_not_there_or_not_toml():
    with pytest.raises(InputError, match="no config file"):
        resolved("--config", "gone.toml")
    Path("stepformer.toml").write_text("steps = = 2")
    with pytest.raises(InputError, match="not readable TOML"):
        resolved("a.mp4")


def test_what_belongs_to_another_command_may_stand_at_the_top():
    Path("mine.toml").write_text("method = 'text'\nsteps = 3\n[locate]\nstep = ['whisk']\n")
    assert resolved("a.mp4", "--config", "mine.toml").steps == 3


def test_a_training_config_stands_at_the_top_of_its_own_file_or_under_train():
    own = "steps = 50\nseed = 3\n[optim]\nlr = 0.1\n"
    Path("run.toml").write_text(own)
    args = resolved("--out", "x", "--config", "run.toml", command="train")
    assert args.fields == {"steps": 50, "optim": {"lr": 0.1}} and args.seed == 3
    Path("stepformer.toml").write_text("steps = 8\n[train]\nsteps = 70\n[train.optim]\nlr = 0.2\n")
    args = resolved("--out", "x", command="train")
    assert args.fields == {"steps": 70, "optim": {"lr": 0.2}}  # not the 8 that are meant for discover


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["--stpes", "3"], r"there is no option --stpes; did you mean --steps\?"),
        (["--steps", "many"], "--steps: expected a whole number of at least 1, got 'many'"),
        (["--jobs", "0"], "--jobs: expected a whole number of at least 1"),
        (["--form", "vtt"], "there is no option --form"),
        (["--steps"], "expected one argument"),
    ],
)
def test_a_slip_in_a_flag_gets_a_sentence_and_no_page_of_usage(argv, says):
    with pytest.raises(UsageError, match=says) as raised:
        resolved("a.mp4", *argv)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("line", [
    "discover tallk.mp4", "discover talk.mp4 --subtitles tallk.vtt", "discover talk.mp4 --config rum.toml",
    "locate talk.mp4 --steps-file stepz.txt", "procedure videoss", "search stor TEXT", "export tallk.json out.vtt",
    "view tallk.json", "phrases tallk.vtt", "phrases talk.vtt --plugin minne.py",
    "prepare phrases videoss out.parquet", "prepare features videoss out", "evaluate dataa --check",
    "evaluate data --predictions foundd --reader plain", "reproduce table1 --world worldd.safetensors --out o",
    "reproduce tabel1 --smoke", "reproduce table1 --dataset dataa --out o", "train --config rum.toml --out o",
    "models convert modell.pth out.safetensors", "models info defalt", "models pull minilmm", "models verify minilmm",
    "discover talk.mp4 --format vvt", "discover talk.mp4 --modle x", "trian", "models lst", "bench dicsover",
])  # fmt: skip
def test_a_misspelt_file_name_or_flag_is_answered_with_the_one_that_is_there(line, capsys, monkeypatch):
    monkeypatch.setenv("STEPFORMER_PLUGINS", "")
    for name in ("talk.mp4", "talk.vtt", "talk.json", "steps.txt", "run.toml", "world.safetensors", "model.pth"):
        Path(name).touch()
    Path("mine.py").touch()
    for name in ("videos", "data/annotations", "found", "store"):
        Path(name).mkdir(parents=True)
    assert main(line.split()) in (2, 3)
    assert "did you mean" in capsys.readouterr().err


def test_what_is_required_may_come_from_a_file():
    with pytest.raises(UsageError, match="--out is required"):
        resolved(command="train")
    Path("stepformer.toml").write_text("[train]\nout = 'runs/a'\n")
    assert resolved(command="train").out == "runs/a"


@pytest.mark.parametrize("command", [
    "discover a.mp4", "locate a.mp4 --step stir", "procedure a.mp4 b.mp4", "demo", "train", "adapt --encoder clip",
    "reproduce table3 --world w",
])  # fmt: skip
def test_a_file_where_a_folder_is_to_be_is_refused_before_the_work(command, capsys):
    Path("file").touch()
    assert main([*command.split(), "--out", "file"]) == 1
    assert capsys.readouterr().err == "stepformer: file cannot be written: file is not a folder\n"


def test_a_feature_store_is_a_folder(capsys):
    Path("file").touch()
    assert main(["prepare", "features", "videos", "file"]) == 1
    assert capsys.readouterr().err == "stepformer: file cannot be written: file is not a folder\n"


def test_a_port_and_a_run_to_resume_are_checked_first(capsys):
    assert main(["view", "a.json", "--port", "99999"]) == 2
    assert "--port: expected a port from 0 to 65535" in capsys.readouterr().err
    assert main(["train", "--out", "runs", "--resume"]) == 3
    assert "there is no run folder runs; start without --resume" in capsys.readouterr().err
