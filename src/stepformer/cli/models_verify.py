"""``stepformer models verify``: rehashes the weights that are here."""

from __future__ import annotations

import argparse
import json

from stepformer.base import weights

HELP = "Hashes the pulled weights again. Exit code 1 if a file is damaged or gone, 4 if a named one was never pulled."

EXAMPLES = ["stepformer models verify", "stepformer models verify minilm"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this command."""
    parser.add_argument("names", nargs="*", metavar="NAME", help="names (default: all that are here)")


def run(args: argparse.Namespace) -> int:
    """Verifies and prints."""
    names = args.names or [name for name in weights.names() if weights.find(name) is not None]
    troubles = {name: weights.verify(name) for name in names}
    if args.json:
        print(json.dumps(troubles, indent=2))
    else:
        for name, found in troubles.items():
            print(f"{name:<20} {'ok' if not found else '; '.join(found)}")
            if found:
                print(f"{'':<20} remove {weights.folder_of(name)} and run: stepformer models pull {name}")
        if not names:
            print("nothing is here yet; stepformer models list shows what there is")
    return 1 if any(troubles.values()) else 0
