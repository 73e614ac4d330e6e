"""``stepformer reproduce table2``."""

from __future__ import annotations

import argparse

from stepformer.cli.reproduce_common import FIT, add_real_arguments, add_run_arguments, examples, run_tables

HELP = (
    """Zero-shot localisation of given steps: StepFormer, Shen et al., ground-truth texts, untrained controls.
"""
    + FIT
)

EXAMPLES = [
    *examples("table2"),
    "stepformer reproduce table2 --out real --features univl --dataset crosstask --texts t.npz --checkpoint c",
]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    add_run_arguments(parser)
    add_real_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Runs and prints the table."""
    return run_tables(args, ["table2"])
