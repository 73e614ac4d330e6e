"""``stepformer reproduce data``."""

from __future__ import annotations

import argparse

from stepformer.cli.reproduce_common import FIT, add_run_arguments, run_tables

HELP = (
    """What the default preset learns from other training data: one simulated encoder alone instead of the mixture,
and the non-commercial text sources too; scored on videos seen through each encoder.
"""
    + FIT
)

EXAMPLES = [
    "stepformer reproduce data --world world.safetensors --out results",
    "stepformer reproduce data --world world.safetensors --out results --jobs 12 --device cuda --steps 2000",
    "stepformer reproduce data --out results --render",
]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    add_run_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Runs and prints the table."""
    return run_tables(args, ["data"])
