"""``stepformer reproduce table3``."""

from __future__ import annotations

import argparse

from stepformer.cli.reproduce_common import FIT, add_real_arguments, add_run_arguments, examples, run_tables

HELP = (
    """The ablation of the four losses and of Drop-DTW at inference, the three presets, and the untrained controls.
"""
    + FIT
)

EXAMPLES = [
    *examples("table3"),
    "stepformer reproduce table3 --out real --features univl --dataset crosstask --texts t.npz --store howto/",
]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    add_run_arguments(parser)
    add_real_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Runs and prints the table."""
    return run_tables(args, ["table3"])
