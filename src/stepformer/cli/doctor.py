"""``stepformer doctor``: what is here, what is not, and how to mend it."""

from __future__ import annotations

import argparse
import json

from stepformer.cli.log import log
from stepformer.cli.options import add

HELP = """Checks Python, torch and device, libraries, video decoding, weights (present and verified), the model, extras,
cache and disk, and runs a tiny video through the whole product. Each failing line says how to mend it. Exit code 0 when
nothing fails, 4 when all that fails is weights or packages that are not here, else 1."""

EXAMPLES = ["stepformer doctor", "stepformer doctor --quick", "stepformer doctor --json"]

_MARKS = {"ok": "ok  ", "note": "-   ", "fail": "FAIL"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("--quick", action="store_true", help="hash no weights, run nothing")
    add(parser, "model")


def run(args: argparse.Namespace) -> int:
    """Prints each check as it is done."""
    from stepformer.cli.checks import examine

    checks = []
    for check in examine(args.model, args.quick):
        checks.append(check)
        if not args.json:
            print(f"{_MARKS[check.state]}  {check.name:<26} {check.found}", flush=True)
            if check.mend and check.state != "ok":
                print(f"{'':<6}{'':<26} {check.mend}", flush=True)
    failing = [check for check in checks if check.state == "fail"]
    if args.json:
        print(json.dumps({"ok": not failing, "checks": [check.to_dict() for check in checks]}, indent=2))
    else:
        log.info("all is well" if not failing else f"{len(failing)} of {len(checks)} checks fail")
    if not failing:
        return 0
    return 4 if all(check.missing for check in failing) else 1
