"""What the documentation shows: commands that parse, links that lead somewhere, configs that are read."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path

import pytest

from stepformer.cli import COMMANDS, command_module, command_parser, main
from stepformer.core.config import make_config
from stepformer.errors import UsageError

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
BLOCK = re.compile(r"^```[a-z]*\n(.*?)^```", re.MULTILINE | re.DOTALL)


def commands_in(text: str) -> list[list[str]]:
    """The stepformer commands of shell lines, without comments, pipes and redirections."""
    found = []
    for line in text.replace("\\\n", " ").splitlines():
        for part in re.split(r"\s*(?:&&|\|)\s*", re.split(r"\s+#", line)[0]):
            given = re.match(r"^\s*(?:\$ )?stepformer (.*)$", part)
            if given:
                found.append(shlex.split(re.sub(r"\s*2?>\s*\S+", "", given[1])))
    return found


def parse(argv: list[str], whole: bool = True) -> None:
    """Fails where a command would end with a usage error; one that is not ``whole`` may leave out what it needs."""
    name = next((name for name in (" ".join(argv[:2]), argv[0]) if name in COMMANDS), None)
    assert name is not None, f"no such command: {argv}"
    try:
        command_parser(name).parse_intermixed_args(argv[len(name.split()) :])
    except UsageError as error:
        if whole or not str(error).startswith("missing: "):
            pytest.fail(f"does not parse: stepformer {shlex.join(argv)}: {error}")


@pytest.mark.parametrize("name", COMMANDS)
def test_examples_of_help_parse(name):
    for line in command_module(name).EXAMPLES:
        for argv in commands_in(line):
            parse(argv)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_in_blocks_parse(page):
    for block in BLOCK.findall(page.read_text("utf-8")):
        for argv in commands_in(block):
            parse(argv)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_in_sentences_parse(page):
    """In a table, a command has all that it needs; in a sentence ("`stepformer bench names` measures this") not."""
    text = BLOCK.sub("", page.read_text("utf-8"))
    for found in re.finditer(r"`(stepformer (?!bench …|--)[^`]+)`", text):
        in_table = text.rfind("\n|", 0, found.start()) > text.rfind("\n", 0, found.start()) - 1
        for argv in commands_in(" ".join(found[1].split())):
            parse(argv, whole=in_table)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_are_named_are_there(page):
    if page.name == "CHANGELOG.md":
        return  # names what is gone, too
    for name in re.findall(r"`((?:src|benchmarks|tests|docs|examples|tools)/[\w./-]+\.\w+)`", page.read_text("utf-8")):
        assert (ROOT / name).exists(), f"{page.name} names {name}"


def test_there_are_commands_to_parse():
    """So that the tests above do not pass on nothing."""
    readme = BLOCK.findall((ROOT / "README.md").read_text("utf-8"))
    assert sum(len(commands_in(block)) for block in readme) > 12


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    text = BLOCK.sub("", page.read_text("utf-8"))
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if not target.startswith(("http:", "https:", "mailto:")):
            assert (page.parent / target.partition("#")[0]).exists(), f"{page.name} links to {target}"


def test_the_training_config_of_the_documentation_is_read():
    text = (ROOT / "docs" / "training.md").read_text("utf-8")
    block = re.search(r"^```toml\n(.*?)^```", text, re.MULTILINE | re.DOTALL)[1]
    config = make_config(tomllib.loads(block))
    assert config.validation.dataset == "COIN.json" and config.data.store == ("store",)


@pytest.mark.slow
def test_the_readme_shows_what_the_demo_prints(tmp_path, monkeypatch, capsys):
    """The real clip through the real weights, downloaded on first use; scores of guesses to within .02."""
    monkeypatch.chdir(tmp_path)
    assert main(["demo", "--out", "out/demo"]) == 0
    printed = [split_score(line) for line in capsys.readouterr().out.splitlines()]
    block = next(b for b in BLOCK.findall((ROOT / "README.md").read_text("utf-8")) if "out/demo/washing-hands.mp4" in b)
    for line, score in map(split_score, block.strip("`\n").splitlines()):
        assert any(line == other and abs(score - found) <= 0.02 for other, found in printed), line


def split_score(line: str) -> tuple[str, float]:
    """A line without the score of a guess, and the score; 0 where there is none."""
    score = re.search(r"\(guess, (0\.\d+)\)", line)
    return (line.replace(score[1], "").rstrip(), float(score[1])) if score else (line.rstrip(), 0.0)
