"""`posttrain data`: check a dataset or a checkpoint against its contract; take data out of the store."""

from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from flows.cli import options
from flows.cli.console import out, print_json

app = typer.Typer(
    help="Check data against its contract; export it.", no_args_is_help=True, rich_markup_mode="rich"
)
CHECKPOINT = "checkpoint"


@app.command()
def check(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="The folder of a dataset or a checkpoint.")],
    contract: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--contract",
            metavar="NAME",
            help="Such as rollouts/1, or checkpoint. Without it: the one that the data names.",
        ),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Check data against its contract: schema, metadata, Arrow rules and expectations.

    A breach ends with exit code 3 and names column, expectation and up to three rows.
    """
    from data_contracts.breach import ContractBreach
    from stages.errors import UsageError

    if not path.is_dir():
        raise UsageError(f"{path} is not a folder: name the folder of a dataset or of a checkpoint")
    name = contract or _named_in(path)
    found = _check(path, name)
    if as_json:
        print_json(found.to_json())
    if found.critical:
        raise ContractBreach(name, found.critical)
    if not as_json:
        for warning in found.warnings:
            out().print(f"warning: {warning}", style="yellow", markup=False)
        rows = f", {found.rows} rows" if found.rows is not None else ""
        out().print(f"{path} keeps {name}{rows}", markup=False)


def _check(path: Path, contract: str) -> Any:
    from tasks.contracts.boundary import check_checkpoint, check_dataset

    return check_checkpoint(path) if contract == CHECKPOINT else check_dataset(path, contract)


def _named_in(path: Path) -> str:
    from data_contracts import dataset
    from data_contracts.contract import Key

    if (path / "config.json").is_file():
        return CHECKPOINT
    return dataset.metadata(path).get(Key.CONTRACT, "")


@app.command()
def export(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="The folder of a dataset.")],
    to: Annotated[Path, typer.Argument(metavar="FILE", help="What to write: FILE.parquet or FILE.jsonl.")],
) -> None:
    """Write a dataset as Parquet or JSON lines, for other tools. The contract is checked on the way."""
    from tasks.export import export as write

    rows = write(path, to)
    out().print(f"{rows} rows written to {to}", markup=False)
