"""The lock has every dependency with a hash and no address; the bill names what is installed and the weights."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def tool():
    spec = importlib.util.spec_from_file_location("supply_chain", ROOT / "tools" / "supply_chain.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_lock_has_what_the_project_needs():
    made = tool()
    found = made.locked()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    for need in (*project["dependencies"], *extras["test"], *extras["dev"]):
        assert made.plain(re.split(r"[<>=]", need)[0]) in found, need
    pinned = dict(re.findall(r"^(\S+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    for name, version in pinned.items():
        if made.plain(name) in found:
            assert found[made.plain(name)][0].partition("+")[0] == version, name
    text = made.LOCK.read_text()
    assert "://" not in text and "nvidia" not in text and found["torch"][0].endswith("+cpu")
    assert len(found) == sum(not line.startswith("#") for line in text.splitlines())


def test_every_dependency_is_justified():
    made = tool()
    rows = re.findall(r"^\| ([a-z-]+) \| .+ \| .+ \|$", (ROOT / "docs" / "SECURITY.md").read_text(), re.MULTILINE)
    needs = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert {made.plain(re.split(r"[<>=]", need)[0]) for need in needs} <= set(rows)


def test_the_bill_names_packages_and_weights_with_licences():
    bill = tool().sbom()
    parts = {part["name"]: part for part in bill["components"]}
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert {"torch", "av", "minilm"} <= set(parts)
    assert all(part["licenses"][0]["license"]["name"] for part in parts.values())
    assert len({part["bom-ref"] for part in parts.values()}) == len(parts)
