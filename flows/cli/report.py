"""`posttrain report`: one self-contained HTML page about a run."""

from flows.cli import options
from flows.cli.chosen import chosen_run
from flows.cli.console import out


def report(run_id: options.RunId = None, last: options.Last = False) -> None:
    """Write the page of a run and print its path: curves, the capability matrix, rollouts to read."""
    from tasks.report import write
    from tasks.store.home import Home

    home = Home.from_environment()
    out().print(str(write(home, chosen_run(home, run_id, last, "report").id)), markup=False)
