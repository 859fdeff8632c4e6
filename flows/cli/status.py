"""`posttrain status`: the runs of this home, or the nodes of one."""

from datetime import datetime
from typing import TYPE_CHECKING, Any

from flows.cli import options
from flows.cli.chosen import chosen_run
from flows.cli.console import out, print_json
from flows.cli.words import COLOURS, local_time, seconds, short
from tasks.runs import NodeRecord, Run, RunState, every

if TYPE_CHECKING:
    from rich.table import Table

SHOWN_RUNS = 20


def status(run_id: options.RunId = None, last: options.Last = False, as_json: options.Json = False) -> None:
    """Show a run node by node; without RUN, list the runs.

    A node whose process is gone is shown as crashed, whatever its record says; `posttrain resume` goes on
    from its last saved step.
    """
    from tasks.store.home import Home

    home = Home.from_environment()
    if run_id is None and not last:
        runs = every(home)
        if as_json:
            print_json([_summary(run) for run in runs])
        elif runs:
            out().print(_runs_table(runs[-SHOWN_RUNS:]))
        else:
            out().print(f"no run in {home.root} yet; start one with `posttrain run text2sql`", markup=False)
        return
    run = chosen_run(home, run_id, last, "status")
    if as_json:
        print_json(run_as_json(run))
        return
    out().print(_nodes_table(run))
    if record := run.record().message:
        out().print(record, markup=False)


def run_as_json(run: Run) -> dict[str, Any]:
    """A run for scripts: its summary and `stages`, one object a node in the order of the flow."""
    return {**_summary(run), "stages": [_stage(node) for node in run.nodes()]}


def _summary(run: Run) -> dict[str, Any]:
    record = run.record()
    owner = run.owner()
    return {
        "run": run.id,
        "flow": record.flow,
        "profile": record.profile,
        "state": run.state(),
        "pid": owner.pid if owner else None,
        "started": record.started.isoformat(),
        "ended": record.ended.isoformat() if record.ended else None,
        "message": record.message,
    }


def _stage(node: NodeRecord) -> dict[str, Any]:
    return node.model_dump(
        mode="json",
        include={
            *("stage", "node", "key", "digest", "state", "attempts", "seconds"),
            *("step", "total", "message"),
        },
    )


def _runs_table(runs: list[Run]) -> "Table":
    from rich.table import Table

    table = Table("run", "flow", "profile", "state", "started", "took", box=None, pad_edge=False)
    table.add_column("message", no_wrap=True, overflow="ellipsis")
    for run in runs:
        record, state = run.record(), run.state()
        took = ((record.ended or datetime.now(record.started.tzinfo)) - record.started).total_seconds()
        table.add_row(
            run.id,
            record.flow,
            record.profile or "",
            f"[{COLOURS[state]}]{state}[/]",
            local_time(record.started),
            seconds(took) if record.ended or state is RunState.RUNNING else "",
            record.message,
        )
    return table


def _nodes_table(run: Run) -> "Table":
    from rich.table import Table

    table = Table(
        "node", "stage", "state", "step", "attempts", "time", "key", "digest", "", box=None, pad_edge=False
    )
    table.title = f"{run.id}: {run.state()}"
    table.title_justify = "left"
    for node in run.nodes():
        table.add_row(
            node.node,
            node.stage,
            f"[{COLOURS[node.state]}]{node.state}[/]",
            f"{node.step}/{node.total}" if node.total else "",
            str(node.attempts or ""),
            seconds(node.seconds),
            short(node.key),
            short(node.digest),
            node.message,
        )
    return table
