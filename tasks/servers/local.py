"""`posttrain up` and `down`: a Prefect server and MLflow over the home's SQLite files, left running.

`servers.json` records who was started, by process id and start time, so that `down` ends just these.
"""

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from data_contracts.durable import write_atomic
from tasks.servers import child
from tasks.servers.settings import PATIENCE_S, server_environment
from tasks.store.home import Home

PREFECT, MLFLOW = "prefect", "mlflow"
DEFAULT_PORTS = {PREFECT: 4200, MLFLOW: 5000}
HEALTH = {PREFECT: "/api/health", MLFLOW: "/health"}
TITLES = {PREFECT: "Prefect", MLFLOW: "MLflow"}


class Running(BaseModel):
    """A server that outlives its command; `born` tells it from a later process with the same id."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    url: str
    pid: int
    born: int
    log: Path

    @property
    def exists(self) -> bool:
        return born(self.pid) == self.born


_RECORDS = TypeAdapter(dict[str, Running])


def born(pid: int) -> int | None:
    """Clock ticks from the machine's boot to the start of `pid`; None if it is gone or a zombie (Linux)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def records(home: Home) -> dict[str, Running]:
    """What `up` recorded and still exists."""
    try:
        recorded = _RECORDS.validate_json(_file(home).read_bytes())
    except (FileNotFoundError, ValidationError):
        return {}
    return {name: running for name, running in recorded.items() if running.exists}


def alive(home: Home, name: str) -> Running | None:
    """The server `name` of `up`, if it exists and answers."""
    running = records(home).get(name)
    return running if running and child.answers(running.url + HEALTH[name]) else None


def up(home: Home, tell: Callable[[str], None]) -> dict[str, Running]:
    """Start what is not running, wait until both answer, record them.

    Raises ServerFailed, after ending what it started, if one does not come up.
    """
    found = {name: running for name in DEFAULT_PORTS if (running := alive(home, name))}
    for name in found:
        tell(f"{TITLES[name]} is already up")
    started = {name: _start(home, name) for name in DEFAULT_PORTS if name not in found}
    try:
        for name, server in started.items():
            tell(f"starting {TITLES[name]} at {server.url}")
            child.wait_until_it_answers(server, server.url + HEALTH[name], PATIENCE_S)
    except BaseException:
        for server in started.values():
            child.stop(server)
        raise
    for name, server in started.items():
        pid = server.process.pid
        found[name] = Running(name=name, url=server.url, pid=pid, born=born(pid) or 0, log=server.log)
        server.process.returncode = 0  # it outlives us on purpose: no ResourceWarning for a child left behind
    write_atomic(_file(home), _RECORDS.dump_json(found, indent=2).decode())
    return found


def down(home: Home) -> list[Running]:
    """End the servers that `up` recorded, and no others; returns those that were there."""
    ended = list(records(home).values())
    for running in ended:
        os.killpg(running.pid, signal.SIGTERM)
    deadline = time.monotonic() + child.STOP_S
    for running in ended:
        while running.exists and time.monotonic() < deadline:
            time.sleep(child.POLL_S)
        try:
            os.killpg(running.pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    _file(home).unlink(missing_ok=True)
    return ended


def _start(home: Home, name: str) -> child.Server:
    port = child.free_port(DEFAULT_PORTS[name])
    folder = home.prefect if name == PREFECT else home.mlflow
    folder.mkdir(parents=True, exist_ok=True)
    return child.start(
        TITLES[name],
        _prefect_argv(port) if name == PREFECT else _mlflow_argv(home, port),
        url=f"http://{child.LOCALHOST}:{port}",
        log=home.logs / f"{name}.log",
        environment=server_environment(home),
        outlives_us=True,
    )


def _prefect_argv(port: int) -> list[str]:
    return [
        *(sys.executable, "-m", "prefect", "server", "start"),
        *("--host", child.LOCALHOST, "--port", str(port)),
    ]


def _mlflow_argv(home: Home, port: int) -> list[str]:
    """One worker: MLflow's server takes 0.8 GB each."""
    return [
        *(sys.executable, "-m", "mlflow", "server", "--host", child.LOCALHOST, "--port", str(port)),
        *("--backend-store-uri", f"sqlite:///{home.mlflow.resolve() / 'mlflow.db'}"),
        *("--artifacts-destination", str(home.mlflow.resolve() / "artifacts"), "--workers", "1"),
    ]


def _file(home: Home) -> Path:
    return home.root / "servers.json"
