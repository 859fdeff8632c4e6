"""`posttrain` as a user meets it: real processes, one home and one Prefect server for most tests here.

A home's first Prefect server creates its database, which takes ten seconds and more. So all tests share a
home and differ by seed.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tasks import runs
from tasks.runs import Run
from tasks.servers.prefect import private
from tasks.store.home import Home

PROJECT = Path(__file__).parents[2]
FLOW = "toy_flows.counting"


class Posttrain:
    """Calls `posttrain` with a home of its own. `variables` are set in every call."""

    def __init__(self, home: Path, **variables: str) -> None:
        self.home = home
        self.variables = variables
        self.started: list[subprocess.Popen[str]] = []

    def environment(self, **extra: str) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT")}
        path = os.pathsep.join([str(PROJECT), str(PROJECT / "tests" / "user")])
        ours = {"PYTHONPATH": path, "POSTTRAIN_HOME": str(self.home), "CUDA_VISIBLE_DEVICES": ""}
        return {**inherited, **ours, **self.variables, **extra}

    def start(self, *arguments: str, **environment: str) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [sys.executable, "-m", "flows.cli.main", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.home.parent,
            env=self.environment(**environment),
        )
        self.started.append(process)
        return process

    def __call__(self, *arguments: str, expect: int = 0, **environment: str) -> tuple[str, str]:
        """stdout and stderr of a call that must end with the code `expect`."""
        process = self.start(*arguments, **environment)
        out, err = process.communicate(timeout=180)
        assert process.returncode == expect, f"{arguments} ended with {process.returncode}:\n{out}\n{err}"
        assert "Traceback" not in out + err
        return out, err

    def json(self, *arguments: str, **environment: str) -> Any:
        return json.loads(self(*arguments, "--json", **environment)[0])

    def run_of(self, process: "subprocess.Popen[str]", at_step: int = 1) -> Run:
        """The run that a started process works on, once one of its nodes has come to a step."""
        deadline = time.monotonic() + 90
        while time.monotonic() < deadline:
            for run in reversed(runs.every(Home(self.home))):
                owner = run.owner()
                if owner and owner.pid == process.pid and any((n.step or 0) >= at_step for n in run.nodes()):
                    return run
            if process.poll() is not None:
                raise AssertionError(f"it ended with {process.returncode}: {process.communicate()}")
            time.sleep(0.05)
        raise AssertionError("it did not come to a step")

    def kill_all(self) -> None:
        for process in self.started:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            process.communicate()


@pytest.fixture(scope="session")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("work")


@pytest.fixture(scope="session")
def posttrain(work: Path) -> Iterator[Posttrain]:
    """Runs report to a server that is there; it is the first of this home."""
    server = private(Home(work / "home"))
    server.wait()
    found = Posttrain(work / "home", PREFECT_API_URL=server.api_url)
    yield found
    found.kill_all()
    server.stop()


@pytest.fixture(scope="session")
def finished(posttrain: Posttrain) -> dict[str, Any]:
    """A finished run of seed 1, as `run --json` tells it."""
    found: dict[str, Any] = posttrain.json("run", FLOW, "--set", "seed=1")
    return found


@pytest.fixture(scope="session")
def alone(posttrain: Posttrain) -> Iterator[Posttrain]:
    """The same home; each run starts its private Prefect server."""
    found = Posttrain(posttrain.home)
    yield found
    found.kill_all()


@pytest.fixture
def until() -> Callable[[Callable[[], object]], None]:
    def wait(condition: Callable[[], object], patience_s: float = 60.0) -> None:
        deadline = time.monotonic() + patience_s
        while not condition():
            assert time.monotonic() < deadline, "it did not come about"
            time.sleep(0.02)

    return wait
