"""``stepformer reproduce all``."""

from __future__ import annotations

import argparse

from stepformer.cli.reproduce_common import FIT, examples, run_tables
from stepformer.cli.reproduce_common import add_run_arguments as add_arguments

__all__ = ["EXAMPLES", "HELP", "add_arguments", "run"]

HELP = (
    """The paper's four tables and our own of the training data; runs that several tables need are done once.
"""
    + FIT
)

EXAMPLES = examples("all")


def run(args: argparse.Namespace) -> int:
    """Runs and prints the tables."""
    from stepformer.reproduce.runs import TABLES

    return run_tables(args, TABLES)
