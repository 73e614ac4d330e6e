"""The command line's frame: help without imports, exit codes, and how fast it starts."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from stepformer import __version__, cli
from stepformer.cli import COMMANDS, command_module, command_parser, main
from stepformer.errors import InputError, MissingError, PartialError, StepFormerError, UsageError

HEAVY = {
    "torch", "numpy", "numba", "spacy", "av", "matplotlib", "rich", "pyarrow", "onnxruntime", "scipy", "safetensors",
    "tokenizers", "platformdirs", "PIL",
}  # fmt: skip

LIMIT_S = 0.3


def fastest_s(*command: str, runs: int = 7) -> tuple[float, float]:
    """Best wall time of several runs of a command, and of as many runs of an empty interpreter."""

    def once(*arguments: str) -> float:
        begun = time.perf_counter()
        subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
        return time.perf_counter() - begun

    pairs = [(once(*command), once("-c", "pass")) for _ in range(runs)]
    return min(a for a, _ in pairs), min(b for _, b in pairs)


@pytest.mark.parametrize(
    "command", [("-c", "import stepformer"), ("-m", "stepformer", "--help")], ids=["import", "help"]
)
def test_it_starts_within_the_limit(command):
    took, empty = fastest_s(*command)
    # an empty interpreter takes 0.02 s on a free machine; where it takes more, others are at work and have their share
    crowding = max(1.0, empty / 0.03)
    assert took < LIMIT_S * crowding, f"{took:.2f} s, an empty interpreter {empty:.2f} s"


@pytest.mark.parametrize("code", ["import stepformer", "from stepformer.cli import main; main(['--help'])"])
def test_nothing_heavy_is_imported_before_it_is_needed(code):
    script = f"import sys, json, contextlib, io\nwith contextlib.redirect_stdout(io.StringIO()):\n    {code}\n"
    script += "print(json.dumps(sorted({name.split('.')[0] for name in sys.modules})))"
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert not HEAVY & set(json.loads(done.stdout))


# -- every command ------------------------------------------------------------------------------------------------


def written(name: str) -> bool:
    """Whether a command's module is there."""
    return importlib.util.find_spec(COMMANDS[name][0].partition(":")[0]) is not None


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_that_starts_with_examples(name):
    assert written(name), f"{COMMANDS[name][0]} is listed but not written"
    module = command_module(name)
    assert module.EXAMPLES and all(f"stepformer {name}" in line for line in module.EXAMPLES)
    parser = command_parser(name)
    text = parser.format_help()
    assert text.index(module.EXAMPLES[0]) < text.index(module.HELP.strip().splitlines()[0])
    args = {option for action in parser._actions for option in action.option_strings}
    assert {"--json", "--debug", "--help"} <= args
    assert callable(module.run)


def test_no_library_module_prints():
    """Only commands print; a library raises, returns, or is given a log."""
    root = Path(cli.__file__).parents[1]
    commands = {module.partition(":")[0] for module, _ in COMMANDS.values()} | {"stepformer.base.progress"}
    bad = []
    for path in root.rglob("*.py"):
        module = ".".join(path.relative_to(root.parent).with_suffix("").parts)
        if module in commands or module.startswith("stepformer.cli"):
            continue
        text = path.read_text("utf-8")
        if '__name__ == "__main__"' in text:
            continue  # a program of its own, started as a process
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
                bad.append(f"{path.relative_to(root)}:{node.lineno}")
    assert not bad


# -- the frame ----------------------------------------------------------------------------------------------------


def test_help_and_version(capsys):
    for arguments in ([], ["--help"], ["-h"], ["help"]):
        assert main(arguments) == 0
        shown = capsys.readouterr()
        assert "usage: stepformer COMMAND" in shown.out and shown.err == ""
        for name in COMMANDS:
            assert name.split()[0] in shown.out
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"stepformer {__version__}\n"


def test_unknown_commands_and_halves_of_commands(capsys):
    assert main(["discombobulate"]) == 2
    assert "no command 'discombobulate'; stepformer --help lists them" in capsys.readouterr().err
    assert main(["bench"]) == 2
    assert "usage: stepformer bench COMMAND" in capsys.readouterr().err
    assert main(["bench", "alien"]) == 2
    said = capsys.readouterr().err
    assert "no command 'bench alien'; did you mean bench align? stepformer bench --help lists them" in said
    assert main(["discovr"]) == 2
    assert "did you mean discover?" in capsys.readouterr().err
    assert main(["bench", "--help"]) == 0
    shown = capsys.readouterr()
    assert shown.err == "" and all(f"  {name} " in shown.out for name in COMMANDS if name.startswith("bench "))
    assert main(["train", "--nonsense"]) == 2
    assert main(["train", "--help"]) == 0
    assert "examples:" in capsys.readouterr().out


