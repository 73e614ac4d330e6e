"""The results file: every finished run of a folder, and which runs each table is made of."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stepformer.base.files import write_json
from stepformer.errors import InputError
from stepformer.reproduce.runs import Run

FORMAT = "stepformer-results-1"
NAME = "results.json"


@dataclass(slots=True)
class Results:
    """runs: id -> result of a run; plans: table -> name of a run -> seed -> id; facts: of the data, for captions."""

    runs: dict[str, dict[str, Any]] = field(default_factory=dict)
    plans: dict[str, dict[str, dict[str, str]]] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)

    def plan(self, table: str, runs: Iterable[Run]) -> None:
        """Says which runs a table is made of."""
        self.plans[table] = {}
        for run in runs:
            self.plans[table].setdefault(run.name, {})[str(run.seed)] = run.id

    def of(self, table: str, name: str) -> list[dict[str, Any]]:
        """The finished runs of one name in a table, in order of seed."""
        ids = self.plans.get(table, {}).get(name, {})
        return [self.runs[ids[seed]] for seed in sorted(ids, key=int) if ids[seed] in self.runs]

    def missing(self, table: str) -> list[str]:
        """``name, seed n`` of what a table still lacks."""
        plan = self.plans.get(table, {})
        return [f"{n}, seed {s}" for n, seeds in plan.items() for s, i in seeds.items() if i not in self.runs]

    def merge(self, other: Results) -> None:
        """Takes over what another file has; its plans and facts count only where there are none here."""
        self.runs = {**other.runs, **self.runs}
        self.plans = {**other.plans, **self.plans}
        self.facts = {**other.facts, **self.facts}

    def save(self, folder: Path) -> None:
        """Writes ``results.json``."""
        write_json(
            folder / NAME,
            {"format": FORMAT, "facts": self.facts, "plans": self.plans, "runs": self.runs},
            indent=1,
        )


def read_results(path: str | Path) -> Results:
    """The results in a file, or in a folder's ``results.json``."""
    path = Path(path)
    file = path / NAME if path.is_dir() else path
    try:
        values: Mapping[str, Any] = json.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        raise InputError(f"there is no results file {file}; run the table first, without --render") from None
    except (ValueError, OSError) as error:
        raise InputError(f"{file} is not a results file: {error}") from None
    if not isinstance(values, dict) or values.get("format") != FORMAT:
        raise InputError(f"{file} is not a results file of this version")
    return Results(dict(values["runs"]), dict(values["plans"]), dict(values["facts"]))


def results_in(folder: Path) -> Results:
    """The results of a folder, empty where there is no file yet."""
    return read_results(folder) if (folder / NAME).exists() else Results()
