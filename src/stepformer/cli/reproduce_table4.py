"""``stepformer reproduce table4``."""

from __future__ import annotations

import argparse

from stepformer.cli.reproduce_common import FIT, add_real_arguments, add_run_arguments, examples, run_tables

HELP = (
    """The number of slots (24, 32, 48) and of decoder layers (2, 4, 6, 8) of the default preset.
"""
    + FIT
)

EXAMPLES = [
    *examples("table4"),
    "stepformer reproduce table4 --out real --features univl --dataset crosstask --texts t.npz --store howto/",
]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    add_run_arguments(parser)
    add_real_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Runs and prints the table."""
    return run_tables(args, ["table4"])
