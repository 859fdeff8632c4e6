"""`posttrain`: the commands in groups, and one sentence with an exit code for whatever goes wrong."""

import sys
import warnings
from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperGroup

from flows.cli import (
    cancel,
    data,
    doctor,
    evaluate,
    gc,
    lineage,
    logs,
    plan,
    report,
    resume,
    run,
    sample,
    servers,
    status,
)
from flows.cli.failures import exit_for
from tasks.servers.settings import apply, prefect_settings
from tasks.store.home import Home

RUNS, MODELS, DATA, MACHINE = "Runs", "Models", "Lineage and data", "This machine"

EPILOG = (
    "Everything lives in POSTTRAIN_HOME (default: .posttrain in the working folder). "
    "Exit codes: 0 ok, 2 usage, 3 contract breached, 4 audit mismatch, 75 stopped and resumable."
)


class Commands(TyperGroup):
    """Turns every failure of a command into a sentence and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (typer.Exit, typer.Abort):
            raise
        except (Exception, KeyboardInterrupt) as failure:
            if hasattr(failure, "format_message"):  # click's own: an unknown option, a missing argument
                raise
            exit_for(failure)


app = typer.Typer(
    name="posttrain",
    cls=Commands,
    help="Post-train language models as a pipeline of stages that can be resumed, checked and traced back.",
    epilog=EPILOG,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode="rich",
)
PANELS: dict[str, list[Callable[..., None]]] = {
    RUNS: [run.run, plan.plan, status.status, resume.resume, cancel.cancel, logs.logs, report.report],
    MODELS: [sample.sample, evaluate.evaluate],
    MACHINE: [servers.up, servers.down, doctor.doctor, gc.gc],
}
for panel, commands in PANELS.items():
    for command in commands:
        app.command(rich_help_panel=panel)(command)
app.add_typer(lineage.app, name="lineage", rich_help_panel=DATA)
app.add_typer(data.app, name="data", rich_help_panel=DATA)


def main() -> None:
    apply(prefect_settings(Home.from_environment()))  # before any command imports Prefect
    # a command that stores nothing leaves no folder behind, and Prefect cannot make its own below none
    warnings.filterwarnings("ignore", message="Failed to create the Prefect home directory")
    sys.exit(app())


if __name__ == "__main__":
    main()
