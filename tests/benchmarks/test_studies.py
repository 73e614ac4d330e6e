"""Studies are commands in a checkout, and one sentence where there is only the wheel."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks import STUDIES
from stepformer.cli import COMMANDS, command_module

ROOT = Path(__file__).parents[2]


def test_every_study_is_a_command():
    for word in STUDIES:
        module = command_module(f"bench {word}")
        assert module.HELP and module.EXAMPLES and callable(module.run)


def test_the_package_has_no_study(tmp_path):
    assert {name for name, (path, _) in COMMANDS.items() if path.startswith("benchmarks.")} == {
        f"bench {word}" for word in STUDIES
    }
    shutil.copytree(ROOT / "src" / "stepformer", tmp_path / "site" / "stepformer",
                    ignore=shutil.ignore_patterns("__pycache__", "*.safetensors"))  # fmt: skip

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "stepformer", *words], env={"PYTHONPATH": str(tmp_path / "site")}, cwd=tmp_path,
            capture_output=True, text=True, check=False,
        )  # fmt: skip

    done = run("bench", "real")
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "studies run in a checkout of the repository" in done.stderr
    assert run("bench", "align", "--help").returncode == 0


def test_the_names_judged_by_hand_are_of_all_three_kinds():
    from benchmarks.judged import MARKS, judged

    pairs = judged()
    marks = [pair.mark for pair in pairs]
    assert len(pairs) >= 150 and set(marks) == set(MARKS) and min(map(marks.count, MARKS)) >= 40
    assert len({(pair.name, pair.marked) for pair in pairs}) == len(pairs)
    assert {pair.source for pair in pairs} == {"spoken", "seen"}
