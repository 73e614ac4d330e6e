"""``make lock`` and ``make sbom``: which packages, in which versions, with which hashes and licences.

python tools/supply_chain.py lock < report.json > requirements.lock   # report.json: pip install --dry-run --report
python tools/supply_chain.py sbom > sbom.json                         # CycloneDX 1.6, of what is installed here
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "requirements.lock"
HEAD = """# Exact versions with the SHA-256 of each file, for CPython 3.11 on Linux x86-64 with the CPU build of torch.
# Made by `make lock`. To install from it:
#   pip install --require-hashes -r requirements.lock && pip install --no-deps -e .
"""


def plain(name: str) -> str:
    """A project's name as registries compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def lock(report: dict[str, Any]) -> str:
    """Requirements with hashes from pip's report; nothing in it says where the files came from."""
    rows = []
    for entry in report["install"]:
        about = entry["metadata"]
        if plain(about["name"]) != "stepformer":
            digest = entry["download_info"]["archive_info"]["hashes"]["sha256"]
            rows.append(f"{plain(about['name'])}=={about['version']} --hash=sha256:{digest}\n")
    return HEAD + "".join(sorted(rows))


def locked() -> dict[str, tuple[str, str]]:
    """Name -> (version, SHA-256) of the lock."""
    found = re.findall(r"^(\S+)==(\S+) --hash=sha256:([0-9a-f]{64})$", LOCK.read_text("utf-8"), re.MULTILINE)
    return {name: (version, digest) for name, version, digest in found}


def installed() -> dict[str, metadata.Distribution]:
    """stepformer and what it needs to run, as it is installed here."""
    found: dict[str, metadata.Distribution] = {}
    waiting = ["stepformer"]
    while waiting:
        name = waiting.pop()
        if plain(name) in found:
            continue
        try:
            found[plain(name)] = metadata.distribution(name)
        except metadata.PackageNotFoundError:  # for another system or Python
            continue
        needs = [need for need in found[plain(name)].requires or () if "extra ==" not in need]
        waiting += [re.split(r"[ ;<>=!~\[(]", need, maxsplit=1)[0] for need in needs]
    return found


def licence(about: metadata.PackageMetadata) -> str:
    """What a package says of its licence, in a line."""
    classes = [row.rpartition(" :: ")[2] for row in about.get_all("Classifier") or () if row.startswith("License ::")]
    said = about.get("License-Expression") or "; ".join(classes) or about.get("License") or "not stated"
    return said.splitlines()[0]


def sbom() -> dict[str, Any]:
    """A CycloneDX bill: the packages, with hashes where the lock has them, and the weights known by name."""
    hashes = {name: [{"alg": "SHA-256", "content": digest}] for name, (_, digest) in locked().items()}
    parts: list[dict[str, Any]] = []
    found = installed()
    for name, package in sorted(found.items()):
        part = {"type": "library", "name": name, "version": package.version, "bom-ref": name}
        part |= {
            "purl": f"pkg:pypi/{name}@{package.version}",
            "licenses": [{"license": {"name": licence(package.metadata)}}],
        }
        same = locked().get(name, ("", ""))[0] == package.version
        parts.append(part | ({"hashes": hashes[name]} if same else {}))
    weights = tomllib.loads((ROOT / "src/stepformer/base/weights/registry.toml").read_text("utf-8"))["weights"]
    for one in weights:
        digests = [{"alg": "SHA-256", "content": file["sha256"]} for file in one["files"] if file.get("sha256")]
        parts.append(
            {"type": "machine-learning-model", "name": one["name"], "bom-ref": f"weights/{one['name']}",
             "licenses": [{"license": {"name": one["license"]}}], "hashes": digests}
        )  # fmt: skip
    own = next(part for part in parts if part["name"] == "stepformer")
    return {
        "bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1,
        "metadata": {"component": own | {"type": "application"}},
        "components": [part for part in parts if part is not own],
    }  # fmt: skip


if __name__ == "__main__":
    if sys.argv[1:] == ["lock"]:
        sys.stdout.write(lock(json.load(sys.stdin)))
    elif sys.argv[1:] == ["sbom"]:
        json.dump(sbom(), sys.stdout, indent=1)
    else:
        sys.exit(__doc__)
