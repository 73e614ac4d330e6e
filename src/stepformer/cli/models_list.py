"""``stepformer models list``: the weights known by name, and which of them are here."""

from __future__ import annotations

import argparse
import json

from stepformer.app.discover import loading
from stepformer.base import weights

HELP = "Lists the weights this product knows by name, their licence and size, and whether they are here."

EXAMPLES = ["stepformer models list", "stepformer models list --json"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """No options of its own."""


def run(args: argparse.Namespace) -> int:
    """Prints the list."""
    entries = [weights.entry(name) for name in weights.names()]
    if args.json:
        rows = [
            {
                "name": e.name, "about": e.about, "license": e.license, "size": e.size,
                "path": None if (found := weights.find(e.name)) is None else str(found),
            }
            for e in entries
        ]  # fmt: skip
        for name in loading.names():
            path = loading.checkpoint_file(name)
            rows.append({"name": name, "about": "step decoder", "size": path.stat().st_size, "path": str(path)})
        print(json.dumps(rows, indent=2, ensure_ascii=False))
        return 0
    for name in loading.names():
        size = loading.checkpoint_file(name).stat().st_size
        print(f"{name:<20} {size / 1e6:>6.0f} MB  here  {'see MODEL_CARD.md':<36} step decoder")
    for e in entries:
        state = "here" if weights.find(e.name) is not None else "-"
        print(f"{e.name:<20} {e.size / 1e6:>6.0f} MB  {state:<5} {e.license:<36} {e.about}")
    print(f"\nkept in {weights.cache_folder()}; get one with: stepformer models pull NAME")
    return 0
