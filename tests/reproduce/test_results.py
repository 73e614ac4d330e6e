"""What README and docs print of docs/results is what stands there, and results say where they were made.

A Markdown table whose page links to ``results/NAME.md`` in the paragraph above it is held against ``NAME.json``: its
first column names rows of the result, and every number with a decimal point must be one of that row, and of the dataset
that heads its column. A difference with an interval in evidence.md must be one of the results.
"""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results"
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
TABLE = re.compile(r"results/([\w-]+)\.md[^|]*?\n\n((?:\|[^\n]*\n)+)")
NUMBER = re.compile(r"-?\d+\.\d")
DIFFERENCE = re.compile(r"([+-]\d+\.\d) \[([+-]\d+\.\d), ([+-]\d+\.\d)\]")
DATA = ("CrossTask", "ProceL", "COIN")


def wrong_numbers(text, results):
    """(row, number) of tables in a page that their result does not have; ``results(name)`` reads one."""
    out = []
    for name, lines in TABLE.findall(text):
        rows = {row["method"]: row for row in results(name)["rows"]}
        (_, *heads), _, *body = ([part.strip().strip("*`") for part in line.strip("|\n ").split("|")]
                                 for line in lines.splitlines())  # fmt: skip
        for label, *cells in body:
            if label not in rows:
                out.append((label, "no such row"))
                continue
            for head, cell in zip(heads, cells, strict=True):
                data = next((data for data in DATA if data in head), "")
                shown = {n for column, has in rows[label].items() if data in column for n in numbers_of(has)}
                out += [(label, n) for n in NUMBER.findall(cell) if n not in shown]
    return out


def numbers_of(cell):
    """The numbers of one cell of a result, as pages print them."""
    if isinstance(cell, str):
        return NUMBER.findall(cell)
    values = [cell.get("value"), cell.get("spread"), *cell.get("interval", ())] if isinstance(cell, dict) else []
    return [f"{100 * value:.1f}" for value in values if value is not None]


def differences(result):
    """(difference, low, high) of everything in a result that has an interval, as pages print them."""
    found = [(100 * c["value"], *(100 * x for x in c["interval"])) for row in result["rows"] for c in row.values()
             if isinstance(c, dict) and "interval" in c]  # fmt: skip
    found += [(g["gap"], *g["interval"]) for g in result.get("gaps", ())]
    return {tuple(f"{x:+.1f}" for x in three) for three in found}


def stored(name):
    return json.loads((RESULTS / f"{name}.json").read_text("utf-8"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_numbers_of_pages_are_those_of_the_results(page):
    assert not wrong_numbers(page.read_text("utf-8"), stored)


def test_every_difference_with_an_interval_is_one_of_the_results():
    known = {one for path in RESULTS.glob("*.json") for one in differences(stored(path.stem))}
    text = re.sub(r"\s+", " ", (ROOT / "docs" / "evidence.md").read_text("utf-8").replace("−", "-"))
    said = set(DIFFERENCE.findall(text))
    assert len(said) > 30 and not said - known


README_ROWS = {  # how a row begins: what it measures, and whose numbers stand without a name
    "steps found in simulated videos": ("F1", "default"),
    "the same with the product's options": ("F1", "default, the product's options"),
    "typed steps placed in them": ("IoU", "default"),
}  # fmt: skip
README_NAMES = {
    "random slots": "random slots", "K-means of the frames": "frame K-means", "texts alone": "GT text",
    "as many equal parts": "uniform, as many cuts as default", "equal parts": "uniform, as many steps",
}  # fmt: skip
PAIR = re.compile(r"([^,|]*?) ?(\d+\.\d) / (\d+\.\d)")


def simulated_numbers(text, rows):
    """What README's table says of simulated videos (COIN / CrossTask) and what the result has, where they differ."""
    out, seen = [], 0
    for line in text.splitlines():
        for begin, (measure, ours) in README_ROWS.items():
            if line.startswith(f"| {begin}"):
                for name, coin, crosstask in PAIR.findall("|".join(line.split("|")[2:4])):
                    seen += 1
                    row = rows[README_NAMES[name.strip()] if name else ours]
                    have = [f"{100 * row[f'{data} {measure}']['value']:.1f}" for data in ("COIN", "CrossTask")]
                    out += [] if [coin, crosstask] == have else [(name, coin, crosstask, have)]
    return out, seen


def test_readmes_rows_on_simulated_videos_are_those_of_the_shipped_model():
    rows, text = {row["method"]: row for row in stored("shipped")["rows"]}, (ROOT / "README.md").read_text("utf-8")
    assert simulated_numbers(text, rows) == ([], 9)
    first = PAIR.search(text)[2]
    assert simulated_numbers(text.replace(f"{first} /", "99.9 /"), rows)[0]


def test_a_wrong_number_and_a_wrong_row_are_found():
    other = {"value": 0.111, "spread": 0.002}
    made = {
        "rows": [{"method": "pooled32", "F1": {"value": 0.303, "spread": 0.005}, "paper": "28.3/22.1", "COIN": other}]
    }
    page = (
        "See [all](docs/results/table3.md):\n\n| method | F1 |\n|---|---|\n| pooled32 | **30.3 ± 0.5** (28.3) |\n{}\n"
    )
    assert not wrong_numbers(page.format(""), lambda name: made)
    assert wrong_numbers(page.format("").replace("30.3", "31.3"), lambda name: made) == [("pooled32", "31.3")]
    assert wrong_numbers(page.format("").replace("| F1", "| COIN F1"), lambda name: made)[0] == ("pooled32", "30.3")
    assert ("other", "no such row") in wrong_numbers(page.format("| other | 30.3 |"), lambda name: made)


def test_every_result_says_which_commit_made_it_when_and_where():
    for path in RESULTS.glob("*.json"):
        written = json.loads(path.read_text("utf-8"))["written"]
        assert {"commit", "date", "machine"} <= set(written), path.name


def test_tables_of_one_run_are_of_one_code_and_commits_that_are_named_exist():
    """By the hash of the code that decides numbers; commits may differ in docs and tests."""
    hashes = {}
    for path in RESULTS.glob("*.json"):
        lines = [line for line in stored(path.stem).get("notes", ()) if line.startswith("Hash of the code")]
        hashes.update((path.stem, line) for line in lines)
    assert set(hashes) >= {"table1", "table2", "table3", "table4", "data", "evidence", "shipped", "elhamifar"}
    assert len(set(hashes.values())) == 1 and "; " not in hashes["table1"]
    shallow = ["git", "-C", str(ROOT), "rev-parse", "--is-shallow-repository"]
    if shutil.which("git") is None or subprocess.run(shallow, capture_output=True, check=False).stdout != b"false\n":
        pytest.skip("not a whole checkout with git: whether commits exist is not seen")
    text = "".join(page.read_text("utf-8") for page in [*PAGES, *RESULTS.glob("*.md")])
    named = set(re.findall(r"(?:commit|Commit:|show) `?([0-9a-f]{7,12})\b", text))
    asked = [["git", "-C", str(ROOT), "cat-file", "-e", f"{commit}^{{commit}}"] for commit in sorted(named)]
    assert len(named) > 3
    assert not [argv[-1] for argv in asked if subprocess.run(argv, capture_output=True, check=False).returncode]
