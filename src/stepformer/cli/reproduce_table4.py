"""``stepformer reproduce table4``."""

from __future__ import annotations

import argparse

from stepformer.cli.reproduce_common import FIT, add_run_arguments, run_tables

HELP = (
    """The number of slots (24, 32, 48) and of decoder layers (2, 4, 6, 8) of the default preset.
"""
    + FIT
)

EXAMPLES = [
    "stepformer reproduce table4 --world world.safetensors --out results",
    "stepformer reproduce table4 --world world.safetensors --out results --jobs 12 --device cuda --steps 2000",
    "stepformer reproduce table4 --out results --render",
]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    add_run_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Runs and prints the table."""
    return run_tables(args, ["table4"])
