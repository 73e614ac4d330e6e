"""What every benchmark prints: where it was made, its rows and what they say, for people or as JSON."""

from __future__ import annotations

import argparse
import json
import resource
import sys
from collections.abc import Mapping, Sequence
from typing import Any


def report(
    args: argparse.Namespace, facts: Mapping[str, Any], rows: Sequence[Mapping[str, Any]] = (), verdict: str = ""
) -> None:
    """Prints facts, rows of equal columns and a closing sentence; with ``--json`` all but the sentence as one object.

    Commit, machine and versions are added to the facts.
    """
    from stepformer.reproduce.execute import commit, machine

    device = str(getattr(args, "device", None) or "cpu")
    facts = {**facts, "commit": commit(), "machine": machine(device)}
    if args.json:
        print(json.dumps({**facts, "rows": list(rows)} if rows else facts, indent=2))
        return
    if rows:
        table = [[name.replace("_", " ") for name in rows[0]], *([_shown(v) for v in row.values()] for row in rows)]
        widths = [max(len(line[i]) for line in table) for i in range(len(table[0]))]
        for line in table:
            print("  ".join(text.rjust(width) for text, width in zip(line, widths, strict=True)))
    for name, value in facts.items():
        inside = isinstance(value, Mapping)
        shown = ", ".join(f"{key} {_shown(part)}" for key, part in value.items()) if inside else _shown(value)
        print(f"{name.replace('_', ' ')}: {shown}")
    if verdict:
        print(verdict)


def _shown(value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    return f"{value:.4g}" if abs(value) < 1000 else f"{value:.0f}"


def peak_mib() -> float:
    """What this process held at most, ever."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1 << 20) if sys.platform == "darwin" else peak / (1 << 10)  # bytes there, KiB elsewhere
