"""``stepformer models info``: all that is known of some weights: the start of a model card."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from stepformer.app.discover import loading
from stepformer.base import weights

HELP = """Shows where named weights come from, their hashes, licence and training data, and where they lie here; or, for
a step decoder (default, or a checkpoint file), how it was trained, on what, and its verified hash."""

EXAMPLES = ["stepformer models info default", "stepformer models info i3d-kinetics400 --json"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this command."""
    parser.add_argument("name", metavar="NAME", help="a name as stepformer models list shows it")


def run(args: argparse.Namespace) -> int:
    """Prints the facts."""
    if args.name in loading.names() or Path(args.name).exists():
        return _print(_checkpoint_facts(args.name), args.json)
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
    _print(facts, args.json)
    if found is None and not args.json:
        print(f"{'here':<26}no; get it with: stepformer models pull {e.name}")
    return 0


def _checkpoint_facts(name: str) -> dict[str, Any]:
    """What a step decoder says of itself; reading it checks its hash."""
    from stepformer.core.checkpoint import load_checkpoint

    path = loading.checkpoint_file(name)
    checkpoint = load_checkpoint(path)
    made = checkpoint.provenance
    config = made.get("config", {})
    sources = (
        config.get("data", {}).get("simulator", {}).get("sources", [])
        if not config.get("data", {}).get("store")
        else []
    )
    return {
        "name": name,
        "about": "step decoder",
        "sha256 of the weights": f"{checkpoint.hash} (verified)",
        "parameters": f"{sum(p.numel() for p in checkpoint.model.parameters()) / 1e6:.1f} M",
        "text space": checkpoint.encoder,
        "preset": made.get("preset"),
        "trained": ", ".join(f"{key} {made[key]}" for key in ("step", "batch", "seed", "device") if key in made),
        "text sources": {source: f"{share:.0%} {made['data'].get(source, '')}" for source, share in sources},
        "inference": {key: str(value) for key, value in checkpoint.inference.items()},
        "here": str(path),
    }


def _print(facts: dict[str, Any], as_json: bool) -> int:
    if as_json:
        print(json.dumps(facts, indent=2, ensure_ascii=False))
        return 0
    for key, value in facts.items():
        if isinstance(value, dict):
            for inner, digest in value.items():
                print(f"{key:<26}{inner}  {digest}")
        elif value is not None:
            shown = {True: "yes", False: "no"}.get(value, value) if isinstance(value, bool) else value
            print(f"{key:<26}{shown}")
    return 0
