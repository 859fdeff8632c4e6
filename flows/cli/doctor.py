"""`posttrain doctor`: is this machine fit for a run?"""

from typing import TYPE_CHECKING

import typer

from flows.cli import options
from flows.cli.console import out, print_json

if TYPE_CHECKING:
    from rich.table import Table

    from tasks.diagnosis import Finding

COLOURS = {"ok": "green", "note": "yellow", "fault": "red"}


def doctor(as_json: options.Json = False) -> None:
    """Look at Python, packages, disk, memory, locks, git and servers; ends with code 1 if one is at fault."""
    from flows.recipe import cuda_is_there
    from tasks.diagnosis import Level, diagnose
    from tasks.store.home import Home

    findings = list(diagnose(Home.from_environment(), cuda_is_there()))
    if as_json:
        print_json([finding.model_dump(mode="json") for finding in findings])
    else:
        out().print(_table(findings))
    if any(finding.level is Level.FAULT for finding in findings):
        raise typer.Exit(1)


def _table(findings: "list[Finding]") -> "Table":
    from rich.table import Table

    table = Table(box=None, pad_edge=False, show_header=False)
    for finding in findings:
        table.add_row(
            f"[{COLOURS[finding.level]}]{finding.level}[/]", finding.what, finding.seen, finding.advice
        )
    return table
