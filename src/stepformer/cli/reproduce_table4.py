"""``stepformer reproduce table4``."""

from __future__ import annotations

import argparse

from stepformer.cli.reproduce_common import FIT, examples, run_tables
from stepformer.cli.reproduce_common import add_run_arguments as add_arguments

__all__ = ["EXAMPLES", "HELP", "add_arguments", "run"]

HELP = (
    """The number of slots (24, 32, 48) and of decoder layers (2, 4, 6, 8) of the default preset.
"""
    + FIT
)

EXAMPLES = examples("table4")


def run(args: argparse.Namespace) -> int:
    """Runs and prints the table."""
    return run_tables(args, ["table4"])
