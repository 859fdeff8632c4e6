"""The end of a run: what each checkpoint can do on held-out questions, and what was promoted or why not."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tasks.report.material import Material
from tasks.report.numbers import Estimate, ResultTable, result_tables, splits

if TYPE_CHECKING:
    from rich.table import Table


def results(material: Material) -> dict[str, Any]:
    """The numbers of the run for scripts: means and standard errors by split, checkpoint and metric."""
    summaries = material.summaries
    return {
        "metrics": {
            split: {
                name: summary["scopes"][split]["metrics"]
                for name, summary in summaries.items()
                if split in summary["scopes"]
            }
            for split in splits(summaries)
        },
        "decision": material.decision,
    }


def tables(summaries: Mapping[str, dict[str, Any]]) -> "list[Table]":
    """One table a split: a row for each checkpoint, mean ± standard error over prompts."""
    return [_table(found) for found in result_tables(summaries)]


def _table(found: ResultTable) -> "Table":
    from rich.table import Table

    title = f"{found.split}: {found.prompts} held-out questions, {found.ambiguous} of them ambiguous"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    table.add_column("checkpoint")
    for column in found.columns:
        table.add_column(column, justify="right")
    for name, estimates in found.rows.items():
        table.add_row(name, *map(cell, estimates))
    return table


def cell(estimate: Estimate) -> str:
    """mean ± standard error."""
    return f"{estimate.text} {estimate.spread}".strip()


def verdict_lines(found: dict[str, Any] | None) -> list[str]:
    """What was promoted, or every gate that did not hold with its numbers."""
    if found is None:
        return []
    gates = found["gates"]
    if found["promoted"]:
        return [f"promoted: all {len(gates)} gates hold"]
    broken = [gate for gate in gates if not gate["holds"]]
    return [
        f"not promoted: {len(broken)} of {len(gates)} gates do not hold",
        *(f"  {gate['name']}: {gate['sentence']}" for gate in broken),
    ]
