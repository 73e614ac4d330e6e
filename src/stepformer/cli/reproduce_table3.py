"""``stepformer reproduce table3``."""

from __future__ import annotations

import argparse

from stepformer.cli.reproduce_common import FIT, add_run_arguments, run_tables

HELP = (
    """The ablation of the four losses and of Drop-DTW at inference, the three presets, and the untrained controls.
"""
    + FIT
)

EXAMPLES = [
    "stepformer reproduce table3 --world world.safetensors --out results",
    "stepformer reproduce table3 --world world.safetensors --out results --jobs 12 --device cuda --steps 2000",
    "stepformer reproduce table3 --out results --render",
]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    add_run_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Runs and prints the table."""
    return run_tables(args, ["table3"])
