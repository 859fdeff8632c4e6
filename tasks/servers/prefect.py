"""The Prefect server that a run talks to: the one named, else that of `posttrain up`, else a private one.

A private server is our own child over the home's SQLite file. It is started before anything slow, because
it needs seconds (more on the first run of a home, which creates the database), and ended only when every
event of the run is in that database.
"""

import fcntl
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from tasks.servers import child, local
from tasks.servers.settings import PATIENCE_S, apply, prefect_settings, server_environment
from tasks.store.home import Home

API_URL = "PREFECT_API_URL"
FLUSH_S = 30.0


@dataclass
class RunServer:
    """Where a run's flow reports to. `private` is None when somebody else owns the server."""

    api_url: str
    origin: str
    private: child.Server | None = None
    starting: IO[str] | None = field(default=None, repr=False)

    def wait(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Return when the server answers. Raises ServerFailed if it does not."""
        health = f"{self.api_url}/health"
        if self.private is None:
            if not child.answers(health, timeout_s=10):
                raise child.ServerFailed(
                    f"the Prefect server at {self.api_url} ({self.origin}) does not answer: start it, "
                    f"or unset {API_URL} to have a private one started"
                )
            return
        child.wait_until_it_answers(self.private, health, PATIENCE_S, meanwhile)
        self._others_may_start()

    def stop(self) -> None:
        """Send what this process still holds, and end a private server once it has stored it."""
        _flush_events_and_logs()
        self._others_may_start()
        if self.private is not None:
            child.stop(self.private)
            self.private = None

    def _others_may_start(self) -> None:
        if self.starting is not None:
            self.starting.close()
            self.starting = None


def for_run(home: Home) -> RunServer:
    """Choose, and if need be start, the server; returns at once. Call it before Prefect is imported."""
    if url := os.environ.get(API_URL):
        server = RunServer(url.rstrip("/"), f"{API_URL} of the environment")
    elif up := local.alive(home, local.PREFECT):
        server = RunServer(f"{up.url}/api", "that of `posttrain up`")
    else:
        server = private(home)
    apply({**prefect_settings(home), API_URL: server.api_url})
    return server


def private(home: Home) -> RunServer:
    """Two runs that create the database at once would clash, so starts are taken in turn."""
    home.prefect.mkdir(parents=True, exist_ok=True)
    starting = (home.prefect / "start.lock").open("w")
    fcntl.flock(starting, fcntl.LOCK_EX)
    port = child.free_port()
    server = child.start(
        "the private Prefect server",
        [
            *(sys.executable, "-m", "uvicorn", "--factory", "prefect.server.api.server:create_app"),
            *("--host", child.LOCALHOST, "--port", str(port), "--log-level", "warning"),
            *("--timeout-graceful-shutdown", "5", "--timeout-keep-alive", "30"),
        ],
        url=f"http://{child.LOCALHOST}:{port}",
        log=log_file(home),
        environment={
            **server_environment(home),
            "PREFECT__SERVER_EPHEMERAL": "1",  # only the services that record what a run sends
            "PREFECT_SERVER_UI_ENABLED": "false",
        },
    )
    return RunServer(f"{server.url}/api", "private to this run", server, starting)


def log_file(home: Home) -> Path:
    return home.logs / "prefect-server.log"


def _flush_events_and_logs() -> None:
    """Task states travel as events through a queue in this process: leave none, print nothing at exit."""
    if "prefect" not in sys.modules:
        return
    from prefect.events.worker import EventsWorker
    from prefect.logging.handlers import APILogWorker

    EventsWorker.drain_all(timeout=FLUSH_S, at_exit=False)
    APILogWorker.drain_all(timeout=FLUSH_S, at_exit=False)
