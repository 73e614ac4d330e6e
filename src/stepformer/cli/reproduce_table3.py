"""``stepformer reproduce table3``."""

from __future__ import annotations

import argparse

from stepformer.cli.reproduce_common import FIT, examples, run_tables
from stepformer.cli.reproduce_common import add_run_arguments as add_arguments

__all__ = ["EXAMPLES", "HELP", "add_arguments", "run"]

HELP = (
    """The ablation of the four losses and of Drop-DTW at inference, the three presets, and the untrained controls.
"""
    + FIT
)

EXAMPLES = examples("table3")


def run(args: argparse.Namespace) -> int:
    """Runs and prints the table."""
    return run_tables(args, ["table3"])
