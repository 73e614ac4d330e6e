import json

import numpy as np
import pytest

from stepformer.cli import main


@pytest.fixture
def folder(tmp_path):
    for task in ("tea", "toast"):
        (tmp_path / "data" / task / "annotations").mkdir(parents=True)
        for v in range(2):
            (tmp_path / "data" / task / "annotations" / f"{task}{v}.csv").write_text("1,0,4\n2,5,9\n")
    (tmp_path / "out").mkdir()
    for name in ("tea0", "tea1", "toast0", "toast1"):
        np.save(tmp_path / "out" / f"{name}.npy", np.repeat([0, -1, 1, -1], [4, 1, 4, 1]))
    return tmp_path


def test_check_finds_nothing_wrong(folder, capsys):
    assert main(["evaluate", str(folder / "data"), "--check"]) == 0
    assert "no problems" in capsys.readouterr().out


def test_check_lists_problems_and_ends_with_5(folder, capsys):
    (folder / "data" / "tea" / "annotations" / "bad.csv").write_text("1,0,4\nnonsense\n")
    assert main(["evaluate", str(folder / "data"), "--check", "--json"]) == 5
    report = json.loads(capsys.readouterr().out)
    assert report["problems"][0]["kind"] == "unparsable"
    assert report["counts"]["videos"] == 5
    assert main(["evaluate", str(folder / "data"), "--check"]) == 5
    assert "bad.csv:2" in capsys.readouterr().out


def test_all_protocols_side_by_side(folder, capsys):
    assert main(["evaluate", str(folder / "data"), "--predictions", str(folder / "out")]) == 0
    out = capsys.readouterr().out
    assert "4 videos of 2 tasks" in out
    for name in ("table1", "table2", "crosstask-recall", "per-video", "macro", "segmental"):
        assert name in out


def test_one_protocol_as_json_by_task(folder, capsys):
    command = ["evaluate", str(folder / "data"), "--predictions", str(folder / "out"), "--protocol", "table1"]
    assert main([*command, "--per-task", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["results"]["table1"]["values"]["f1"] == 1
    assert [row["task"] for row in report["per_task"]] == ["tea", "toast"]
    assert main([*command, "--format", "latex"]) == 0
    assert r"\begin{tabular}" in capsys.readouterr().out


def test_what_has_no_value_is_null_because_json_has_no_nan(folder, capsys):
    for file in (folder / "out").iterdir():  # ids far apart have no historical MoF
        np.save(file, np.repeat([0, -1, 5000, -1], [4, 1, 4, 1]))
    command = ["evaluate", str(folder / "data"), "--predictions", str(folder / "out"), "--per-task"]
    assert main([*command, "--json"]) == 0
    out = capsys.readouterr().out
    assert "NaN" not in out
    assert json.loads(out)["results"]["table1"]["values"]["mof_historical"] is None
    assert main(command) == 0
    assert "nan" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        ([], 2, "--check"),
        (["--check", "--predictions", "x"], 2, "either"),
        (["--predictions", "nowhere"], 3, "there is no folder nowhere"),
        (["--check", "--rate", "0"], 2, "number above 0"),
        (["--check", "--features", "nowhere"], 3, "no features folder"),
        (["--predictions", "OUT", "--subset", "testing"], 3, "subset"),
        (["--predictions", "OUT", "--seeds", "-1"], 2, "--seeds"),
    ],
)
def test_mistakes_have_a_code_and_a_sentence(folder, capsys, options, code, says):
    options = [str(folder / "out") if option == "OUT" else option for option in options]
    assert main(["evaluate", str(folder / "data"), *options]) == code
    assert says in capsys.readouterr().err


def test_a_missing_prediction_is_not_passed_over(folder, capsys):
    (folder / "out" / "tea1.npy").unlink()
    command = ["evaluate", str(folder / "data"), "--predictions", str(folder / "out")]
    assert main(command) == 3
    assert "--missing" in capsys.readouterr().err
    assert main([*command, "--missing", "background"]) == 0
    assert "count as all background" in capsys.readouterr().out


def test_bench_measures_growth(capsys, monkeypatch):
    from stepformer.bench import evaluate

    for library in ("OPENBLAS", "MKL", "OMP", "NUMBA"):
        monkeypatch.setenv(f"{library}_NUM_THREADS", "1")  # the command sets them; put them back afterwards
    monkeypatch.setattr(evaluate, "_MADE_UP", {"crosstask": (6, 2, 3, 40.0), "coin": (24, 6, 3, 40.0)})
    assert main(["bench", "evaluate", "--json", "--seeds", "0"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["growth"]["videos"] == 4
    assert [row["videos"] for row in report["rows"]] == [6, 24]
    assert all(0 < row["f1"] < 1 for row in report["rows"])
    assert main(["bench", "evaluate", "--seeds", "0"]) == 0
    assert "growth: videos 4, segments" in capsys.readouterr().out
    assert main(["bench", "evaluate", "--seeds", "x"]) == 2
