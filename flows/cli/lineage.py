"""`posttrain lineage`: where a model came from, how two differ, and the copy of it all in MLflow."""

from typing import Annotated

import typer

from flows.cli import options
from flows.cli.console import out, print_json

app = typer.Typer(
    help="Where a model came from: audit, diff, and sync to MLflow.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)
TARGET = "MODEL[@alias], a folder, a digest (sha256:...), RUN or RUN/NODE."


@app.command()
def audit(
    target: Annotated[str, typer.Argument(metavar="TARGET", help=TARGET)],
    verify: Annotated[bool, typer.Option("--verify", help="Re-hash everything on the way back.")] = False,
    as_json: options.Json = False,
) -> None:
    """Walk back to the base, prompts, archive, database, recipe and commit that something was made from.

    With --verify every file is hashed again; a byte that differs ends with exit code 4 and names the file.
    """
    from tasks.lineage.audit import audit as walk_back
    from tasks.store.home import Home

    found = walk_back(Home.from_environment(), target, verify)
    if as_json:
        print_json(found.to_json())
    else:
        out().print(found.tree())


@app.command()
def diff(
    a: Annotated[str, typer.Argument(metavar="A", help=TARGET)],
    b: Annotated[str, typer.Argument(metavar="B", help=TARGET)],
    as_json: options.Json = False,
) -> None:
    """Name the first ancestor in which two things differ, and in what."""
    from tasks.lineage.audit import diff as compare
    from tasks.store.home import Home

    found = compare(Home.from_environment(), a, b)
    if as_json:
        print_json(found.model_dump(mode="json"))
        return
    for line in found.lines():
        out().print(line, markup=False)


@app.command()
def sync(as_json: options.Json = False) -> None:
    """Fill MLflow from the store's manifests; what is there already is left alone."""
    from tasks.lineage.project import sync as project
    from tasks.store.home import Home

    count = project(Home.from_environment())
    if as_json:
        print_json(count.model_dump())
    else:
        out().print(f"{count.created} results written to MLflow, {count.present} were there", markup=False)
