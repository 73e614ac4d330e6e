"""``stepformer bench sizes``: the time of one alignment against its rows and columns."""

from __future__ import annotations

import argparse
from dataclasses import replace

from benchmarks.curves import Curve, draw
from stepformer.bench.align import Case, best_ms, problem
from stepformer.cli.measured import report
from stepformer.cli.options import add

HELP = """Times one alignment (drop_dtw, with its checks) against rows and against columns: the best of 40 calls per
repeat. With --chart, also as a picture."""

EXAMPLES = ["stepformer bench sizes", "stepformer bench sizes --chart align.svg --repeats 15"]

CASE = Case("one", "many_to_one", 1, 32, 400)
ROWS, COLUMNS = (8, 16, 32, 64, 128), (100, 200, 400, 800, 1600)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    add(parser, "chart", "repeats", "seed", repeats=5)


def run(args: argparse.Namespace) -> int:
    """Measures, prints and draws."""
    from stepformer.core.align import drop_dtw

    def ms(case: Case) -> float:
        costs, drop = problem(case, args.seed)
        matrix, price = costs[0].numpy(), float(drop[0])
        drop_dtw(matrix, price, 0.0, case.matching)  # compiles
        return best_ms(lambda: drop_dtw(matrix, price, 0.0, case.matching), 40 * args.repeats)

    curves = [
        Curve("rows", [(K, ms(replace(CASE, K=K))) for K in ROWS]),
        Curve("columns", [(N, ms(replace(CASE, N=N))) for N in COLUMNS]),
    ]
    if args.chart:
        title = f"one alignment, many-to-one, both sides droppable; {CASE.K} rows, {CASE.N} columns"
        draw(curves, args.chart, title)
    report(args, {f"us_against_{c.size}": {str(n): round(1000 * t, 1) for n, t in c.points} for c in curves})
    return 0
