"""Arguments and options that several commands share, with the words of their help."""

from pathlib import Path
from typing import Annotated, Optional

import typer

FlowName = Annotated[str, typer.Argument(metavar="FLOW", help="The flow, such as text2sql.")]
Profile = Annotated[
    Optional[str],  # noqa: UP045  typer reads the annotation at run time
    typer.Option(
        "--profile",
        metavar="NAME",
        help="Sizes and runtime: cpu, ci or gpu. Without it: gpu if CUDA is there, else cpu.",
    ),
]
RecipeFile = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option("--recipe", metavar="FILE", help="A YAML file over the built-in recipe and the profile."),
]
Settings = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option("--set", metavar="KEY=VALUE", help="One value over all else, such as rl.steps=200."),
]
FromNode = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--from", metavar="NODE", help="Run this node and everything after it again."),
]
ForceNode = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option("--force", metavar="NODE", help="Run this node again, even if its result is stored."),
]
WaitForBusy = Annotated[
    float,
    typer.Option(
        "--wait", metavar="SECONDS", min=0, help="How long to wait for a stage that another run is making."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout, for scripts.")]
Last = Annotated[bool, typer.Option("--last", help="The most recent run of a flow.")]
RunId = Annotated[
    Optional[str],  # noqa: UP045
    typer.Argument(metavar="[RUN]", help="A run's id, or a beginning of it that fits only one."),
]
Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL", help="NAME, NAME@alias, a digest (sha256:...), a folder, or a node of the last run."
    ),
]
OfFlow = Annotated[str, typer.Option("--flow", metavar="FLOW", help="The flow whose recipe is meant.")]
