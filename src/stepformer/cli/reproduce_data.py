"""``stepformer reproduce data``."""

from __future__ import annotations

import argparse

from stepformer.cli.reproduce_common import FIT, examples, run_tables
from stepformer.cli.reproduce_common import add_run_arguments as add_arguments

__all__ = ["EXAMPLES", "HELP", "add_arguments", "run"]

HELP = (
    """What the default preset learns from other training data: one simulated encoder alone instead of the mixture,
and the non-commercial text sources too; scored on videos seen through each encoder.
"""
    + FIT
)

EXAMPLES = examples("data")


def run(args: argparse.Namespace) -> int:
    """Runs and prints the table."""
    return run_tables(args, ["data"])
