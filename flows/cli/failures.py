"""One sentence and an exit code for every failure that a user meets; a log for the ones that are bugs."""

import traceback
from datetime import datetime
from typing import NoReturn

import typer
from pydantic import ValidationError

from data_contracts.breach import ContractBreach
from flows.cli.console import say
from stages.errors import ExitCode, PosttrainError, StageStopped

INTERRUPTED = 130


def exit_for(failure: BaseException) -> NoReturn:
    """Say what failed and end with its exit code."""
    if isinstance(failure, StageStopped):
        say(str(failure))
        raise typer.Exit(int(failure.exit_code)) from None
    if isinstance(failure, (PosttrainError, ContractBreach)):
        say(f"error: {failure}")
        raise typer.Exit(int(failure.exit_code)) from None
    if isinstance(failure, ValidationError):
        first = failure.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        say(f"error: {failure.title}: {where + ': ' if where else ''}{first['msg']}")
        raise typer.Exit(int(ExitCode.USAGE)) from None
    if isinstance(failure, KeyboardInterrupt):
        say("interrupted")
        raise typer.Exit(INTERRUPTED) from None
    say(f"error: {type(failure).__name__}: {failure}")
    say(f"this is a fault of posttrain; the traceback is in {_keep(failure)}")
    raise typer.Exit(int(ExitCode.FAILED)) from None


def _keep(failure: BaseException) -> str:
    from tasks.store.home import Home

    log = Home.from_environment().logs / f"fault-{datetime.now():%Y%m%d-%H%M%S}.log"
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text("".join(traceback.format_exception(failure)))
    except OSError:
        traceback.print_exception(failure)
        return "the lines above"
    return str(log)
