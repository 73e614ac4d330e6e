"""Which tables a command writes."""

from __future__ import annotations

from stepformer.errors import InputError
from stepformer.evaluation.tables import Table
from stepformer.reproduce.comparisons import comparison_table
from stepformer.reproduce.results import Results
from stepformer.reproduce.tables import TABLE3_ROWS, TABLE4_ROWS, ablation_table, data_table


def render(results: Results, table: str) -> dict[str, Table]:
    """The tables of one name, by file name."""
    if table not in results.plans:
        raise InputError(f"the results hold nothing for {table}; run: stepformer reproduce {table}")
    facts = results.facts.get(table, {})
    test = facts.get("datasets", {}).get("test", "test")
    where = {"crosstask": "CrossTask validation", "grammar": "grammar tasks"}.get(test, test)
    where = f"real features of {test}" if facts.get("features") else f"simulated {where}"
    if table == "table3":
        title = f"Table 3: ablation and controls, {where}"
        return {table: ablation_table(results, table, TABLE3_ROWS, title)}
    if table == "table4":
        title = f"Table 4: slots and layers of the default preset, {where}"
        return {table: ablation_table(results, table, TABLE4_ROWS, title)}
    if table == "data":
        return {table: data_table(results, f"Training data of the default preset, {where}")}
    return {table: comparison_table(results, table)}
