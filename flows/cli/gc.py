"""`posttrain gc`: drop what nothing needs."""

from typing import Annotated

import typer

from flows.cli import options
from flows.cli.console import out, print_json, say
from flows.cli.words import short


def gc(
    delete: Annotated[bool, typer.Option("--delete", help="Remove it; without this, only list it.")] = False,
    as_json: options.Json = False,
) -> None:
    """List, or with --delete remove, what no recorded run needs.

    That is: results superseded by a forced rerun, results that no run uses, unfinished work of no run. To let
    go of a run, remove its folder below POSTTRAIN_HOME/runs first.
    """
    from tasks.garbage import garbage, remove
    from tasks.store.home import Home

    home = Home.from_environment()
    pieces = list(garbage(home))
    gone = [piece for piece in pieces if delete and remove(home, piece)]
    if as_json:
        found = [{**piece.model_dump(mode="json"), "removed": piece in gone} for piece in pieces]
        print_json(found)
        return
    for piece in pieces:
        size = f"{piece.bytes / 1e6:8.1f} MB"
        out().print(f"{size}  {piece.stage} {short(piece.key)}  {piece.why}", markup=False)
    total = sum(piece.bytes for piece in (gone if delete else pieces)) / 1e6
    if delete:
        say(f"{len(gone)} of {len(pieces)} removed, {total:.1f} MB")
    elif pieces:
        say(f"{total:.1f} MB can go: `posttrain gc --delete`")
    else:
        say("nothing to remove")