@pytest.fixture
def command(monkeypatch):
    """A made-up command that does what a test says."""

    def install(action, **arguments):
        def add_arguments(parser):
            for name, options in arguments.items():
                parser.add_argument(name, **options)

        module = SimpleNamespace(
            HELP="Tests.", EXAMPLES=["stepformer made-up"], add_arguments=add_arguments, run=action
        )
        monkeypatch.setitem(COMMANDS, "made-up", ("tests.made_up", "made up"))
        monkeypatch.setattr(cli, "command_module", lambda name: module)

    return install


@pytest.mark.parametrize(
    ("error", "code"),
    [(StepFormerError, 1), (UsageError, 2), (InputError, 3), (MissingError, 4), (PartialError, 5)],
)
def test_an_error_is_one_sentence_and_an_exit_code(command, capsys, error, code):
    def fail(args):
        raise error("the file a.mp4 is not what it should be")

    command(fail)
    assert main(["made-up"]) == code
    assert capsys.readouterr().err == "stepformer: the file a.mp4 is not what it should be\n"
    with pytest.raises(error):
        main(["made-up", "--debug"])


def test_what_the_system_refuses_is_one_sentence(command, capsys):
    def fail(args):
        Path("/dev/null/store").mkdir(parents=True)

    command(fail)
    assert main(["made-up"]) == 1
    assert capsys.readouterr().err == "stepformer: /dev/null/store: Not a directory\n"
    with pytest.raises(OSError, match="Not a directory"):
        main(["made-up", "--debug"])
    assert main(["made-up", "--log-file", "\0"]) == 2
    assert "cannot be written: embedded null byte" in capsys.readouterr().err


def test_a_result_that_the_disk_does_not_take_is_one_sentence(command, capsys, monkeypatch):
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr("sys.stdout", full)
        command(lambda args: print("a result", flush=True))
        assert main(["made-up"]) == 1
        monkeypatch.undo()
    assert capsys.readouterr().err == "stepformer: the result cannot be printed: No space left on device\n"


def test_a_log_file_on_a_full_disk_is_given_up_with_one_sentence(command, capsys):
    def fail(args):
        raise InputError("it is broken")

    command(fail)
    assert main(["made-up", "--log-file", "/dev/full"]) == 3
    assert sorted(capsys.readouterr().err.splitlines()) == [
        "stepformer: /dev/full: no more messages are added: No space left on device",
        "stepformer: it is broken",
    ]


def test_a_folder_is_no_table_of_phrases(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["prepare", "phrases", "said", "."]) == 2
    assert "expected a name that ends in .parquet or .jsonl" in capsys.readouterr().err


def test_what_a_command_returns_is_the_exit_code(command):
    for value, code in ((0, 0), (None, 0), (5, 5)):
        command(lambda args, value=value: value)
        assert main(["made-up"]) == code


def test_ctrl_c_is_130(command, capsys):
    def interrupt(args):
        raise KeyboardInterrupt

    command(interrupt)
    assert main(["made-up"]) == 130
    assert capsys.readouterr().err == "stepformer: interrupted\n"


def test_options_may_stand_between_arguments(command):
    seen = []

    def note(args):
        seen.append((args.files, args.count, args.json))

    command(note, files={"nargs": "*"}, **{"--count": {"type": int}})
    assert main(["made-up", "a", "--count", "3", "b", "--json"]) == 0
    assert seen == [(["a", "b"], 3, True)]


@pytest.mark.parametrize("unbuffered", ["1", ""])
def test_a_reader_that_goes_away_is_no_error(unbuffered):
    script = "from stepformer.cli import main; import sys; sys.exit(main(['--help']))"
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    process = subprocess.Popen(
        [sys.executable, "-c", f"import time; time.sleep(0.5)\n{script}"], env=environment,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    process.stdout.close()
    said = process.stderr.read()
    process.stderr.close()
    assert said == ""
    assert process.wait(timeout=60) == 0
