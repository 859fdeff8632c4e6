"""`posttrain up` and `posttrain down`: Prefect's and MLflow's UIs on this machine."""

from flows.cli import options
from flows.cli.console import out, print_json, say


def up(as_json: options.Json = False) -> None:
    """Start a Prefect server and MLflow on this machine, for their UIs.

    Both keep their SQLite files in POSTTRAIN_HOME and run on until `posttrain down`. Runs started meanwhile
    report to this Prefect server.
    """
    from tasks.servers import local
    from tasks.store.home import Home

    home = Home.from_environment()
    running = local.up(home, say)
    if as_json:
        print_json({name: server.model_dump(mode="json") for name, server in running.items()})
        return
    for name, server in running.items():
        out().print(
            f"{local.TITLES[name]:8} {server.url}   (process {server.pid}, log {server.log})", markup=False
        )
    say("end them with `posttrain down`")


def down() -> None:
    """End the servers that `posttrain up` started, and no others."""
    from tasks.servers import local
    from tasks.store.home import Home

    ended = local.down(Home.from_environment())
    for server in ended:
        say(f"ended {local.TITLES[server.name]} (process {server.pid})")
    if not ended:
        say("nothing to end: no server of `posttrain up` is running")
