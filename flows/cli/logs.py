"""`posttrain logs`: what the process of a stage printed."""

from typing import Annotated, Optional

import typer

from flows.cli import options
from flows.cli.chosen import chosen_run
from flows.cli.console import say


def logs(
    run_id: options.RunId = None,
    node: Annotated[
        Optional[str],  # noqa: UP045
        typer.Argument(metavar="[STAGE]", help="A node of the run; without it, all of them in order."),
    ] = None,
    last: options.Last = False,
) -> None:
    """Print the logs of a run's stages, or of one: `posttrain logs RUN rl`, `posttrain logs --last rl`."""
    from stages.errors import UsageError
    from tasks.store.home import Home

    home = Home.from_environment()
    if last and node is None:  # with --last, the one name given is the node's
        run_id, node = None, run_id
    run = chosen_run(home, run_id, last, "logs")
    nodes = run.nodes()
    if node is not None and node not in (known := [record.node for record in nodes]):
        raise UsageError(f"run {run.id} has no node {node!r}: choose one of {', '.join(known)}")
    for record in nodes:
        if node not in (None, record.node):
            continue
        log = run.log(record)
        if log is None:
            if node is not None:
                say(f"{record.node} has no log yet: it is {record.state}")
            continue
        if node is None:
            typer.echo(f"--- {record.node} ({record.state}): {log}")
        typer.echo(log.read_text(errors="replace").rstrip("\n"))
