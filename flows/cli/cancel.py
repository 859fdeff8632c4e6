"""`posttrain cancel`: stop a run at its next step boundary."""

import os
import signal
import socket
import time
from typing import Annotated

import typer

from flows.cli import options
from flows.cli.chosen import chosen_run
from flows.cli.console import say

POLL_S = 0.1


def cancel(
    run_id: options.RunId = None,
    last: options.Last = False,
    wait_s: Annotated[
        float, typer.Option("--wait", metavar="SECONDS", min=0, help="How long to wait for it to stop.")
    ] = 120.0,
) -> None:
    """Ask a run to stop at its next step boundary, and wait until it has. It can be resumed."""
    from stages.errors import PosttrainError, UsageError
    from tasks.store.home import Home

    run = chosen_run(Home.from_environment(), run_id, last, "cancel")
    owner = run.owner()
    if owner is None:
        raise UsageError(f"run {run.id} is not running: it is {run.state()}")
    if owner.host != socket.gethostname():
        raise UsageError(f"run {run.id} is worked on by {owner}: cancel it on that machine")
    os.kill(owner.pid, signal.SIGTERM)
    say(f"asked process {owner.pid} to stop at its next step boundary")
    deadline = time.monotonic() + wait_s
    while run.owner() is not None:
        if time.monotonic() > deadline:
            raise PosttrainError(
                f"run {run.id} has not stopped within {wait_s:g} s, its step is long: "
                f"`posttrain status {run.id}` tells when it has"
            )
        time.sleep(POLL_S)
    say(f"run {run.id} is {run.state()}; go on with `posttrain resume {run.id}`")
