"""``stepformer models info``: all that is known of some weights: the start of a model card."""

from __future__ import annotations

import argparse
import json

from stepformer import weights

HELP = "Shows where named weights come from, their hashes, licence and training data, and where they lie here."

EXAMPLES = ["stepformer models info minilm", "stepformer models info i3d-kinetics400 --json"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this command."""
    parser.add_argument("name", metavar="NAME", help="a name as stepformer models list shows it")


def run(args: argparse.Namespace) -> int:
    """Prints the facts."""
    e = weights.entry(args.name)
    found = weights.find(args.name)
    facts = {
        "name": e.name,
        "about": e.about,
        "license": e.license,
        "trained on": e.trained_on,
        "first published as": e.upstream,
        "model hub": e.hub_repo if e.hub_repo and all(file.hub for file in e.files) else None,
        "registry containers": {c.filename: c.sha256 for c in e.containers},
        "files": {file.path or "(folder)": file.sha256 or "pinned by its container" for file in e.files},
        "also pinned": dict(e.expect),
        "converted to safetensors": bool(e.convert),
        "download": f"{e.size / 1e6:.1f} MB",
        "here": str(found) if found else None,
    }
    if args.json:
        print(json.dumps(facts, indent=2, ensure_ascii=False))
        return 0
    for key, value in facts.items():
        if isinstance(value, dict):
            for inner, digest in value.items():
                print(f"{key:<26}{inner}  {digest}")
        elif value is not None:
            shown = {True: "yes", False: "no"}.get(value, value) if isinstance(value, bool) else value
            print(f"{key:<26}{shown}")
    if found is None:
        print(f"{'here':<26}no; get it with: stepformer models pull {e.name}")
    return 0
