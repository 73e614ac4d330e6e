"""``stepformer reproduce all``."""

from __future__ import annotations

import argparse

from stepformer.cli.reproduce_common import FIT, add_run_arguments, run_tables

HELP = (
    """The paper's four tables and our own of the training data; runs that several tables need are done once.
"""
    + FIT
)

EXAMPLES = [
    "stepformer reproduce all --world world.safetensors --out results",
    "stepformer reproduce all --world world.safetensors --out results --jobs 12 --device cuda --steps 2000",
    "stepformer reproduce all --out results --render",
]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    add_run_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Runs and prints the tables."""
    from stepformer.reproduce.runs import TABLES

    return run_tables(args, TABLES)
